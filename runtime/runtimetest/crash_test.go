package runtimetest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// sound is a scenario that uses every port.
func sound(change func(*Host)) Scenario {
	return Scenario{New: func(testing.TB) *Host {
		h := NewHost(events.AgentDefinition{Model: "scripted/one", Subagents: []string{"helper"}})
		h.Input.Subagents = []events.AgentDefinition{{Slug: "helper"}}
		h.Input.Capabilities = []events.Capability{{Name: "desk.book"}}
		h.Model.Respond = Script(
			Calls(ToolCall("spawn_helper", `{"message":"help"}`), RunJSCall("desk.book {}\nreturn")),
			Text("Now I wait."),
			Call("wait_calls", `{}`), CompleteQuoting())
		change(h)
		return h
	}}
}

// findings counts the crash points at which something is found wrong.
func findings(t *testing.T, s Scenario) (found int) {
	calm := s.run(t, 0, Works)
	ops := calm.host.Ops()[:calm.operations]
	for _, op := range ops {
		for _, fault := range Faults {
			disturbed := s.run(t, op.N, fault)
			disturbed.unknown = lostCalls(ops, op.N, fault)
			if op.Name != OpText && disturbed.check(calm) != nil {
				found++
			}
		}
	}
	return found
}

func TestASoundWorldPassesAtEveryPoint(t *testing.T) {
	report := CrashEverywhere(t, sound(func(*Host) {}))
	if report.Points < 3*report.Operations || report.Unknown == 0 || report.Saves == 0 {
		t.Errorf("the report is %+v", report)
	}
}

// What CrashEverywhere is for: ports that work as long as nothing happens.
func TestPortsThatDoNotSurviveACrashAreFound(t *testing.T) {
	for promise, breakIt := range map[string]func(*Host){
		"a child of its own for every spawn": func(h *Host) {
			n := 0
			h.Ports = func(in *runtime.Input) { in.Controller = eagerSpawn{in.Controller, &n} }
		},
		"a model that remembers its position": func(h *Host) {
			script, position := h.Model.Respond, -1
			h.Model.Respond = func(_ int, r *runtime.Request) (*runtime.Response, error) {
				position++
				return script(position, r)
			}
		},
		"a store that takes what it has lost for a fresh run": func(h *Host) {
			h.Ports = func(in *runtime.Input) { in.Store = forgetful{in.Store} }
		},
		"a store whose window misses an append after a takeover": func(h *Host) {
			h.Ports = func(in *runtime.Input) { in.Store = torn{in.Store} }
		},
	} {
		t.Run(promise, func(t *testing.T) {
			if found := findings(t, sound(breakIt)); found == 0 {
				t.Error("nothing was found")
			}
		})
	}
}

type eagerSpawn struct {
	runtime.Controller
	n *int
}

func (c eagerSpawn) Spawn(ctx context.Context, callID, slug string, input json.RawMessage) (*runtime.AgentRunInfo, error) {
	*c.n++
	return c.Controller.Spawn(ctx, fmt.Sprint(callID, *c.n), slug, input)
}

// forgetful has a checkpoint only from revision 3 on.
type forgetful struct{ runtime.Store }

func (s forgetful) LoadCheckpoint(ctx context.Context) (*projector.Checkpoint, error) {
	c, err := s.Store.LoadCheckpoint(ctx)
	if c != nil && c.Revision < 3 {
		return nil, err
	}
	return c, err
}

// torn loses the newest message when it is loaded in the middle of a response.
type torn struct{ runtime.Store }

func (s torn) Load(ctx context.Context) ([]events.Message, error) {
	window, err := s.Store.Load(ctx)
	if n := len(window); n > 2 && window[n-1].Role == events.RoleTool {
		window = window[:n-1]
	}
	return window, err
}

func TestATranscriptThatIsNotValidIsSeen(t *testing.T) {
	call := func(id string, calls ...string) events.Message {
		m := events.Message{ID: id, Role: events.RoleAssistant}
		for _, c := range calls {
			m.Parts = append(m.Parts, events.Part{Type: events.PartToolCall, Call: &events.ToolCall{ID: c, Name: "run_js"}})
		}
		return m
	}
	result := func(id string) events.Message {
		return projector.ResultMessage(&events.ToolCall{ID: id, Name: "run_js"}, events.OutcomeOK, "1")
	}
	task := events.Text("t", events.RoleUser, "task")
	if err := CheckTranscript([]events.Message{task, call("a", "x", "y"), result("x"), result("y"), call("b", "z"), result("z")}); err != nil {
		t.Errorf("a valid transcript: %v", err)
	}
	for promise, messages := range map[string][]events.Message{
		"a call without a result":         {task, call("a", "x")},
		"a message between":               {call("a", "x"), task, result("x")},
		"results in another order":        {call("a", "x", "y"), result("y"), result("x")},
		"a result twice":                  {call("a", "x"), result("x"), result("x")},
		"a result without a call":         {task, result("x")},
		"a call id used twice":            {call("a", "x"), result("x"), call("b", "x"), result("x")},
		"a message id used twice":         {task, task},
		"a message without an id":         {call("")},
		"a result of another call's name": {call("a", "x"), projector.ResultMessage(&events.ToolCall{ID: "x", Name: "complete"}, events.OutcomeOK, "")},
	} {
		if CheckTranscript(messages) == nil {
			t.Errorf("%s is not seen", promise)
		}
	}
}
