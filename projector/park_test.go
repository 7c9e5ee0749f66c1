package projector_test

import (
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

func TestAParkedRunWakesForWhatItWaitsForAndNothingElse(t *testing.T) {
	both := events.RunParked{CallID: "call_2", Dependencies: []string{left, right}, Deadline: &ofWait, Reason: events.ParkChildren}
	either := both
	either.Any = true
	mixed := both
	mixed.Messages = true
	unknown := both
	unknown.Dependencies = []string{left, stranger}
	messages := events.RunParked{CallID: "call_2", Messages: true, Reason: events.ParkMessage}
	budget := events.RunParked{Raises: 2, Reason: events.ParkBudget}
	call := events.RunParked{CallID: "call_2", Deadline: &ofWait, Reason: events.ParkCall, Capability: "desk.approve"}
	provider := events.RunParked{CallID: "call_2", Deadline: &ofWait, Reason: events.ParkProvider, Failed: 1}
	timer := events.TimerFired{CallID: "call_2", Deadline: ofWait.In(time.FixedZone("x", 3600))}
	for _, c := range []struct {
		promise string
		park    events.RunParked
		facts   []any
		wakes   bool
	}{
		{"nothing came", both, nil, false},
		{"one of two children has settled", both, []any{settled(left)}, false},
		{"both children have settled", both, []any{settled(right), settled(left)}, true},
		{"one of two children has settled twice", both, []any{settled(left), settled(left)}, false},
		{"one of any two has settled", either, []any{settled(right)}, true},
		{"another child has settled", either, []any{settled(stranger)}, false},
		{"all children have settled and the other is none of this run", unknown, []any{settled(left), settled(stranger)}, false},
		{"the wait's timer has fired", both, []any{timer}, true},
		{"the timer of another call has fired", both, []any{events.TimerFired{CallID: "call_0", Deadline: ofWait}}, false},
		{"the timer of an earlier deadline has fired", both, []any{events.TimerFired{CallID: "call_2", Deadline: ofWait.Add(-time.Second)}}, false},
		{"the run's own timer has fired", both, []any{events.TimerFired{Deadline: ofRun}}, true},
		{"the run's own timer of another deadline has fired", both, []any{events.TimerFired{Deadline: ofWait}}, false},
		{"a cancellation was asked for", both, []any{events.CancelRequested{}}, true},
		{"a message came and none is waited for", both, []any{events.MessageReceived{}}, false},
		{"a message came and is waited for", messages, []any{events.MessageReceived{}}, true},
		{"a message came and is waited for besides children", mixed, []any{events.MessageReceived{}}, true},
		{"a wait without children is not over at once", messages, nil, false},
		{"the budget was raised and is not waited for", both, []any{events.BudgetRaised{Raises: 9}}, false},
		{"the budget was not raised", budget, nil, false},
		{"the budget was raised before it was refused", budget, []any{events.BudgetRaised{Raises: 2}}, false},
		{"the budget was raised", budget, []any{events.BudgetRaised{Raises: 3}}, true},
		{"the budget was raised and an older top-up was told late", budget, []any{events.BudgetRaised{Raises: 3}, events.BudgetRaised{Raises: 1}}, true},
		{"everything but a top-up came", budget, []any{settled(left), settled(right), timer, events.MessageReceived{}}, false},
		{"the provider's time has not come", provider, []any{settled(left), settled(right), events.BudgetRaised{Raises: 9}, events.MessageReceived{}}, false},
		{"the provider's time has come", provider, []any{timer}, true},
		{"the provider is waited for and a cancellation was asked for", provider, []any{events.CancelRequested{}}, true},
		{"the answer to another call came", call, []any{events.CallAnswered{ID: "a", CallID: "call_1"}, events.MessageReceived{}, settled(left)}, false},
		{"the answer to the call came", call, []any{events.CallAnswered{ID: "a", CallID: "call_2"}}, true},
		{"the call's time has come", call, []any{timer}, true},
		{"an answer came and none is waited for", both, []any{events.CallAnswered{ID: "a", CallID: "call_2"}}, false},
		{"the budget is spent and a cancellation was asked for", budget, []any{events.CancelRequested{}}, true},
		{"the budget is spent and the run's own timer has fired", budget, []any{events.TimerFired{Deadline: ofRun}}, true},
	} {
		for _, order := range []string{"park, facts", "park, claim, facts, park", "facts, park"} {
			h := waiting(t)
			if order != "facts, park" {
				h.append(t, run1, c.park)
			}
			if order == "park, claim, facts, park" { // what came while the run was about to park again counts as well
				h.append(t, run1, events.RunClaimed{Worker: "w2"})
			}
			wakes := c.wakes
			for _, fact := range c.facts {
				h.append(t, run1, fact)
				// Nobody sets the timer of a wait that was not made yet.
				wakes = wakes && (order != "facts, park" || fact != any(timer))
			}
			if order != "park, facts" {
				h.append(t, run1, c.park)
			}
			s := h.fold(t)
			if got := s.Runnable(); got != wakes {
				t.Errorf("%s (%s): runnable is %t", c.promise, order, got)
			}
			if r := s.Current(); r.Satisfied() && !wakes {
				t.Errorf("%s (%s): the wait is said to be over", c.promise, order)
			}
		}
	}
}

func TestATimerOfOneWaitDoesNotEndAnother(t *testing.T) {
	h := waiting(t)
	h.append(t, run1, samples()["run.parked"])
	h.append(t, run1, events.TimerFired{CallID: "call_2", Deadline: ofWait})
	h.append(t, run1, events.RunClaimed{Worker: "w2"})
	h.append(t, run1, events.RunParked{CallID: "call_3", Dependencies: []string{left}, Deadline: &ofWait, Reason: events.ParkChildren})
	if h.fold(t).Runnable() {
		t.Error("the next wait is over with the timer of the one before")
	}
	h.append(t, run1, events.TimerFired{CallID: "call_2", Deadline: ofWait})
	if h.fold(t).Runnable() {
		t.Error("the next wait is over with a late timer of the one before")
	}
}

func TestAWaitOutlivesTheClaimThatFollowsIt(t *testing.T) {
	h := waiting(t)
	h.append(t, run1, samples()["run.parked"])
	h.append(t, run1, events.RunClaimed{Worker: "w2"})
	r := snapshot(t, h.fold(t)).Current()
	if r.Wait == nil || r.Wait.CallID != "call_2" || !r.Wait.Deadline.Equal(ofWait) || r.Reason != "" || r.Satisfied() {
		t.Errorf("after the claim the wait is %+v, the reason %q", r.Wait, r.Reason)
	}
}

func TestOnlyARunThatHasNotEndedIsRunnable(t *testing.T) {
	for end, want := range map[string]bool{"run.parked": false, "run.released": true, "run.completed": false, "run.failed": false, "run.cancelled": false, "run.claimed": true} {
		h := begun(t)
		h.append(t, run1, samples()[end])
		if got := h.fold(t).Runnable(); got != want {
			t.Errorf("after %s it is %t", end, got)
		}
	}
	if (&history{}).fold(t).Runnable() {
		t.Error("a session without facts is runnable")
	}
}
