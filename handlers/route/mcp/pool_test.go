package mcp_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/handlers/route/dial"
	"github.com/agentruntime/agentruntime/handlers/route/mcp"
)

// record is a log that a test reads.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

var local = dial.Rules{Allow: []string{"127.0.0.1"}}

// newPool returns a pool of servers that ends with the test.
func newPool(t *testing.T, servers map[string]mcp.Server, now func() time.Time) (*mcp.Pool, *record) {
	t.Helper()
	log := new(record)
	p := mcp.New(mcp.Options{Servers: servers, Rules: local, Logger: slog.New(slog.NewTextHandler(log, nil)), Version: "1", Now: now})
	t.Cleanup(p.Close)
	return p, log
}

// program is the actor as a program.
func program(witness *handlerstest.Witness) mcp.Server {
	return mcp.Server{Command: []string{os.Args[0]}, Env: map[string]string{witnessVariable: witness.Address(), "ACTOR_KEY": "a-key-of-its-own"}}
}

func route(server, tool string) events.Route {
	return events.Route{MCP: &events.MCPRoute{Server: server, Tool: tool, Structured: true}}
}

func TestAnMCPServerOverStdioKeepsTheRulesOfRoutes(t *testing.T) {
	t.Setenv("WORKER_KEY", "a-key-of-the-worker")
	witness := handlerstest.NewWitness(t)
	pool, log := newPool(t, map[string]mcp.Server{"actor": program(witness), "gone": {Command: []string{"/nonexistent/server"}}}, time.Now)
	handlerstest.TestRoute(t, handlerstest.Route{Route: route("actor", "do"), Nowhere: route("gone", "do"), Carriers: handlers.Carriers{MCP: pool}, Witness: witness, Alone: []handlerstest.Act{handlerstest.ActDies}})
	pool.Close()
	if text := log.String(); !strings.Contains(text, "the actor knows a-key-of-its-own") || strings.Contains(text, "a-key-of-the-worker") {
		t.Errorf("the log says %s", text)
	}
}

func TestAnMCPServerOverHTTPKeepsTheRulesOfRoutes(t *testing.T) {
	witness := handlerstest.NewWitness(t)
	a := &actor{witness: witness.Address()}
	server := httptest.NewServer(a)
	defer server.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	pool, _ := newPool(t, map[string]mcp.Server{"actor": {URL: server.URL, Headers: map[string]string{"X-Key": "its-key"}}, "gone": {URL: gone.URL}}, time.Now)
	handlerstest.TestRoute(t, handlerstest.Route{Route: route("actor", "do"), Nowhere: route("gone", "do"), Carriers: handlers.Carriers{MCP: pool}, Witness: witness, HTTP: true})
	if slices.ContainsFunc(a.versions, func(v string) bool { return v != "2025-06-18" }) || slices.ContainsFunc(a.keys, func(k string) bool { return k != "its-key" }) {
		t.Errorf("the requests named the versions %v and the keys %v", a.versions, a.keys)
	}
}

// call makes one request.
func call(t *testing.T, p *mcp.Pool, effect events.Effect, r events.Route, input string) (string, error) {
	t.Helper()
	out, err := p.Carry(t.Context(), &handlers.Request{Capability: &events.Capability{Name: "mcp.actor.do", Effect: effect, Route: r}, Header: map[string]string{}, Input: json.RawMessage(input)})
	return string(out), err
}

func TestASessionThatTheServerHasForgottenIsBegunAgainAndTheRequestSentOnce(t *testing.T) {
	witness := handlerstest.NewWitness(t)
	a := &actor{witness: witness.Address()}
	server := httptest.NewServer(a)
	defer server.Close()
	pool, _ := newPool(t, map[string]mcp.Server{"actor": {URL: server.URL}}, time.Now)
	for range 3 {
		if _, err := call(t, pool, events.EffectWrite, route("actor", "do"), `{"do":"answer","n":1}`); err != nil {
			t.Fatal(err)
		}
		a.forget()
	}
	if a.sessions != 3 || len(a.keys) != 3 {
		t.Errorf("there were %d sessions and %d requests, want 3 and 3", a.sessions, len(a.keys))
	}
}

