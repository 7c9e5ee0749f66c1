package eventstest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/agentruntime/agentruntime/events"
)

// TestAttend runs the promises of work-item handling (rules 7 and 8) over a
// log.
func TestAttend(t *testing.T, log events.Log) {
	Run(t, log, Protocol{}, AttendCases())
}

// AttendCases returns the promises of work-item handling.
func AttendCases() []Case {
	return consistently([]Case{
		{"a worker folds at least to the hint before it judges", attendFoldsToHint},
		{"nothing to do is acknowledged only after a leader read", attendLeaderRead},
		{"nothing to do is acknowledged only after promises were kept", attendKeeps},
		{"a hint is put back while another worker is alive", attendPutBack(events.ErrBusy)},
		{"a hint is put back when the worker was fenced", attendPutBack(events.ErrFenced)},
		{"a hint is put back on an unknown outcome", attendPutBack(events.ErrUnresolved)},
		{"a hint is put back on a read error", attendReadError},
		{"work that arrives while driving is driven too", attendArrivals},
		{"a notifier that folds to its own sequence never loses a wake-up", attendNoLostWakeUp},
	})
}

// errand is a session that is runnable while external facts are unhandled.
type errand struct {
	*worker
	handled int
	drives  int
	keeps   int
	fail    error
	during  func()
	keepErr error
}

func (b *Bench) errand(log events.Log) *errand { return &errand{worker: b.worker(log)} }

func (e *errand) Runnable() bool { return len(e.seen) > e.handled }

func (e *errand) Drive(ctx context.Context) error {
	e.drives++
	if e.fail != nil {
		return e.fail
	}
	if err := e.take(ctx); err != nil {
		return err
	}
	if e.during != nil {
		during := e.during
		e.during = nil
		during()
	}
	e.handled = len(e.seen)
	return e.commit(ctx, uint64(e.drives), func() any { return events.RunParked{Reason: "wait"} })
}

func (e *errand) Keep(context.Context) error { e.keeps++; return e.keepErr }

func (b *Bench) hint(sequence uint64) events.Hint { return events.Hint{Key: b.key, Sequence: sequence} }

func attendFoldsToHint(ctx context.Context, b *Bench) error {
	if _, err := b.external(ctx, "first"); err != nil {
		return err
	}
	at, err := b.external(ctx, "second")
	if err != nil {
		return err
	}
	// The first answers end before the hint's sequence.
	e := b.errand(&Faulty{Log: b.Log, ReadFault: func(n int) (int, error) { return 1, nil }})
	var atDrive uint64
	e.during = func() { atDrive = e.tip.Sequence }
	if err := b.Attend(ctx, e.log, b.hint(at), e); err != nil {
		return err
	}
	if atDrive < at || e.handled != 2 {
		return fmt.Errorf("the worker judged at sequence %d, the hint says %d", atDrive, at)
	}
	return nil
}

// behind is a log whose reads miss what was acknowledged, until its leader was
// asked.
type behind struct {
	events.Log
	upTo   uint64
	caught bool
}

func (l *behind) Read(ctx context.Context, key events.Key, after uint64, limit int) ([]events.Record, error) {
	records, err := l.Log.Read(ctx, key, after, limit)
	for i, r := range records {
		if !l.caught && r.Sequence > l.upTo {
			return records[:i], err
		}
	}
	return records, err
}

func (l *behind) Last(ctx context.Context, key events.Key) (uint64, error) {
	l.caught = true
	return l.Log.Last(ctx, key)
}

func attendLeaderRead(ctx context.Context, b *Bench) error {
	at, err := b.external(ctx, "first")
	if err != nil {
		return err
	}
	e := b.errand(b.Log)
	if err := b.Attend(ctx, b.Log, b.hint(at), e); err != nil {
		return err
	}
	seen := e.tip.Sequence
	if _, err := b.external(ctx, "second"); err != nil {
		return err
	}
	lagging := &behind{Log: b.Log, upTo: seen}
	e.log = lagging
	if err := b.Attend(ctx, lagging, b.hint(at), e); err != nil {
		return err
	}
	if e.handled != 2 {
		return errors.New("the hint was acknowledged on a read that missed an acknowledged fact")
	}
	return nil
}

