package projector_test

import (
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

func TestASummarySaysWhatARunGoesOnWith(t *testing.T) {
	const deadline = "the time 2026-03-01T13:00:00Z"
	claim := events.RunClaimed{Worker: "w2"}
	later := ofWait.In(time.FixedZone("x", 3600))
	park := func(p events.RunParked, facts ...any) []any {
		p.CallID = "call_2"
		return append([]any{p}, facts...)
	}
	both := []string{left, right}
	for _, c := range []struct {
		facts []any
		want  string
	}{
		{nil, "its worker"},
		{[]any{events.RunReleased{Reason: "drain"}}, "the next free worker"},
		{park(events.RunParked{Dependencies: both}), "all of 2 children (0 settled), or " + deadline},
		{park(events.RunParked{Dependencies: both}, settled(right)), "all of 2 children (1 settled), or " + deadline},
		{park(events.RunParked{Dependencies: both}, settled(right), settled(left)), "the next free worker"},
		{park(events.RunParked{Dependencies: both}, settled(right), settled(left), claim), "its worker"},
		{park(events.RunParked{Dependencies: both, Any: true}), "any of 2 children (0 settled), or " + deadline},
		{park(events.RunParked{Dependencies: both, Any: true}, settled(right)), "the next free worker"},
		{park(events.RunParked{Dependencies: both, Messages: true, Deadline: &later}), "all of 2 children (0 settled), or a message, or the time 2026-03-01T12:01:00Z, or " + deadline},
		{park(events.RunParked{Messages: true, Reason: events.ParkMessage}), "a message, or " + deadline},
		{park(events.RunParked{Messages: true, Reason: events.ParkMessage}, note("a")), "the next free worker"},
		{park(events.RunParked{Dependencies: both, Deadline: &ofWait}, events.TimerFired{CallID: "call_2", Deadline: ofWait}), "the next free worker"},
		{park(events.RunParked{Raises: 1, Budget: run2, Spent: "input_tokens", Reason: events.ParkBudget}), "a top-up of the input tokens of run " + run2 + ", or " + deadline},
		{park(events.RunParked{Raises: 1, Reason: events.ParkBudget}, events.BudgetRaised{Raises: 2}), "the next free worker"},
		{park(events.RunParked{Reason: events.ParkBudget}, events.CancelRequested{Reason: "enough"}), "the next free worker"},
		{park(events.RunParked{Reason: events.ParkBudget}, events.TimerFired{Deadline: ofRun}), "the next free worker"},
		{[]any{events.RunFailed{Reason: events.FailureBudget}}, ""},
		{[]any{events.RunCancelled{Reason: "asked"}}, ""},
		{[]any{samples()["run.completed"]}, ""},
	} {
		h := waiting(t)
		for _, fact := range c.facts {
			h.append(t, run1, fact)
		}
		if got := snapshot(t, h.fold(t)).Current().Summary().Wake; got != c.want {
			t.Errorf("after %+v it goes on with %q, want %q", c.facts, got, c.want)
		}
	}
}

func TestARunThatNobodyHasClaimedGoesOnWithTheNextFreeWorker(t *testing.T) {
	h := &history{}
	h.append(t, run1, events.RunAdmitted{Agent: "planner"})
	if got := h.fold(t).Current().Summary().Wake; got != "the next free worker" {
		t.Errorf("it goes on with %q", got)
	}
}