func TestErrorsOfTheProtocolAreTyped(t *testing.T) {
	pool, _ := newPool(t, map[string]mcp.Server{"actor": program(handlerstest.NewWitness(t))}, time.Now)
	var refused *handlers.ServiceError
	if _, err := call(t, pool, events.EffectWrite, route("actor", "nosuch"), `{}`); !errors.As(err, &refused) || refused.Code != "-32602" {
		t.Errorf("an unknown tool: %v", err)
	}
	if _, err := call(t, pool, events.EffectRead, route("actor", "broken"), `{}`); !errors.As(err, &refused) || refused.Code != "-32603" {
		t.Errorf("an internal error of a read: %v", err)
	}
	if _, err := call(t, pool, events.EffectWrite, route("actor", "ordinary"), `{}`); !errors.As(err, &refused) || refused.Code == handlers.CodeStaleEpoch {
		t.Errorf("an error with the number of a stale epoch: %v", err)
	}
	refused = nil
	if _, err := call(t, pool, events.EffectWrite, route("actor", "broken"), `{}`); err == nil || errors.As(err, &refused) || errors.Is(err, handlers.ErrNoService) {
		t.Errorf("an internal error of a write: %v, want one that leaves the effect open", err)
	}
	if _, err := call(t, pool, events.EffectRead, route("other", "do"), `{}`); !errors.Is(err, handlers.ErrNoService) || !strings.Contains(err.Error(), "configuration") {
		t.Errorf("an unknown server: %v", err)
	}
}

func TestAServerThatCannotBeBegunIsLeftAloneForAWhileThatGrows(t *testing.T) {
	var mu sync.Mutex
	now := time.Unix(0, 0)
	pool, _ := newPool(t, map[string]mcp.Server{"gone": {Command: []string{"/nonexistent/server"}}}, func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	})
	for _, pause := range []time.Duration{mcp.MinPause, 2 * mcp.MinPause, 4 * mcp.MinPause} {
		if _, err := call(t, pool, events.EffectRead, route("gone", "do"), `{}`); !errors.Is(err, handlers.ErrNoService) || !strings.Contains(err.Error(), "cannot be begun") {
			t.Errorf("it was not tried: %v", err)
		}
		if _, err := call(t, pool, events.EffectRead, route("gone", "do"), `{}`); !errors.Is(err, handlers.ErrNoService) || !strings.Contains(err.Error(), "tried again in "+pause.String()) {
			t.Errorf("after a pause of %s: %v", pause, err)
		}
		mu.Lock()
		now = now.Add(pause)
		mu.Unlock()
	}
}

func TestToolsAreImportedWithTheirSchemasAndWhatCannotBeIsSaid(t *testing.T) {
	pool, _ := newPool(t, map[string]mcp.Server{"actor": program(handlerstest.NewWitness(t))}, time.Now)
	kept, left, err := pool.Import(t.Context(), "actor")
	if err != nil {
		t.Fatal(err)
	}
	content := json.RawMessage(`{"type":"object","properties":{"content":{"type":"array","items":{"type":"object","properties":{"type":{"type":"string"},"text":{"type":"string"}},"required":["type"]}}},"required":["content"]}`)
	want := []events.Capability{
		{Name: "mcp.actor.do", Description: "Plays an act.", Effect: events.EffectWrite, Route: route("actor", "do"),
			Input:  json.RawMessage(`{"properties":{"do":{"type":"string"},"n":{"maximum":9007199254740993,"type":"integer"},"x-ray":{"type":"string"}},"required":["do","n"],"type":"object"}`),
			Output: json.RawMessage(`{"properties":{"n":{"type":"integer"}},"type":"object"}`)},
		{Name: "mcp.actor.look_up", Effect: events.EffectRead, Route: events.Route{MCP: &events.MCPRoute{Server: "actor", Tool: "look-up"}}, Input: json.RawMessage(`{"properties":{},"type":"object"}`), Output: content},
		{Name: "mcp.actor.set", Effect: events.EffectIdempotent, Route: events.Route{MCP: &events.MCPRoute{Server: "actor", Tool: "set"}}, Input: json.RawMessage(`{"type":"object"}`), Output: content},
	}
	text := func(m json.RawMessage) string { return string(m) }
	if diff := cmp.Diff(want, kept, cmp.Transformer("text", text)); diff != "" {
		t.Errorf("capabilities (-want +got):\n%s", diff)
	}
	if len(left) != 3 || left[0].Tool != "pair" || left[0].Schema != "input" || left[0].Pointer != "/properties/at/prefixItems" || left[1].Tool != "a.b" || left[2].Capability != "mcp.actor.a_b" {
		t.Errorf("left out: %v", left)
	}
}
