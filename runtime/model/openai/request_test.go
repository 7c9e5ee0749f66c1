package openai_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/openai"
)

// sent returns the body of the request that a model makes.
func sent(t *testing.T, r *runtime.Request, change func(*openai.Config)) []byte {
	t.Helper()
	var body []byte
	handler := file(t, "text.sse")
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions" {
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
	thought := events.Part{Type: events.PartReasoning, Text: "Hm."}
	return []events.Message{
		events.Text("m1", events.RoleUser, "Read <this> & that."),
		{ID: "m2", Role: events.RoleUser, Parts: []events.Part{text("One."), report, text("Two.")}},
		{ID: "m3", Role: events.RoleAssistant, Parts: []events.Part{
			thought,
			provided(thought, `{"reasoning_details":[{"type":"reasoning.encrypted","data":"c2ln","index":0}]}`),
			text("First."), text("Second."),
			provided(call("c1", "run_js", `{"code":"a < b && 'ü'","n":12345678901234567890.10}`), `{"extra_content":{"google":{"thought_signature":"c2ln"}}}`),
			call("c2", "run_js", `"{ not JSON"`), call("c3", "run_js", `"{\"double\":true}"`), call("c4", "run_js", ""),
			call("c5", "run_js", `{}`), call("c6", "run_js", `{}`),
		}},
		{ID: "m4", Role: events.RoleTool, Parts: []events.Part{
			result("c1", events.OutcomeOK, text(`{"value":1}`), report), result("c2", events.OutcomeError, text("does not parse")),
			result("c3", events.OutcomeDenied, text("not allowed")),
		}},
		{ID: "m5", Role: events.RoleTool, Parts: []events.Part{
			result("c4", events.OutcomeSkipped), result("c5", events.OutcomeUnknown, text("the process ended")), result("c6", events.OutcomeOK),
		}},
		{ID: "m6", Role: events.RoleAssistant, Parts: []events.Part{thought}},
		{ID: "m7", Role: events.RoleAssistant, Parts: []events.Part{provided(text("I can't."), `{"refusal":true}`)}},
		{ID: "notice-1", Role: events.RoleUser, Parts: []events.Part{text("Go on.")}},
	}
}

func TestRequestGoldens(t *testing.T) {
	schema := json.RawMessage(`{"$schema":"https://json-schema.org/draft/2020-12/schema",
		"oneOf":[{"required":["a"]},{"required":["b"]}],"anyOf":[true],"allOf":[true],"enum":[{}],"not":false,
		"properties":{"b":{"oneOf":[{"type":"string"},{"enum":[1,12345678901234567890.10]}]},"a":{"type":"number","maximum":1e400}},"additionalProperties":false}`)
	for name, tt := range map[string]struct {
		request runtime.Request
		change  func(*openai.Config)
	}{
		"transcript": {request: runtime.Request{System: "You are helpful.", Messages: transcript(), MaxOutputTokens: 4096}},
		"tools": {
			request: runtime.Request{
				Messages: []events.Message{events.Text("m1", events.RoleUser, "Hi")}, MaxOutputTokens: 100,
				Tools: []runtime.Tool{
					{Name: "run_js", Description: "Runs code.", InputSchema: json.RawMessage(`{"type":"object","properties":{"code":{"type":"string"}},"required":["code"]}`)},
					{Name: "complete", InputSchema: schema},
					{Name: "nothing"},
				},
			},
			change: func(c *openai.Config) { c.LegacyMaxTokens = true },
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
			if after, _ := json.Marshal(tt.request); !bytes.Equal(before, after) {
				t.Error("the caller's request was changed")
			}
		})
	}
}

func TestWhatCannotBeSentIsRefused(t *testing.T) {
	m := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was made") }, nil)
	message := func(role events.Role, p events.Part) runtime.Request {
		return runtime.Request{Messages: []events.Message{{ID: "m1", Role: role, Parts: []events.Part{p}}}}
	}
	for name, r := range map[string]runtime.Request{
		"an unknown role":            message("system", text("x")),
		"a call of a user":           message(events.RoleUser, call("c", "f", `{}`)),
		"a result of an assistant":   message(events.RoleAssistant, result("c", events.OutcomeOK)),
		"text of a tool":             message(events.RoleTool, text("x")),
		"a call within a result":     message(events.RoleTool, result("c", events.OutcomeOK, call("c", "f", `{}`))),
		"metadata that is broken":    message(events.RoleAssistant, provided(text("x"), `[]`)),
		"a schema that is no object": {Tools: []runtime.Tool{{Name: "f", InputSchema: json.RawMessage(`true`)}}},
	} {
		_, err := m.Generate(t.Context(), &r)
		if failed := modelError(t, err); failed.Class != runtime.ClassInvalid {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// echo is an endpoint that answers with calls and keeps what it is sent.
type echo struct {
	response string
	request  struct {
		Messages []struct {
			Role      string
			Content   *string
			ToolCalls []wireCall `json:"tool_calls"`
			CallID    string     `json:"tool_call_id"`
		}
	}
}

type wireCall struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func (e *echo) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := json.NewDecoder(r.Body).Decode(&e.request); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(e.response)), Request: r}, nil
}

