package runtime_test

import (
	"context"
	"errors"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// newHost returns a world for an agent with two capabilities and a child, whose
// model plays the steps.
func newHost(steps ...rt.Step) *rt.Host {
	h := rt.NewHost(events.AgentDefinition{Slug: "planner", Instructions: "Plan.", Model: "scripted/one", Subagents: []string{"helper"}})
	h.Input.Subagents = []events.AgentDefinition{{Slug: "helper", Description: "Helps.", Instructions: "Help.", Model: "scripted/one"}}
	h.Input.Capabilities = []events.Capability{{Name: "desk.book"}, {Name: "desk.list"}}
	h.Model.Respond = rt.Script(steps...)
	return h
}

const (
	spawn   = "spawn_helper"
	help    = `{"message":"help"}`
	booking = "desk.book {\"seat\":4}\ndesk.list {}\nlog done\nreturn"
)

// finish runs an attempt that must complete.
func finish(t *testing.T, h *rt.Host) *runtime.Result {
	t.Helper()
	result, err := h.Run(t.Context())
	if err != nil {
		t.Fatalf("the run ended with %v", err)
	}
	if result.Reply == nil || result.Waiting {
		t.Fatalf("the run ended with %+v", result)
	}
	if err := h.Check(); err != nil {
		t.Fatal(err)
	}
	return result
}

// stop runs an attempt that must end with an error and without a result.
func stop(t *testing.T, h *rt.Host) error {
	t.Helper()
	result, err := h.Run(t.Context())
	if err == nil || result != nil {
		t.Fatalf("the attempt ended with %+v, %v; want an error and no result", result, err)
	}
	return err
}

// wantResult compares how a call ended.
func wantResult(t *testing.T, h *rt.Host, callID string, outcome events.Outcome, parts ...string) {
	t.Helper()
	got, text := h.Result(callID)
	if got != outcome {
		t.Errorf("call %s ended %q (%s), want %q", callID, got, text, outcome)
	}
	wantParts(t, text, parts...)
}

// reply answers every callback with that JSON.
func reply(value string) func(context.Context, *runtime.Callback) (rawJSON, error) {
	return func(context.Context, *runtime.Callback) (rawJSON, error) { return rawJSON(value), nil }
}

// failing answers every callback with that error.
func failing(err error) func(context.Context, *runtime.Callback) (rawJSON, error) {
	return func(context.Context, *runtime.Callback) (rawJSON, error) { return nil, err }
}

var errClosed = errors.New("the desk is closed")
