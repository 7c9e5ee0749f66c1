package jetstream

import (
	"context"
	"errors"
	"fmt"
	"iter"

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
		t := tail{conn: p.Conn, stream: streamEvents, subject: filter.subject("*"), after: after}
		t.each = func(sequence uint64, m *nats.Msg) error {
			event, err := events.Decode(m.Header, m.Data)
			if err != nil {
				err = fmt.Errorf("stream %s, sequence %d: %w", streamEvents, sequence, err)
			}
			if !yield(events.Record{Event: event, Sequence: sequence}, err) {
				return errEnough
			}
			return nil
		}
		err := filter.check()
		if err == nil {
			err = t.run(ctx)
		}
		if err != nil && !errors.Is(err, errEnough) && ctx.Err() == nil {
			yield(events.Record{}, fmt.Errorf("watch public events: %w", err))
		}
	}
}