// streamOf writes calls as a stream, the arguments in pieces and interleaved.
func streamOf(rt *rapid.T, calls []wireCall) string {
	var out strings.Builder
	event := func(delta any, finish any) {
		data, err := json.Marshal(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}})
		if err != nil {
			rt.Fatal(err)
		}
		out.WriteString("data: " + string(data) + "\n\n")
	}
	rest := make([]string, len(calls))
	for i, c := range calls {
		rest[i], c.Index, c.Function.Arguments = c.Function.Arguments, i, ""
		event(map[string]any{"tool_calls": []wireCall{c}}, nil)
	}
	for open := len(calls); open > 0; {
		open = 0
		for i := range rest {
			if rest[i] == "" {
				continue
			}
			runes := []rune(rest[i])
			n := rapid.IntRange(1, len(runes)).Draw(rt, "piece")
			delta := map[string]any{"index": i, "function": map[string]string{"arguments": string(runes[:n])}}
			rest[i] = string(runes[n:])
			event(map[string]any{"tool_calls": []any{delta}}, nil)
			open++
		}
	}
	event(map[string]any{}, "tool_calls")
	return out.String() + "data: [DONE]\n\n"
}

// stored returns a part as the loop keeps it: arguments that are not acceptable
// JSON are wrapped in a JSON string, missing ones are an empty object.
func stored(rt *rapid.T, p events.Part) events.Part {
	switch {
	case len(p.Call.Arguments) == 0:
		p.Call.Arguments = json.RawMessage(`{}`)
	case events.CheckJSON(p.Call.Arguments, events.JSONLimits{}) != nil:
		p.Call.Arguments, _ = events.Marshal(string(p.Call.Arguments))
	}
	data, err := events.Marshal(p)
	if err != nil {
		rt.Fatal(err)
	}
	var out events.Part
	if err := json.Unmarshal(data, &out); err != nil {
		rt.Fatal(err)
	}
	return out
}

// TestModelToStoredToModelIsTheIdentity lets a model make calls, stores them,
// and compares what the model is sent next with what it said. Only the blanks
// between the tokens of JSON are not kept, and that arguments were missing.
func TestModelToStoredToModelIsTheIdentity(t *testing.T) {
	arguments := rapid.OneOf(
		rapid.SampledFrom([]string{"", `{}`, `{"n":12345678901234567890.10,"m":-0.0,"e":1E400}`, `{ "a" : [ "<&>\u00e9" ] }`,
			`{"a":1,"a":2}`, `{"cut":"sho`, `not JSON`, `"{\"double\":true}"`, `null`, `[1]`, "{}\n", `{"a":"\ud83d\ude00"}`}),
		rapid.StringN(0, 20, -1),
		rapid.Map(rapid.MapOf(rapid.String(), rapid.Int()), func(m map[string]int) string {
			data, _ := json.Marshal(m)
			return string(data)
		}),
	).Filter(func(s string) bool { // the one spelling that cannot be told from a wrapped one
		var text string
		return json.Unmarshal([]byte(s), &text) != nil || s == "null" || events.CheckJSON([]byte(text), events.JSONLimits{}) == nil
	})
	rapid.Check(t, func(rt *rapid.T) {
		calls := make([]wireCall, rapid.IntRange(1, 4).Draw(rt, "calls"))
		for i := range calls {
			calls[i].ID = rapid.StringMatching(`call_[a-zA-Z0-9]{1,8}`).Draw(rt, "id")
			calls[i].Type = "function"
			calls[i].Function.Name = rapid.StringMatching(`[a-z_]{1,12}`).Draw(rt, "name")
			calls[i].Function.Arguments = arguments.Draw(rt, "arguments")
		}
		endpoint := &echo{response: streamOf(rt, calls)}
		m, err := openai.New(openai.Config{Name: "m", HTTPClient: &http.Client{Transport: endpoint}})
		if err != nil {
			rt.Fatal(err)
		}
		response, err := m.Generate(t.Context(), &runtime.Request{})
		if err != nil {
			rt.Fatal(err)
		}
		said := events.Message{ID: "m1", Role: events.RoleAssistant}
		for _, p := range response.Parts {
			said.Parts = append(said.Parts, stored(rt, p))
		}
		if _, err := m.Generate(t.Context(), &runtime.Request{Messages: []events.Message{said}}); err != nil {
			rt.Fatal(err)
		}
		got := endpoint.request.Messages[0].ToolCalls
		for i := range calls {
			calls[i].Function.Arguments = compact(calls[i].Function.Arguments)
			if calls[i].Function.Arguments == "" {
				calls[i].Function.Arguments = "{}"
			}
			if i < len(got) {
				got[i].Function.Arguments = compact(got[i].Function.Arguments)
			}
		}
		if diff := cmp.Diff(calls, got); diff != "" {
			rt.Errorf("calls (-said +sent):\n%s", diff)
		}
	})
}

// compact drops the blanks of acceptable JSON.
func compact(s string) string {
	var out bytes.Buffer
	if events.CheckJSON([]byte(s), events.JSONLimits{}) != nil || json.Compact(&out, []byte(s)) != nil {
		return s
	}
	return out.String()
}
