package projector_test

import (
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

func TestAParkedRunWakesForWhatItWaitsForAndNothingElse(t *testing.T) {
	const left, right = "s2-cccccccc", "s3-dddddddd"
	deadline, ofRun := epoch.Add(time.Minute), epoch.Add(time.Hour)
	both := events.RunParked{CallID: "call_1", Dependencies: []string{left, right}, Deadline: &deadline}
	either := both
	either.Any = true
	messages := events.RunParked{CallID: "call_1", Messages: true}
	settled := func(child string) any { return events.ChildSettled{Child: child} }
	for _, c := range []struct {
		promise string
		park    events.RunParked
		facts   []any
		wakes   bool
	}{
		{"nothing came", both, nil, false},
		{"one of two children has settled", both, []any{settled(left)}, false},
		{"both children have settled", both, []any{settled(right), settled(left)}, true},
		{"one of any two has settled", either, []any{settled(right)}, true},
		{"another child has settled", either, []any{settled("s9-eeeeeeee")}, false},
		{"the wait's timer has fired", both, []any{events.TimerFired{CallID: "call_1", Deadline: deadline.In(time.FixedZone("x", 3600))}}, true},
		{"the timer of another call has fired", both, []any{events.TimerFired{CallID: "call_0", Deadline: deadline}}, false},
		{"the timer of an earlier deadline has fired", both, []any{events.TimerFired{CallID: "call_1", Deadline: deadline.Add(-time.Second)}}, false},
		{"the run's own timer has fired", both, []any{events.TimerFired{Deadline: ofRun}}, true},
		{"the run's own timer of another deadline has fired", both, []any{events.TimerFired{Deadline: deadline}}, false},
		{"a cancellation was asked for", both, []any{events.CancelRequested{}}, true},
		{"a message came and none is waited for", both, []any{events.MessageReceived{}}, false},
		{"a message came and is waited for", messages, []any{events.MessageReceived{}}, true},
		{"a wait without children is not over at once", messages, nil, false},
	} {
		for _, parkedFirst := range []bool{true, false} {
			h := begun(t)
			if parkedFirst {
				h.append(t, run1, c.park)
			}
			for _, fact := range c.facts {
				h.append(t, run1, fact)
			}
			if !parkedFirst { // what came while the run was about to park counts as well
				h.append(t, run1, c.park)
			}
			if got := h.fold(t).Runnable(); got != c.wakes {
				t.Errorf("%s (parked first: %t): runnable is %t", c.promise, parkedFirst, got)
			}
		}
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
