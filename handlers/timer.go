package handlers

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// Timer is one moment of a run: the time-out of a wait, or, without a call, the
// run's own deadline.
type Timer struct {
	Namespace string
	Run       string
	CallID    string
	At        time.Time
}

// Timers fires at a time, never before it. A run has at most one timer for each
// call and one for its deadline. A firing may come more than once, late, or not
// at all: it is a hint.
type Timers interface {
	Arm(ctx context.Context, t Timer) error
	Disarm(ctx context.Context, t Timer) error
}

// armWait arms the timer of a parked run's time-out.
func (h *Host) armWait(ctx context.Context, namespace string, run *projector.Run) error {
	w := timed(run)
	if w == nil {
		return nil
	}
	return h.Timers.Arm(ctx, Timer{namespace, run.ID, w.CallID, *w.Deadline})
}

// timed returns the newest wait of a run when its timer is still to fire.
func timed(run *projector.Run) *events.RunParked {
	if run.Wait == nil || run.Wait.Deadline == nil || run.Timer != nil {
		return nil
	}
	return run.Wait
}

// disarm takes back the timer of a wait that the newest commit has brought to its
// end, before its time: a run that ends early leaves no timer behind for days. A
// call that is answered never waits again, so that no timer that is still needed
// can be hit. It is a courtesy: one that stays says nothing when it fires.
func (s *store) disarm(ctx context.Context, wait *events.RunParked) {
	if wait == nil || wait.CallID == s.disarmed {
		return
	}
	run := s.session.Run(s.run)
	over := run.State.Terminal() || run.Checkpoint != nil && slices.ContainsFunc(run.Checkpoint.Calls, func(c events.Call) bool {
		return c.ID == wait.CallID && c.State == events.CallSettled
	})
	if !over {
		return
	}
	s.disarmed = wait.CallID
	if err := s.host.Timers.Disarm(ctx, Timer{s.session.Key.Namespace, run.ID, wait.CallID, *wait.Deadline}); err != nil {
		s.host.Logger.Debug("a timer was not disarmed; it says nothing when it fires", "run", run.ID, "error", err)
	}
}

// armDeadline arms the timer of a run's own deadline.
func (h *Host) armDeadline(ctx context.Context, namespace string, run *projector.Run) error {
	if run.Admitted.Deadline == nil || run.State.Terminal() || run.Expired {
		return nil
	}
	return h.Timers.Arm(ctx, Timer{namespace, run.ID, "", *run.Admitted.Deadline})
}

// Fire tells a run that a timer has fired. Nil means that everything it causes
// is stored and the firing may be acknowledged. A timer that no longer means
// anything says nothing; one that came before its time by this process's clock
// is an *EarlyError, and is to be handed out again.
func (h *Host) Fire(ctx context.Context, t Timer) error {
	key, err := events.KeyOfRun(t.Namespace, t.Run)
	if err != nil {
		return nil // no run has such an id
	}
	return h.folded(ctx, key, 0, func(s *followed) error {
		run := s.Run(t.Run)
		if run == nil || run.State.Terminal() || !run.Times(t.CallID, t.At) {
			return nil
		}
		if early := t.At.Sub(h.Now()); early > 0 {
			return &EarlyError{early}
		}
		return h.tellFired(ctx, &s.Session, t)
	})
}

// EarlyError is a timer that fired before its time: the server's clock is ahead.
type EarlyError struct {
	By time.Duration
}

func (e *EarlyError) Error() string { return fmt.Sprintf("the timer fired %s early", e.By) }

// tellFired appends that a deadline has passed, unless that was told, and hints
// whoever waited for it.
func (h *Host) tellFired(ctx context.Context, s *projector.Session, t Timer) error {
	run := s.Run(t.Run)
	if told := t.CallID == "" && run.Expired || t.CallID != "" && run.Timer != nil; !told {
		id := events.Derive(26, "timer", t.Run, t.CallID, t.At.UTC().Format(time.RFC3339Nano))
		at, err := h.notifyAt(ctx, s.Key, t.Run, id, events.TimerFired{CallID: t.CallID, Deadline: t.At})
		if err == nil {
			err = h.appender().Load(ctx, s.Key, s, at)
		}
		if err != nil {
			return fmt.Errorf("tell run %s that its deadline has passed: %w", t.Run, err)
		}
	}
	return h.hint(ctx, s)
}
