// Package handlerstest runs a whole service in memory, one step after the other:
// a log (any events.Log), the queues and stores around it, and a worker that can
// be killed at any append and started again. It is for tests.
package handlerstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// World is what outlives a worker: the log, the streams, the stores, and the
// world outside.
type World struct {
	Log       events.Log
	Model     *runtimetest.Model
	Executors *runtimetest.Factory
	Services  *Services
	Redactor  runtime.Redactor
	Namespace string

	Silence time.Duration // how long a lease that this worker does not hold was silent; an hour when zero

	tap    *tap
	onRead func(events.Key)

	renewError error

	mu          sync.Mutex
	commands    []*Command
	work        []*item
	reacted     int // facts of the tap whose reaction is acknowledged
	definitions map[string][]byte
	latest      map[string]string
	objects     map[string][]byte
	snapshots   map[events.Key][]byte
	leases      map[events.Key]handlers.Lease
	loading     map[events.Key]loading
	Published   []events.Event
	Buried      []Letter
	ids         int
	workers     int
}

// Command is one message of the command stream.
type Command struct {
	Namespace, Name string
	Header          map[string][]string
	Data            []byte
	done            bool
}

// Letter is one dead letter.
type Letter struct {
	Namespace, Reason string
	Data              []byte
}

type item struct {
	hint  events.Hint
	done  bool
	taken bool // by Queue
}

// New returns a world over a log. The namespace keeps worlds over one log
// apart.
func New(log events.Log, namespace string) *World {
	t := &tap{Log: log}
	return &World{Log: t, tap: t, Namespace: namespace, Redactor: &runtimetest.Redactor{}, Services: &Services{}, Executors: &runtimetest.Factory{}, Model: &runtimetest.Model{},
		definitions: map[string][]byte{}, latest: map[string]string{}, objects: map[string][]byte{}, snapshots: map[events.Key][]byte{},
		leases: map[events.Key]handlers.Lease{}, loading: map[events.Key]loading{}}
}

// tap notes every fact that the log stores, in order, whatever the writer is
// told.
type tap struct {
	events.Log
	mu    sync.Mutex
	facts []events.Record
}

func (t *tap) note(e *events.Event, sequence uint64, err error) (uint64, error) {
	if err == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		kept := *e
		kept.Data, kept.Body = nil, nil // reactions see headers only
		t.facts = append(t.facts, events.Record{Event: kept, Sequence: sequence})
	}
	return sequence, err
}

func (t *tap) Append(ctx context.Context, key events.Key, e *events.Event, expected uint64) (uint64, error) {
	sequence, err := t.Log.Append(ctx, key, e, expected)
	return t.note(e, sequence, err)
}

func (t *tap) AppendUnfenced(ctx context.Context, key events.Key, e *events.Event) (uint64, error) {
	sequence, err := t.Log.AppendUnfenced(ctx, key, e)
	return t.note(e, sequence, err)
}

// Facts returns every fact stored so far, without its data.
func (w *World) Facts() []events.Record {
	w.tap.mu.Lock()
	defer w.tap.mu.Unlock()
	return slices.Clone(w.tap.facts)
}

// stored returns how many facts of a type are stored.
func (w *World) stored(factType string) (n int) {
	for _, f := range w.Facts() {
		if f.Type == factType {
			n++
		}
	}
	return n
}

