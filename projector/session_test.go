package projector_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// ignored lists the types of facts that the fold of a session does not look at.
// Those of a ledger stand on a subject of their own.
var ignored = []string{"budget.reserved", "budget.refused", "budget.settled", "budget.topped_up"}

// factTypes returns the facts that a session goes on after: all but the one that
// erases it.
func factTypes() []events.Type {
	return slices.DeleteFunc(events.FactTypes(), func(t events.Type) bool { return t == events.TypeFor[events.SessionErased]() })
}

// A type that is added to the table and forgotten here fails.
func TestEveryTypeOfFactIsFolded(t *testing.T) {
	for _, ty := range factTypes() {
		sample, ok := samples()[ty.Short()]
		if !ok {
			t.Errorf("there is no sample of %s: add one, and a case to the fold", ty.Name)
			continue
		}
		h := begun(t)
		before := h.fold(t)
		h.append(t, run1, sample)
		after := h.fold(t)
		after.At = before.At
		if folded := cmp.Diff(before, after) != ""; folded == slices.Contains(ignored, ty.Short()) {
			t.Errorf("%s changes the session: %t", ty.Name, folded)
		}
	}
}

// vary draws another payload of the same type where a sample is not all there
// is to it.
func vary(t *rapid.T, payload any) any {
	ids, children := rapid.SampledFrom([]string{"call_0", "call_1", "call_2"}), rapid.SampledFrom([]string{left, right, stranger})
	message := func() events.Message { return events.Text(ids.Draw(t, "message"), events.RoleUser, "text") }
	switch p := payload.(type) {
	case events.RunAdmitted:
		if p.Message = message(); rapid.IntRange(0, 4).Draw(t, "cancelled") == 0 {
			p.Cancelled = &events.CancelRequested{Reason: "early"}
		}
		return p
	case events.CheckpointCommitted:
		p.Delta.Settle = []events.CallChange{{Index: rapid.IntRange(-2, 4).Draw(t, "index"), State: events.CallSettled, Outcome: rapid.SampledFrom([]events.Outcome{events.OutcomeOK, events.OutcomeError}).Draw(t, "outcome")}}
		if rapid.Bool().Draw(t, "opens") {
			call := ids.Draw(t, "call")
			p.Delta.Calls, p.Delta.Settle = &[]events.Call{{ToolCall: events.ToolCall{ID: call}, State: events.CallDispatched}}, nil
			p.Opened = []events.ChildCall{child(call, children.Draw(t, "child"))}
		}
		p.Delta.Append = []events.Message{message()}
		return p
	case events.RunParked:
		p.CallID, p.Any, p.Messages = ids.Draw(t, "call"), rapid.Bool().Draw(t, "any"), rapid.Bool().Draw(t, "messages")
		p.Reason = rapid.SampledFrom([]string{events.ParkChildren, events.ParkBudget}).Draw(t, "reason")
		return p
	case events.ChildSettled:
		p.Child = children.Draw(t, "child")
		return p
	case events.TimerFired:
		if rapid.Bool().Draw(t, "of a wait") {
			p = events.TimerFired{CallID: ids.Draw(t, "call"), Deadline: ofWait}
		}
		return p
	case events.MessageReceived:
		p.Message = message()
		return p
	}
	return payload
}

// drawFact appends any fact that a correct writer could append.
func drawFact(t *rapid.T, h *history, kinds []events.Type, payloads map[string]any) {
	for {
		ty := rapid.SampledFrom(kinds).Draw(t, "type")
		if ty.Kind == events.Owner && !h.tip.Claim.Open {
			continue
		}
		payload := vary(t, payloads[ty.Short()])
		run := rapid.SampledFrom([]string{run1, run2, h.tip.Claim.Run}).Draw(t, "run")
		record := h.append(t, run, payload)
		if ty.Kind == events.External && rapid.Bool().Draw(t, "again") {
			h.seal(t, record.Event)
		}
		return
	}
}

// A fold never fails on what correct writers wrote, and live and recovered state
// are the same wherever the snapshot was taken.
func TestTheFoldNeverFailsAndASnapshotIsTheSameFold(t *testing.T) {
	kinds, payloads := factTypes(), samples()
	rapid.Check(t, func(t *rapid.T) {
		h := &history{}
		live, recovered := &projector.Session{}, &projector.Session{}
		for range rapid.IntRange(1, 40).Draw(t, "facts") {
			drawFact(t, h, kinds, payloads)
		}
		for i := range h.records {
			for _, s := range []*projector.Session{live, recovered} {
				if err := s.Fold(&h.records[i]); err != nil {
					t.Fatalf("fact %d, %s: %v", i+1, h.records[i].Type, err)
				}
			}
			if rapid.Bool().Draw(t, "snapshot") {
				recovered = snapshot(t, recovered)
			}
		}
		if diff := cmp.Diff(live, recovered, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-live +recovered):\n%s", diff)
		}
		if live.Runnable() != recovered.Runnable() || live.Tip() != h.tip {
			t.Fatalf("runnable: live %t, recovered %t; tip %+v, log %+v", live.Runnable(), recovered.Runnable(), live.Tip(), h.tip)
		}
	})
}

