package handlers

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// errand is events.Errand for one session: claim it, run it, settle it.
type errand struct {
	*projector.Session
	d       *Dispatcher
	facts   int // folded beyond the snapshot when the errand began
	attempt atomic.Pointer[attempt]

	signalled atomic.Bool // while there was no attempt yet
}

var _ events.Errand = (*errand)(nil)

// Keep implements events.Errand: the timers of a parked run are armed again. The
// rest of what a fold promises (public events, hints, what parent and children
// are told) is kept by the reactions, whose consumer stands in the log's server
// and acknowledges a fact only after its effects are stored.
func (e *errand) Keep(ctx context.Context) error {
	run := e.Current()
	if run == nil || run.State != projector.StateParked {
		return nil
	}
	return e.d.armWait(ctx, e.Key.Namespace, run)
}

// Drive implements events.Errand.
func (e *errand) Drive(ctx context.Context) error {
	run := e.Current()
	if err := e.d.mayClaim(ctx, e.Session, run); err != nil {
		return err
	}
	// To end a run takes no version of its agent.
	ends := run.Cancel != nil || run.Expired || run.Failures >= MaxFailures
	var version *Version
	if !ends {
		var err error
		if version, err = e.d.admitted(ctx, e.Key.Namespace, run.ID, &run.Admitted); err != nil {
			return err
		}
	}
	if c := run.Checkpoint; !ends && c != nil && c.Version != projector.CheckpointVersion {
		return &runtime.ContractError{RunID: run.ID, Version: c.Version, BinaryVersion: projector.CheckpointVersion, Contract: c.ContractHash, BinaryContract: run.Admitted.Contract}
	}
	// Who asks the run to stop after the claim is heard; what was asked before
	// it is part of the fold.
	stopListening, err := e.d.Signals.Listen(e.Key, func() {
		if a := e.attempt.Load(); a != nil {
			go a.lookForCancel()
		} else {
			e.signalled.Store(true)
		}
	})
	if err != nil {
		return fmt.Errorf("listen for signals to session %s: %w", e.Key, err)
	}
	defer stopListening()
	a, err := e.d.claim(ctx, e.Session, run.ID, version)
	if err != nil {
		return err
	}
	e.attempt.Store(a)
	defer e.attempt.Store(nil)
	if e.signalled.Load() {
		go a.lookForCancel()
	}
	a.store.since, e.facts = e.facts, 0
	defer a.hold.end(context.WithoutCancel(ctx))
	err = a.carryOut(ctx)
	e.d.Meter.AttemptEnded(attemptOutcome(err))
	return err
}

func attemptOutcome(err error) string {
	switch {
	case err == nil:
		return "settled"
	case errors.Is(err, events.ErrFenced):
		return "fenced"
	case errors.Is(err, ErrLeaseLost):
		return "lease_lost"
	case errors.Is(err, runtime.ErrStopped), errors.Is(err, errDraining):
		return "released"
	}
	return "failed"
}

// mayClaim refuses while another worker may be alive. The absence of a lease is
// not its end: a claim that is open is waited out until this process has itself
// seen no renewal for one whole TTL.
func (d *Dispatcher) mayClaim(ctx context.Context, s *projector.Session, run *projector.Run) error {
	if !s.At.Claim.Open || d.Gone != nil && d.Gone(run.Worker) {
		return nil
	}
	silent, err := d.Leases.Silent(ctx, s.Key, s.At.Claim.ID)
	if err != nil {
		return fmt.Errorf("look for the holder of session %s: %w", s.Key, err)
	}
	if silent < d.TTL {
		return &BusyError{run.Worker, d.TTL - silent}
	}
	return nil
}

