package projector_test

import (
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// ownCall is a history in which a call of a capability by the model itself is under
// way as call_s.
func ownCall(t *testing.T) *history {
	t.Helper()
	h := &history{}
	task := events.Text("task-"+run1, events.RoleUser, "Do it.")
	call := events.ToolCall{ID: "call_s", Name: "svc_c0", Arguments: raw(`{"seat":4}`)}
	direct := journal("call_s", []events.CallbackMade{made(0, events.EffectWrite)})
	h.append(t, run1, events.RunAdmitted{Agent: "planner", Message: task})
	h.append(t, run1, events.RunClaimed{Worker: "w1"})
	h.append(t, run1, events.CheckpointCommitted{Direct: &direct, Delta: events.CheckpointDelta{Version: 1, Contract: "c", Revision: 1, Phase: string(projector.PhaseCalls), UsedIDs: []string{"call_s"},
		Append: []events.Message{task, {ID: "m", Role: events.RoleAssistant, Parts: []events.Part{{Type: events.PartToolCall, Call: &call}}}},
		Calls:  &[]events.Call{{ToolCall: call, State: events.CallDispatched}}}})
	return h
}

func TestWhyNobodyKnowsIsKeptWithEveryUnknownCallback(t *testing.T) {
	silent := journal("call_s", nil, events.CallbackDone{Outcome: events.OutcomeUnknown, Text: "svc.c0 did not answer within 30s"})
	settled := events.CheckpointCommitted{Delta: settleScript(events.OutcomeUnknown)}
	parked := events.RunParked{CallID: "call_s", Reason: events.ParkCall, Capability: "svc.c0"}
	for _, c := range []struct {
		name  string
		own   bool
		facts []any
		want  string // nothing: it is known
	}{
		{"what was recorded", true, []any{silent, settled}, "svc.c0 did not answer within 30s"},
		{"what was recorded of a script", false, []any{silent, settled}, "svc.c0 did not answer within 30s"},
		{"a worker that stopped", false, []any{settled}, "the worker that made it stopped before its answer was stored"},
		{"a cancellation", true, []any{events.RunCancelled{Reason: "no need"}}, "its run was cancelled (no need) before an answer was stored"},
		{"a cancellation of a script", false, []any{events.RunCancelled{Reason: "no need"}}, "its run was cancelled (no need) before an answer was stored"},
		{"what was recorded before a cancellation", true, []any{silent, events.RunCancelled{Reason: "no need"}}, "svc.c0 did not answer within 30s"},
		{"a failure", true, []any{events.RunFailed{Reason: events.FailureDeadline}}, "its run failed (deadline) before an answer was stored"},
		{"a cancellation while it was accepted", true, []any{parked, events.RunClaimed{Worker: "w2"}, events.RunCancelled{Reason: "no need"}}, "its service accepted it, and its run was cancelled (no need) before the answer came"},
		{"an answer that came after all", true, []any{silent, events.CheckpointCommitted{Delta: settleScript(events.OutcomeOK)}}, ""},
	} {
		h := scripted(t, run1, &history{})
		if c.own {
			h = ownCall(t)
		} else {
			h.append(t, run1, journal("call_s", []events.CallbackMade{made(0, events.EffectWrite)}))
		}
		for _, fact := range c.facts {
			h.append(t, run1, fact)
		}
		unknown := h.fold(t).Current().Unknown
		switch {
		case c.want == "" && len(unknown) > 0:
			t.Errorf("%s: unknown is %+v", c.name, unknown[0].Done)
		case c.want != "" && (len(unknown) != 1 || unknown[0].Done == nil || unknown[0].Done.Text != c.want):
			t.Errorf("%s: unknown are %+v, want %q", c.name, unknown, c.want)
		}
	}
	// A reason that somebody gave at length is kept in part.
	h := ownCall(t)
	h.append(t, run1, events.RunCancelled{Reason: strings.Repeat("x", 1<<20)})
	if n := len(h.fold(t).Current().Unknown[0].Done.Text); n > projector.MaxResult+len("…") {
		t.Errorf("%d bytes of a reason are kept", n)
	}
}
