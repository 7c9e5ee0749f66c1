package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
)

// batchRequest asks one replica for the next messages of a stream.
type batchRequest struct {
	From    uint64 // the first sequence that may be among them
	Subject string // may have wildcards
	Limit   int
}

// maxBatchBytes bounds the answer; the server sends at least one message,
// however large.
const maxBatchBytes = 8 << 20

// readBatch calls each for the messages of one batch direct get, in order. The
// server names with each message the one before it, so that a lost one is seen:
// what follows a gap is dropped, and what each saw is a prefix without holes. A
// failure before the first message is an error, never an empty batch; each's
// error is returned.
func (c *Conn) readBatch(ctx context.Context, stream string, r batchRequest, timeout time.Duration, each func(sequence uint64, m *nats.Msg) error) error {
	body, err := json.Marshal(map[string]any{"seq": r.From, "next_by_subj": r.Subject, "batch": r.Limit, "max_bytes": maxBatchBytes})
	if err != nil {
		return err
	}
	p, err := c.replies.send(ctx, &nats.Msg{Subject: "$JS.API.DIRECT.GET." + stream, Data: body})
	if err != nil {
		return err
	}
	defer c.replies.forget(p)
	for previous := uint64(0); ; {
		m, err := p.await(ctx, timeout)
		if err != nil {
			// Silence after something arrived ends a prefix.
			if previous != 0 {
				return nil
			}
			return err
		}
		sequence, before := lastNumber(m, headerSequence), lastNumber(m, headerPrevious)
		if sequence == 0 {
			return batchEnd(m, previous)
		}
		if before != previous {
			if previous == 0 {
				return fmt.Errorf("%w: the beginning of the batch is missing", events.ErrUnanswered)
			}
			return nil
		}
		if sequence < r.From || sequence <= previous {
			return fmt.Errorf("the server sent sequence %d out of order", sequence)
		}
		if err := each(sequence, m); err != nil {
			return err
		}
		previous = sequence
	}
}

// batchEnd judges the status message that ends a batch.
func batchEnd(m *nats.Msg, previous uint64) error {
	switch status := m.Header.Get("Status"); status {
	case "204":
		// The end names the last message. If that one was lost with all
		// the others, it must not look like a subject without messages.
		if previous == 0 && lastNumber(m, headerPrevious) != 0 {
			return fmt.Errorf("%w: the whole batch is missing", events.ErrUnanswered)
		}
		return nil
	case "404":
		return nil
	default:
		return fmt.Errorf("%w: status %q %s", events.ErrUnanswered, status, m.Header.Get("Description"))
	}
}
