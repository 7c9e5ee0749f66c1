package jetstream

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/agentruntime/agentruntime/events"
)

// Commands is the queue of what was asked for.
type Commands struct {
	Conn *Conn
	Wait time.Duration // how long a command may be worked on; 30s when zero

	consumer consumer
}

// Command is a message on a command subject, as it came: whoever may publish
// there wrote every byte of it but the namespace, which its permissions bound.
type Command struct {
	Namespace string
	Name      string // what follows the namespace in the subject, for example run.start
	Sequence  uint64 // in the stream
	Header    map[string][]string
	Data      []byte
	Delivery
}

// Publish stores a command under the namespace. Its name is the last words of
// its type.
func (c *Commands) Publish(ctx context.Context, namespace string, command *events.Event) error {
	row := events.TypeOf(command.Type)
	if row.Kind != events.Command {
		return fmt.Errorf("publish %s: it is not a command", command.Type)
	}
	if err := events.CheckNamespace(namespace); err != nil {
		return err
	}
	at := place{streamCommands, "agent.cmd." + namespace + "." + row.Short()}
	_, err := c.Conn.publish(ctx, at, c.Conn.timeout, nats.Header(command.Header()), command.Data)
	return err
}

// Next waits for a command until ctx ends.
func (c *Commands) Next(ctx context.Context) (Command, error) {
	c.consumer.set(c.Conn, streamCommands, 1, natsjs.ConsumerConfig{Durable: "admission", AckWait: waitOf(c.Wait)})
	m, err := c.consumer.next(ctx)
	if err != nil {
		return Command{}, err
	}
	namespace, name, _ := strings.Cut(strings.TrimPrefix(m.Subject(), "agent.cmd."), ".")
	d := delivery(m)
	return Command{namespace, name, d.sequence, m.Headers(), m.Data(), d}, nil
}
