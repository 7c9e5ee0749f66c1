package runtime

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

func TestNextIsAFunctionOfTheState(t *testing.T) {
	const none = -1
	calls := func(list ...events.Call) *projector.Checkpoint {
		return &projector.Checkpoint{Phase: projector.PhaseCalls, Calls: list}
	}
	call := func(name string, state events.CallState) events.Call {
		return events.Call{ToolCall: events.ToolCall{Name: name}, State: state}
	}
	settled := call(toolRunJS, events.CallSettled)
	for _, c := range []struct {
		promise    string
		checkpoint *projector.Checkpoint
		dispatched int
		want       action
	}{
		{"a fresh run starts", nil, none, action{kind: actStart}},
		{"a model boundary asks the model", &projector.Checkpoint{Phase: projector.PhaseModel}, none, action{kind: actModel}},
		{"a model boundary does not look at an old journal", &projector.Checkpoint{Phase: projector.PhaseModel, Calls: []events.Call{call(toolRunJS, events.CallPending)}}, none, action{kind: actModel}},
		{"a completed run finishes", &projector.Checkpoint{Phase: projector.PhaseCompleted, Guard: events.Guard{Silent: 100}}, none, action{kind: actFinish}},
		{"a guard that is reached does not fail", &projector.Checkpoint{Phase: projector.PhaseModel, Guard: events.Guard{Repeats: 2, Silent: 3}}, none, action{kind: actModel}},
		{"a repetition too many fails", &projector.Checkpoint{Phase: projector.PhaseModel, Guard: events.Guard{Repeats: 3}}, none, action{kind: actFail, guard: &GuardError{GuardRepeatedCalls, 2}}},
		{"a silent answer too many fails", &projector.Checkpoint{Phase: projector.PhaseModel, Guard: events.Guard{Silent: 4}}, none, action{kind: actFail, guard: &GuardError{GuardSilentAnswers, 3}}},
		{"a completion too many that is not accepted fails", &projector.Checkpoint{Phase: projector.PhaseModel, Guard: events.Guard{Rejected: 5}}, none, action{kind: actFail, guard: &GuardError{GuardRejectedCompletions, 5}}},
		{"a guard waits for the results of a response", &projector.Checkpoint{Phase: projector.PhaseCalls, Guard: events.Guard{Rejected: 5}, Calls: []events.Call{settled, call(toolRunJS, events.CallPending)}}, none, action{kind: actDispatch, call: 1}},
		{"a pending call is dispatched", calls(call(toolRunJS, events.CallPending)), none, action{kind: actDispatch}},
		{"the first open call is next", calls(settled, call(toolGetCalls, events.CallPending), call(toolRunJS, events.CallPending)), none, action{kind: actDispatch, call: 1}},
		{"a call that this attempt dispatched is made", calls(settled, call(toolRunJS, events.CallDispatched)), 1, action{kind: actExecute, call: 1}},
		{"another dispatched script is unknown", calls(settled, call(toolRunJS, events.CallDispatched)), none, action{kind: actUnknown, call: 1}},
		{"what was dispatched under another index is unknown", calls(settled, call(toolRunJS, events.CallDispatched)), 0, action{kind: actUnknown, call: 1}},
		{"another dispatched get_calls is unknown", calls(call(toolGetCalls, events.CallDispatched)), none, action{kind: actUnknown}},
		{"another dispatched cancel_calls is unknown", calls(call(toolCancelCalls, events.CallDispatched)), none, action{kind: actUnknown}},
		{"another dispatched wait_calls is made again", calls(call(toolWaitCalls, events.CallDispatched)), none, action{kind: actExecute}},
		{"another dispatched continue_agent is made again", calls(call(toolContinue, events.CallDispatched)), none, action{kind: actExecute}},
		{"another dispatched complete is made again", calls(call(toolComplete, events.CallDispatched)), none, action{kind: actExecute}},
		{"another dispatched spawn is made again", calls(call("spawn_x", events.CallDispatched)), none, action{kind: actExecute}},
		{"another dispatched capability is looked at", calls(call("desk_book", events.CallDispatched)), none, action{kind: actExecute}},
		{"a dispatched call of what is no tool any more is unknown", calls(call("desk_gone", events.CallDispatched)), none, action{kind: actUnknown}},
		{"when all calls are settled the model is asked", calls(settled, settled), none, action{kind: actModel}},
	} {
		t.Run(c.promise, func(t *testing.T) {
			got := next(state{checkpoint: c.checkpoint, dispatched: c.dispatched, limits: guards{repeated: 2, silent: 3, rejected: 5}, direct: func(tool string) bool { return tool == "desk_book" }})
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(action{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
