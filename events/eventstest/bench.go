package eventstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

// Protocol is what the suites drive: the rules that turn a Log into one history
// per session. The zero value's methods are those of events.Appender; a test of
// the suite itself puts a broken one in place of one of them.
type Protocol struct {
	Commit func(ctx context.Context, log events.Log, key events.Key, s events.State, decide func() (*events.Event, error)) (*events.Record, error)
	Attend func(ctx context.Context, log events.Log, hint events.Hint, e events.Errand) error
}

// Case is one promise of the protocol.
type Case struct {
	Name string
	Run  func(ctx context.Context, b *Bench) error
}

// Bench is what a case runs on.
type Bench struct {
	Protocol
	Log events.Log
	key events.Key
	ids atomic.Int64
}

// caseTimeout bounds one case; it is a bound on liveness, far above what any
// case takes.
const caseTimeout = 60 * time.Second

var keys atomic.Int64

func newBench(log events.Log, p Protocol) *Bench {
	b := &Bench{Protocol: p, Log: log, key: events.Key{Namespace: "suite", Session: fmt.Sprintf("s%d-%d", time.Now().UnixNano(), keys.Add(1))}}
	if b.Protocol.Commit == nil {
		b.Protocol.Commit = func(ctx context.Context, log events.Log, key events.Key, s events.State, decide func() (*events.Event, error)) (*events.Record, error) {
			return b.appender(log).Commit(ctx, key, s, decide)
		}
	}
	if b.Protocol.Attend == nil {
		b.Protocol.Attend = func(ctx context.Context, log events.Log, hint events.Hint, e events.Errand) error {
			return b.appender(log).Attend(ctx, hint, e)
		}
	}
	return b
}

func (b *Bench) newID() string { return fmt.Sprintf("%s-%d", b.key.Session, b.ids.Add(1)) }

func (b *Bench) appender(log events.Log) *events.Appender {
	return &events.Appender{Log: log, NewID: b.newID, Pause: events.Sleep}
}

// Run runs the cases as subtests against one log.
func Run(t *testing.T, log events.Log, p Protocol, cases []Case) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), caseTimeout)
			defer cancel()
			if err := RunCase(ctx, log, p, c); err != nil {
				t.Error(err)
			}
		})
	}
}

// RunCase runs one case in a session of its own.
func RunCase(ctx context.Context, log events.Log, p Protocol, c Case) error {
	return c.Run(ctx, newBench(log, p))
}

// consistently adds to each case that the session's log must be consistent at
// its end.
func consistently(cases []Case) []Case {
	for i, c := range cases {
		cases[i].Run = func(ctx context.Context, b *Bench) error {
			if err := c.Run(ctx, b); err != nil {
				return err
			}
			return b.consistent(ctx)
		}
	}
	return cases
}

// toy is the smallest fold that can tell whether a decision saw what it had to:
// it counts the external facts, each id once, and remembers the operations.
type toy struct {
	tip   events.Tip
	seen  map[string]bool
	ops   []uint64
	ended bool
}

func newToy() *toy { return &toy{seen: make(map[string]bool)} }

func (s *toy) Tip() events.Tip { return s.tip }

func (s *toy) Fold(r *events.Record) error {
	if err := s.tip.Advance(r); err != nil {
		return err
	}
	switch t := events.TypeOf(r.Type); {
	case t.Kind == events.External:
		s.seen[r.ID] = true
	case t.Kind == events.Owner:
		s.ops = append(s.ops, r.Revision)
		s.ended = s.ended || t.Ends
	}
	return nil
}

// worker is an owner, or one who wants to be: a fold and a claim.
type worker struct {
	*toy
	bench *Bench
	log   events.Log
	claim string
	epoch uint64
}

func (b *Bench) worker(log events.Log) *worker { return &worker{toy: newToy(), bench: b, log: log} }

func (w *worker) load(ctx context.Context) error {
	return w.bench.appender(w.log).LoadLatest(ctx, w.bench.key, w)
}

