package host

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// rawAppends measures fenced appends of a small event, one after the other, in
// the same system: the unit that the other figures are given in.
func (s *system) rawAppends(n int) time.Duration {
	log := &jetstream.Log{Conn: s.conn}
	key := events.Key{Namespace: "raw", Session: fmt.Sprintf("s%d", time.Now().UnixNano())}
	e, err := events.New(events.RunReleased{Reason: "raw"})
	if err != nil {
		s.t.Fatal(err)
	}
	e.ID, e.Source, e.Namespace, e.Session = "raw", "/bench", key.Namespace, key.Session
	var last uint64
	began := time.Now()
	for range n {
		if last, err = log.Append(s.t.Context(), key, &e, last); err != nil {
			s.t.Fatal(err)
		}
	}
	return time.Since(began) / time.Duration(n)
}

// percentile returns the p-th of sorted times, in milliseconds.
func percentile(sorted []time.Duration, p int) float64 {
	return float64(sorted[min(len(sorted)*p/100, len(sorted)-1)].Microseconds()) / 1000
}

// BenchmarkWake measures how long after a child's terminal commit was begun its
// waiting parent asks its model again: the commit, the reaction, what the parent
// is told, the hint, the claim and the answer of the wait. appends is the median
// as a multiple of a raw fenced append in the same run.
func BenchmarkWake(b *testing.B) {
	s := newSystem(b)
	woken := make(chan time.Time, 1)
	h, _ := s.hostOf("w", cast{
		"parent": func(_ context.Context, step int, r *runtime.Request) (*runtime.Response, error) {
			if step == 1 {
				woken <- time.Now()
			}
			return runtimetest.Script(runtimetest.Calls(spawn("child"), wait(`{}`)), runtimetest.Complete(`"done"`))(step, r)
		},
		"child": plays(runtimetest.Complete(`"done"`)),
	}, member("parent", "child"), member("child"))
	s.run(h)
	var times []time.Duration
	for i := 0; b.Loop(); i++ {
		root := begin(b, h, fmt.Sprint(i), "parent")
		at := <-woken
		s.ended(h, root.Run)
		tree, err := h.Tree(b.Context(), "default", root.Run)
		if err != nil || tree.Children[0].Ended == nil {
			b.Fatalf("the child has not ended: %v", err)
		}
		times = append(times, at.Sub(*tree.Children[0].Ended))
	}
	b.StopTimer()
	slices.Sort(times)
	raw := s.rawAppends(200)
	b.ReportMetric(percentile(times, 50), "p50-ms")
	b.ReportMetric(percentile(times, 99), "p99-ms")
	b.ReportMetric(percentile(times, 50)/(float64(raw.Microseconds())/1000), "appends")
}

// BenchmarkFanOut does a whole tree: a parent that starts ten children of one
// step each, waits for all and completes. appends is its time as a multiple of a
// raw fenced append in the same run; facts is how many facts the tree has.
func BenchmarkFanOut(b *testing.B) {
	const children = 10
	s := newSystem(b)
	var calls []events.ToolCall
	for range children {
		calls = append(calls, spawn("child"))
	}
	h, _ := s.hostOf("w", cast{
		"parent": plays(runtimetest.Calls(append(calls, wait(`{}`))...), runtimetest.Complete(`"done"`)),
		"child":  plays(runtimetest.Complete(`"done"`)),
	}, member("parent", "child"), member("child"))
	s.run(h)
	var took time.Duration
	before := s.held("AGENT_LOG_0")
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		root := begin(b, h, fmt.Sprint(i), "parent")
		s.ended(h, root.Run)
		took += time.Since(began)
	}
	b.StopTimer()
	s.settled(h)
	raw := s.rawAppends(200)
	facts := float64(s.held("AGENT_LOG_0")-200-before) / float64(b.N)
	b.ReportMetric(facts, "facts")
	b.ReportMetric(float64(took)/float64(b.N)/float64(raw), "appends")
}

// BenchmarkWakeAmongParked wakes runs, one after the other, while a thousand
// others are parked.
func BenchmarkWakeAmongParked(b *testing.B) {
	const parked = 1000
	s := newSystem(b)
	var mu sync.Mutex
	woken := make(map[string]chan time.Time)
	h, _ := s.hostOf("w", cast{
		"sleeper": func(_ context.Context, step int, r *runtime.Request) (*runtime.Response, error) {
			if step == 1 {
				mu.Lock()
				woken[r.Messages[0].Parts[0].Text] <- time.Now()
				mu.Unlock()
			}
			return runtimetest.Script(runtimetest.Calls(wait(`{"messages":true}`)), runtimetest.Complete(`"done"`))(step, r)
		},
	}, member("sleeper", "sleeper"))
	s.run(h)
	asleep := func(id string) string {
		mu.Lock()
		woken[id] = make(chan time.Time, 1)
		mu.Unlock()
		e, err := events.New(events.StartRun{Agent: "sleeper", Message: id})
		if err != nil {
			b.Fatal(err)
		}
		e.ID, e.Source = id, "/test"
		admitted, err := h.Admit(b.Context(), "default", &e)
		if err != nil {
			b.Fatal(err)
		}
		return admitted.Run
	}
	var last string
	for i := range parked {
		last = asleep(fmt.Sprint("parked-", i))
	}
	s.parked(h, last)
	var times []time.Duration
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprint("woken-", i)
		run := asleep(id)
		s.parked(h, run)
		began := time.Now()
		send(b, h, "message-"+id, events.MessageRun{Run: run, Message: "Good morning."})
		mu.Lock()
		c := woken[id]
		mu.Unlock()
		times = append(times, (<-c).Sub(began))
	}
	b.StopTimer()
	slices.Sort(times)
	b.ReportMetric(percentile(times, 50), "p50-ms")
	b.ReportMetric(percentile(times, 99), "p99-ms")
	b.ReportMetric(percentile(times, 50)/(float64(s.rawAppends(200).Microseconds())/1000), "appends")
}

// parked waits until a run is parked.
func (s *system) parked(h *Host, run string) {
	s.t.Helper()
	jetstreamtest.Eventually(s.t, "run "+run+" to be parked", func() bool {
		d, err := h.GetRun(s.t.Context(), "default", run)
		return err == nil && d.State == projector.StateParked
	})
}