// claim appends the claim, which is the fence, and then takes the lease.
func (d *Dispatcher) claim(ctx context.Context, s *projector.Session, run string, v *Version) (*attempt, error) {
	claim := events.Claim{ID: d.NewID(), Run: run, Open: true}
	var since *time.Time
	_, err := d.appender().Commit(ctx, s.Key, s, func() (*events.Event, error) {
		claimed := events.RunClaimed{Worker: d.Worker}
		since = nil
		if r := s.Run(run); r.State == projector.StateParked {
			claimed.Resumes, since = r.Wait.Reason, r.Wait.Since
		}
		e, err := d.fact(s.Key, run, claimed)
		if err != nil {
			return nil, err
		}
		if claimed.Resumes != "" {
			e.Emits = emitsProgress
		}
		claim.Epoch = s.At.Claim.Epoch + 1
		e.ClaimID, e.Epoch = claim.ID, claim.Epoch
		return e, nil
	})
	if err != nil {
		return nil, fmt.Errorf("claim run %s: %w", run, err)
	}
	a := &attempt{d: d, run: run, version: v, store: &store{host: d.Host, session: s, run: run, claim: claim, version: v}}
	if since != nil {
		a.down = *since
	}
	a.store.at.Store(s.At.Sequence)
	a.store.untrusted.Store(s.Run(run).Untrusted)
	a.meter = &meter{host: d.Host, store: a.store, namespace: s.Key.Namespace, since: revision(s.Run(run)), most: positiveOr(d.Requests, DefaultRequests)}
	if a.hold, err = take(ctx, d.Leases, s.Key, Lease{Worker: d.Worker, Claim: claim.ID, Epoch: claim.Epoch}, d.TTL, d.Now); err != nil {
		return nil, errors.Join(err, a.end(ctx, events.RunReleased{Reason: "no lease"}))
	}
	a.store.lease = a.hold.ctx
	a.store.progressed = func() { a.hold.note("") }
	a.ctx, a.cancel = a.withDeadline(a.current().Admitted.Deadline)
	return a, nil
}

