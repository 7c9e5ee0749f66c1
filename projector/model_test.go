package projector_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

func TestARunAsksItsModelsInTheirOrderAndWhatTheyWereUsedForIsCounted(t *testing.T) {
	h := waiting(t)
	at := func(model, next string) {
		t.Helper()
		if r := h.fold(t).Current(); r.Model() != model || r.NextModel() != next {
			t.Errorf("the run asks %q and then %q, want %q and %q", r.Model(), r.NextModel(), model, next)
		}
	}
	revision := uint64(4)
	use := func(input int64) {
		revision++
		h.commit(t, events.CheckpointDelta{Revision: revision, Usage: events.Usage{Input: input}})
	}
	at("a/x", "b/y")
	use(1)
	h.append(t, run1, events.ModelSwitched{From: "a/x", To: "b/y", Reason: events.SwitchDenied})
	at("b/y", "c/z")
	use(20)
	h.append(t, run1, events.RunReleased{Reason: "drain"})
	h.append(t, run1, events.RunClaimed{Worker: "w2"}) // the next worker goes on with it
	use(0)
	use(300)
	h.append(t, run1, events.ModelSwitched{From: "b/y", To: "nobody's", Reason: events.SwitchNotFound})
	at("b/y", "c/z")
	h.append(t, run1, events.ModelSwitched{From: "b/y", To: "c/z", Reason: events.SwitchUnavailable})
	at("c/z", "")
	r := h.fold(t).Current()
	want := []events.ModelUsage{{Model: "a/x", Usage: events.Usage{Input: 101, Output: 10}}, {Model: "b/y", Usage: events.Usage{Input: 320}}}
	if diff := cmp.Diff(want, r.Summary().Spent); diff != "" {
		t.Errorf("spent (-want +got):\n%s", diff)
	}
	var sum events.Usage
	for _, s := range r.Spent {
		sum = sum.Add(s.Usage)
	}
	if sum != r.Checkpoint.Usage {
		t.Errorf("the models were used for %+v, the run for %+v", sum, r.Checkpoint.Usage)
	}
	h.append(t, run1, events.RunFailed{Reason: events.FailureAborted})
	h.append(t, run2, events.RunAdmitted{Agent: "planner", Models: []string{"a/x", "b/y"}})
	at("a/x", "b/y")
	if r := (&projector.Run{}); r.Model() != "" || r.NextModel() != "" {
		t.Error("a run without models has one")
	}
}
