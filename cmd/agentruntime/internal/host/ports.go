package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream"
)

// The handlers' ports over the types of package jetstream, where the two do not
// fit by themselves.

type definitions struct{ *jetstream.Definitions }

func (d definitions) Names(ctx context.Context, namespace string) (map[string]string, error) {
	versions, err := d.List(ctx, namespace)
	names := make(map[string]string, len(versions))
	for _, v := range versions {
		names[v.Slug] = v.Hash
	}
	return names, err
}

type snapshots struct{ *jetstream.Snapshots }

func (s snapshots) Get(ctx context.Context, key events.Key) ([]byte, error) {
	data, err := s.Snapshots.Get(ctx, key)
	if errors.Is(err, events.ErrNotFound) {
		return nil, nil
	}
	return data, err
}

type dead struct{ *jetstream.Dead }

func (d dead) Bury(ctx context.Context, namespace, reason string, header map[string][]string, data []byte, cause error) error {
	return d.Put(ctx, jetstream.Letter{Namespace: namespace, Reason: reason, Detail: cause.Error(), Header: header, Data: data})
}

type services struct{ conn *jetstream.Conn }

func (s services) Request(ctx context.Context, subject string, header map[string]string, data []byte) ([]byte, error) {
	answer, err := s.conn.Request(ctx, subject, header, data)
	var refused *jetstream.ServiceError
	switch {
	case errors.Is(err, jetstream.ErrNoService):
		return nil, fmt.Errorf("%w: %s", handlers.ErrNoService, subject)
	case errors.As(err, &refused):
		return nil, &handlers.ServiceError{Code: refused.Code, Description: refused.Description}
	}
	return answer, err
}

type timers struct{ *jetstream.Timers }

func timerOf(t handlers.Timer) jetstream.Timer {
	kind := jetstream.TimerWait
	if t.CallID == "" {
		kind = jetstream.TimerDeadline
	}
	return jetstream.Timer{Namespace: t.Namespace, Run: t.Run, Kind: kind, CallID: t.CallID, At: t.At}
}

// Arm implements handlers.Timers.
func (t timers) Arm(ctx context.Context, timer handlers.Timer) error {
	return t.Timers.Arm(ctx, timerOf(timer))
}

// Disarm implements handlers.Timers.
func (t timers) Disarm(ctx context.Context, timer handlers.Timer) error {
	return t.Cancel(ctx, timerOf(timer))
}

type queue struct{ work *jetstream.Work }

// Next implements handlers.Queue. A queue that cannot be reached is waited for.
func (q queue) Next(ctx context.Context) (handlers.Delivery, error) {
	for {
		item, err := q.work.Next(ctx)
		if err == nil {
			return delivery{item}, nil
		}
		if events.Sleep(ctx, retryPause) != nil {
			return nil, ctx.Err()
		}
	}
}

type delivery struct{ item jetstream.WorkItem }

func (d delivery) Hint() events.Hint         { return d.item.Hint }
func (d delivery) Ack(context.Context) error { return d.item.Ack() }
func (d delivery) Later(_ context.Context, after time.Duration) error {
	return d.item.Later(after)
}
func (d delivery) Working(context.Context) error { return d.item.InProgress() }

// leases remembers the revision of each entry this process wrote.
type leases struct {
	*jetstream.Leases
	watch *jetstream.LeaseWatch

	mu        sync.Mutex
	revisions map[string]uint64 // by claim
}

func newLeases(conn *jetstream.Conn, ttl time.Duration) *leases {
	l := &jetstream.Leases{Conn: conn, TTL: ttl}
	return &leases{Leases: l, watch: &jetstream.LeaseWatch{Leases: l}, revisions: make(map[string]uint64)}
}

func entry(l handlers.Lease) jetstream.Lease {
	return jetstream.Lease{Worker: l.Worker, ClaimID: l.Claim, Epoch: l.Epoch, Note: l.Note}
}

// Take implements handlers.Leases. The claim in the log has decided; whatever
// entry is there belongs to an earlier one.
func (l *leases) Take(ctx context.Context, key events.Key, lease handlers.Lease) error {
	for {
		o, err := l.Observe(ctx, key)
		if err != nil {
			return err
		}
		if o.Held && o.Lease.Epoch > lease.Epoch {
			return handlers.ErrLeaseLost
		}
		revision, err := l.Acquire(ctx, key, entry(lease), o.Revision)
		if err == nil {
			l.remember(lease.Claim, revision)
			return nil
		}
		if !errors.Is(err, events.ErrConflict) {
			return err
		}
	}
}

func (l *leases) remember(claim string, revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revisions[claim] = revision
}

func (l *leases) revision(claim string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revisions[claim]
}

// Renew implements handlers.Leases. A refused expectation may be this process's
// own renewal whose answer was lost, so the entry itself decides.
func (l *leases) Renew(ctx context.Context, key events.Key, lease handlers.Lease) error {
	revision, err := l.Leases.Renew(ctx, key, entry(lease), l.revision(lease.Claim))
	if err == nil {
		l.remember(lease.Claim, revision)
		return nil
	}
	if !errors.Is(err, events.ErrConflict) {
		return err
	}
	o, observeErr := l.Observe(ctx, key)
	switch {
	case observeErr != nil:
		return errors.Join(err, observeErr)
	case o.Held && o.Lease.ClaimID != lease.Claim:
		return fmt.Errorf("%w: session %s is held by worker %s", handlers.ErrLeaseLost, key, o.Lease.Worker)
	}
	l.remember(lease.Claim, o.Revision) // ours, or lost with its bucket: the next renewal writes it
	return err
}

// Release implements handlers.Leases.
func (l *leases) Release(ctx context.Context, key events.Key, lease handlers.Lease) error {
	revision := l.revision(lease.Claim)
	l.mu.Lock()
	delete(l.revisions, lease.Claim)
	l.mu.Unlock()
	return l.Leases.Release(ctx, key, revision)
}

// Silent implements handlers.Leases.
func (l *leases) Silent(ctx context.Context, key events.Key, claim string) (time.Duration, error) {
	return l.watch.Silent(ctx, key, claim)
}

// Note implements handlers.Notes.
func (l *leases) Note(ctx context.Context, key events.Key) (string, error) {
	o, err := l.Observe(ctx, key)
	return o.Lease.Note, err
}
