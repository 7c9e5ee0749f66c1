package jetstream

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
)

// Signals tells the worker that runs a session to look at its log now. A signal
// is kept nowhere: without one the worker sees the same at its next commit.
type Signals struct {
	Conn *Conn
}

// Send tells whoever listens for the session.
func (s *Signals) Send(key events.Key) error {
	if err := key.Check(); err != nil {
		return err
	}
	return translate(s.Conn.nc.Publish(signalSubject(key), nil))
}

// Listen calls f on every signal for the session until stop is called. f must
// not block.
func (s *Signals) Listen(key events.Key, f func()) (stop func(), err error) {
	if err := key.Check(); err != nil {
		return nil, err
	}
	sub, err := s.Conn.nc.Subscribe(signalSubject(key), func(*nats.Msg) { f() })
	if err != nil {
		return nil, fmt.Errorf("listen for signals to session %s: %w", key, translate(err))
	}
	// An error of Unsubscribe means that the subscription is gone already.
	return func() { _ = sub.Unsubscribe() }, nil
}

func signalSubject(key events.Key) string {
	return "agent.signal." + key.Namespace + "." + key.Session
}
