package eventstest

import (
	"context"
	"fmt"
	"sync"

	"github.com/agentruntime/agentruntime/events"
)

// Fault is what happens to one append.
type Fault int

// The faults an append can meet.
const (
	None        Fault = iota
	LostBefore        // never stored, not answered
	AnswerLost        // stored, not answered
	Late              // not answered; stored before the next operation but Delay
	Duplicated        // sent twice; the second answer counts
	Phantom           // refused although the expectation holds, not stored
	PhantomLate       // refused although the expectation holds, and stored later, as Late
)

func (f Fault) String() string {
	return [...]string{"none", "lost before", "answer lost after", "late", "duplicated", "phantom conflict", "phantom conflict, late"}[f]
}

// Faulty is a Log that meets faults by append number. Appends are counted from
// 1, fenced and unfenced together.
type Faulty struct {
	events.Log

	// Plan tells what happens to append n. It is called for every append,
	// in the order they are made.
	Plan func(n int, e *events.Event) Fault

	// Delay is how many further operations a late append waits for.
	Delay int

	// Before and After run around append n, after its fault was chosen:
	// Before runs before anything is stored, After before the answer (or its
	// loss) is seen by the caller.
	Before, After func(n int)

	// ReadFault, when set, may return an error for read number n, or a
	// limit the answer is cut to (0: as asked).
	ReadFault func(n int) (cut int, err error)

	mu      sync.Mutex
	appends int
	reads   int
	late    []lateAppend
}

type lateAppend struct {
	due  int
	send func()
}

// Appends returns how many appends were made.
func (f *Faulty) Appends() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.appends
}

// tick counts down late appends and sends those that are due.
func (f *Faulty) tick() {
	f.mu.Lock()
	var due []func()
	rest := f.late[:0]
	for _, l := range f.late {
		if l.due--; l.due <= 0 {
			due = append(due, l.send)
		} else {
			rest = append(rest, l)
		}
	}
	f.late = rest
	f.mu.Unlock()
	for _, send := range due {
		send()
	}
}

// Flush sends every late append now.
func (f *Faulty) Flush() {
	f.mu.Lock()
	late := f.late
	f.late = nil
	f.mu.Unlock()
	for _, l := range late {
		l.send()
	}
}

// Append implements events.Log.
func (f *Faulty) Append(ctx context.Context, key events.Key, e *events.Event, expected uint64) (uint64, error) {
	return f.append(e, func(e *events.Event) (uint64, error) { return f.Log.Append(ctx, key, e, expected) })
}

// AppendUnfenced implements events.Log.
func (f *Faulty) AppendUnfenced(ctx context.Context, key events.Key, e *events.Event) (uint64, error) {
	return f.append(e, func(e *events.Event) (uint64, error) { return f.Log.AppendUnfenced(ctx, key, e) })
}

func (f *Faulty) append(e *events.Event, send func(*events.Event) (uint64, error)) (uint64, error) {
	f.tick()
	f.mu.Lock()
	f.appends++
	n := f.appends
	fault := None
	if f.Plan != nil {
		fault = f.Plan(n, e)
	}
	f.mu.Unlock()
	if f.Before != nil {
		f.Before(n)
	}
	defer func() {
		if f.After != nil {
			f.After(n)
		}
	}()
	unanswered := fmt.Errorf("append %d: %s: %w", n, fault, events.ErrUnanswered)
	switch fault {
	case LostBefore:
		return 0, unanswered
	case AnswerLost:
		if _, err := send(e); err != nil {
			return 0, err
		}
		return 0, unanswered
	case Late, PhantomLate:
		kept := *e
		f.mu.Lock()
		f.late = append(f.late, lateAppend{f.Delay + 1, func() { _, _ = send(&kept) }})
		f.mu.Unlock()
		if fault == PhantomLate {
			return 0, fmt.Errorf("append %d: %s: %w", n, fault, events.ErrConflict)
		}
		return 0, unanswered
	case Duplicated:
		_, _ = send(e)
		return send(e)
	case Phantom:
		return 0, fmt.Errorf("append %d: %s: %w", n, fault, events.ErrConflict)
	}
	return send(e)
}

// Read implements events.Log.
func (f *Faulty) Read(ctx context.Context, key events.Key, after uint64, limit int) ([]events.Record, error) {
	f.tick()
	f.mu.Lock()
	f.reads++
	n := f.reads
	f.mu.Unlock()
	if f.ReadFault != nil {
		cut, err := f.ReadFault(n)
		if err != nil {
			return nil, err
		}
		if cut > 0 {
			limit = min(limit, cut)
		}
	}
	return f.Log.Read(ctx, key, after, limit)
}

// Last implements events.Log.
func (f *Faulty) Last(ctx context.Context, key events.Key) (uint64, error) {
	f.tick()
	return f.Log.Last(ctx, key)
}
