package handlers

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// Sessions lists the sessions of the log, from the log.
type Sessions interface {
	Sessions(ctx context.Context, namespace string) iter.Seq2[events.Entry, error]
}

// Sweeper looks at every session of the log whose last run has not ended, and
// makes good what hints, timers and reactions may have lost. One is enough,
// several do no harm. It is used by one at a time.
type Sweeper struct {
	*Host
	Sessions Sessions
	Leases   Leases
	TTL      time.Duration // of a lease

	// Progress, when set, is called after each session, and Saw with each one
	// that was read.
	Progress func(seen int)
	Saw      func(ctx context.Context, s *projector.Session) error

	ended map[events.Key]uint64 // sessions that had ended, by how many facts they had
	swept bool                  // a whole sweep was made
}

// Stuck is a run that has not ended and that nothing will wake.
type Stuck struct {
	Namespace string `json:"namespace"`
	Session   string `json:"session"`
	Run       string `json:"run,omitempty"` // empty when the session cannot be read
	Why       string `json:"why"`
}

// Swept is what a sweep came to.
type Swept struct {
	Seen   int // sessions
	Hinted int // that a worker is told to look at
	Told   int // facts that were missing: a child's end, a deadline, a top-up
	Stuck  []Stuck
}

// Sweep looks at every session once. The first whole sweep of a process takes no lease
// for a sign of life and arms every timer again: it follows a start, and much
// may have been lost.
func (w *Sweeper) Sweep(ctx context.Context) (Swept, error) {
	s := sweep{Sweeper: w, first: !w.swept, contracts: make(map[string]error), parents: make(map[string]projector.State)}
	if w.ended == nil {
		w.ended = make(map[events.Key]uint64)
	}
	var failed error
	unanswered := 0
	for entry, err := range w.Sessions.Sessions(ctx, "") {
		if err != nil {
			return s.Swept, fmt.Errorf("sweep: %w", err)
		}
		if s.Seen++; w.Progress != nil {
			w.Progress(s.Seen)
		}
		if facts, ok := w.ended[entry.Key]; ok && facts == entry.Facts {
			continue
		}
		switch err := s.look(ctx, entry); {
		case err == nil:
			unanswered = 0
		case ctx.Err() != nil:
			return s.Swept, fmt.Errorf("sweep: session %s: %w", entry.Key, err)
		case errors.Is(err, events.ErrUnanswered), errors.Is(err, events.ErrUnresolved):
			// What is wrong with one session, or with its shard, holds up no other.
			failed = fmt.Errorf("sweep: session %s: %w", entry.Key, err)
			if unanswered++; unanswered == maxUnanswered {
				return s.Swept, failed
			}
		default:
			unanswered = 0
			w.Logger.Error("the sweep could not make good a session", "session", entry.Key.String(), "error", err)
			s.stuck(entry.Key, "", "it could not be looked at: %v", err)
		}
	}
	w.swept = failed == nil
	if s.unseen != nil {
		failed = errors.Join(failed, fmt.Errorf("sweep: what was seen was not noted: %w", s.unseen))
	}
	return s.Swept, failed
}

// maxUnanswered is how many sessions in a row may give no answer before a sweep
// takes the log for away.
const maxUnanswered = 10

// sweep is one sweep.
type sweep struct {
	*Sweeper
	Swept
	first     bool
	contracts map[string]error           // of pinned versions
	parents   map[string]projector.State // of live children, by run
	unseen    error                      // of Saw
}

func (w *sweep) stuck(key events.Key, run, format string, args ...any) {
	w.Stuck = append(w.Stuck, Stuck{key.Namespace, key.Session, run, fmt.Sprintf(format, args...)})
}

// look sweeps one session. A session that cannot be read is reported and does
// not end the sweep.
func (w *sweep) look(ctx context.Context, entry events.Entry) error {
	key := entry.Key
	s, _, err := w.load(ctx, key, 0)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, events.ErrUnanswered) {
			return err
		}
		if errors.Is(err, events.ErrErased) {
			w.ended[key] = entry.Facts
			return nil
		}
		w.Logger.Error("the sweep cannot read a session", "session", key.String(), "error", err)
		w.stuck(key, "", "its log cannot be read: %v", err)
		return nil
	}
	noted := true
	if w.Saw != nil {
		if err := w.Saw(ctx, s); err != nil {
			noted, w.unseen = false, err // no reason to leave a run asleep
		}
	}
	run := s.Current()
	if run == nil || run.State.Terminal() {
		if noted {
			w.ended[key] = entry.Facts
		}
		return nil
	}
	delete(w.ended, key)
	blocked := w.contract(ctx, key.Namespace, run)
	if err := w.orphan(ctx, s, run); err != nil {
		return err
	}
	if run.State == projector.StateParked {
		if err := w.parked(ctx, s, run); err != nil {
			return err
		}
		run = s.Current()
	}
	if w.first {
		if err := w.armDeadline(ctx, key.Namespace, run); err != nil {
			return err
		}
	}
	// To end a run takes no version of its agent.
	if blocked != nil && !run.State.Terminal() && run.Cancel == nil && !run.Expired && run.Failures < MaxFailures {
		w.stuck(key, run.ID, "no worker of this release may carry it on: %v", blocked)
		return nil
	}
	switch due, err := w.due(ctx, s, run); {
	case err != nil:
		return err
	case !due:
		return nil
	}
	w.Hinted++
	return w.Work.Publish(ctx, events.Hint{Key: key, Sequence: s.At.Sequence, Again: true})
}

