package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/agentruntime/agentruntime/events"
)

// consumer pulls from one durable consumer and keeps it alive: a pull that the
// server has forgotten, a consumer that is gone and a client that stalled after
// a leadership change all end in a new pull from a consumer known to exist.
type consumer struct {
	conn   *Conn
	stream string
	config natsjs.ConsumerConfig
	batch  int // how many messages may wait here; what waits ages

	once     sync.Once
	turn     chan struct{} // held by whoever pulls
	messages natsjs.MessagesContext
}

const (
	pullExpiry = 30 * time.Second
	// A pull that is silent for two heartbeats is taken for lost.
	pullHeartbeat = 2 * time.Second
	// idleLimit is how long a silent consumer is trusted.
	idleLimit = 60 * time.Second
	// pullPause is the pause after a pull that failed.
	pullPause = 100 * time.Millisecond
	// maxAckPending bounds what all workers together have taken.
	maxAckPending = 100_000
)

// set prepares the consumer on its first use. It waits for explicit
// acknowledgements and never gives a message up: after a last delivery it would
// stay stored and be delivered to nobody.
func (c *consumer) set(conn *Conn, stream string, batch int, config natsjs.ConsumerConfig) {
	c.once.Do(func() {
		c.conn, c.stream, c.batch, c.config = conn, stream, batch, config
		c.turn = make(chan struct{}, 1)
		c.config.AckPolicy = natsjs.AckExplicitPolicy
		c.config.MaxDeliver = -1
		c.config.MaxAckPending = maxAckPending
	})
}

// next waits for a message until ctx ends. A stream that does not exist is
// events.ErrNotFound: its owner has to make it again and to sweep, which a consumer
// cannot do.
func (c *consumer) next(ctx context.Context) (natsjs.Msg, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for {
		m, err := c.pull(ctx)
		if err == nil {
			return m, nil
		}
		c.drop()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if hasCode(err, codeStreamNotFound) {
			return nil, fmt.Errorf("consume %s: %w: %w", c.stream, events.ErrNotFound, err)
		}
		if errors.Is(err, nats.ErrConnectionClosed) || isRefusal(err) {
			return nil, fmt.Errorf("consume %s: %w", c.stream, translate(err))
		}
		if err := events.Sleep(ctx, pullPause); err != nil {
			return nil, err
		}
	}
}

// pull takes one message. Silence beyond idleLimit is an error.
func (c *consumer) pull(ctx context.Context) (natsjs.Msg, error) {
	if c.messages == nil {
		if err := c.open(ctx); err != nil {
			return nil, err
		}
	}
	idle, cancel := context.WithTimeout(ctx, idleLimit)
	defer cancel()
	return c.messages.Next(natsjs.NextContext(idle))
}

func (c *consumer) open(ctx context.Context) error {
	ctx, cancel := c.conn.within(ctx)
	defer cancel()
	handle, err := c.ensure(ctx)
	if err != nil {
		return err
	}
	c.messages, err = handle.Messages(natsjs.PullMaxMessages(c.batch), natsjs.PullExpiry(pullExpiry), natsjs.PullHeartbeat(pullHeartbeat))
	return err
}

// ensure makes the consumer if it does not exist. The acknowledgement wait is
// the one setting that follows this process's configuration.
func (c *consumer) ensure(ctx context.Context) (natsjs.Consumer, error) {
	handle, err := c.conn.js.Consumer(ctx, c.stream, c.config.Durable)
	switch {
	case hasCode(err, codeConsumerNotFound):
		return c.conn.js.CreateConsumer(ctx, c.stream, c.config)
	case err == nil && handle.CachedInfo().Config.AckWait != c.config.AckWait:
		return c.conn.js.UpdateConsumer(ctx, c.stream, c.config)
	}
	return handle, err
}

// drop ends the pull under way. What it had taken is delivered again after the
// acknowledgement wait.
func (c *consumer) drop() {
	if c.messages != nil {
		c.messages.Stop()
		c.messages = nil
	}
}
