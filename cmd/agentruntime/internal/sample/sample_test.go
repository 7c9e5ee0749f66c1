package sample_test

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"slices"
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

// version returns one of the sample's versions.
func version(t testing.TB, slug string) *handlers.Version {
	t.Helper()
	versions, err := sample.Set().Versions()
	if err != nil {
		t.Fatal(err)
	}
	for i := range versions {
		if versions[i].Agent.Slug == slug {
			return &versions[i]
		}
	}
	t.Fatalf("there is no agent %s", slug)
	return nil
}

func model(t testing.TB, slug string) *scripted.Model {
	t.Helper()
	m, err := scripted.Parse(slug, sample.Scripts()[slug])
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func compiled(t testing.TB, doc json.RawMessage) *schema.Schema {
	t.Helper()
	s, err := schema.Compile("sample", doc)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEveryAgentOfTheSampleIsRightAndHasItsScript(t *testing.T) {
	versions, err := sample.Set().Versions()
	if err != nil || len(versions) != 3 || len(sample.Scripts()) != 3 {
		t.Fatalf("%d versions, %d scripts, error %v", len(versions), len(sample.Scripts()), err)
	}
	for i := range versions {
		a := &versions[i].Agent
		if err := versions[i].Check(); err != nil {
			t.Error(err)
		}
		if model(t, a.Slug); a.Model != "scripted/"+a.Slug {
			t.Errorf("agent %s has the model %s", a.Slug, a.Model)
		}
	}
	if v := version(t, sample.Agent); len(v.Capabilities) != 1 || v.Capabilities[0].Route.NATS.Subject != sample.Subject || v.Capabilities[0].Effect != events.EffectRead {
		t.Errorf("version %+v", v)
	}
	if a := version(t, sample.Planner).Agent; !slices.Equal(a.Subagents, []string{"leg-booker"}) || a.Budget == nil {
		t.Errorf("agent %+v", a)
	}
}

func TestABookerBooksOrAsksAndThenBooks(t *testing.T) {
	scripts := &executor.Factory{Warm: -1}
	defer scripts.Close()
	v := version(t, "leg-booker")
	output := compiled(t, v.Agent.Output)
	for _, test := range []struct{ input, question, booked string }{
		{`{"leg":"train there","wish":"\"Lisbon\" to Porto\n` + "`${1}`" + `"}`, "", `{"leg":"train there","booked":"\"Lisbon\" to Porto\n` + "`${1}`" + `","euros":25}`},
		{"{\n \"leg\": \"hotel\",\n \"wish\": \"by the river\"\n}", "", `{"leg":"hotel","booked":"by the river","euros":164}`},
		{`{"leg":"hotel","wish":"Porto"}`, "Where in town should the hotel be?", `{"leg":"hotel","booked":"By the river","euros":164}`},
	} {
		if err := compiled(t, v.Agent.Input).Validate([]byte(test.input)); err != nil {
			t.Errorf("input %s: %v", test.input, err)
		}
		host := func(message string) *runtimetest.Host {
			h := runtimetest.NewHost(v.Agent)
			h.Input.Message = events.Text("message of "+message, events.RoleUser, message)
			h.Ports = func(in *runtime.Input) { in.Model, in.ExecutorFactory = model(t, "leg-booker"), scripts }
			return h
		}
		h := host("The task's input, as JSON:\n" + test.input)
		result, err := h.Run(t.Context())
		if err == nil && test.question != "" {
			if r := result.Reply; r.Kind != events.ReplyNeedsInput || r.Question != test.question {
				t.Errorf("input %s: reply %+v", test.input, r)
			}
			next := host("By the river")
			next.Store, next.Input.RunID = h.Store.NextRun(), "run-2"
			result, err = next.Run(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if r := result.Reply; r.Kind != events.ReplyOutput || output.Validate(r.Output) != nil || !equal(t, r.Output, test.booked) {
			t.Errorf("input %s: reply %s %s, want %s", test.input, r.Kind, r.Output, test.booked)
		}
	}
}

// run runs the sample on a ticket, with the real model and the real
// executor, and returns the reply and what was asked of the capability.
func run(t *testing.T, ticket string, answer func(data []byte) ([]byte, error)) (*events.Reply, []runtimetest.Dispatch) {
	t.Helper()
	v := version(t, sample.Agent)
	scripts := &executor.Factory{Warm: -1}
	defer scripts.Close()
	h := runtimetest.NewHost(v.Agent)
	h.Input.Capabilities = v.Capabilities
	h.Input.Message = events.Text("task", events.RoleUser, ticket)
	h.Ports = func(in *runtime.Input) { in.Model, in.ExecutorFactory = model(t, sample.Agent), scripts }
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
	output := compiled(t, version(t, sample.Agent).Agent.Output)
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
	c := version(t, sample.Agent).Capabilities[0]
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
	for name := range sample.Scripts() {
		if m, err := scripted.Load(dir + "/agents/" + name + ".script.yaml"); err != nil || m == nil {
			t.Errorf("script: %v", err)
		}
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