// Keys returns the sessions that have facts, in the order of their first.
func (w *World) Keys() []events.Key {
	var keys []events.Key
	for _, f := range w.Facts() {
		if k := (events.Key{Namespace: f.Namespace, Session: f.Session}); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// Sessions implements handlers.Sessions.
func (w *World) Sessions(_ context.Context, namespace string) iter.Seq2[events.Key, error] {
	return func(yield func(events.Key, error) bool) {
		for _, k := range w.Keys() {
			if (namespace == "" || namespace == k.Namespace) && !yield(k, nil) {
				return
			}
		}
	}
}

// Send puts a command into the stream.
func (w *World) Send(e events.Event) {
	w.SendRaw(w.Namespace, events.TypeOf(e.Type).Name, e.Header(), e.Data)
}

// SendRaw puts any message into the command stream, under a command's type.
func (w *World) SendRaw(namespace, commandType string, header map[string][]string, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commands = append(w.commands, &Command{Namespace: namespace, Name: strings.TrimPrefix(commandType, events.TypePrefix), Header: header, Data: data})
}

// ErrKilled ends everything a killed worker does.
var ErrKilled = errors.New("the worker was killed")

// Worker is one incarnation of the service's process.
type Worker struct {
	*World
	Dispatcher *handlers.Dispatcher
	ctx        context.Context
	kill       context.CancelCauseFunc
	faulty     *eventstest.Faulty
	seen       map[string]bool // ids of the events it appended
}

// Append is one append that a worker makes. The same bytes sent again are the
// same append.
type Append struct {
	N    int    // counts the worker's appends from 1
	Type string // of the fact
	Nth  int    // the fact would be the nth of its type in the world's log
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
	worker.faulty = &eventstest.Faulty{Log: w.Log}
	kill := false // appends of a world are made one after the other
	worker.faulty.Plan = func(_ int, e *events.Event) (fault eventstest.Fault) {
		if worker.seen[e.ID] {
			return eventstest.None
		}
		worker.seen[e.ID] = true
		if plan != nil {
			fault, kill = plan(Append{len(worker.seen), e.Type, w.stored(e.Type) + 1})
		}
		return fault
	}
	worker.faulty.After = func(int) {
		if kill {
			worker.Kill()
		}
	}
	host := &handlers.Host{
		Log: handlers.Inline{Log: mortal{worker.faulty, worker.ctx, w}, Objects: objects{worker}}, Objects: objects{worker}, Definitions: definitions{worker}, Snapshots: snapshots{worker},
		Work: hinter{worker}, Public: publisher{worker}, Dead: dead{worker}, Redactor: w.Redactor,
		Now: time.Now, NewID: w.newID, Pause: events.Sleep, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Meter: handlers.NoMeter{},
	}
	worker.Dispatcher = &handlers.Dispatcher{Host: host, Worker: name, Leases: leases{worker}, Models: models{w.Model}, Executors: w.Executors, Services: mortalServices{w.Services, worker.ctx}, TTL: time.Minute}
	worker.Dispatcher.Prepare()
	return worker
}

func (w *World) newID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	return fmt.Sprintf("id-%s-%d", w.Namespace, w.ids)
}

// Kill ends the worker at once.
func (w *Worker) Kill() { w.kill(ErrKilled) }

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

// FailRenewals makes every renewal of a lease fail with err; nil ends that.
func (w *World) FailRenewals(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renewError = err
}

// OnRead is called before each read of a session; nil ends that.
func (w *World) OnRead(f func(events.Key)) { w.onRead = f }

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
		if w.Dead() || w.reactTo(&f) != nil || w.Dead() {
			return moved
		}
		w.reacted++
		moved = true
	}
	return moved
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

func (w *World) pendingCommands() []*Command {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.commands), func(c *Command) bool { return c.done })
}

func (w *World) pendingWork() []*item {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.work), func(i *item) bool { return i.done })
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

// Purge loses every work item.
func (w *World) Purge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.work = nil
}

// Idle returns an error that lists what is left undone.
func (w *World) Idle() error {
	var errs []error
	if n := len(w.pendingCommands()); n > 0 {
		errs = append(errs, fmt.Errorf("%d commands are not acknowledged", n))
	}
	if n := len(w.pendingWork()); n > 0 {
		errs = append(errs, fmt.Errorf("%d work items are not acknowledged", n))
	}
	if n := len(w.Facts()) - w.reacted; n > 0 {
		errs = append(errs, fmt.Errorf("%d facts were not reacted to", n))
	}
	return errors.Join(errs...)
}

// delivery is one work item handed out.
type delivery struct {
	*item
	acked bool
	later time.Duration
}

func (d *delivery) Hint() events.Hint                                  { return d.hint }
func (d *delivery) Ack(context.Context) error                          { d.acked = true; return nil }
func (d *delivery) Later(_ context.Context, after time.Duration) error { d.later = after; return nil }
func (d *delivery) Working(context.Context) error                      { return nil }

// Session returns the fold of a session as the log has it.
func (w *World) Session(ctx context.Context, key events.Key) (*projector.Session, []events.Record, error) {
	records, err := eventstest.All(ctx, handlers.Inline{Log: w.Log, Objects: objects{&Worker{World: w, ctx: ctx}}}, key)
	if err != nil {
		return nil, nil, err
	}
	var s projector.Session
	for i := range records {
		if err := s.Fold(&records[i]); err != nil {
			return nil, nil, err
		}
	}
	return &s, records, nil
}
