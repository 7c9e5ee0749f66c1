package gemini_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/gemini"
)

// sent returns the body of the request that a model makes.
func sent(t *testing.T, r *runtime.Request, change func(*gemini.Config)) []byte {
	t.Helper()
	var body []byte
	handler := file(t, "text.sse")
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.String() != "/base/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse" {
			t.Errorf("request %s %s", r.Method, r.URL)
		}
		body, _ = io.ReadAll(r.Body)
		handler(w, r)
	}, change)
	if _, err := m.Generate(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return body
}

func result(callID string, outcome events.Outcome, parts ...events.Part) events.Part {
	return events.Part{Type: events.PartToolResult, Result: &events.ToolResult{CallID: callID, Name: "run_js", Outcome: outcome, Parts: parts}}
}

func transcript() []events.Message {
	report := events.Part{Type: events.PartFile, File: &events.File{Ref: "sha256:ab12", MediaType: "application/pdf", Name: "a \"report\".pdf", Size: 1234}}
	return []events.Message{
		events.Text("m1", events.RoleUser, "Read <this> & that."),
		{ID: "m2", Role: events.RoleUser, Parts: []events.Part{text("One."), report, text(""), text("Two.")}},
		{ID: "m3", Role: events.RoleAssistant, Parts: []events.Part{
			thought("A foreign thought is left out."),
			provided(thought("Hm."), `{"part":{"thought":true,"thoughtSignature":"QUJD"}}`),
			text("First."), provided(text(""), `{"part":{"thoughtSignature":"REVG"}}`),
			provided(call("c1", "run_js", `{"code":"a < b && 'ü'","n":12345678901234567890.10}`), `{"part":{"thoughtSignature":"c2ln"},"call":{"id":"fc_1"}}`),
			provided(call("c2", "run_js", `"{\"a\":1,\"a\":2}"`), `{}`), provided(call("c3", "run_js", `{}`), `{"bare":true}`),
			call("c4", "run_js", `"{ not JSON"`), call("c5", "run_js", `[1]`), call("c6", "run_js", ""),
		}},
		{ID: "m4", Role: events.RoleTool, Parts: []events.Part{
			result("c2", events.OutcomeError, text("does not parse")), result("c1", events.OutcomeOK, text(`{"value":1e400}`), report),
			result("c3", events.OutcomeDenied, text("not allowed")),
		}},
		{ID: "m5", Role: events.RoleTool, Parts: []events.Part{
			result("c4", events.OutcomeSkipped), result("c5", events.OutcomeUnknown, text("the process ended")), result("c6", events.OutcomeOK),
		}},
		events.Text("notice-1", events.RoleUser, "Go on."),
		{ID: "m6", Role: events.RoleAssistant, Parts: []events.Part{thought("Nothing is left of this message.")}},
		events.Text("notice-2", events.RoleUser, "Call a tool."),
		{ID: "m7", Role: events.RoleAssistant, Parts: []events.Part{call("c7", "run_js", `{}`)}},
		{ID: "m8", Role: events.RoleTool, Parts: []events.Part{result("c7", events.OutcomeOK, text("done"))}},
	}
}

func TestRequestGoldens(t *testing.T) {
	schema := json.RawMessage(`{"$schema":"https://json-schema.org/draft/2020-12/schema",
		"oneOf":[{"required":["a"]},{"required":["b"]}],"not":false,
		"properties":{"b":{"oneOf":[{"type":"string"},{"enum":[1,12345678901234567890.10]}]},"a":{"type":"number","maximum":1e400}},"additionalProperties":false}`)
	for name, tt := range map[string]struct {
		request runtime.Request
		change  func(*gemini.Config)
	}{
		"transcript": {request: runtime.Request{System: "You are helpful.", Messages: transcript(), MaxOutputTokens: 4096}},
		"tools": {
			request: runtime.Request{
				Messages: []events.Message{events.Text("m1", events.RoleUser, "Hi")}, MaxOutputTokens: 1 << 40,
				Tools: []runtime.Tool{
					{Name: "run_js", Description: "Runs code.", InputSchema: json.RawMessage(`{"type":"object","properties":{"code":{"type":"string"}},"required":["code"]}`)},
					{Name: "complete", InputSchema: schema},
					{Name: "nothing"},
				},
			},
			change: func(c *gemini.Config) { c.Thoughts = true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			before, _ := json.Marshal(tt.request)
			var got bytes.Buffer
			if err := json.Indent(&got, sent(t, &tt.request, tt.change), "", "  "); err != nil {
				t.Fatal(err)
			}
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
			if after, _ := json.Marshal(tt.request); !bytes.Equal(before, after) {
				t.Error("the caller's request was changed")
			}
		})
	}
}

func TestWhatCannotBeSentIsRefused(t *testing.T) {
	m := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was made") }, nil)
	message := func(role events.Role, p events.Part) events.Message {
		return events.Message{ID: "m1", Role: role, Parts: []events.Part{p}}
	}
	for name, messages := range map[string][]events.Message{
		"an unknown role":            {message("system", text("x"))},
		"a call of a user":           {message(events.RoleUser, call("c", "f", `{}`))},
		"a result of an assistant":   {message(events.RoleAssistant, result("c", events.OutcomeOK))},
		"text of a tool":             {message(events.RoleTool, text("x"))},
		"a result without a call":    {message(events.RoleTool, result("c", events.OutcomeOK))},
		"a call without a result":    {message(events.RoleAssistant, call("c", "f", `{}`))},
		"a call before its result":   {message(events.RoleAssistant, call("c", "f", `{}`)), message(events.RoleUser, text("x")), message(events.RoleTool, result("c", events.OutcomeOK))},
		"a call within a result":     {message(events.RoleAssistant, call("c", "f", `{}`)), message(events.RoleTool, result("c", events.OutcomeOK, call("c", "f", `{}`)))},
		"metadata that is broken":    {message(events.RoleAssistant, provided(text("x"), `[]`))},
		"metadata broken on a call":  {message(events.RoleAssistant, provided(call("c", "f", `{}`), `[]`))},
		"a result that comes twice":  {message(events.RoleAssistant, call("c", "f", `{}`)), message(events.RoleTool, result("c", events.OutcomeOK)), message(events.RoleTool, result("c", events.OutcomeOK))},
		"a file of an odd assistant": {message(events.RoleAssistant, events.Part{Type: events.PartFile})},
	} {
		_, err := m.Generate(t.Context(), &runtime.Request{Messages: messages})
		if failed := modelError(t, err); failed.Class != runtime.ClassInvalid {
			t.Errorf("%s: error %v", name, err)
		}
	}
	for _, schema := range []string{`true`, `null`, `[`} {
		_, err := m.Generate(t.Context(), &runtime.Request{Tools: []runtime.Tool{{Name: "f", InputSchema: json.RawMessage(schema)}}})
		if failed := modelError(t, err); failed.Class != runtime.ClassInvalid {
			t.Errorf("schema %s: error %v", schema, err)
		}
	}
}
