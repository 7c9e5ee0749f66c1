package jetstream

import (
	"context"
	"fmt"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/agentruntime/agentruntime/events"
)

// Reaction follows one shard of the log from its first fact on, under a name
// whose position the server keeps. Each fact is handed out until it is
// acknowledged, in order at first, later ones out of it. Set the fields before
// the first use.
type Reaction struct {
	Conn  *Conn
	Name  string // letters, digits, _ and -
	Shard int
	Wait  time.Duration // how long a fact may be worked on; 30s when zero

	consumer consumer
}

// Fact is a fact of the log without its data, which is not sent: most
// reactions need none, and who does reads the session.
type Fact struct {
	events.Record
	Shard int
	Delivery
}

// Key returns the session the fact belongs to.
func (f *Fact) Key() events.Key {
	return events.Key{Namespace: f.Namespace, Session: f.Session}
}

// UndecodableError reports a message of a stream that is no CloudEvent. It can
// still be put back or acknowledged.
type UndecodableError struct {
	Stream   string
	Sequence uint64
	Err      error
	Delivery
}

func (e *UndecodableError) Error() string {
	return fmt.Sprintf("stream %s, sequence %d: %v", e.Stream, e.Sequence, e.Err)
}

func (e *UndecodableError) Unwrap() error { return e.Err }

// reactionBatch is how many facts wait at the client: they cost a few hundred
// bytes each, and a reaction handles thousands a second.
const reactionBatch = 256

// Next waits for a fact until ctx ends.
func (r *Reaction) Next(ctx context.Context) (Fact, error) {
	r.prepare()
	m, err := r.consumer.next(ctx)
	if err != nil {
		return Fact{}, err
	}
	d := delivery(m)
	event, err := events.Decode(m.Headers(), nil)
	if err != nil {
		return Fact{}, &UndecodableError{r.consumer.stream, d.sequence, err, d}
	}
	return Fact{events.Record{Event: event, Sequence: d.sequence}, r.Shard, d}, nil
}

// Acknowledged returns the sequence up to which every fact of the shard is
// acknowledged. After a crash of the server it may be lower than it was.
func (r *Reaction) Acknowledged(ctx context.Context) (uint64, error) {
	r.prepare()
	var floor uint64
	err := r.Conn.persist(ctx, func(ctx context.Context) error {
		handle, err := r.consumer.ensure(ctx)
		if err != nil {
			return err
		}
		info, err := handle.Info(ctx)
		if err != nil {
			return err
		}
		floor = info.AckFloor.Stream
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("ask for the position of reaction %s on shard %d: %w", r.Name, r.Shard, err)
	}
	return floor, nil
}

// End returns the sequence of the shard's newest fact.
func (r *Reaction) End(ctx context.Context) (uint64, error) {
	info, err := r.Conn.stored(ctx, logStream(r.Shard))
	if err == nil && info == nil {
		err = events.ErrNotFound
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the end of shard %d: %w", r.Shard, err)
	}
	return info.State.LastSeq, nil
}

// Rewind hands out again every fact from the sequence on.
func (r *Reaction) Rewind(ctx context.Context, from uint64) error {
	r.prepare()
	err := r.Conn.persist(ctx, func(ctx context.Context) error {
		if _, err := r.consumer.ensure(ctx); err != nil {
			return err
		}
		_, err := r.Conn.js.ResetConsumerToSequence(ctx, r.consumer.stream, r.Name, max(from, 1))
		return err
	})
	if err != nil {
		return fmt.Errorf("rewind reaction %s on shard %d to %d: %w", r.Name, r.Shard, from, err)
	}
	return nil
}

func (r *Reaction) prepare() {
	r.consumer.set(r.Conn, logStream(r.Shard), reactionBatch, natsjs.ConsumerConfig{
		Durable:       r.Name,
		AckWait:       waitOf(r.Wait),
		FilterSubject: fmt.Sprintf("agent.log.%d.>", r.Shard),
		HeadersOnly:   true,
	})
}