// attempt is one claim of one run.
type attempt struct {
	d       *Dispatcher
	run     string
	version *Version
	hold    *hold
	store   *store
	meter   *meter
	down    time.Time // since when the model has been failing; see away

	// ctx ends with the hold, at the run's deadline, and when the run is
	// asked to stop.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// lookForCancel aborts what is under way when the log says that the run was
// asked to stop.
func (a *attempt) lookForCancel() {
	asked, err := a.d.stopAsked(a.ctx, a.hold.key, a.run, a.store.at.Load())
	switch {
	case asked:
		a.cancel(errCancelled)
	case err != nil && a.ctx.Err() == nil:
		a.d.Logger.Warn("a signal could not be followed up; the run stops at its next commit", "run", a.run, "error", err)
	}
}

// stopAsked reports whether the log asks a run to stop, above a sequence.
func (h *Host) stopAsked(ctx context.Context, key events.Key, run string, after uint64) (bool, error) {
	last, err := h.Log.Last(ctx, key)
	for err == nil && after < last {
		var records []events.Record
		records, err = h.Log.Read(ctx, key, after, events.MaxRead)
		for _, r := range records {
			after = r.Sequence
			if r.Run == run && r.Type == typeCancelRequested {
				return true, nil
			}
		}
		if len(records) == 0 && err == nil {
			err = h.Pause(ctx, readPause)
		}
	}
	return false, err
}

func (a *attempt) current() *projector.Run { return a.store.session.Run(a.run) }

// carryOut runs the run until it is settled, trying again after failures of the
// infrastructure, and closes the claim. It returns nil when the claim is
// closed by a park or an end.
func (a *attempt) carryOut(ctx context.Context) error {
	run := a.current()
	if run.Failures >= MaxFailures {
		return a.fail(ctx, events.FailurePoison, fmt.Errorf("%d workers ended at revision %d without a word", run.Failures, revision(run)))
	}
	defer a.cancel(nil)
	switch {
	case run.Cancel != nil:
		return a.stop(ctx)
	case run.Expired:
		return a.fail(ctx, events.FailureDeadline, errDeadline)
	}
	input, err := a.input(run)
	if err != nil {
		return a.fail(ctx, events.FailureAborted, err)
	}
	pause, invalid := firstRetry, 0
	overtaken := uint64(0)
	for {
		before := revision(a.current())
		a.store.telling = nil
		result, err := runtime.Run(a.ctx, *input)
		if result != nil && result.CleanupError != nil {
			a.d.Logger.Warn("an executor was not torn down", "run", a.run, "error", result.CleanupError)
		}
		verdict := judge(err)
		if cause := context.Cause(a.hold.ctx); (verdict == again || verdict == delayed) && cause != nil {
			// What ended the attempt outranks what failed because of it.
			if err = errors.Join(cause, err); errors.Is(cause, errDraining) {
				verdict = stopped
			} else {
				verdict = lost
			}
		}
		if revision(a.current()) > before {
			a.down = time.Time{}
		}
		if reason := a.fallback(verdict, err); reason != "" {
			switch err := a.next(ctx, reason, err); {
			case errors.Is(err, errCancelled):
				return a.stop(ctx)
			case err != nil:
				return err
			}
			if input, err = a.input(a.current()); err != nil {
				return a.fail(ctx, events.FailureAborted, err)
			}
			pause, invalid = firstRetry, 0
			continue
		}
		switch verdict {
		case settled:
			a.d.Meter.RunSettled(projector.StateCompleted, "")
			return nil
		case lost:
			return err
		case parked:
			a.d.Meter.RunParked(a.current().Reason)
			return nil
		case reconsider:
			// At the same facts the same decision would be overtaken again.
			if at := a.store.at.Load(); at != overtaken {
				overtaken = at
				continue
			}
		case cancelled:
			return a.stop(ctx)
		case overdrawn:
			if held, err := a.overdrawn(ctx, err); held || err != nil {
				return err
			}
			continue
		case delayed:
			if waits, err := a.delay(ctx, err); waits || err != nil {
				return err
			}
			continue
		case failed:
			reason := events.FailureAborted
			if isDenied(err) {
				reason = events.FailureDenied
			}
			return a.fail(ctx, reason, err)
		case expired:
			return a.fail(ctx, events.FailureDeadline, err)
		case stopped:
			return errors.Join(err, a.end(ctx, events.RunReleased{Reason: "drain"}))
		case refused:
			return errors.Join(err, a.end(ctx, events.RunReleased{Reason: "contract"}))
		}
		if a.current().InFlight() {
			// What was sent under this claim may still arrive. Whoever asks what
			// became of it does so with a higher epoch.
			return errors.Join(err, a.end(ctx, events.RunReleased{Reason: "in_flight"}))
		}
		a.hold.note(bounded(a.d.Redactor.Redact(err.Error()), maxErrorText))
		a.d.Logger.Warn("an attempt failed and is made again", "run", a.run, "pause", pause, "error", err)
		a.d.Meter.AttemptEnded("retried")
		if revision(a.current()) > before {
			pause, invalid = firstRetry, 0
		}
		if isInvalid(err) {
			if invalid++; invalid >= MaxInvalid {
				return a.fail(ctx, events.FailureAborted, err)
			}
		}
		select {
		case <-a.d.stop:
			return errors.Join(runtime.ErrStopped, a.end(ctx, events.RunReleased{Reason: "drain"}))
		default:
		}
		_ = a.d.Pause(a.ctx, pause) // an ended context is seen by the next attempt
		pause = min(2*pause, maxRetry)
	}
}

// MaxInvalid is how many responses in a row a provider may give at one revision
// that are no responses, before the run fails: each may be paid for.
const MaxInvalid = 5

func isInvalid(err error) bool {
	var model *runtime.ModelError
	return errors.As(err, &model) && model.Class == runtime.ClassInvalid
}

// Pauses between attempts after failures of the infrastructure.
const (
	firstRetry = 100 * time.Millisecond
	maxRetry   = 10 * time.Second
)

// finalizeWithin bounds what is committed after the attempt's own context has
// ended.
const finalizeWithin = 5 * time.Second

func revision(r *projector.Run) uint64 {
	if r.Checkpoint == nil {
		return 0
	}
	return r.Checkpoint.Revision
}

// end closes the claim, in a context that survives the attempt's. What was spent
// under the claim is on the ledger before.
func (a *attempt) end(ctx context.Context, payload any) error {
	if released, ok := payload.(events.RunReleased); ok {
		released.Failed = a.store.failed
		payload = released
	}
	return a.endWith(ctx, func(*projector.Run) any { return payload })
}

func (a *attempt) endWith(ctx context.Context, payload func(*projector.Run) any) error {
	out, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalizeWithin)
	defer cancel()
	if err := a.meter.settle(out); err != nil {
		return err
	}
	return a.store.end(out, payload)
}

