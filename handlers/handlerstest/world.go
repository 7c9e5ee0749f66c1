// Package handlerstest runs a whole service in memory, one step after the other:
// a log (any events.Log), the queues and stores around it, and a worker that can
// be killed at any append and started again. It is for tests.
package handlerstest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/limit"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// World is what outlives a worker: the log, the streams, the stores, and the
// world outside.
type World struct {
	Log       events.Log
	Ledger    events.Log
	Model     *runtimetest.Model
	Named     map[string]*runtimetest.Model // models by name, in place of Model
	Executors *runtimetest.Factory
	Services  *Services
	Effects   map[string]events.Effect // of capabilities, by name: what may reach a service twice
	Redactor  runtime.Redactor
	Namespace string

	// Wrapping are the keys that workers which are started have, and SessionKeys
	// those that they wrap.
	Wrapping    []handlers.WrappingKey
	SessionKeys Keys

	Silence time.Duration // how long a lease that this worker does not hold was silent; an hour when zero
	Tree    handlers.TreeLimits

	Policies handlers.Policies // optional
	Limits   limit.Store       // optional: shared by the workers

	// Unheard loses signals, Unhinted work items, and Untimed timers.
	Unheard, Unhinted, Untimed bool

	// Unreacted, when set, chooses facts whose reactions are lost.
	Unreacted func(*events.Event) bool

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
	timers      map[string]handlers.Timer // by run and kind
	passed      time.Duration             // of time that went by at once
	listeners   map[events.Key][]*func()
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

// New returns a world over a log and a log of ledgers. The namespace keeps
// worlds over one log apart.
func New(log, ledger events.Log, namespace string) *World {
	t := &tap{Log: log}
	return &World{Log: t, tap: t, Ledger: &ledgerTap{ledger, t}, Namespace: namespace, Redactor: &runtimetest.Redactor{}, Services: &Services{}, Executors: &runtimetest.Factory{}, Model: &runtimetest.Model{},
		definitions: map[string][]byte{}, latest: map[string]string{}, objects: map[string][]byte{}, snapshots: map[events.Key][]byte{},
		leases: map[events.Key]handlers.Lease{}, timers: map[string]handlers.Timer{}, listeners: map[events.Key][]*func(){}, loading: map[events.Key]loading{}}
}

// tap notes every fact that the log stores, in order, whatever the writer is
// told.
type tap struct {
	events.Log
	mu    sync.Mutex
	facts []events.Record
	all   []events.Record // with those of ledgers
}

func (t *tap) note(e *events.Event, sequence uint64, err error, ledger bool) (uint64, error) {
	if err == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		kept := *e
		kept.Data, kept.Body = nil, nil // reactions see headers only
		r := events.Record{Event: kept, Sequence: sequence}
		if t.all = append(t.all, r); !ledger {
			t.facts = append(t.facts, r)
		}
	}
	return sequence, err
}

// ledgerTap notes the facts of ledgers beside those of sessions.
type ledgerTap struct {
	events.Log
	tap *tap
}

func (l *ledgerTap) Append(ctx context.Context, key events.Key, e *events.Event, expected uint64) (uint64, error) {
	sequence, err := settled(ctx, l.Log, key, e, expected)
	return l.tap.note(e, sequence, err, true)
}

func (t *tap) Append(ctx context.Context, key events.Key, e *events.Event, expected uint64) (uint64, error) {
	sequence, err := settled(ctx, t.Log, key, e, expected)
	return t.note(e, sequence, err, false)
}

func (t *tap) AppendUnfenced(ctx context.Context, key events.Key, e *events.Event) (sequence uint64, err error) {
	for range attempts {
		if sequence, err = t.Log.AppendUnfenced(ctx, key, e); !errors.Is(err, events.ErrUnanswered) {
			break
		}
	}
	return t.note(e, sequence, err, false)
}

// attempts bounds how often a log is asked that may be down for a test's reasons.
const attempts = 5

// settled appends to a log whose own faults (a busy replica may refuse, or leave
// unanswered, what nothing stands against) are not part of the test: the world
// counts what is stored, and only the planned faults may happen to it.
func settled(ctx context.Context, log events.Log, key events.Key, e *events.Event, expected uint64) (sequence uint64, err error) {
	unanswered := false
	for range attempts {
		sequence, err = log.Append(ctx, key, e, expected)
		unanswered = unanswered || errors.Is(err, events.ErrUnanswered)
		if !errors.Is(err, events.ErrConflict) && !errors.Is(err, events.ErrUnanswered) {
			break
		}
		if last, err := log.Last(ctx, key); err != nil || last <= expected {
			continue
		}
		if records, readErr := log.Read(ctx, key, expected, 1); readErr == nil && len(records) > 0 {
			if records[0].CommitID == e.CommitID && unanswered { // if it was answered, it had been sent before
				return records[0].Sequence, nil
			}
			break
		}
	}
	return sequence, err
}

// Facts returns every fact stored so far, without its data.
func (w *World) Facts() []events.Record {
	w.tap.mu.Lock()
	defer w.tap.mu.Unlock()
	return slices.Clone(w.tap.facts)
}

// Appends returns every fact stored so far, those of ledgers included, without
// its data.
func (w *World) Appends() []events.Record {
	w.tap.mu.Lock()
	defer w.tap.mu.Unlock()
	return slices.Clone(w.tap.all)
}

// stored returns how many facts of a type are stored.
func (w *World) stored(factType string) (n int) {
	w.tap.mu.Lock()
	defer w.tap.mu.Unlock()
	for i := range w.tap.all {
		if w.tap.all[i].Type == factType {
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
func (w *World) Sessions(_ context.Context, namespace string) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		counts := make(map[events.Key]uint64)
		for _, f := range w.Facts() {
			counts[events.Key{Namespace: f.Namespace, Session: f.Session}]++
		}
		for _, k := range w.Keys() {
			if (namespace == "" || namespace == k.Namespace) && !yield(events.Entry{Key: k, Facts: counts[k]}, nil) {
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

func (w *World) newID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	return fmt.Sprintf("id-%s-%d", w.Namespace, w.ids)
}

// Now is the world's time: the clock's, and what went by at once.
func (w *World) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.passed)
}

// FailRenewals makes every renewal of a lease fail with err; nil ends that.
func (w *World) FailRenewals(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renewError = err
}

// OnRead is called before each read of a session; nil ends that.
func (w *World) OnRead(f func(events.Key)) { w.onRead = f }

// Pass lets time go by.
func (w *World) Pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passed += d
}

// Timers returns how many timers are armed.
func (w *World) Timers() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.timers)
}

// Lose loses what is no truth: work items, timers, leases and snapshots.
func (w *World) Lose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.work = nil
	clear(w.timers)
	clear(w.leases)
	clear(w.snapshots)
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

// Session returns the fold of a session as the log has it.
func (w *World) Session(ctx context.Context, key events.Key) (*projector.Session, []events.Record, error) {
	records, err := eventstest.All(ctx, handlers.Inline{Log: w.Log, Objects: objects{&Worker{World: w, ctx: ctx}}, Vault: w.vault()}, key)
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
