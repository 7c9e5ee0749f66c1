package events

import (
	"context"
	"errors"
	"fmt"
)

// Hint says that a session may have something to do since a sequence. Hints
// may be lost, repeated and late; they decide nothing.
type Hint struct {
	Key      Key
	Sequence uint64 // where the session was seen runnable

	// Again is set on a hint that is sent although the same one may have
	// been sent a moment ago. Others may be taken for repetitions.
	Again bool
}

// Errand is what a worker may have to do for one session.
type Errand interface {
	State

	// Runnable tells from the fold alone whether there is work.
	Runnable() bool

	// Drive does the work: it claims the session, runs and settles. Nil
	// means that what it claimed is closed again (ended, parked or
	// released) and that everything is committed.
	Drive(ctx context.Context) error

	// Keep does again what the fold promises but does not hold: arm a
	// timer, publish an event. Doing it twice is harmless.
	Keep(ctx context.Context) error
}

// ErrBusy is what Errand.Drive returns when another worker's lease is alive.
var ErrBusy = errors.New("another worker holds the session")

// Attend handles one hint. Nil means that the hint may be acknowledged: a read
// through the leader found nothing more to do and what the fold promises was
// kept. On any error, ErrBusy, ErrFenced and ErrUnresolved included, the hint
// must be put back: another worker being alive says nothing about what it has
// seen.
func (a *Appender) Attend(ctx context.Context, hint Hint, errand Errand) error {
	// An errand may have been loaded already; one that stands at its beginning
	// has not, whatever the hint says.
	if at := errand.Tip().Sequence; at == 0 || at < hint.Sequence {
		if err := a.Load(ctx, hint.Key, errand, hint.Sequence); err != nil {
			return err
		}
	}
	for {
		if errand.Runnable() {
			if err := errand.Drive(ctx); err != nil {
				return fmt.Errorf("session %s: %w", hint.Key, err)
			}
		}
		if err := a.LoadLatest(ctx, hint.Key, errand); err != nil {
			return err
		}
		if errand.Runnable() {
			continue
		}
		if err := errand.Keep(ctx); err != nil {
			return fmt.Errorf("session %s: keep its promises: %w", hint.Key, err)
		}
		return nil
	}
}
