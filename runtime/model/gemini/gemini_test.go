package gemini_test

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
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/gemini"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const key = "AIza-test-0123456789abcdef"

// serve returns a model whose endpoint is the handler. It checks that a
// Generate makes one request at most.
func serve(t *testing.T, handler http.HandlerFunc, change func(*gemini.Config)) *gemini.Model {
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
	config := gemini.Config{Name: "gemini-2.5-flash", APIKey: key, BaseURL: server.URL + "/base"}
	if change != nil {
		change(&config)
	}
	m, err := gemini.New(config)
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
	contentType := "text/event-stream"
	if filepath.Ext(name) == ".json" {
		contentType = "application/json; charset=UTF-8"
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(data)
	}
}

func text(s string) events.Part { return events.Part{Type: events.PartText, Text: s} }

func thought(s string) events.Part { return events.Part{Type: events.PartReasoning, Text: s} }

func call(id, name, arguments string) events.Part {
	c := &events.ToolCall{ID: id, Name: name}
	if arguments != "" {
		c.Arguments = json.RawMessage(arguments)
	}
	return events.Part{Type: events.PartToolCall, Call: c}
}

func provided(p events.Part, kept string) events.Part {
	p.Provider = map[string]json.RawMessage{gemini.Provider: json.RawMessage(kept)}
	return p
}

func TestResponses(t *testing.T) {
	usage := events.Usage{Input: 19, Output: 10}
	for _, tt := range []struct {
		name, file string
		want       runtime.Response
	}{
		{"text is joined from its chunks", "text.sse", runtime.Response{
			Parts: []events.Part{text("Hello, wörld!")}, Finish: runtime.FinishStop, Usage: usage}},
		{"thoughts, text and parallel calls are parts in their order, and usage is normalized", "calls.sse", runtime.Response{
			Parts: []events.Part{
				provided(thought("I need both."), `{"part":{"thought":true}}`), text("On it."),
				provided(call("fc_1", "run_js", `{"code":"return 1"}`), `{"part":{"thoughtSignature":"c2lnbmF0dXJl/+=="},"call":{"id":"fc_1"}}`),
				provided(call("fc_2", "complete", `{"n":12345678901234567890.10,"m":-0.0,"e":1E400}`), `{"call":{"id":"fc_2"}}`),
			},
			Finish: runtime.FinishCalls, Usage: events.Usage{Input: 2016, Cached: 1920, Output: 300, Reasoning: 128}}},
		{"missing ids and arguments stay empty", "no_ids.sse", runtime.Response{
			Parts:  []events.Part{provided(call("", "first", `{"x":1}`), `{}`), provided(call("", "second", ""), `{"bare":true}`)},
			Finish: runtime.FinishCalls, Usage: usage}},
		{"a part with a signature is joined with no other, nor is what is no text", "signatures.sse", runtime.Response{
			Parts: []events.Part{
				text("Done"), provided(text("."), `{"part":{"thoughtSignature":"QUJD"}}`), text(" Really."),
				provided(text(""), `{"part":{"thoughtSignature":"REVG"}}`),
				provided(text(""), `{"part":{"executableCode":{"language":"PYTHON","code":"1"}},"bare":true}`),
			}, Finish: runtime.FinishStop, Usage: usage}},
		{"a response cut by length keeps what was written", "length.sse", runtime.Response{
			Parts: []events.Part{text("Let me"), provided(call("", "run_js", `{"code":"ret"}`), `{}`)}, Finish: runtime.FinishLength, Usage: usage}},
		{"a filtered response says so", "safety.sse", runtime.Response{
			Parts: []events.Part{text("Well")}, Finish: runtime.FinishFilter, Usage: usage}},
		{"an event may have several lines, and the last one no end", "no_blank_line.sse", runtime.Response{
			Parts: []events.Part{text("ok")}, Finish: runtime.FinishStop}},
		{"an endpoint that sends a list is understood", "list.json", runtime.Response{
			Parts: []events.Part{text("On it.")}, Finish: runtime.FinishStop, Usage: usage}},
		{"only the first candidate counts, and thoughts counted in it are counted once", "whole.json", runtime.Response{
			Parts: []events.Part{text("On it.")}, Finish: runtime.FinishStop, Usage: events.Usage{Input: 10, Output: 12, Reasoning: 7}}},
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
	"GEMINI_API_KEY": "AIza-environment", "GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_GENAI_USE_ENTERPRISE": "true",
	"GOOGLE_CLOUD_PROJECT": "environment", "GOOGLE_CLOUD_LOCATION": "environment",
	"GOOGLE_GEMINI_BASE_URL": "http://environment.invalid", "GOOGLE_VERTEX_BASE_URL": "http://environment.invalid",
}

func TestNothingComesFromTheEnvironment(t *testing.T) {
	for name, value := range environment {
		t.Setenv(name, value)
	}
	var header http.Header
	handler := file(t, "text.sse")
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		handler(w, r)
	}, nil)
	if _, err := m.Generate(t.Context(), &runtime.Request{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{key}, header["X-Goog-Api-Key"]); diff != "" {
		t.Errorf("key (-want +got):\n%s", diff)
	}
	for _, absent := range []string{"Authorization", "X-Goog-User-Project", "X-Server-Timeout"} {
		if got := header.Get(absent); got != "" {
			t.Errorf("%s: %s", absent, got)
		}
	}
}

func TestTheOwnClientUsesNoProxy(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the proxy was asked for %s", r.URL)
	}))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	m, err := gemini.New(gemini.Config{Name: "m", APIKey: key, BaseURL: "http://model.invalid/"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Generate(t.Context(), &runtime.Request{})
	if failed := modelError(t, err); failed.Class != runtime.ClassRetry || failed.Status != 0 {
		t.Errorf("error %v", err)
	}
}

func TestTheTimeoutOfAClientDoesNotCutAResponse(t *testing.T) {
	handler := file(t, "text.sse")
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		handler(w, r)
	}, func(c *gemini.Config) { c.HTTPClient = &http.Client{Timeout: time.Nanosecond} })
	if _, err := m.Generate(t.Context(), &runtime.Request{}); err != nil {
		t.Error(err)
	}
}

func TestTheKeyFollowsNoRedirect(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another host was sent %v", r.Header)
	}))
	defer other.Close()
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}, nil)
	_, err := m.Generate(t.Context(), &runtime.Request{})
	if failed := modelError(t, err); failed.Class != runtime.ClassInvalid || failed.Status != 307 {
		t.Errorf("error %v", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, c := range map[string]gemini.Config{
		"no name":                  {APIKey: key},
		"a name that is a path":    {Name: "../m", APIKey: key},
		"a name that has a query":  {Name: "m?key=", APIKey: key},
		"no key":                   {Name: "m"},
		"a key with a line end":    {Name: "m", APIKey: key + "\n"},
		"no scheme":                {Name: "m", APIKey: key, BaseURL: "generativelanguage.googleapis.com"},
		"not a URL":                {Name: "m", APIKey: key, BaseURL: "http://a b:" + key},
		"a password in the URL":    {Name: "m", APIKey: key, BaseURL: "https://user:" + key + "@host/"},
		"a key in the URL's query": {Name: "m", APIKey: key, BaseURL: "https://host/?key=" + key},
	} {
		m, err := gemini.New(c)
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
