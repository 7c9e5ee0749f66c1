package handlerstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/limit"
)

// ErrKilled ends everything a killed worker does.
var ErrKilled = errors.New("the worker was killed")

// Worker is one incarnation of the service's process.
type Worker struct {
	*World
	Dispatcher *handlers.Dispatcher
	ctx        context.Context
	kill       context.CancelCauseFunc
	faulty     *eventstest.Faulty
	ledger     *eventstest.Faulty
	seen       map[string]bool // ids of the events it appended
	before     func()          // runs before the append that is planned next
}

// Append is one append that a worker makes. The same bytes sent again are the
// same append.
type Append struct {
	N    int    // counts the worker's appends from 1
	Type string // of the fact
	Nth  int    // the fact would be the nth of its type in the world's log
	Run  string // that the fact is about
}

// Start starts a worker whose appends meet faults: plan says what happens to
// each, and whether the worker is killed before it learns of the outcome.
func (w *World) Start(ctx context.Context, plan func(a Append) (fault eventstest.Fault, kill bool)) *Worker {
	w.mu.Lock()
	w.workers++
	name := fmt.Sprintf("worker-%d", w.workers)
	w.mu.Unlock()
	worker := &Worker{World: w, seen: make(map[string]bool)}
	worker.ctx, worker.kill = context.WithCancelCause(ctx)
	// Appends are made one after the other, from the plan to the end, so that
	// each has a number: children are asked to stop several at a time.
	var turn sync.Mutex
	kill := false
	faulty := func(log events.Log) *eventstest.Faulty {
		f := &eventstest.Faulty{Log: log}
		f.Plan = func(_ int, e *events.Event) (fault eventstest.Fault) {
			turn.Lock()
			if worker.seen[e.ID] {
				return eventstest.None
			}
			worker.seen[e.ID] = true
			if plan != nil {
				fault, kill = plan(Append{len(worker.seen), e.Type, w.stored(e.Type) + 1, e.Run})
			}
			return fault
		}
		f.Before = func(int) {
			if before := worker.takeBefore(); before != nil {
				before()
			}
		}
		f.After = func(int) {
			defer turn.Unlock()
			if kill {
				worker.Kill()
			}
		}
		return f
	}
	worker.faulty, worker.ledger = faulty(w.Log), faulty(w.Ledger)
	log, vault := mortal{worker.faulty, worker.ctx, w}, w.vault()
	host := &handlers.Host{
		Ledger: mortal{worker.ledger, worker.ctx, w}, Timers: timers{worker}, Signals: signals{worker},
		Log: handlers.Inline{Log: log, Objects: objects{worker}, Vault: vault}, Stored: log, Vault: vault, Objects: objects{worker}, Definitions: definitions{worker}, Snapshots: handlers.SealedSnapshots{Snapshots: snapshots{worker}, Vault: vault},
		Work: hinter{worker}, Public: publisher{worker}, Dead: dead{worker}, Redactor: w.Redactor,
		Now: w.Now, NewID: w.newID, Pause: worker.pause, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Meter: handlers.NoMeter{},
	}
	host.Policies = w.Policies
	if w.Limits != nil {
		host.Limits = &limit.Limiter{Store: w.Limits, Worker: name}
	}
	worker.Dispatcher = &handlers.Dispatcher{Host: host, Worker: name, Leases: leases{worker}, Models: models{w}, Executors: w.Executors, Services: mortalServices{w.Services, worker}, TTL: time.Minute, Tree: w.Tree}
	worker.Dispatcher.Prepare()
	return worker
}

// Before lets f run before the append that is planned now, once. Call it from a
// plan.
func (w *Worker) Before(f func()) {
	w.World.mu.Lock()
	defer w.World.mu.Unlock()
	w.before = f
}

func (w *Worker) takeBefore() func() {
	w.World.mu.Lock()
	defer w.World.mu.Unlock()
	f := w.before
	w.before = nil
	return f
}

// Kill ends the worker at once.
func (w *Worker) Kill() { w.kill(ErrKilled) }

// pause is that of a process: the dead wait for nothing, whatever context they
// were given.
func (w *Worker) pause(ctx context.Context, d time.Duration) error {
	if w.Dead() {
		return ErrKilled
	}
	return events.Sleep(ctx, d)
}

// Dead reports whether the worker was killed.
func (w *Worker) Dead() bool { return w.ctx.Err() != nil }

// mortal is a log as a worker sees it: nothing answers the dead.
type mortal struct {
	*eventstest.Faulty
	ctx   context.Context
	world *World
}

func (m mortal) living(err error) error {
	if cause := context.Cause(m.ctx); cause != nil {
		return fmt.Errorf("%w: %w", events.ErrUnanswered, cause)
	}
	return err
}

// Append implements events.Log.
func (m mortal) Append(ctx context.Context, key events.Key, e *events.Event, expected uint64) (uint64, error) {
	if err := m.living(nil); err != nil {
		return 0, err
	}
	sequence, err := m.Faulty.Append(ctx, key, e, expected)
	return sequence, m.living(err)
}

