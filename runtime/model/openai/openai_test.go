package openai_test

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/openai"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const key = "sk-test-0123456789abcdef"

// serve returns a model whose endpoint is the handler. It checks that a
// Generate makes one request at most.
func serve(t *testing.T, handler http.HandlerFunc, change func(*openai.Config)) *openai.Model {
	t.Helper()
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handler(w, r)
	}))
	t.Cleanup(func() {
		server.Close()
		if n := requests.Load(); n > 1 {
			t.Errorf("%d requests were made, want one", n)
		}
	})
	config := openai.Config{Name: "gpt-5", APIKey: key, BaseURL: server.URL + "/v1"}
	if change != nil {
		change(&config)
	}
	m, err := openai.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// file answers with a file of testdata.
func file(t *testing.T, name string) http.HandlerFunc {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	contentType := "text/event-stream; charset=utf-8"
	if filepath.Ext(name) == ".json" {
		contentType = "application/json"
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(data)
	}
}

func text(s string) events.Part { return events.Part{Type: events.PartText, Text: s} }

func call(id, name, arguments string) events.Part {
	c := &events.ToolCall{ID: id, Name: name}
	if arguments != "" {
		c.Arguments = json.RawMessage(arguments)
	}
	return events.Part{Type: events.PartToolCall, Call: c}
}

func provided(p events.Part, kept string) events.Part {
	p.Provider = map[string]json.RawMessage{openai.Provider: json.RawMessage(kept)}
	return p
}

