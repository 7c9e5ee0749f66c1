package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestAnOpenAICompatibleEndpointServesARun runs an agent on openai/<name>
// against an endpoint that is told by the environment and fails at first.
func TestAnOpenAICompatibleEndpointServesARun(t *testing.T) {
	const key = "sk-a-key-of-this-test"
	var requests atomic.Int32
	answers := []string{
		`{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"run_js","arguments":"{\"code\":\"return await desk.book({})\"}"}}]}`,
		`{"role":"assistant","tool_calls":[{"id":"c2","type":"function","function":{"name":"complete","arguments":"{\"kind\":\"output\",\"output\":\"done\"}"}}]}`,
	}
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Authorization") != "Bearer "+key || !strings.Contains(string(body), `"model":"fake"`) {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		n := requests.Add(1)
		if n == 1 {
			w.Header().Set("Retry-After", "1")
			http.Error(w, `{"error":{"message":"slow down"}}`, http.StatusTooManyRequests)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"id": "x", "object": "chat.completion", "model": "fake",
			"choices": []any{map[string]any{"index": 0, "finish_reason": "tool_calls", "message": json.RawMessage(answers[(int(n)-2)%2])}},
			"usage":   map[string]int{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}})
	}))
	defer endpoint.Close()
	t.Setenv("OPENAI_API_KEY", key)
	t.Setenv("OPENAI_BASE_URL", endpoint.URL+"/v1")
	s := newSite(t)
	s.write("agents/tester.yaml", "instructions: Test.\nmodel: openai/fake\ncapabilities: [desk.book]\n")
	s.serve(func(m *nats.Msg) { _ = m.Respond([]byte(`"booked"`)) })
	worker := s.start()
	d := s.await(s.begin())
	if d.State != "completed" || string(d.Reply.Output) != `"done"` || d.Usage.Input != 20 || d.Usage.Output != 10 {
		t.Errorf("the run is %+v", d)
	}
	s.stop(worker)
}
