package handlers_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
	"github.com/agentruntime/agentruntime/runtime/tokens"
)

// tolled is a log that counts what is read of it.
type tolled struct {
	events.Log
	reads, facts, bytes atomic.Int64
}

// Read implements events.Log.
func (l *tolled) Read(ctx context.Context, key events.Key, after uint64, limit int) ([]events.Record, error) {
	records, err := l.Log.Read(ctx, key, after, limit)
	l.reads.Add(1)
	l.facts.Add(int64(len(records)))
	for i := range records {
		l.bytes.Add(int64(len(records[i].Data)))
	}
	return records, err
}

// toll is what it costs to load a session for a resume.
type toll struct {
	reads, facts, bytes int64
	snapshot            int // bytes
}

// old is a session that many steps have made.
type old struct {
	toll
	age    int // facts
	worker *handlerstest.Worker
	key    events.Key
	latest *projector.Session
}

// stepsPerRun is how many steps the runs of an aged session have.
const stepsPerRun = 500

// aged returns what it costs to resume a session of so many steps, which were
// taken in a context that holds a few of them, by runs that follow each other.
// The newest of them is at its last step. The loop makes the first two and the
// newest; those between are the second one again, as facts of their own.
func aged(tb testing.TB, steps int) *old {
	tb.Helper()
	memory := &eventstest.Memory{}
	log := &tolled{Log: memory}
	w := handlerstest.New(log, &eventstest.Memory{}, "ns")
	var worker *handlerstest.Worker
	made := 0 // steps, before the newest run
	w.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
		if made+step%stepsPerRun == steps-1 {
			worker.Kill()
			return nil, context.Canceled
		}
		if step%stepsPerRun == stepsPerRun-1 {
			return runtimetest.Complete(`"done"`)(step, r)
		}
		return runtimetest.RunJS(fmt.Sprintf("log %d%s\nreturn %d", step, strings.Repeat("x", 400), step))(step, r)
	}
	worker = w.Start(tb.Context(), nil)
	v := within(agent(), 4500)
	if _, err := worker.Dispatcher.Apply(tb.Context(), "ns", &v); err != nil {
		tb.Fatal(err)
	}
	w.Send(handlerstest.Start("1", "tester", "Go."))
	worker.Admit()
	worker.Work()
	key := w.Keys()[0]
	copied := 0 // facts
	for made += stepsPerRun; made < steps; made += stepsPerRun {
		if made == 2*stepsPerRun {
			copied = again(tb, memory, key, (steps-made-1)/stepsPerRun)
			made += (steps - made - 1) / stepsPerRun * stepsPerRun
		}
		w.Send(handlerstest.Continue(fmt.Sprint(made), key.Session, "More."))
		worker.Admit()
		worker.Work()
	}
	worker = w.Start(tb.Context(), nil)
	log.reads.Store(0)
	log.facts.Store(0)
	log.bytes.Store(0)
	s, err := worker.Dispatcher.Latest(tb.Context(), key)
	if err != nil {
		tb.Fatal(err)
	}
	snapshot, err := worker.Dispatcher.Snapshots.Get(tb.Context(), key)
	if err != nil {
		tb.Fatal(err)
	}
	return &old{toll{log.reads.Load(), log.facts.Load(), log.bytes.Load(), len(snapshot)}, len(w.Facts()) + copied, worker, key, s}
}

// again appends the facts of the session's newest run so many times, each time as
// those of another run under a claim of its own, and returns how many facts that
// were.
func again(tb testing.TB, log events.Log, key events.Key, times int) int {
	tb.Helper()
	var records []events.Record
	for read := true; read; {
		after := uint64(0)
		if len(records) > 0 {
			after = records[len(records)-1].Sequence
		}
		page, err := log.Read(tb.Context(), key, after, 1000)
		if err != nil {
			tb.Fatal(err)
		}
		records, read = append(records, page...), len(page) > 0
	}
	tip, err := events.Verify(records)
	if err != nil {
		tb.Fatal(err)
	}
	run := records[len(records)-1].Run
	records = records[slices.IndexFunc(records, func(r events.Record) bool { return r.Run == run }):]
	for n := range times {
		id := fmt.Sprintf("%s-%08d", key.Session, n)
		claim := fmt.Sprintf("claim-%d", n)
		epoch := tip.Claim.Epoch + 1
		for i := range records {
			e := records[i].Event
			e.Run, e.ID, e.Data = id, fmt.Sprintf("again-%d-%d", n, i), bytes.ReplaceAll(e.Data, []byte(run), []byte(id))
			e.CommitID = e.ID
			if e.RootRun != "" {
				e.RootRun = id
			}
			if e.ClaimID != "" {
				e.ClaimID, e.Epoch = claim, epoch
			}
			tip.Seal(&e)
			sequence, err := log.Append(tb.Context(), key, &e, tip.Sequence)
			if err == nil {
				err = tip.Advance(&events.Record{Event: e, Sequence: sequence})
			}
			if err != nil {
				tb.Fatal(err)
			}
		}
	}
	return times * len(records)
}