func (a *attempt) withDeadline(deadline *time.Time) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(a.hold.ctx)
	if deadline == nil {
		return ctx, cancel
	}
	ctx, stop := context.WithDeadlineCause(ctx, *deadline, errDeadline)
	return ctx, func(cause error) { cancel(cause); stop() }
}

// stop ends a run that was asked to stop, with the reason that the log has.
func (a *attempt) stop(ctx context.Context) error {
	reason := ""
	err := a.endWith(ctx, func(run *projector.Run) any {
		fact := events.RunCancelled{Reason: "cancelled"}
		if run.Cancel != nil {
			fact.Reason = run.Cancel.Reason
		}
		if c := run.Checkpoint; c != nil {
			fact.Usage, fact.Steps = c.Usage, c.Steps
		}
		fact.Calls = closed(run)
		reason = fact.Reason
		return fact
	})
	if err != nil {
		return err
	}
	a.d.Meter.RunSettled(projector.StateCancelled, "")
	a.d.Logger.Info("a run was cancelled", "run", a.run, "reason", reason)
	return nil
}

// overdrawn ends a run whose budget is spent, or parks it until a top-up. It
// reports false when one has come meanwhile.
func (a *attempt) overdrawn(ctx context.Context, cause error) (bool, error) {
	var refused *BudgetError
	if !errors.As(cause, &refused) || !a.current().Admitted.Hold {
		return true, a.fail(ctx, events.FailureBudget, cause)
	}
	if err := a.meter.settle(ctx); err != nil {
		return false, err
	}
	err := a.store.park(ctx, func() (*events.RunParked, error) {
		if a.current().Raises > refused.Raises {
			return nil, nil
		}
		return &events.RunParked{Reason: events.ParkBudget, Raises: refused.Raises, Budget: refused.By, Spent: refused.What}, nil
	})
	switch {
	case errors.Is(err, runtime.ErrWaiting):
		a.d.Meter.RunParked(events.ParkBudget)
		return true, nil
	case errors.Is(err, errCancelled):
		return true, a.stop(ctx)
	}
	return false, err
}

var errDeadline = errors.New("the run's deadline has passed")

// fail ends the run without a reply.
func (a *attempt) fail(ctx context.Context, reason string, cause error) error {
	run := a.current()
	fact := events.RunFailed{Reason: reason, Error: bounded(a.d.Redactor.Redact(cause.Error()), maxErrorText)}
	if c := run.Checkpoint; c != nil {
		fact.Usage, fact.Steps = c.Usage, c.Steps
	}
	err := a.endWith(ctx, func(run *projector.Run) any {
		fact.Calls = closed(run)
		return fact
	})
	if err != nil {
		return err
	}
	a.d.Meter.RunSettled(projector.StateFailed, reason)
	a.d.Logger.Warn("a run failed", "run", a.run, "reason", reason, "error", fact.Error)
	return nil
}

// maxErrorText bounds the text of an error in a fact, in bytes.
const maxErrorText = 4 << 10

// bounded cuts a text on a rune boundary.
func bounded(s string, most int) string {
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && s[cut]&0xC0 == 0x80 {
		cut--
	}
	return s[:cut] + "…"
}
