package sample_test

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/files"
	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/sample"
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/executor"
	"github.com/agentruntime/agentruntime/runtime/model/scripted"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
	"github.com/agentruntime/agentruntime/runtime/schema"
)

func TestMain(m *testing.M) {
	executor.Main()
	os.Exit(m.Run())
}

// version returns the sample's one version.
func version(t testing.TB) *handlers.Version {
	t.Helper()
	versions, err := sample.Set().Versions()
	if err != nil || len(versions) != 1 {
		t.Fatalf("%d versions, error %v", len(versions), err)
	}
	return &versions[0]
}

func compiled(t testing.TB, doc json.RawMessage) *schema.Schema {
	t.Helper()
	s, err := schema.Compile("sample", doc)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTheSampleIsOneAgentWithItsCapability(t *testing.T) {
	v := version(t)
	if err := v.Check(); err != nil {
		t.Error(err)
	}
	if v.Agent.Slug != sample.Agent || v.Agent.Model != "scripted/"+sample.Agent || len(v.Capabilities) != 1 ||
		v.Capabilities[0].Route.NATS.Subject != sample.Subject || v.Capabilities[0].Effect != events.EffectRead {
		t.Errorf("version %+v", v)
	}
}

// run runs the sample on a ticket, with the real model and the real
// executor, and returns the reply and what was asked of the capability.
func run(t *testing.T, ticket string, answer func(data []byte) ([]byte, error)) (*events.Reply, []runtimetest.Dispatch) {
	t.Helper()
	v := version(t)
	model, err := scripted.Parse(sample.Agent, sample.Script())
	if err != nil {
		t.Fatal(err)
	}
	scripts := &executor.Factory{Warm: -1}
	defer scripts.Close()
	h := runtimetest.NewHost(v.Agent)
	h.Input.Capabilities = v.Capabilities
	h.Input.Message = events.Text("task", events.RoleUser, ticket)
	h.Ports = func(in *runtime.Input) { in.Model, in.ExecutorFactory = model, scripts }
	h.Backend.Answer = func(_ context.Context, c *runtime.Callback) (json.RawMessage, error) { return answer(c.Input) }
	result, err := h.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Check(); err != nil {
		t.Error(err)
	}
	return result.Reply, h.Backend.Ledger()
}

func TestTheSampleCompletesWithAnOutputOfItsSchema(t *testing.T) {
	output := compiled(t, version(t).Agent.Output)
	for ticket, want := range map[string]string{
		sample.Ticket:                           `{"category":"outage","priority":1,"summary":"The checkout page has been down since 9:40."}`,
		"Please refund my invoice":              `{"category":"billing","priority":3,"summary":"Please refund my invoice"}`,
		"\"}); throw new Error('x') //\n`${1}`": `{"category":"other","priority":4,"summary":"\"}); throw new Error('x') //"}`,
		strings.Repeat("🙂", 300):                `{"category":"other","priority":4,"summary":"` + strings.Repeat("🙂", 200) + `"}`,
		"a\u2028b ${message} </script> \\":      `{"category":"other","priority":4,"summary":"a\u2028b ${message} </script> \\"}`,
	} {
		reply, ledger := run(t, ticket, sample.Serve)
		if reply.Kind != events.ReplyOutput || output.Validate(reply.Output) != nil || !equal(t, reply.Output, want) {
			t.Errorf("ticket %q: reply %s %s, want %s", ticket, reply.Kind, reply.Output, want)
		}
		var asked struct{ Text string }
		if len(ledger) != 1 || json.Unmarshal(ledger[0].Input, &asked) != nil || asked.Text != ticket {
			t.Errorf("ticket %q: asked %+v", ticket, ledger)
		}
	}
}

func equal(t testing.TB, a json.RawMessage, b string) bool {
	t.Helper()
	x, err := events.Canonical(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := events.Canonical([]byte(b))
	if err != nil {
		t.Fatal(err)
	}
	return string(x) == string(y)
}

func TestWithoutTheCapabilityTheSampleAsksInsteadOfFailing(t *testing.T) {
	reply, _ := run(t, sample.Ticket, func([]byte) ([]byte, error) { return nil, handlers.ErrNoService })
	if reply.Kind != events.ReplyNeedsInput || !strings.Contains(reply.Question, "tickets.classify") {
		t.Errorf("reply %+v", reply)
	}
}

func TestEveryAnswerOfTheServiceFitsTheCapability(t *testing.T) {
	c := version(t).Capabilities[0]
	input, output := compiled(t, c.Input), compiled(t, c.Output)
	words := rapid.SampledFrom([]string{"down", "invoice", "password", "feature", "urgent", "nobody", "it", "is", ".", "\n"})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOf(words).Draw(t, "words"), " ")
		})).Draw(t, "text")
		request, err := events.Marshal(map[string]string{"text": text})
		if err != nil {
			t.Fatal(err)
		}
		if err := input.Validate(request); err != nil {
			t.Fatalf("request %s: %v", request, err)
		}
		answer, err := sample.Serve(request)
		if err != nil {
			t.Fatal(err)
		}
		if err := output.Validate(answer); err != nil {
			t.Fatalf("answer %s: %v", answer, err)
		}
		if again, err := sample.Serve(request); err != nil || string(again) != string(answer) {
			t.Fatalf("first %s, then %s, error %v", answer, again, err)
		}
	})
}

func TestATicketIsClassifiedByItsWords(t *testing.T) {
	type answer struct {
		category string
		priority int
	}
	for text, want := range map[string]answer{
		"":                                {"other", 4},
		"Hello":                           {"other", 4},
		"URGENT: hello":                   {"other", 3},
		"The shop is down.":               {"outage", 2},
		"The download is slow":            {"other", 4},
		"It's down, and I want a refund!": {"outage", 2},
		"Nobody can log in: site offline": {"outage", 1},
		"I was charged twice":             {"billing", 3},
		"I was charged twice, help ASAP":  {"billing", 2},
		"I forgot my password":            {"account", 3},
		"An idea for a new feature":       {"feature", 4},
	} {
		category, priority := sample.Classify(text)
		if got := (answer{category, priority}); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestARequestWithoutATextIsRefused(t *testing.T) {
	for _, request := range []string{``, `null`, `{}`, `[]`, `"down"`, `{"text":1}`, `{"text":null}`} {
		if answer, err := sample.Serve([]byte(request)); err == nil {
			t.Errorf("%s: answered %s", request, answer)
		}
	}
}

func TestACopyOfTheSampleIsAFolderToBeginWith(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, sample.Files()); err != nil {
		t.Fatal(err)
	}
	set, err := files.Load(dir+"/agents", dir+"/capabilities")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample.Set().Agents, set.Agents); diff != "" {
		t.Errorf("agents (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(sample.Set().Capabilities, set.Capabilities); diff != "" {
		t.Errorf("capabilities (-want +got):\n%s", diff)
	}
	model, err := scripted.Load(dir + "/agents/" + sample.Agent + ".script.yaml")
	if err != nil || model == nil {
		t.Errorf("script: %v", err)
	}
}

func TestTheSampleIsTextThatPeopleCanRead(t *testing.T) {
	err := fs.WalkDir(sample.Files(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(sample.Files(), name)
		if err != nil {
			return err
		}
		if !utf8.Valid(data) || !strings.HasPrefix(string(data), "# ") {
			t.Errorf("%s does not begin with what it is", name)
		}
		for line := range strings.Lines(string(data)) {
			if utf8.RuneCountInString(line) > 130 {
				t.Errorf("%s: too long: %s", name, line)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
