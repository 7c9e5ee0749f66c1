package projector_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// called appends a run whose model calls a capability itself, and returns what
// settles that call.
func called(t *testing.T, run string, h *history, effect events.Effect, arguments string) func(events.Outcome) events.CheckpointCommitted {
	t.Helper()
	call := events.ToolCall{ID: "call_d", Name: "svc_c", Arguments: raw(arguments)}
	task := events.Text("task-"+run, events.RoleUser, "Do it.")
	h.append(t, run, events.RunAdmitted{Agent: "planner", Message: task})
	h.append(t, run, events.RunClaimed{Worker: "w1"})
	direct := journal("call_d", []events.CallbackMade{{Capability: "svc.c", Effect: effect, Key: "k"}})
	h.append(t, run, events.CheckpointCommitted{Direct: &direct, Delta: events.CheckpointDelta{Version: 1, Contract: "c", Revision: 1, Phase: string(projector.PhaseCalls), UsedIDs: []string{"call_d"},
		Append: []events.Message{task, {ID: "m-" + run, Role: events.RoleAssistant, Parts: []events.Part{{Type: events.PartToolCall, Call: &call}}}},
		Calls:  &[]events.Call{{ToolCall: events.ToolCall{ID: "call_d", Name: "svc_c"}, State: events.CallDispatched}}}})
	return func(outcome events.Outcome) events.CheckpointCommitted {
		return events.CheckpointCommitted{Delta: events.CheckpointDelta{Revision: 2, Phase: string(projector.PhaseModel), Append: []events.Message{projector.ResultMessage(&call, outcome, "…")},
			Settle: []events.CallChange{{Index: 0, State: events.CallSettled, Outcome: outcome}}}}
	}
}

func TestACapabilityThatTheModelCallsItselfIsItsOwnCallback(t *testing.T) {
	for _, c := range []struct {
		effect  events.Effect
		outcome events.Outcome
		want    int
	}{
		{events.EffectWrite, events.OutcomeUnknown, 1},
		{events.EffectWrite, events.OutcomeError, 0},
		{events.EffectWrite, events.OutcomeOK, 0},
		{events.EffectRead, events.OutcomeUnknown, 0},
	} {
		h := &history{}
		h.append(t, run1, called(t, run1, h, c.effect, `{"n":1}`)(c.outcome))
		r := h.fold(t).Current()
		if len(r.Unknown) != c.want || r.Script != nil || r.Summary().Unknown != c.want {
			t.Errorf("%s %s: unknown are %+v, under way is %+v", c.effect, c.outcome, r.Unknown, r.Script)
		}
		if c.want == 1 && (string(r.Unknown[0].Input) != `{"n":1}` || r.Unknown[0].Key != "k" || r.UnknownCallback("call_d", 0) == nil) {
			t.Errorf("unknown is %+v", r.Unknown[0])
		}
	}
}

func TestOnlySoManyUnknownCallsOfTheModelsOwnAreRemembered(t *testing.T) {
	h := &history{}
	for i := range projector.MaxUnknown + 3 {
		run := fmt.Sprintf("s1-run%05d", i)
		called(t, run, h, events.EffectWrite, `{"text":"`+strings.Repeat("x", 2<<10)+`"}`)
		h.append(t, run, events.RunCancelled{Reason: "asked"})
	}
	s, n := h.fold(t), 0
	for i := range s.Runs {
		n += len(s.Runs[i].Unknown)
	}
	if n != projector.MaxUnknown || len(s.Runs[0].Unknown) != 0 {
		t.Errorf("%d are remembered, of the oldest run %d", n, len(s.Runs[0].Unknown))
	}
	if first := s.Current().Unknown[0]; first.Input != nil || first.InputHash == "" {
		t.Errorf("a long input is kept: %d bytes, hash %q", len(first.Input), first.InputHash)
	}
	if text := s.Window[len(s.Window)-1].Parts[0].Result.Parts[0].Text; !strings.Contains(text, "this call was under way") {
		t.Errorf("the conversation says %s", text)
	}
}
