package jetstream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
)

// Watch follows the public events that the filter selects, from the first one
// above a sequence on, until ctx ends; it then ends without an error. What has
// aged out is skipped. An event that does not decode comes with its sequence and
// an error, and the watch goes on. While no server answers it waits. Any other
// error ends it.
//
// The events are read from the nearest replica whenever one is heard on its
// subject. A watch holds no consumer, so that thousands of them cost the server
// nothing while nothing happens. (The client library's ordered consumer is not
// used: when it has lost its server it tries to make another one for ever,
// whatever its context says.)
func (p *Public) Watch(ctx context.Context, filter Filter, after uint64) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		w := watch{public: p, subject: filter.subject("*"), after: after, heard: make(chan struct{}, 1)}
		if err := w.run(ctx, filter, yield); err != nil && ctx.Err() == nil {
			yield(events.Record{}, fmt.Errorf("watch public events: %w", err))
		}
	}
}

// watch is one Watch under way.
type watch struct {
	public     *Public
	subject    string
	after      uint64
	heard      chan struct{}
	reconnects uint64
}

// A watch looks soon after it has heard an event, since an event is heard
// before it is stored, and less and less often while it hears nothing, since
// one can be missed.
const (
	soonestLook = 2 * time.Millisecond
	latestLook  = 2 * time.Second
)

func (w *watch) run(ctx context.Context, filter Filter, yield func(events.Record, error) bool) error {
	conn := w.public.Conn
	if err := filter.check(); err != nil {
		return err
	}
	if info, err := conn.stored(ctx, streamEvents); err != nil || info == nil {
		return errors.Join(err, fmt.Errorf("stream %s: %w", streamEvents, events.ErrNotFound))
	}
	sub, err := conn.nc.Subscribe(w.subject, func(*nats.Msg) {
		select {
		case w.heard <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return translate(err)
	}
	// An error of Unsubscribe means that the subscription is gone already.
	defer func() { _ = sub.Unsubscribe() }()
	w.reconnects = conn.nc.Stats().Reconnects
	for pause := soonestLook; ; {
		seen, more, err := w.look(ctx, yield)
		if err != nil && !errors.Is(err, events.ErrUnanswered) || !more {
			return err
		}
		if seen {
			pause = soonestLook
			continue
		}
		if pause, err = w.wait(ctx, pause); err != nil {
			return err
		}
	}
}

// look yields what one read finds. more is false when yield wants no more.
func (w *watch) look(ctx context.Context, yield func(events.Record, error) bool) (seen, more bool, err error) {
	conn := w.public.Conn
	if n := conn.nc.Stats().Reconnects; n != w.reconnects {
		// A crash may have taken events that were not synced; those
		// published since stand in their place.
		end, err := w.public.End(ctx)
		if err != nil {
			return false, true, err
		}
		w.reconnects, w.after = n, min(w.after, end)
	}
	more = true
	err = conn.readBatch(ctx, streamEvents, batchRequest{w.after + 1, w.subject, events.MaxRead}, conn.timeout, func(sequence uint64, m *nats.Msg) error {
		w.after, seen = sequence, true
		event, err := events.Decode(m.Header, m.Data)
		if err != nil {
			err = fmt.Errorf("stream %s, sequence %d: %w", streamEvents, sequence, err)
		}
		if more = yield(events.Record{Event: event, Sequence: sequence}, err); !more {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return seen, more, err
}

// errEnough ends a batch whose reader wants no more.
var errEnough = errors.New("enough")

// wait returns the next pause after an event was heard or the pause is over.
func (w *watch) wait(ctx context.Context, pause time.Duration) (time.Duration, error) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-w.heard:
		return soonestLook, nil
	case <-timer.C:
		return min(2*pause, latestLook), nil
	}
}
