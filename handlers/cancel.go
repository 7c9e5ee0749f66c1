package handlers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// Signals tells the worker that runs a session to look at its log now. A signal
// may be lost: the worker sees the same at its next commit.
type Signals interface {
	Send(key events.Key) error

	// Listen calls f, which must not block, on every signal for the session
	// until stop is called.
	Listen(key events.Key, f func()) (stop func(), err error)
}

// cancel asks a run to stop. What is below it is asked by the reactions.
func (a *admission) cancel(ctx context.Context) (*Admission, error) {
	var data events.CancelRun
	if err := strict(a.command.Data, &data); err != nil {
		return nil, err
	}
	key, err := a.target(data.Run)
	if err != nil {
		return nil, err
	}
	run, err := a.find(ctx, key, data.Run)
	if err != nil {
		return nil, err
	}
	if err := a.accept(ctx, key, data.Run, true); err != nil {
		return nil, err
	}
	admitted := &Admission{Run: data.Run, Session: key.Session}
	id := events.Derive(26, "cancel", a.cause.Source, a.cause.ID)
	if run.State.Terminal() {
		// The same command again is answered as it was the first time.
		asked, err := a.heard(ctx, key, data.Run, id)
		if err == nil && !asked {
			admitted.Ended = run.State
		}
		return admitted, err
	}
	reason := data.Reason
	if reason == "" {
		reason = "cancelled on request"
	}
	err = a.host.notify(ctx, key, data.Run, id, events.CancelRequested{Reason: bounded(a.host.Redactor.Redact(reason), maxErrorText)})
	if err != nil {
		return nil, err
	}
	// The run may have ended before the request stood.
	if run, err = a.find(ctx, key, data.Run); err == nil && run.State.Terminal() {
		var asked bool
		if asked, err = a.heard(ctx, key, data.Run, id); err == nil && !asked {
			admitted.Ended = run.State
		}
	}
	return admitted, err
}

// find returns a run that a command names, as the log's leader knows it.
func (a *admission) find(ctx context.Context, key events.Key, run string) (*projector.Run, error) {
	s, err := a.host.Latest(ctx, key)
	if err != nil {
		return nil, err
	}
	if r := s.Run(run); r != nil {
		return r, nil
	}
	return nil, reject(RejectNoRun, "there is no run %s in namespace %s", run, a.namespace)
}

// notify appends an external fact about a run. What follows from it is the
// reactions' to do.
func (h *Host) notify(ctx context.Context, key events.Key, run, id string, payload any) error {
	_, err := h.notifyAt(ctx, key, run, id, payload)
	return err
}

// notifyAt is notify, and returns where the fact stands.
func (h *Host) notifyAt(ctx context.Context, key events.Key, run, id string, payload any) (uint64, error) {
	e, err := h.fact(key, run, payload)
	if err != nil {
		return 0, err
	}
	e.ID = id
	return h.appender().Notify(ctx, key, e)
}

// maxCascade is how many children are asked to stop at a time.
const maxCascade = 16

// stopChildren asks every child of a run that may not have ended to stop,
// admitted or not: their ids derive from the calls. A call that was dispatched
// and not carried out yet finds itself cancelled when it is.
func (h *Host) stopChildren(ctx context.Context, namespace string, run *projector.Run, reason string) error {
	slots := make(chan struct{}, maxCascade)
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex
		first error
	)
	for _, child := range run.Children {
		if child.Settled != nil {
			continue
		}
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			if err := h.askToStop(ctx, namespace, run.ID, &child.ChildCall, reason); err != nil {
				mu.Lock()
				first = err
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return first
}

// askToStop asks one child to stop, unless it has ended or was asked before.
func (h *Host) askToStop(ctx context.Context, namespace, by string, child *events.ChildCall, reason string) error {
	key := events.Key{Namespace: namespace, Session: child.Session}
	s, err := h.Latest(ctx, key)
	if errors.Is(err, events.ErrErased) {
		return nil // only a session whose runs have ended is
	}
	if err != nil {
		return fmt.Errorf("look at child %s: %w", child.Run, err)
	}
	if r := s.Run(child.Run); r != nil && (r.State.Terminal() || r.Cancel != nil) || s.EarlyCancel(child.Run) != nil {
		return nil
	}
	if err := h.notify(ctx, key, child.Run, events.Derive(26, "cancel", by, child.Run), events.CancelRequested{Reason: reason}); err != nil {
		return fmt.Errorf("ask child %s to stop: %w", child.Run, err)
	}
	return nil
}
