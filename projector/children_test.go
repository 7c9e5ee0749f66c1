package projector_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// calls lists children by call, with how they ended.
func calls(children []projector.Child) []string {
	var list []string
	for _, c := range children {
		outcome := "open"
		if c.Settled != nil {
			outcome = c.Settled.Outcome
		}
		list = append(list, c.CallID+" "+c.Run+" "+outcome)
	}
	return list
}

func TestChildrenAreKeptInTheOrderOfDispatch(t *testing.T) {
	s := snapshot(t, waiting(t).fold(t))
	want := []string{"call_0 " + left + " open", "call_1 " + right + " open"}
	if diff := cmp.Diff(want, calls(s.Current().Children)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if c := s.Child("call_1"); c == nil || c.Session != "s3" || c.Agent != "worker" {
		t.Errorf("call_1 started %+v", c)
	}
	if s.Child("call_2") != nil || s.Current().Child("call_2") != nil {
		t.Error("call_2 started a child")
	}
}

func TestARefusedCallHasNoChild(t *testing.T) {
	for outcome, kept := range map[events.Outcome]bool{events.OutcomeOK: true, events.OutcomeError: false, events.OutcomeDenied: false} {
		h := begun(t)
		h.commit(t, settle(4, 1, outcome, "said", 2))
		s := h.fold(t)
		if got := s.Child("call_1") != nil; got != kept {
			t.Errorf("%s: the child is there: %t", outcome, got)
		}
		if s.Child("call_0") == nil {
			t.Errorf("%s of one call forgot the child of another", outcome)
		}
	}
}

func TestARefusalInTheCommitThatOpensTheNextChildForgetsOnlyItsOwn(t *testing.T) {
	h := begun(t)
	h.commit(t, settle(4, 1, events.OutcomeError, "no", 2), child("call_2", stranger))
	want := []string{"call_0 " + left + " open", "call_2 " + stranger + " open"}
	if diff := cmp.Diff(want, calls(h.fold(t).Current().Children)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTheFirstSettlementOfAChildCounts(t *testing.T) {
	h := waiting(t)
	h.append(t, run1, settled(left))
	h.append(t, run1, events.ChildSettled{Child: left, Outcome: "failed"})
	h.append(t, run1, events.ChildSettled{Child: right, Outcome: "failed"})
	h.append(t, run1, events.ChildSettled{Child: stranger, Outcome: "failed"})
	want := []string{"call_0 " + left + " completed", "call_1 " + right + " failed"}
	if diff := cmp.Diff(want, calls(h.fold(t).Current().Children)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTheChildrenOfAnEndedRunAreKnownWithoutTheirReplies(t *testing.T) {
	h := waiting(t)
	h.append(t, run1, settled(left))
	if h.fold(t).Child("call_0").Settled.Reply == nil {
		t.Fatal("the reply is gone before the run has ended")
	}
	h.append(t, run1, events.RunFailed{Reason: events.FailureAborted})
	h.append(t, run2, events.RunAdmitted{Agent: "planner"})
	h.append(t, run1, settled(right))
	s := h.fold(t)
	want := []string{"call_0 " + left + " completed", "call_1 " + right + " open"}
	if diff := cmp.Diff(want, calls(s.Run(run1).Children)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if c := s.Child("call_0"); c == nil || c.Settled.Reply != nil {
		t.Errorf("of the ended run's child %+v is known", c)
	}
}

// A wait that is made again may be for others than the one before.
func TestAWaitCountsWhatItIsForNow(t *testing.T) {
	type step struct {
		fact    any
		missing int
		wakes   bool
	}
	park := func(any bool, runs ...string) events.RunParked {
		return events.RunParked{CallID: "call_2", Dependencies: runs, Any: any, Reason: events.ParkChildren}
	}
	claim := events.RunClaimed{Worker: "w2"}
	for promise, steps := range map[string][]step{
		"for the other one":            {{park(false, left), 1, false}, {claim, 1, true}, {park(false, right), 1, false}, {settled(left), 1, false}, {settled(right), 0, true}},
		"for one more":                 {{park(false, left), 1, false}, {settled(left), 0, true}, {claim, 0, true}, {park(false, left, right), 1, false}, {settled(right), 0, true}},
		"for one less":                 {{park(false, left, right), 2, false}, {claim, 2, true}, {park(false, right), 1, false}, {settled(right), 0, true}},
		"for any of both":              {{park(false, left, right), 2, false}, {settled(right), 1, false}, {claim, 1, true}, {park(true, left, right), 1, true}},
		"while it runs":                {{park(false, left, right), 2, false}, {claim, 2, true}, {settled(left), 1, true}, {park(false, left, right), 1, false}, {settled(left), 1, false}},
		"for the same one named twice": {{park(false, left, left), 1, false}, {settled(left), 0, true}},
		"for nobody":                   {{park(false, left), 1, false}, {claim, 1, true}, {events.RunParked{CallID: "call_2", Messages: true, Reason: events.ParkMessage}, 0, false}, {settled(left), 0, false}},
	} {
		h := waiting(t)
		for i, s := range steps {
			h.append(t, run1, s.fact)
			session := snapshot(t, h.fold(t))
			if r := session.Current(); r.Missing != s.missing || session.Runnable() != s.wakes {
				t.Errorf("%s, step %d: %d are missing and runnable is %t, want %d and %t", promise, i, r.Missing, session.Runnable(), s.missing, s.wakes)
			}
		}
	}
}

// many is a run that waits for n children, and what they settle with.
func many(t testing.TB, n int) (*history, []events.Record) {
	h := waiting(t)
	opened := make([]events.ChildCall, n)
	park := events.RunParked{CallID: "call_2", Reason: events.ParkChildren}
	for i := range opened {
		run := fmt.Sprintf("c%08d-aaaaaaaa", i)
		opened[i] = child(fmt.Sprintf("many_%08d", i), run)
		park.Dependencies = append(park.Dependencies, run)
	}
	h.commit(t, events.CheckpointDelta{Revision: 5}, opened...)
	h.append(t, run1, park)
	first := len(h.records)
	for _, c := range opened {
		h.append(t, run1, events.ChildSettled{CallID: c.CallID, Child: c.Run, Outcome: "completed"})
	}
	settlements := h.records[first:]
	h.records = h.records[:first]
	return h, settlements
}

func TestASettlementAllocatesTheSameHoweverManyChildrenThereAre(t *testing.T) {
	const last = 100
	perFold := func(n int) (objects, bytes uint64) {
		h, settlements := many(t, n)
		s := h.fold(t)
		fold := func(records []events.Record) {
			for i := range records {
				if s.Runnable() {
					t.Fatal("it is runnable before the last child has settled")
				}
				if err := s.Fold(&records[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
		fold(settlements[:n-last])
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fold(settlements[n-last:])
		runtime.ReadMemStats(&after)
		if !s.Runnable() || s.Current().Missing != 0 {
			t.Errorf("of %d children %d are missing after the last", n, s.Current().Missing)
		}
		return (after.Mallocs - before.Mallocs) / last, (after.TotalAlloc - before.TotalAlloc) / last
	}
	fewObjects, fewBytes := perFold(200)
	manyObjects, manyBytes := perFold(10_000)
	if manyObjects > fewObjects+5 || manyBytes > 2*fewBytes {
		t.Errorf("one of 200 children settles with %d objects of %d bytes, one of 10000 with %d of %d", fewObjects, fewBytes, manyObjects, manyBytes)
	}
}

func BenchmarkSettle(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h, settlements := many(b, n)
			s := h.fold(b)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				if i == n {
					b.StopTimer()
					s, i = h.fold(b), 0
					b.StartTimer()
				}
				if err := s.Fold(&settlements[i]); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}
