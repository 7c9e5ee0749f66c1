package handlers_test

import (
	"bytes"
	"fmt"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// BenchmarkRun does a whole run of ten steps with one call each, from the
// command to the committed end, on a fake executor and a synced JetStream log,
// and beside each run the same number of raw fenced appends of the same bytes.
// ratio is the time of the run over theirs. after-us is what follows beside a
// run and is not awaited by it: its public events, and the second hint that the
// reaction to its admission sends.
func BenchmarkRun(b *testing.B) {
	const steps = 10
	conn := jetstreamtest.Open(b, jetstreamtest.Server(b), jetstream.Layout{Shards: 1})
	raw := newRaw(b, conn)
	var list []runtimetest.Step
	for i := range steps - 1 {
		list = append(list, runtimetest.RunJS(fmt.Sprintf("desk.book {\"seat\":%d}\nreturn", i)))
	}
	list = append(list, runtimetest.Complete(`"done"`))
	var inRun, inRaw, after time.Duration
	var appends, size int
	var mallocs uint64
	for b.Loop() {
		w := handlerstest.New(&jetstream.Log{Conn: conn}, &jetstream.Log{Conn: conn, Family: jetstream.FamilyBudget}, fmt.Sprintf("bench%d", worlds.Add(1)))
		w.Model.Respond = runtimetest.Script(list...)
		worker := w.Start(b.Context(), nil)
		v := agent("desk.book")
		if _, err := worker.Dispatcher.Apply(b.Context(), w.Namespace, &v); err != nil {
			b.Fatal(err)
		}
		w.Send(handlerstest.Start("1", "tester", "Book desks."))
		before := allocations()
		began := time.Now()
		worker.Admit()
		worker.Work()
		inRun += time.Since(began)
		mallocs += allocations() - before
		began = time.Now()
		worker.Settle()
		after += time.Since(began)
		if err := w.Idle(); err != nil {
			b.Fatal(err)
		}
		sizes := factSizes(b, w)
		appends, size = len(sizes), sum(sizes)
		began = time.Now()
		raw.append(b, sizes)
		inRaw += time.Since(began)
	}
	if callbacks := steps - 1; appends > 2*steps+3+callbacks {
		b.Errorf("a run of %d steps made %d appends, more than 2n+3 and one for each callback", steps, appends)
	}
	b.ReportMetric(inRun.Seconds()/inRaw.Seconds(), "ratio")
	b.ReportMetric(float64(after.Microseconds())/float64(b.N), "after-us")
	b.ReportMetric(float64(appends), "appends/run")
	b.ReportMetric(float64(size)/steps, "bytes/step")
	b.ReportMetric(float64(mallocs)/float64(b.N)/steps, "allocs/step")
}

func allocations() uint64 {
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return m.Mallocs
}

// factSizes returns the stored size of each fact of a world: headers and data.
func factSizes(b *testing.B, w *handlerstest.World) []int {
	b.Helper()
	var sizes []int
	for _, key := range w.Keys() {
		_, records, err := w.Session(b.Context(), key)
		if err != nil {
			b.Fatal(err)
		}
		for i := range records {
			n := len(records[i].Data)
			for name, values := range records[i].Header() {
				n += len(name) + len(values[0]) + 4
			}
			sizes = append(sizes, n)
		}
	}
	return sizes
}

func sum(list []int) (n int) {
	for _, x := range list {
		n += x
	}
	return n
}

// raw appends with the client library alone, to a stream with the log's
// settings.
type raw struct {
	js natsjs.JetStream
	n  int
}

func newRaw(b *testing.B, conn *jetstream.Conn) *raw {
	b.Helper()
	js, err := natsjs.New(conn.NATS())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := js.CreateStream(b.Context(), natsjs.StreamConfig{Name: "RAW", Subjects: []string{"raw.>"}, AllowDirect: true, DenyDelete: true, Discard: natsjs.DiscardNew}); err != nil {
		b.Fatal(err)
	}
	return &raw{js: js}
}

func (r *raw) append(b *testing.B, sizes []int) {
	b.Helper()
	r.n++
	subject := fmt.Sprintf("raw.%d", r.n)
	var last uint64
	for _, n := range sizes {
		ack, err := r.js.PublishMsg(b.Context(), &nats.Msg{Subject: subject, Data: bytes.Repeat([]byte("x"), n)}, natsjs.WithExpectLastSequencePerSubject(last))
		if err != nil {
			b.Fatal(err)
		}
		last = ack.Sequence
	}
}

// BenchmarkLoad folds sessions of many steps, without a snapshot.
func BenchmarkLoad(b *testing.B) {
	for _, steps := range []int{10, 100} {
		b.Run(fmt.Sprintf("steps=%d", steps), func(b *testing.B) {
			conn := jetstreamtest.Open(b, jetstreamtest.Server(b), jetstream.Layout{Shards: 1})
			w := handlerstest.New(&jetstream.Log{Conn: conn}, &jetstream.Log{Conn: conn, Family: jetstream.FamilyBudget}, "bench")
			var list []runtimetest.Step
			for i := range steps {
				list = append(list, runtimetest.RunJS(fmt.Sprintf("desk.book {\"seat\":%d}\nreturn", i)))
			}
			w.Model.Respond = runtimetest.Script(append(list, runtimetest.Complete(`"done"`))...)
			worker := w.Start(b.Context(), nil)
			v := agent("desk.book")
			if _, err := worker.Dispatcher.Apply(b.Context(), w.Namespace, &v); err != nil {
				b.Fatal(err)
			}
			w.Send(handlerstest.Start("1", "tester", "Book desks."))
			worker.Settle()
			key := events.Key{Namespace: "bench", Session: events.SessionFor("bench", "/test", "1")}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := worker.Dispatcher.Latest(b.Context(), key); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
