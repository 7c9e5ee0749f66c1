package jetstream

import (
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Delivery is one message taken from a queue. An acknowledgement carries no
// fence: a late one may remove what another worker now holds, so that nothing
// correct may rest on the message staying.
type Delivery struct {
	Deliveries uint64 // how often it was handed out, this time included
	sequence   uint64
	message    natsjs.Msg
}

func delivery(m natsjs.Msg) Delivery {
	d := Delivery{message: m}
	if meta, err := m.Metadata(); err == nil {
		d.Deliveries, d.sequence = meta.NumDelivered, meta.Sequence.Stream
	}
	return d
}

// Ack removes the message: everything that it causes is stored. It does not
// wait; a lost acknowledgement is a second delivery.
func (d Delivery) Ack() error { return translate(d.message.Ack()) }

// Later puts the message back, to be delivered again no sooner than after the
// delay.
func (d Delivery) Later(delay time.Duration) error { return translate(d.message.NakWithDelay(delay)) }

// InProgress starts the acknowledgement wait anew.
func (d Delivery) InProgress() error { return translate(d.message.InProgress()) }

// Backoff is a delay for Later that doubles with each delivery, from one second
// to one minute.
func (d Delivery) Backoff() time.Duration {
	const most = time.Minute
	if d.Deliveries > 6 {
		return most
	}
	return min(most, time.Second<<max(d.Deliveries, 1)>>1)
}

// defaultWait is how long a message may be worked on before it is handed out
// again.
const defaultWait = 30 * time.Second

func waitOf(configured time.Duration) time.Duration {
	if configured == 0 {
		return defaultWait
	}
	return configured
}