func TestResumingAnOldSessionReadsNoMoreThanAYoungOne(t *testing.T) {
	young, ages := aged(t, 500), []int{2000}
	if slow {
		ages = []int{50_000} // more than 100,000 facts
	}
	for _, steps := range ages {
		old := aged(t, steps)
		t.Logf("%d facts: %+v; %d facts: %+v", young.age, young.toll, old.age, old.toll)
		if old.age < 2*steps || old.latest.Current().State.Terminal() {
			t.Fatalf("the session has %d facts and its run is %s", old.age, old.latest.Current().State)
		}
		// What follows the newest snapshot is read, and the fact that proves it.
		if old.reads > young.reads || old.facts > handlers.SnapshotEvery+16 || old.bytes > 1200*(handlers.SnapshotEvery+16) {
			t.Errorf("a session of %d steps is loaded with %+v, one of 500 with %+v", steps, old.toll, young.toll)
		}
		// Each run of the session that has ended is one line of it.
		if ended := steps / stepsPerRun; old.snapshot > 2*young.snapshot+200*ended {
			t.Errorf("the snapshot has %d bytes after %d steps and %d after 500", old.snapshot, steps, young.snapshot)
		}
	}
}

// BenchmarkResume loads sessions of more and more steps for a resume. ratio is
// the time of one against that of a session of a hundred steps.
func BenchmarkResume(b *testing.B) {
	var first float64
	for _, steps := range []int{100, 1000, 50_000} { // the last has more than 100,000 facts
		a := aged(b, steps)
		b.Run(fmt.Sprintf("steps=%d", steps), func(b *testing.B) {
			for b.Loop() {
				if _, err := a.worker.Dispatcher.Latest(b.Context(), a.key); err != nil {
					b.Fatal(err)
				}
			}
			each := b.Elapsed().Seconds() / float64(b.N)
			if first == 0 {
				first = each
			}
			b.ReportMetric(each/first, "ratio")
			b.ReportMetric(float64(a.age), "facts")
		})
	}
}

func TestTheLogGrowsByTheStepAndNotByTheConversation(t *testing.T) {
	calls := 25
	if slow {
		calls = 100
	}
	list := make([]runtimetest.Step, 0, calls+5)
	for range 4 {
		list = append(list, runtimetest.RunJS(`log `+strings.Repeat("x ", 100_000)+"\nreturn"))
	}
	for i := range calls {
		list = append(list, runtimetest.RunJS(fmt.Sprintf("log %d\nreturn %d", i, i)))
	}
	w, worker := started(t, within(agent(), 1_000_000), append(list, runtimetest.Complete(`"done"`))...)
	worker.Settle()
	if r := only(t, w); r.State != projector.StateCompleted {
		t.Fatalf("the run is %s: %+v", r.State, r.Failed)
	}
	requests := w.Model.Requests()
	if n := tokens.New("scripted/one").Request(requests[len(requests)-1]); n < 200_000 {
		t.Fatalf("the conversation has %d tokens", n)
	}
	_, records, err := w.Session(t.Context(), w.Keys()[0])
	if err != nil {
		t.Fatal(err)
	}
	// A step commits twice: the response with its call, and the result.
	var sizes []int
	for _, r := range records[len(records)-2*calls-1 : len(records)-1] {
		sizes = append(sizes, len(r.Data))
	}
	early, late := 0, 0
	for i, size := range sizes {
		if size > 2000 {
			t.Errorf("commit %d of %d has %d bytes", i, len(sizes), size)
		}
		if i < calls {
			early += size
		} else {
			late += size
		}
	}
	t.Logf("%d bytes a step, then %d", early*2/calls, late*2/calls)
	if late > early*11/10+100 {
		t.Errorf("the first half of the steps committed %d bytes, the second half %d", early, late)
	}
}