func attendKeeps(ctx context.Context, b *Bench) error {
	at, err := b.external(ctx, "first")
	if err != nil {
		return err
	}
	e := b.errand(b.Log)
	e.keepErr = errors.New("the timer could not be armed")
	if err := b.Attend(ctx, b.Log, b.hint(at), e); err == nil {
		return errors.New("the hint was acknowledged although a promise was not kept")
	}
	e.keepErr = nil
	keeps := e.keeps
	if err := b.Attend(ctx, b.Log, b.hint(at), e); err != nil {
		return err
	}
	if e.keeps == keeps {
		return errors.New("a repeated hint with nothing to do was acknowledged without keeping the promises")
	}
	return nil
}

func attendPutBack(cause error) func(context.Context, *Bench) error {
	return func(ctx context.Context, b *Bench) error {
		at, err := b.external(ctx, "first")
		if err != nil {
			return err
		}
		e := b.errand(b.Log)
		e.fail = cause
		return expect("the hint", b.Attend(ctx, b.Log, b.hint(at), e), cause)
	}
}

func attendReadError(ctx context.Context, b *Bench) error {
	at, err := b.external(ctx, "first")
	if err != nil {
		return err
	}
	failing := errors.New("no read")
	e := b.errand(&Faulty{Log: b.Log, ReadFault: func(int) (int, error) { return 0, failing }})
	return expect("the hint", b.Attend(ctx, e.log, b.hint(at), e), failing)
}

func attendArrivals(ctx context.Context, b *Bench) error {
	at, err := b.external(ctx, "first")
	if err != nil {
		return err
	}
	e := b.errand(b.Log)
	var extErr error
	arrivals := 0
	var arrive func()
	arrive = func() {
		if arrivals++; arrivals <= 3 {
			_, extErr = b.external(ctx, fmt.Sprintf("late%d", arrivals))
			e.during = arrive
		}
	}
	e.during = arrive
	if err := errors.Join(b.Attend(ctx, b.Log, b.hint(at), e), extErr); err != nil {
		return err
	}
	if e.handled != 4 {
		return fmt.Errorf("%d of 4 facts were handled when the hint was acknowledged", e.handled)
	}
	return nil
}

// attendNoLostWakeUp races notifiers against a worker. Every notifier hints
// when its own fold, which reaches at least its own fact, shows a closed claim;
// at the end, every fact must have been handled by hints alone.
func attendNoLostWakeUp(ctx context.Context, b *Bench) error {
	const facts = 50
	hints := make(chan events.Hint, facts+1)
	first, err := b.external(ctx, "x0")
	if err != nil {
		return err
	}
	hints <- b.hint(first)
	e := b.errand(b.Log)
	notified := make(chan error, 1)
	go func() {
		notified <- errors.Join(parallel(facts-1, func(i int) error {
			at, err := b.external(ctx, fmt.Sprintf("x%d", i+1))
			if err != nil {
				return err
			}
			fold := b.worker(b.Log)
			if err := b.appender(b.Log).Load(ctx, b.key, fold, at); err != nil {
				return err
			}
			if !fold.tip.Claim.Open {
				hints <- b.hint(at)
			}
			return nil
		})...)
		close(hints)
	}()
	for h := range hints {
		if err := b.Attend(ctx, b.Log, h, e); err != nil {
			return err
		}
	}
	if err := <-notified; err != nil {
		return err
	}
	if e.handled != facts {
		return fmt.Errorf("%d of %d facts were handled and no hint is left", e.handled, facts)
	}
	return nil
}
