package anthropic_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/anthropic"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wiretest"
)

// tb is what both kinds of tests report to.
type tb interface {
	Helper()
	Context() context.Context
	Fatal(args ...any)
}

// sent returns the body of the request that a model makes.
func sent(t tb, r *runtime.Request, change func(*anthropic.Config)) []byte {
	t.Helper()
	a := adapter(change)
	echo := &wiretest.Echo{Answer: a.Begun + a.Rest}
	m, err := a.New(wiretest.Config{Name: "claude-sonnet-5-5", HTTPClient: &http.Client{Transport: echo}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Generate(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return echo.Sent
}

func transcript() []events.Message {
	report := events.Part{Type: events.PartFile, File: &events.File{Ref: "sha256:ab12", MediaType: "application/pdf", Name: "a \"report\".pdf", Size: 1234}}
	foreign := events.Part{Type: events.PartReasoning, Text: "Hm."}
	changed := thinking("A secret.", "c2ln")
	changed.Text = "A [redacted]."
	ok, failed := events.OutcomeOK, events.OutcomeError
	return []events.Message{
		events.Text("m1", events.RoleUser, "Read <this> & that."),
		{ID: "m2", Role: events.RoleUser, Parts: []events.Part{wiretest.Text("One."), report, wiretest.Text(" \n"), wiretest.Text("Tw\xffo.")}},
		{ID: "m3", Role: events.RoleAssistant, Parts: []events.Part{
			foreign, changed, provided(events.Part{Type: events.PartReasoning}, `{"data":"ZGF0YQ","type":"redacted_thinking"}`),
			wiretest.Text("First."), wiretest.Text("\n\n"), wiretest.Text("Second."),
			provided(wiretest.Call("c1", "run_js", `{"code":"a < b && 'ü'","n":12345678901234567890.10}`), `{"caller":{"type":"direct"}}`),
			wiretest.Call("c2", "run_js", `"{ not JSON"`), wiretest.Call("c3", "run_js", `[1]`), wiretest.Call("c4", "run_js", ""),
			wiretest.Call("c5", "run_js", `{}`), wiretest.Call("c6", "run_js", "{\"a\":\"\xff\"}"),
			thinking("Cut.", "c2ln"),
		}},
		{ID: "m4", Role: events.RoleTool, Parts: []events.Part{
			wiretest.Result("c1", ok, wiretest.Text(`{"value":1}`), report), wiretest.Result("c2", failed, wiretest.Text("does not parse")),
			wiretest.Result("c3", events.OutcomeDenied, wiretest.Text("not allowed")),
		}},
		events.Text("notice", events.RoleUser, "Said between the results."),
		{ID: "m5", Role: events.RoleTool, Parts: []events.Part{
			wiretest.Result("c4", events.OutcomeSkipped), wiretest.Result("c5", events.OutcomeUnknown, wiretest.Text("the process ended")), wiretest.Result("c6", ok),
		}},
		{ID: "m6", Role: events.RoleAssistant, Parts: []events.Part{thinking("Only.", "c2ln")}},
		events.Text("m7", events.RoleUser, ""),
		{ID: "m8", Role: events.RoleAssistant, Parts: []events.Part{thinking("Unsigned.", ""), wiretest.Text("Well.")}},
		events.Text("notice-1", events.RoleUser, ""),
	}
}

func TestRequestGoldens(t *testing.T) {
	schema := json.RawMessage(`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
		"properties":{"b":{"oneOf":[{"type":"string"},{"enum":[1,12345678901234567890.10]}]},"a":{"type":"number","maximum":1e400}},"additionalProperties":false}`)
	strict := json.RawMessage(`{"type":"object","properties":{"code":{"type":"string"}},"required":["code"],"additionalProperties":false}`)
	for name, tt := range map[string]struct {
		request runtime.Request
		change  func(*anthropic.Config)
	}{
		"transcript": {request: runtime.Request{System: "You are helpful.", Messages: transcript(), MaxOutputTokens: 4096}},
		"tools": {
			request: runtime.Request{
				Messages: []events.Message{events.Text("m1", events.RoleUser, "Hi")},
				Tools:    []runtime.Tool{{Name: "run_js", Description: "Runs code.", InputSchema: strict}, {Name: "complete", InputSchema: schema}, {Name: "nothing"}},
			},
			change: func(c *anthropic.Config) { c.Strict, c.Thinking, c.Effort = true, "adaptive", "high" },
		},
		"budget": {
			request: runtime.Request{System: " \n", Messages: []events.Message{events.Text("m1", events.RoleUser, "Hi")}},
			change:  func(c *anthropic.Config) { c.ThinkingTokens, c.OutputTokens = 2048, 8192 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			before, _ := json.Marshal(tt.request)
			var got bytes.Buffer
			if err := json.Indent(&got, sent(t, &tt.request, tt.change), "", "  "); err != nil {
				t.Fatal(err)
			}
			got.WriteByte('\n')
			golden := filepath.Join("testdata", "request_"+name+".json")
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			if err := valid(got.Bytes()); err != nil {
				t.Errorf("the API would refuse it: %v", err)
			}
			if after, _ := json.Marshal(tt.request); !bytes.Equal(before, after) {
				t.Error("the caller's request was changed")
			}
		})
	}
}

func TestWhatCannotBeSentIsRefused(t *testing.T) {
	a := adapter(nil)
	m := a.Serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was made") }, nil)
	message := func(role events.Role, p events.Part) runtime.Request {
		return runtime.Request{Messages: []events.Message{{ID: "m1", Role: role, Parts: []events.Part{p}}}}
	}
	for name, r := range map[string]runtime.Request{
		"an unknown role":            message("system", wiretest.Text("x")),
		"a call of a user":           message(events.RoleUser, wiretest.Call("c", "f", `{}`)),
		"a result of an assistant":   message(events.RoleAssistant, wiretest.Result("c", events.OutcomeOK)),
		"text of a tool":             message(events.RoleTool, wiretest.Text("x")),
		"a call within a result":     message(events.RoleTool, wiretest.Result("c", events.OutcomeOK, wiretest.Call("c", "f", `{}`))),
		"metadata that is broken":    message(events.RoleAssistant, provided(wiretest.Text("x"), `[]`)),
		"a schema that is no object": {Tools: []runtime.Tool{{Name: "f", InputSchema: json.RawMessage(`true`)}}},
		"a schema that is no JSON":   {Tools: []runtime.Tool{{Name: "f", InputSchema: json.RawMessage(`{`)}}},
	} {
		_, err := m.Generate(t.Context(), &r)
		if failed := a.ModelError(t, err); failed.Class != runtime.ClassInvalid {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// said draws the parts of a response as a window may hold them: of this
// provider and of another, cut, empty, and with arguments of every kind.
func said(rt *rapid.T) []events.Part {
	signed := rapid.SampledFrom([]string{"", "c2ln"})
	part := rapid.Custom(func(rt *rapid.T) events.Part {
		switch rapid.IntRange(0, 4).Draw(rt, "kind") {
		case 0:
			return thinking("Hm.", signed.Draw(rt, "signature"))
		case 1:
			return provided(events.Part{Type: events.PartReasoning}, `{"type":"redacted_thinking","data":"ZGF0YQ"}`)
		case 2:
			return events.Part{Type: events.PartReasoning, Text: "Of another provider."}
		case 3:
			return wiretest.Text(rapid.SampledFrom([]string{"", " ", "Well."}).Draw(rt, "text"))
		}
		return wiretest.Call("", "run_js", rapid.OneOf(wiretest.Objects(), rapid.SampledFrom([]string{"", `"{ not JSON"`, `null`, `[1]`, `7`})).Draw(rt, "arguments"))
	})
	return rapid.SliceOfN(part, 0, 6).Draw(rt, "parts")
}

func TestEveryWindowIsSentAsTheAPITakesIt(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		window := wiretest.Window(rt, said)
		for _, change := range []func(*anthropic.Config){nil, thinks} {
			if err := valid(sent(rt, window, change)); err != nil {
				rt.Fatal(err)
			}
		}
	})
}
