package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
)

// tail reads a stream as it grows, without a consumer.
type tail struct {
	conn    *Conn
	stream  string
	subject string // may have wildcards
	after   uint64 // the sequence to begin above
	each    func(sequence uint64, m *nats.Msg) error

	// interrupted, when set, is called after the connection was lost and
	// made again: what was stored meanwhile is read, later than it was
	// stored.
	interrupted func()

	heard      chan struct{}
	reconnects uint64
}

// A tail looks soon after it has heard a message, since one is heard before it
// is stored, and less and less often while it hears nothing, since one can be
// missed.
const (
	soonestLook = 2 * time.Millisecond
	latestLook  = 2 * time.Second
)

// errEnough is what each returns to end the tail.
var errEnough = errors.New("enough")

// run reads until ctx ends or each returns an error. While no server answers it
// waits.
func (t *tail) run(ctx context.Context) error {
	if info, err := t.conn.stored(ctx, t.stream); err != nil || info == nil {
		return errors.Join(err, fmt.Errorf("stream %s: %w", t.stream, events.ErrNotFound))
	}
	t.heard = make(chan struct{}, 1)
	sub, err := t.conn.nc.Subscribe(t.subject, func(*nats.Msg) {
		select {
		case t.heard <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return translate(err)
	}
	// An error of Unsubscribe means that the subscription is gone already.
	defer func() { _ = sub.Unsubscribe() }()
	t.reconnects = t.conn.nc.Stats().Reconnects
	for pause := soonestLook; ; {
		seen, err := t.look(ctx)
		if err != nil && !errors.Is(err, events.ErrUnanswered) {
			return err
		}
		if seen {
			pause = soonestLook
			continue
		}
		if pause, err = t.wait(ctx, pause); err != nil {
			return err
		}
	}
}

// look hands on what one read finds.
func (t *tail) look(ctx context.Context) (seen bool, err error) {
	if n := t.conn.nc.Stats().Reconnects; n != t.reconnects {
		// A crash may have taken messages that were not synced; those
		// stored since stand in their place.
		info, err := t.conn.stored(ctx, t.stream)
		if err != nil {
			return false, err
		}
		if info != nil {
			t.after = min(t.after, info.State.LastSeq)
		}
		t.reconnects = n
		if t.interrupted != nil {
			t.interrupted()
		}
	}
	err = t.conn.readBatch(ctx, t.stream, batchRequest{t.after + 1, t.subject, events.MaxRead}, t.conn.timeout, func(sequence uint64, m *nats.Msg) error {
		t.after, seen = sequence, true
		return t.each(sequence, m)
	})
	return seen, err
}

// wait returns the next pause after a message was heard or the pause is over.
func (t *tail) wait(ctx context.Context, pause time.Duration) (time.Duration, error) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-t.heard:
		return soonestLook, nil
	case <-timer.C:
		return min(2*pause, latestLook), nil
	}
}
