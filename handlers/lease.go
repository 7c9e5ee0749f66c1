package handlers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

// Lease is the liveness hint beside a claim: its holder is alive. It decides
// nothing; the claim in the log does.
type Lease struct {
	Worker string
	Claim  string
	Epoch  uint64
	Note   string // for people: why the run does not get on; empty when it does
}

// Leases stores leases. A lease ends by itself one TTL after its last renewal.
type Leases interface {
	// Take puts a lease in place of whatever is there.
	Take(ctx context.Context, key events.Key, l Lease) error

	// Renew prolongs a lease that is still this one. A lease that was taken
	// by another claim is an error that wraps ErrLeaseLost.
	Renew(ctx context.Context, key events.Key, l Lease) error

	// Release ends a lease that is still this one.
	Release(ctx context.Context, key events.Key, l Lease) error

	// Silent returns for how long this process has itself seen nothing of a
	// claim: since the last renewal of its lease that it saw, since it began
	// to watch without a gap, or since it is asked about the claim for the
	// first time, having seen no lease of it.
	Silent(ctx context.Context, key events.Key, claim string) (time.Duration, error)

	// BeginLoading notes, beside the lease, that a worker is about to load
	// the session, and returns how many workers died of it. EndLoading takes
	// the note back; a session that was loaded ends the count.
	BeginLoading(ctx context.Context, key events.Key, worker string) (deaths int, err error)
	EndLoading(ctx context.Context, key events.Key, worker string, loaded bool) error
}

// ErrLeaseLost means that the lease could not be renewed in time, or was taken:
// nothing more may be dispatched under it.
var ErrLeaseLost = errors.New("the lease was lost")

// hold is a lease while it is held. Its context ends when dispatching must.
type hold struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	leases Leases
	key    events.Key
	lease  Lease
	ttl    time.Duration
	margin time.Duration
	now    func() time.Time
	done   chan struct{} // closed when renewing has ended

	mu    sync.Mutex
	until time.Time
}

// take starts to hold a lease. The lease ends with parent, when a renewal is
// refused, and when none was acknowledged in time.
func take(parent context.Context, leases Leases, key events.Key, l Lease, ttl time.Duration, now func() time.Time) (*hold, error) {
	sent := now()
	if err := leases.Take(parent, key, l); err != nil {
		return nil, fmt.Errorf("take the lease of session %s: %w", key, err)
	}
	ctx, cancel := context.WithCancelCause(parent)
	h := &hold{ctx: ctx, cancel: cancel, leases: leases, key: key, lease: l, ttl: ttl, margin: ttl / 10, now: now, done: make(chan struct{})}
	h.until = sent.Add(ttl - h.margin)
	go h.renew()
	return h, nil
}

// alive tells, before each request and callback, whether one may be sent.
func (h *hold) alive() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return &leaseError{context.Cause(h.ctx)}
	}
	if !h.now().Before(h.until) {
		return &leaseError{ErrLeaseLost}
	}
	return nil
}

// leaseError stops the attempt: it is never told to the model.
type leaseError struct{ error }

// FatalToolError implements runtime.FatalToolError.
func (*leaseError) FatalToolError() {}

func (e *leaseError) Unwrap() error { return e.error }

// renew renews at a third of the TTL until the lease ends. A renewal that fails
// for any reason counts as not renewed; the next one may still be in time.
func (h *hold) renew() {
	defer close(h.done)
	tick := time.NewTicker(h.ttl / 3)
	defer tick.Stop()
	for {
		h.mu.Lock()
		left := h.until.Sub(h.now())
		h.mu.Unlock()
		end := time.NewTimer(left)
		select {
		case <-h.ctx.Done():
			end.Stop()
			return
		case <-end.C:
			h.cancel(ErrLeaseLost)
			return
		case <-tick.C:
			end.Stop()
		}
		sent := h.now()
		h.mu.Lock()
		until, lease := h.until, h.lease
		h.mu.Unlock()
		ctx, cancel := context.WithDeadline(h.ctx, until)
		err := h.leases.Renew(ctx, h.key, lease)
		cancel()
		switch {
		case errors.Is(err, ErrLeaseLost):
			h.cancel(err)
			return
		case err == nil:
			h.mu.Lock()
			h.until = sent.Add(h.ttl - h.margin)
			h.mu.Unlock()
		}
	}
}

// note tells people, with the next renewal, why the run does not get on.
func (h *hold) note(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease.Note = text
}

// end stops renewing and gives the lease back. It uses a context that outlives
// the hold's.
func (h *hold) end(ctx context.Context) {
	h.cancel(errors.New("the attempt has ended"))
	<-h.done
	_ = h.leases.Release(ctx, h.key, h.lease) // it ends by itself otherwise
}