func TestResponses(t *testing.T) {
	usage := events.Usage{Input: 19, Output: 10}
	for _, tt := range []struct {
		name, file string
		want       runtime.Response
	}{
		{"text is joined from its deltas", "text.sse", runtime.Response{
			Parts: []events.Part{text("Hello, wörld!")}, Finish: runtime.FinishStop, Usage: usage}},
		{"parallel calls are assembled by index and usage is normalized", "calls.sse", runtime.Response{
			Parts:  []events.Part{call("call_a", "run_js", `{"code":"return 1"}`), call("call_b", "complete", `{"n":12345678901234567890.10}`)},
			Finish: runtime.FinishCalls, Usage: events.Usage{Input: 2006, Cached: 1920, Output: 300, Reasoning: 128}}},
		{"a response cut by length keeps what was written", "length.sse", runtime.Response{
			Parts: []events.Part{text("Let me"), call("call_a", "run_js", `{"code":"ret`)}, Finish: runtime.FinishLength, Usage: usage}},
		{"a filtered response says so", "content_filter.sse", runtime.Response{
			Parts: []events.Part{text("Well")}, Finish: runtime.FinishFilter, Usage: usage}},
		{"a refusal is text that remembers being one", "refusal.sse", runtime.Response{
			Parts: []events.Part{provided(text("I can't do that."), `{"refusal":true}`)}, Finish: runtime.FinishStop}},
		{"a chunk without choices is passed over", "prompt_filter.sse", runtime.Response{
			Parts: []events.Part{text("ok")}, Finish: runtime.FinishStop}},
		{"a finished stream needs no [DONE]", "no_done.sse", runtime.Response{
			Parts: []events.Part{text("ok")}, Finish: runtime.FinishStop}},
		{"an error that is null is none", "error_null.sse", runtime.Response{
			Parts: []events.Part{text("ok")}, Finish: runtime.FinishStop}},
		{"reasoning counted beside the completion is counted in it", "reasoning.sse", runtime.Response{
			Parts:  []events.Part{{Type: events.PartReasoning, Text: "Thinking."}, text("Done.")},
			Finish: runtime.FinishStop, Usage: events.Usage{Input: 10, Output: 12, Reasoning: 7}}},
		{"reasoning details are kept", "reasoning_details.sse", runtime.Response{
			Parts: []events.Part{provided(events.Part{Type: events.PartReasoning, Text: "Think"},
				`{"reasoning_details":[{"type":"reasoning.text","text":"Think","index":0,"format":"anthropic-claude-v1"},{"type":"reasoning.text","signature":"c2ln","index":0,"format":"anthropic-claude-v1"}]}`),
				call("call_a", "run_js", `{}`)}, Finish: runtime.FinishCalls}},
		{"calls under one index are told apart by id", "same_index.sse", runtime.Response{
			Parts: []events.Part{provided(call("a", "first", `{"x":1}`), `{"extra_content":{"google":{"thought_signature":"c2ln"}}}`),
				call("b", "second", `{"x":2}`)}, Finish: runtime.FinishCalls}},
		{"missing ids and arguments stay empty", "no_ids.sse", runtime.Response{
			Parts: []events.Part{call("", "first", `{"x":1}`), call("", "second", "")}, Finish: runtime.FinishCalls}},
		{"an endpoint that does not stream is understood", "completion.json", runtime.Response{
			Parts:  []events.Part{text("On it."), call("call_a", "run_js", `{"code":"1"}`), call("call_b", "complete", `{ nope`)},
			Finish: runtime.FinishCalls, Usage: events.Usage{Input: 82, Cached: 8, Output: 17, Reasoning: 3}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := serve(t, file(t, tt.file), nil).Generate(t.Context(), &runtime.Request{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
		})
	}
}

// environment is what the vendor's client would read.
var environment = map[string]string{
	"OPENAI_API_KEY": "sk-environment", "OPENAI_ADMIN_KEY": "sk-admin-environment",
	"OPENAI_ORG_ID": "org-environment", "OPENAI_PROJECT_ID": "proj-environment",
	"OPENAI_BASE_URL": "http://environment.invalid", "OPENAI_WEBHOOK_SECRET": "secret",
	"OPENAI_CUSTOM_HEADERS": "X-Environment: yes",
}

func TestNothingComesFromTheEnvironment(t *testing.T) {
	for name, value := range environment {
		t.Setenv(name, value)
	}
	for name, want := range map[string][]string{key: {"Bearer " + key}, "": nil} {
		var header http.Header
		handler := file(t, "text.sse")
		m := serve(t, func(w http.ResponseWriter, r *http.Request) {
			header = r.Header
			handler(w, r)
		}, func(c *openai.Config) { c.APIKey = name })
		if _, err := m.Generate(t.Context(), &runtime.Request{}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, header["Authorization"]); diff != "" {
			t.Errorf("authorization (-want +got):\n%s", diff)
		}
		for _, absent := range []string{"Openai-Organization", "Openai-Project", "X-Environment"} {
			if got := header.Get(absent); got != "" {
				t.Errorf("%s: %s", absent, got)
			}
		}
	}
}

func TestTheOwnClientUsesNoProxy(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the proxy was asked for %s", r.URL)
	}))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	m, err := openai.New(openai.Config{Name: "m", BaseURL: "http://model.invalid/v1"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Generate(t.Context(), &runtime.Request{})
	if failed := modelError(t, err); failed.Class != runtime.ClassRetry || failed.Status != 0 {
		t.Errorf("error %v", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, c := range map[string]openai.Config{
		"no name":                {},
		"a key with a line end":  {Name: "m", APIKey: key + "\n"},
		"no scheme":              {Name: "m", BaseURL: "api.openai.com/v1"},
		"not a URL":              {Name: "m", BaseURL: "http://a b:" + key},
		"a password in the URL":  {Name: "m", BaseURL: "https://user:" + key + "@host/v1"},
		"a key in the URL query": {Name: "m", BaseURL: "https://host/v1?key=" + key},
	} {
		m, err := openai.New(c)
		if m != nil || err == nil {
			t.Errorf("%s is accepted", name)
		}
		withoutKey(t, err)
	}
}

func TestACancelledRequestReturnsTheContextsError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	}, nil)
	_, err := m.Generate(ctx, &runtime.Request{})
	isContextError(t, err)
}
