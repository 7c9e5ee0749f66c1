package projector_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

func note(id string) events.MessageReceived {
	return events.MessageReceived{Message: events.Text(id, events.RoleUser, "This is "+id+".")}
}

func ids(list []events.Message) []string {
	ids := []string{}
	for _, m := range list {
		ids = append(ids, m.ID)
	}
	return ids
}

// deliver commits the delivery of messages at a model boundary.
func (h *history) deliver(t testing.TB, revision uint64, list ...events.MessageReceived) {
	d := events.CheckpointDelta{Revision: revision, Phase: string(projector.PhaseModel), Calls: &[]events.Call{}}
	for _, m := range list {
		d.Append = append(d.Append, m.Message)
	}
	h.commit(t, d)
}

func TestAMessageIsDeliveredOnce(t *testing.T) {
	h := waiting(t)
	want := func(what string, list ...string) {
		t.Helper()
		if diff := cmp.Diff(append([]string{}, list...), ids(snapshot(t, h.fold(t)).Current().Messages)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	h.append(t, run1, note("a"))
	h.append(t, run1, note("b"))
	h.append(t, run1, note("a"))
	want("before a delivery", "a", "b")
	h.deliver(t, 5, note("a"))
	want("after the delivery of one", "b")
	h.append(t, run1, note("a"))
	want("after a late repeat", "b")
	h.append(t, run1, events.RunReleased{Reason: "drain"})
	h.append(t, run1, events.RunClaimed{Worker: "w2"})
	h.append(t, run1, note("a"))
	want("after a late repeat under another claim", "b")
	h.append(t, run1, note("c"))
	h.deliver(t, 6, note("b"), note("c"))
	want("after the delivery of all")
	h.append(t, run1, events.RunParked{CallID: "call_9", Messages: true, Reason: events.ParkMessage})
	h.append(t, run1, note("b"))
	if h.fold(t).Runnable() {
		t.Error("the repeat of a message that was delivered wakes the run")
	}
	h.append(t, run1, note("d"))
	if !h.fold(t).Runnable() {
		t.Error("a new message does not wake the run")
	}
}

// endings are the ways in which a claimed run ends.
var endings = map[string]any{
	"completed": events.RunCompleted{Delta: events.CheckpointDelta{Revision: 6, Phase: string(projector.PhaseCompleted), Reply: &events.Reply{Kind: events.ReplyOutput, Output: raw(`1`)}}},
	"failed":    events.RunFailed{Reason: events.FailureAborted},
	"cancelled": events.RunCancelled{Reason: "asked"},
}

func TestWhatARunDidNotDeliverStaysInTheConversation(t *testing.T) {
	for name, end := range endings {
		h := waiting(t)
		h.append(t, run1, note("delivered"))
		h.deliver(t, 5, note("delivered"))
		h.append(t, run1, note("a"))
		h.append(t, run1, note("b"))
		before := len(h.fold(t).Window)
		h.append(t, run1, end)
		for _, m := range []string{"a", "delivered", "after the end"} {
			h.append(t, run1, note(m))
		}
		s := snapshot(t, h.fold(t))
		if diff := cmp.Diff([]string{"a", "b"}, ids(s.Window[before:])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if r := s.Current(); len(r.Messages) > 0 || len(r.Heard) > 0 {
			t.Errorf("the %s run still holds %v and %v", name, ids(r.Messages), r.Heard)
		}
	}
}

func TestACompletionThatDeliversAMessageLeavesNoSecondCopy(t *testing.T) {
	h := waiting(t)
	h.append(t, run1, note("a"))
	before := len(h.fold(t).Window)
	h.append(t, run1, events.RunCompleted{Delta: events.CheckpointDelta{Revision: 5, Phase: string(projector.PhaseCompleted), Append: []events.Message{note("a").Message}, Reply: &events.Reply{}}})
	if diff := cmp.Diff([]string{"a"}, ids(h.fold(t).Window[before:])); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatCameFollowsTheResultsOfAnInterruptedResponse(t *testing.T) {
	h := begun(t)
	h.append(t, run1, note("a"))
	h.append(t, run1, events.RunFailed{Reason: events.FailureAborted})
	want := []string{"task", "m2", "result-call_0", "result-call_1", "result-call_2", "a"}
	if diff := cmp.Diff(want, ids(h.fold(t).Window)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestATaskThatWasNeverCommittedStaysInTheConversation(t *testing.T) {
	task := events.Text("task2", events.RoleUser, "More.")
	for name, end := range endings {
		if name == "completed" {
			continue // which is a commit
		}
		h := waiting(t)
		h.append(t, run1, events.RunCancelled{Reason: "asked"})
		before := len(h.fold(t).Window)
		h.append(t, run2, events.RunAdmitted{Agent: "planner", Message: task})
		h.append(t, run2, note("a"))
		if got := len(h.fold(t).Window); got != before {
			t.Errorf("before it has %s the run added %d messages", name, got-before)
		}
		h.append(t, run2, events.RunClaimed{Worker: "w1"})
		h.append(t, run2, end)
		if diff := cmp.Diff([]string{"task2", "a"}, ids(h.fold(t).Window[before:])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestARunMayBeAdmittedAsCancelled(t *testing.T) {
	h := waiting(t)
	h.append(t, run1, events.RunCancelled{Reason: "asked"})
	h.append(t, run2, events.CancelRequested{Reason: "too early"})
	before := h.fold(t)
	admission := h.append(t, run2, events.RunAdmitted{Agent: "planner", Message: note("task2").Message, Cancelled: &events.CancelRequested{Reason: "too early"}})
	s := snapshot(t, h.fold(t))
	r := s.Current()
	if r.ID != run2 || r.State != projector.StateCancelled || r.Reason != "too early" || r.EndedSeq != admission.Sequence || !r.EndedAt.Equal(admission.Time) {
		t.Errorf("the run is %s, %q, ended at %d", r.State, r.Reason, r.EndedSeq)
	}
	if s.Runnable() || len(s.Early) != 0 {
		t.Errorf("runnable is %t, early are %+v", s.Runnable(), s.Early)
	}
	if diff := cmp.Diff([]string{"task2"}, ids(s.Window[len(before.Window):])); diff != "" {
		t.Errorf("the window (-want +got):\n%s", diff)
	}
	h.append(t, "s1-cccccccc", events.RunAdmitted{Agent: "planner"})
	if !h.fold(t).Runnable() {
		t.Error("the session cannot be continued")
	}
}