// take claims the session on what the worker has folded.
func (w *worker) take(ctx context.Context) error {
	w.claim = w.bench.newID()
	_, err := w.bench.Commit(ctx, w.log, w.bench.key, w, func() (*events.Event, error) {
		e, err := events.New(events.RunClaimed{Worker: w.claim})
		w.epoch = w.tip.Claim.Epoch + 1
		e.ClaimID, e.Epoch, e.Run = w.claim, w.epoch, "r"
		w.fill(&e)
		return &e, err
	})
	return err
}

// loadAndTake is a worker that takes the session over whatever stands there.
func (b *Bench) loadAndTake(ctx context.Context, log events.Log) (*worker, error) {
	w := b.worker(log)
	if err := w.load(ctx); err != nil {
		return nil, err
	}
	return w, w.take(ctx)
}

// do commits operation op under the worker's claim. The fact records how many
// external facts the decision had seen.
func (w *worker) do(ctx context.Context, op uint64) error {
	return w.commit(ctx, op, func() any {
		return events.CheckpointCommitted{Delta: events.CheckpointDelta{Revision: op, Phase: fmt.Sprint(len(w.seen))}}
	})
}

func (w *worker) commit(ctx context.Context, op uint64, payload func() any) error {
	_, err := w.bench.Commit(ctx, w.log, w.bench.key, w, func() (*events.Event, error) {
		e, err := events.New(payload())
		e.ClaimID, e.Epoch, e.Revision, e.Run = w.claim, w.epoch, op, "r"
		w.fill(&e)
		return &e, err
	})
	return err
}

func (w *worker) fill(e *events.Event) { w.bench.fill(e) }

func (b *Bench) fill(e *events.Event) {
	e.Source, e.Namespace, e.Session = "/suite", b.key.Namespace, b.key.Session
}

// external appends an external fact to the log itself, past any fault.
func (b *Bench) external(ctx context.Context, id string) (uint64, error) {
	e, err := events.New(events.MessageReceived{Message: events.Text(id, events.RoleUser, id)})
	if err != nil {
		return 0, err
	}
	e.ID, e.Run = id, "r"
	b.fill(&e)
	return b.appender(b.Log).Notify(ctx, b.key, &e)
}

// consistent checks what must hold of the session whatever happened: the chain,
// the fence, each operation once, and that every decision had seen each
// external fact below it.
func (b *Bench) consistent(ctx context.Context) error {
	records, err := All(ctx, b.Log, b.key)
	if err != nil {
		return err
	}
	if _, err := events.Verify(records); err != nil {
		return err
	}
	seen := make(map[string]bool)
	ops := make(map[string]bool)
	for _, r := range records {
		if events.TypeOf(r.Type).Kind == events.External {
			seen[r.ID] = true
		}
		if p, err := events.PayloadOf[events.CheckpointCommitted](&r.Event); err == nil && p.Delta.Phase != "" {
			if p.Delta.Phase != fmt.Sprint(len(seen)) {
				return fmt.Errorf("operation %d at sequence %d was decided having seen %s external facts, %d stand below it", r.Revision, r.Sequence, p.Delta.Phase, len(seen))
			}
			op := fmt.Sprint(r.ClaimID, "/", r.Revision)
			if ops[op] {
				return fmt.Errorf("operation %s stands twice", op)
			}
			ops[op] = true
		}
	}
	return nil
}

// stands reports whether an operation of a claim is in the log.
func (b *Bench) stands(ctx context.Context, claim string, op uint64) (bool, error) {
	records, err := All(ctx, b.Log, b.key)
	return slices.ContainsFunc(records, func(r events.Record) bool {
		return r.ClaimID == claim && r.Revision == op
	}), err
}

// expect compares the outcome of a commit with what the case computed.
func expect(what string, got, want error) error {
	if want == nil && got != nil || want != nil && !errors.Is(got, want) {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}

// parallel runs f n times at once and returns the errors.
func parallel(n int, f func(i int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errs
}
