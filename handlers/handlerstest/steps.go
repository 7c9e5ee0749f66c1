package handlerstest

import (
	"context"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
)

// What follows takes a world apart into its smallest steps, for tests that choose
// their order.

// Sent returns how many commands were sent, and which of them are not
// acknowledged.
func (w *World) Sent() (n int, pending []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, c := range w.commands {
		if !c.done {
			pending = append(pending, i)
		}
	}
	return len(w.commands), pending
}

// Deliver carries out one command, acknowledged before or not. It reports whether
// it is acknowledged now.
func (w *Worker) Deliver(n int) bool {
	w.mu.Lock()
	c := w.commands[n]
	w.mu.Unlock()
	if w.Dead() || w.Dispatcher.HandleCommand(w.ctx, c.Namespace, c.Name, c.Header, c.Data) != nil || w.Dead() {
		return false
	}
	c.done = true
	return true
}

// ReactTo reacts to one fact, once. It reports whether the fact may be
// acknowledged.
func (w *Worker) ReactTo(f events.Record) bool {
	return !w.Dead() && w.Dispatcher.React(w.ctx, &f.Event, events.Position{Sequence: f.Sequence}) == nil && !w.Dead()
}

// Items returns how many work items there are, acknowledged ones included, and
// which are not.
func (w *World) Items() (n int, pending []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, item := range w.work {
		if !item.done {
			pending = append(pending, i)
		}
	}
	return len(w.work), pending
}

// Item returns a work item's hint.
func (w *World) Item(n int) events.Hint {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.work[n].hint
}

// AttendTo attends to one work item. One that was acknowledged before comes again
// because that was lost: only this delivery can end it. It reports whether it is
// acknowledged now.
func (w *Worker) AttendTo(n int) bool {
	w.mu.Lock()
	i := w.work[n]
	w.mu.Unlock()
	d := &delivery{item: i}
	if w.Dead() {
		return false
	}
	i.done = false
	w.Dispatcher.Attend(w.ctx, d)
	if w.Dead() || !d.acked {
		return false
	}
	i.done = true
	return true
}

// LoseItem loses one work item.
func (w *World) LoseItem(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.work = slices.Delete(w.work, n, n+1)
}

// LoseTimers loses every timer, LoseLeases every lease, and LoseSnapshots every
// snapshot.
func (w *World) LoseTimers() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.timers)
}

// LoseLeases loses every lease.
func (w *World) LoseLeases() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.leases)
}

// LoseSnapshots loses every snapshot.
func (w *World) LoseSnapshots() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.snapshots)
}

// Armed returns the timers that are armed, the earliest first.
func (w *World) Armed() []handlers.Timer {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []handlers.Timer
	for _, t := range w.timers {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b handlers.Timer) int {
		if c := a.At.Compare(b.At); c != 0 {
			return c
		}
		return strings.Compare(a.Run+a.CallID, b.Run+b.CallID)
	})
	return list
}

// FireTimer fires a timer as it is, armed or not, early, late or again.
func (w *Worker) FireTimer(t handlers.Timer) bool {
	early := t.At.After(w.Now())
	if w.Dead() || w.Dispatcher.Fire(w.ctx, t) != nil || w.Dead() {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if name := timerName(t); !early && w.timers[name] == t {
		delete(w.timers, name)
	}
	return true
}

// Reader returns the world's log as it is read, payloads included.
func (w *World) Reader(ctx context.Context) events.Log {
	return handlers.Inline{Log: w.Log, Objects: objects{&Worker{World: w, ctx: ctx}}, Vault: w.vault()}
}

// ValidTranscript demands that each message stands once, and that each call has
// exactly one result, right after the message that made it.
func ValidTranscript(window []events.Message) error { return validTranscript(window) }

// LoseDefinitions loses every version of every agent.
func (w *World) LoseDefinitions() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.definitions)
}
