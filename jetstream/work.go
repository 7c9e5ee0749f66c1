package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/agentruntime/agentruntime/events"
)

// Work is the queue of hints. Set the fields before the first use.
type Work struct {
	Conn *Conn
	TTL  time.Duration // how long a worker may keep silent about an item: the leases' TTL; DefaultLeaseTTL when zero

	consumer consumer
}

// WorkItem is one hint handed out to this worker.
type WorkItem struct {
	events.Hint
	Delivery
}

type workData struct {
	Sequence uint64 `json:"sequence"`
}

// Publish stores a hint. The same one within the server's window is dropped,
// unless it says that it comes again: whoever appends a fact and the reaction to
// it often send the same.
func (w *Work) Publish(ctx context.Context, hint events.Hint) error {
	if err := hint.Key.Check(); err != nil {
		return err
	}
	data, err := json.Marshal(workData{hint.Sequence})
	if err != nil {
		return err
	}
	at := place{streamWork, "agent.work." + hint.Key.Namespace + "." + hint.Key.Session}
	header := nats.Header{}
	if !hint.Again {
		header[headerMessageID] = []string{hint.Key.String() + "/" + strconv.FormatUint(hint.Sequence, 10)}
	}
	if _, err := w.Conn.publish(ctx, at, w.Conn.timeout, header, data); err != nil {
		return fmt.Errorf("hint at session %s: %w", hint.Key, err)
	}
	return nil
}

// Next waits for a hint until ctx ends. Call it when the work can start at
// once: nothing is fetched ahead. events.ErrNotFound means that the stream is lost.
func (w *Work) Next(ctx context.Context) (WorkItem, error) {
	w.consumer.set(w.Conn, streamWork, 1, natsjs.ConsumerConfig{Durable: "workers", AckWait: w.ttl()})
	for {
		m, err := w.consumer.next(ctx)
		if err != nil {
			return WorkItem{}, err
		}
		tokens := strings.Split(m.Subject(), ".")
		item := WorkItem{Delivery: delivery(m)}
		item.Key = events.Key{Namespace: tokens[2], Session: tokens[3]}
		// Data that does not parse is a hint at the whole session.
		var data workData
		if json.Unmarshal(m.Data(), &data) == nil {
			item.Sequence = data.Sequence
		}
		if item.Key.Check() == nil {
			return item, nil
		}
		// No session can have such a key.
		if err := m.TermWithReason("the subject names no session"); err != nil {
			return WorkItem{}, translate(err)
		}
	}
}

func (w *Work) ttl() time.Duration {
	if w.TTL == 0 {
		return DefaultLeaseTTL
	}
	return w.TTL
}
