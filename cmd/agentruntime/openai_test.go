package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/jetstream"
)

// TestAProviderOfTheConfigurationServesARun runs an agent at an endpoint that the
// configuration names. It asks for patience twice: for a moment, and for more than
// a worker has.
func TestAProviderOfTheConfigurationServesARun(t *testing.T) {
	const key = "sk-a-key-of-this-test"
	var requests atomic.Int32
	var askedAt [2]time.Time
	answers := []string{
		`{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"run_js","arguments":"{\"code\":\"return await desk.book({})\"}"}}]}`,
		`{"role":"assistant","tool_calls":[{"id":"c2","type":"function","function":{"name":"complete","arguments":"{\"kind\":\"output\",\"output\":\"done\"}"}}]}`,
	}
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Authorization") != "Bearer "+key || !strings.Contains(string(body), `"model":"fake"`) || !strings.Contains(string(body), `"max_tokens":2000`) {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		n := requests.Add(1)
		if n == 1 || n == 3 {
			w.Header().Set("Retry-After", strconv.Itoa(int(n)))
			http.Error(w, `{"error":{"message":"slow down"}}`, http.StatusTooManyRequests)
		}
		switch n {
		case 1:
			return
		case 3:
			askedAt[0] = time.Now()
			return
		case 4:
			askedAt[1] = time.Now()
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"id": "x", "object": "chat.completion", "model": "fake",
			"choices": []any{map[string]any{"index": 0, "finish_reason": "tool_calls", "message": json.RawMessage(answers[min(n, 4)/4])}},
			"usage":   map[string]int{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}})
	}))
	defer endpoint.Close()
	s := newSite(t)
	s.write("key", key+"\n")
	s.write("config.yaml", fmt.Sprintf(`worker: { lease: %s }
layout: { shards: 1 }
metrics: "off"
requests: { patience: 1s }
providers:
  local:
    kind: openai_compatible
    base_url: %s/v1
    key_file: %s
    models: { fake: { output_tokens: 2000, price: { input: 1.5, output: 2 } } }
currency: EUR
`, lease, endpoint.URL, filepath.Join(s.folder, "key")))
	s.write("agents/tester.yaml", "instructions: Test.\nmodel: local/fake\ncapabilities: [desk.book]\n")
	s.serve(func(m *nats.Msg) { _ = m.Respond([]byte(`"booked"`)) })
	worker := s.start()
	run := s.begin()
	d := s.await(run)
	if d.State != "completed" || string(d.Reply.Output) != `"done"` || d.Usage.Input != 20 || d.Usage.Output != 10 || requests.Load() != 4 {
		t.Errorf("after %d requests the run is %+v", requests.Load(), d)
	}
	if d.Cost == nil || *d.Cost != (events.Cost{Amount: "0.00005", Currency: "EUR"}) {
		t.Errorf("the run cost %+v", d.Cost)
	}
	if waited := askedAt[1].Sub(askedAt[0]); waited < 3*time.Second {
		t.Errorf("the provider asked for 3s and was asked again after %s", waited)
	}
	session, err := events.KeyOfRun("default", run)
	if err != nil {
		t.Fatal(err)
	}
	records, err := (&jetstream.Log{Conn: s.conn}).Read(t.Context(), session, 0, events.MaxRead)
	if err != nil {
		t.Fatal(err)
	}
	parks := 0
	for _, r := range records {
		if p, err := r.Payload(); err != nil {
			t.Fatal(err)
		} else if park, ok := p.(events.RunParked); ok && park.Reason == events.ParkProvider {
			parks++
		}
	}
	if parks != 1 {
		t.Errorf("the run parked for its provider %d times", parks)
	}
	s.stop(worker)
}