// due reports whether a worker has to look at the session. A claim that is open
// has a work item as long as its holder lives.
func (w *sweep) due(ctx context.Context, s *projector.Session, run *projector.Run) (bool, error) {
	if !s.Runnable() {
		return false, nil
	}
	if !s.At.Claim.Open || w.first {
		return true, nil
	}
	silent, err := w.Leases.Silent(ctx, s.Key, s.At.Claim.ID)
	if err != nil {
		return false, fmt.Errorf("look for the holder of run %s: %w", run.ID, err)
	}
	return silent >= w.TTL, nil
}

// contract tells whether this release may carry a run on. Runs of one version
// share the answer.
func (w *sweep) contract(ctx context.Context, namespace string, run *projector.Run) error {
	a := &run.Admitted
	id := events.Derive(26, namespace, a.Definition, a.Contract, fmt.Sprint(a.Subagents, a.Capabilities))
	known, ok := w.contracts[id]
	if !ok {
		_, known = w.admitted(ctx, namespace, run.ID, a)
		var (
			missing *MissingVersionError
			other   *runtime.ContractError
		)
		if !errors.As(known, &missing) && !errors.As(known, &other) {
			known = nil // what cannot be read now is not judged
		}
		w.contracts[id] = known
	}
	return known
}

// parked evaluates what a parked run waits for: its children's own logs, its
// deadlines and its ledger.
func (w *sweep) parked(ctx context.Context, s *projector.Session, run *projector.Run) error {
	lost, waits := 0, 0
	for _, child := range run.Children {
		if !child.Awaited || child.Settled != nil {
			continue
		}
		waits++
		ended, known, err := w.child(ctx, s.Key.Namespace, &child)
		switch {
		case err != nil:
			return err
		case !known:
			lost++
		case ended != nil:
			if err := w.tellParent(ctx, s.Key.Namespace, ended); err != nil {
				return err
			}
			w.Told++
		}
	}
	if err := w.deadlines(ctx, s, run); err != nil {
		return err
	}
	// Telling it folds whatever came first, its end included.
	if run = s.Current(); run.State != projector.StateParked {
		return nil
	}
	if run.Wait.Reason == events.ParkBudget && !run.Satisfied() {
		if err := w.budget(ctx, s.Key.Namespace, run); err != nil {
			return err
		}
	}
	if err := w.appender().LoadLatest(ctx, s.Key, s); err != nil {
		return err
	}
	run = s.Current()
	if run.State == projector.StateParked && !s.Runnable() && waits > 0 && lost == waits && !run.Wait.Messages && run.Wait.Deadline == nil && run.Admitted.Deadline == nil {
		w.stuck(s.Key, run.ID, "it waits for children that were never started")
	}
	return nil
}

// child looks at a child's own log: how it ended, or nil while it has not, and
// whether there is one.
func (w *sweep) child(ctx context.Context, namespace string, c *projector.Child) (ended *projector.Run, known bool, err error) {
	s, _, err := w.load(ctx, events.Key{Namespace: namespace, Session: c.Session}, 0)
	switch {
	case err != nil && (ctx.Err() != nil || errors.Is(err, events.ErrUnanswered)):
		return nil, false, err
	case err != nil:
		return nil, true, nil // it cannot be read, and is listed by its own entry
	}
	r := s.Run(c.Run)
	if r == nil || !r.State.Terminal() {
		return nil, r != nil, nil
	}
	return r, true, nil
}

// orphan asks a run to stop whose parent has ended without it: the reaction to
// the parent's end was lost.
func (w *sweep) orphan(ctx context.Context, s *projector.Session, run *projector.Run) error {
	if run.Parent == "" || run.Cancel != nil {
		return nil
	}
	key, err := events.KeyOfRun(s.Key.Namespace, run.Parent)
	if err != nil {
		return nil
	}
	id := key.Namespace + "/" + run.Parent
	state, known := w.parents[id]
	if !known {
		p, _, err := w.load(ctx, key, 0)
		switch {
		case err != nil && (ctx.Err() != nil || errors.Is(err, events.ErrUnanswered)):
			return err
		case err == nil && p.Run(run.Parent) != nil:
			state = p.Run(run.Parent).State // of one that cannot be read nothing is known
		}
		w.parents[id] = state
	}
	if !state.Terminal() {
		return nil
	}
	w.Told++
	child := events.ChildCall{CallID: run.Admitted.Cause.ID, Session: s.Key.Session, Run: run.ID}
	if err := w.askToStop(ctx, key.Namespace, run.Parent, &child, "its parent ended: "+string(state)); err != nil {
		return err
	}
	return w.appender().LoadLatest(ctx, s.Key, s)
}

// deadlines tells a run of those that have passed, and arms the others again
// after a start.
func (w *sweep) deadlines(ctx context.Context, s *projector.Session, run *projector.Run) error {
	timers := []Timer{{Namespace: s.Key.Namespace, Run: run.ID, CallID: run.Wait.CallID}, {Namespace: s.Key.Namespace, Run: run.ID}}
	moments := []*time.Time{run.Wait.Deadline, run.Admitted.Deadline}
	for i, at := range moments {
		if at == nil {
			continue
		}
		timers[i].At = *at
		switch {
		case s.Current().State != projector.StateParked:
			return nil
		case !at.After(w.Now()):
			if err := w.tellFired(ctx, s, timers[i]); err != nil {
				return err
			}
			w.Told++
		case w.first:
			if err := w.Timers.Arm(ctx, timers[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// budget tells a refused run of a top-up that it has not been told of.
func (w *sweep) budget(ctx context.Context, namespace string, run *projector.Run) error {
	l, err := w.ledger(ctx, namespace, run.Root)
	if err != nil || l.Raises <= run.Wait.Raises {
		return err
	}
	w.Told++
	return w.raised(ctx, namespace, run.ID, l.Raises)
}