func TestARefusedFactLeavesTheSessionAsItWas(t *testing.T) {
	unknown := events.Event{ID: "u", Source: "/test", Type: events.FactPrefix + "later.thing", Namespace: "ns", Session: "s1", Run: run1, Data: raw(`{}`)}
	misfit := unknown
	misfit.Type, misfit.Data = events.FactPrefix+"run.admitted", raw(`{"agent":7}`)
	for promise, c := range map[string]struct {
		event  events.Event
		damage func(*events.Record)
		want   any
	}{
		"a fact of an unknown type": {unknown, func(*events.Record) {}, new(*projector.UnknownFactError)},
		"data that does not fit":    {misfit, func(*events.Record) {}, new(*events.DataError)},
		"a changed byte":            {unknown, func(r *events.Record) { r.Data = raw(`[]`) }, new(*events.DamageError)},
		"a fact before the last":    {unknown, func(r *events.Record) { r.Sequence = 1 }, new(*events.DamageError)},
	} {
		h := begun(t)
		s := h.fold(t)
		before := snapshot(t, s)
		record := *h.seal(t, c.event)
		c.damage(&record)
		err := s.Fold(&record)
		if err == nil || !errors.As(err, c.want) {
			t.Errorf("%s: %v", promise, err)
		}
		if diff := cmp.Diff(before, s, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s changed the session:\n%s", promise, diff)
		}
	}
}

func TestARunThatEndsInTheMiddleGivesEveryCallOneResult(t *testing.T) {
	for _, end := range []any{events.RunFailed{Reason: events.FailureAborted}, events.RunCancelled{Reason: "asked"}} {
		h := begun(t)
		h.append(t, run1, end)
		window := h.fold(t).Window
		var got []string
		for _, m := range window[2:] {
			got = append(got, fmt.Sprintf("%s %s %s", m.ID, m.Parts[0].Result.CallID, m.Parts[0].Result.Outcome))
		}
		want := []string{"result-call_0 call_0 ok", "result-call_1 call_1 skipped", "result-call_2 call_2 skipped"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%T (-want +got):\n%s", end, diff)
		}
	}
}

func TestOfTheCallsUnderWayOnlyThoseNeverMadeAgainAreUnknown(t *testing.T) {
	for tool, want := range map[string]events.Outcome{"run_js": events.OutcomeUnknown, "get_calls": events.OutcomeUnknown, "cancel_calls": events.OutcomeUnknown,
		"spawn_worker": events.OutcomeSkipped, "continue_agent": events.OutcomeSkipped, "wait_calls": events.OutcomeSkipped, "complete": events.OutcomeSkipped} {
		h := &history{}
		h.append(t, run1, events.RunAdmitted{Agent: "planner", Message: events.Text("task", events.RoleUser, "Go.")})
		h.append(t, run1, events.RunClaimed{Worker: "w1"})
		call := events.ToolCall{ID: "call_0", Name: tool, Arguments: raw(`{}`)}
		h.commit(t, events.CheckpointDelta{Version: 1, Revision: 1, Phase: string(projector.PhaseCalls),
			Append: []events.Message{{ID: "m1", Role: events.RoleAssistant, Parts: []events.Part{{Type: events.PartToolCall, Call: &call}}}},
			Calls:  &[]events.Call{{ToolCall: events.ToolCall{ID: "call_0", Name: tool}, State: events.CallDispatched}}})
		h.append(t, run1, events.RunCancelled{Reason: "asked"})
		window := h.fold(t).Window
		if got := window[len(window)-1].Parts[0].Result; got.CallID != "call_0" || got.Outcome != want {
			t.Errorf("%s: the call's outcome is %s, want %s", tool, got.Outcome, want)
		}
	}
}

func TestARunThatEndsAtABoundaryAddsNothing(t *testing.T) {
	for _, end := range []any{events.RunFailed{Reason: events.FailureDeadline}, events.RunCancelled{Reason: "asked"}} {
		h := begun(t)
		h.commit(t, events.CheckpointDelta{Revision: 4, Phase: string(projector.PhaseModel)})
		before := len(h.fold(t).Window)
		h.append(t, run1, end)
		if after := len(h.fold(t).Window); after != before {
			t.Errorf("%T added %d messages", end, after-before)
		}
	}
}

// A repeat is told by what it says: whoever repeats it may give it another id.
func TestExternalFactsCountOnce(t *testing.T) {
	park := samples()["run.parked"]
	for name, payload := range samples() {
		if !external(payload) {
			continue
		}
		for _, parked := range []bool{false, true} {
			if name == "timer.fired" && parked {
				payload = events.TimerFired{CallID: "call_2", Deadline: ofWait}
			}
			if name == "call.answered" {
				payload = events.CallAnswered{ID: "answer-1", CallID: "call_2", Error: "no"}
			}
			h := waiting(t)
			if parked {
				h.append(t, run1, park)
			}
			before := h.fold(t)
			record := h.append(t, run1, payload)
			once := h.fold(t)
			if before.At = once.At; cmp.Diff(before, once) == "" {
				t.Errorf("%s (parked: %t) changed nothing", name, parked)
			}
			h.seal(t, record.Event)
			h.append(t, run1, payload)
			again := h.fold(t)
			again.At = once.At
			if diff := cmp.Diff(once, again); diff != "" {
				t.Errorf("%s (parked: %t) again changed the session:\n%s", name, parked, diff)
			}
		}
	}
}