// AppendUnfenced implements events.Log.
func (m mortal) AppendUnfenced(ctx context.Context, key events.Key, e *events.Event) (uint64, error) {
	if err := m.living(nil); err != nil {
		return 0, err
	}
	sequence, err := m.Faulty.AppendUnfenced(ctx, key, e)
	return sequence, m.living(err)
}

// Read implements events.Log.
func (m mortal) Read(ctx context.Context, key events.Key, after uint64, limit int) ([]events.Record, error) {
	if m.world.onRead != nil {
		m.world.onRead(key)
	}
	if err := m.living(nil); err != nil {
		return nil, err
	}
	return m.Faulty.Read(ctx, key, after, limit)
}

// Step lets the worker do whatever is there to do, once through commands,
// reactions and work. It reports whether anything was done.
func (w *Worker) Step() bool {
	moved := w.Admit()
	moved = w.React() || moved
	return w.Work() || moved
}

// Admit carries out the commands that are there.
func (w *Worker) Admit() (moved bool) {
	for _, c := range w.pendingCommands() {
		if !w.Dead() && w.Dispatcher.HandleCommand(w.ctx, c.Namespace, c.Name, c.Header, c.Data) == nil && !w.Dead() {
			c.done = true
			moved = true
		}
	}
	return moved
}

// React reacts to the facts that are there, in their order.
func (w *Worker) React() (moved bool) {
	for _, f := range w.Facts()[w.reacted:] {
		lost := w.Unreacted != nil && w.Unreacted(&f.Event)
		if w.Dead() || !lost && w.reactTo(&f) != nil || w.Dead() {
			return moved
		}
		w.reacted++
		moved = true
	}
	return moved
}

// Fire lets the time of the earliest timer come and fires it. It reports whether
// there was one.
func (w *Worker) Fire() bool {
	w.mu.Lock()
	var first *handlers.Timer
	for _, t := range w.timers {
		if first == nil || t.At.Before(first.At) {
			first = &t
		}
	}
	if first == nil || w.ctx.Err() != nil {
		w.mu.Unlock()
		return false
	}
	if left := first.At.Sub(time.Now().Add(w.passed)); left > 0 {
		w.passed += left
	}
	w.mu.Unlock()
	if w.Dispatcher.Fire(w.ctx, *first) != nil || w.Dead() {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if name := timerName(*first); w.timers[name] == *first {
		delete(w.timers, name)
	}
	return true
}

// Sweeper returns a sweeper that has not swept yet.
func (w *Worker) Sweeper() *handlers.Sweeper {
	return &handlers.Sweeper{Host: w.Dispatcher.Host, Sessions: w.World, Leases: w.Dispatcher.Leases, TTL: w.Dispatcher.TTL}
}

// What fails is made again so often, so far apart: a replica may lag behind.
const (
	retries    = 20
	retryPause = 5 * time.Millisecond
)

func (w *Worker) reactTo(f *events.Record) (err error) {
	for range retries {
		if err = w.Dispatcher.React(w.ctx, &f.Event, events.Position{Sequence: f.Sequence}); err == nil || events.Sleep(w.ctx, retryPause) != nil {
			break
		}
	}
	return err
}

// Work attends to the work items that are there.
func (w *Worker) Work() (moved bool) {
	for _, i := range w.pendingWork() {
		if w.Dead() {
			return moved
		}
		d := &delivery{item: i}
		w.Dispatcher.Attend(w.ctx, d)
		if w.Dead() {
			return moved
		}
		i.done = d.acked
		moved = moved || d.acked
	}
	return moved
}

// Takeover makes this worker see every other one silent for longer than a
// lease lives, and takes their leases away.
func (w *Worker) Takeover() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.leases)
	w.reacted = 0
}

// queue hands out the work items that are there, and then waits for the end.
type queue struct {
	w *Worker
}

// Queue returns the work items as a queue.
func (w *Worker) Queue(context.Context) handlers.Queue { return &queue{w} }

func (q *queue) Next(ctx context.Context) (handlers.Delivery, error) {
	for _, i := range q.w.pendingWork() {
		q.w.mu.Lock()
		taken := i.taken
		i.taken = true
		q.w.mu.Unlock()
		if !taken {
			return &delivery{item: i}, nil
		}
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// Settle steps until nothing is left to do, what is left was put back again and
// again, or the worker is dead. On a replicated log a stale read may put work
// back once.
func (w *Worker) Settle() {
	for failed := 0; failed < retries && !w.Dead(); {
		if w.Step() {
			failed = 0
			continue
		}
		failed++
		if w.Idle() == nil || events.Sleep(w.ctx, retryPause) != nil {
			return
		}
	}
}

// delivery is one work item handed out.
type delivery struct {
	*item
	acked bool
	later time.Duration
}

func (d *delivery) Hint() events.Hint { return d.hint }

func (d *delivery) Ack(context.Context) error { d.acked = true; return nil }

func (d *delivery) Later(_ context.Context, after time.Duration) error { d.later = after; return nil }

func (d *delivery) Working(context.Context) error { return nil }