func TestFactsAboutARunThatIsNotTheCurrentOneChangeNothing(t *testing.T) {
	for name, payload := range samples() {
		h := begun(t)
		h.append(t, run1, events.RunCancelled{Reason: "asked"})
		before := h.fold(t)
		if !external(payload) || name == "call.resolved" { // which settles what an ended run left unknown
			continue
		}
		h.append(t, run1, payload)
		if name != "cancel.requested" { // which is kept for a run that is yet to come
			h.append(t, run2, payload)
		}
		after := h.fold(t)
		after.At = before.At
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s changed an ended session:\n%s", name, diff)
		}
	}
}

func external(payload any) bool {
	e, err := events.New(payload)
	return err == nil && events.TypeOf(e.Type).Kind == events.External
}

func TestACancellationBeforeTheAdmissionIsNotLost(t *testing.T) {
	h := &history{}
	h.append(t, run1, events.CancelRequested{Reason: "the parent was cancelled"})
	h.append(t, run1, events.CancelRequested{Reason: "again"})
	h.append(t, run2, events.CancelRequested{Reason: "another"})
	if c := h.fold(t).EarlyCancel(run1); c == nil || c.Reason != "the parent was cancelled" {
		t.Errorf("before the admission the session knows of %+v", c)
	}
	h.append(t, run1, events.RunAdmitted{Agent: "planner"})
	s := snapshot(t, h.fold(t))
	if c := s.EarlyCancel(run1); c != nil {
		t.Errorf("after the admission the session still knows of %+v", c)
	}
	if c := s.Current().Cancel; c == nil || c.Reason != "the parent was cancelled" {
		t.Errorf("the admitted run knows of %+v", c)
	}
	if len(s.Early) != 1 || s.Early[0].Run != run2 {
		t.Errorf("still early are %+v", s.Early)
	}
}

func TestClaimsThatEndWithoutProgressAreCounted(t *testing.T) {
	h := begun(t)
	want := func(failures int) {
		t.Helper()
		if got := h.fold(t).Current().Failures; got != failures {
			t.Errorf("after fact %d there are %d failures, want %d", len(h.records), got, failures)
		}
	}
	h.append(t, run1, events.RunClaimed{Worker: "w2"})
	h.append(t, run1, events.RunClaimed{Worker: "w3"})
	want(2)
	h.commit(t, events.CheckpointDelta{Revision: 4})
	want(0)
	h.append(t, run1, events.RunClaimed{Worker: "w4"})
	want(1)
	h.append(t, run1, events.RunReleased{Reason: "drain"})
	h.append(t, run1, events.RunClaimed{Worker: "w5"})
	want(0)
}

func TestACompactionReplacesTheWindowAndLaterMessagesFollow(t *testing.T) {
	h := begun(t)
	h.append(t, run1, samples()["window.compacted"])
	h.commit(t, events.CheckpointDelta{Revision: 4, Append: []events.Message{events.Text("m9", events.RoleUser, "more")}})
	s := h.fold(t)
	if len(s.Window) != 2 || s.Window[0].ID != "summary" || s.Window[1].ID != "m9" || s.Current().Checkpoint.Revision != 4 {
		t.Errorf("the window is %+v at revision %d", s.Window, s.Current().Checkpoint.Revision)
	}
}

func BenchmarkFold(b *testing.B) {
	h := begun(b)
	r := h.commit(b, events.CheckpointDelta{Revision: 4, Steps: 1, Append: []events.Message{events.Text("m", events.RoleUser, "text")}})
	s := h.fold(b)
	before := *s
	before.At, _ = events.Verify(h.records[:len(h.records)-1])
	record := *r
	b.ReportAllocs()
	for b.Loop() {
		*s = before
		if err := s.Fold(&record); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAnExternalFactWhoseDataDoesNotFitSaysNothing(t *testing.T) {
	h := begun(t)
	s := h.fold(t)
	before := snapshot(t, s)
	misfit := events.Event{ID: "u", Source: "/test", Type: events.FactPrefix + "cancel.requested", Namespace: "ns", Session: "s1", Run: run1, Data: raw(`{"reason":7}`)}
	record := *h.seal(t, misfit)
	if err := s.Fold(&record); err != nil {
		t.Fatal(err)
	}
	if s.At.Sequence != record.Sequence {
		t.Errorf("the fold stands at %d, the fact at %d", s.At.Sequence, record.Sequence)
	}
	s.At = before.At
	if diff := cmp.Diff(before, s, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("it changed the session:\n%s", diff)
	}
}
