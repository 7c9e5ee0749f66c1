package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// ErrNoService means that nobody listens on a subject: the request was not
// taken by anyone.
var ErrNoService = errors.New("nobody serves the subject")

// ServiceError is an error that a service answered with, in the headers that
// NATS services use.
type ServiceError struct {
	Code        string
	Description string
}

func (e *ServiceError) Error() string { return fmt.Sprintf("%s (code %s)", e.Description, e.Code) }

// Request makes one request and returns the answer. Of several answers the
// first counts; later ones, and those that come after ctx has ended, are dropped
// and counted. ErrNoService and *ServiceError are answers; any other error leaves
// open whether the request was taken.
func (c *Conn) Request(ctx context.Context, subject string, header map[string]string, data []byte) ([]byte, error) {
	m := nats.NewMsg(subject)
	m.Data = data
	for name, value := range header {
		m.Header.Set(name, value)
	}
	answer, err := c.services.request(ctx, noTimeout, m)
	switch {
	case isUnserved(err):
		return nil, fmt.Errorf("request to %s: %w", subject, ErrNoService)
	case err != nil:
		return nil, fmt.Errorf("request to %s: %w", subject, err)
	}
	if code := answer.Header.Get(micro.ErrorCodeHeader); code != "" {
		return nil, &ServiceError{code, answer.Header.Get(micro.ErrorHeader)}
	}
	return answer.Data, nil
}

// noTimeout is for requests that their context alone bounds.
const noTimeout = 1000 * time.Hour

// LateAnswers returns how many answers to requests came when nobody waited for
// them any more.
func (c *Conn) LateAnswers() uint64 {
	c.services.mu.Lock()
	defer c.services.mu.Unlock()
	return c.services.late
}

// Answer serves a subject by plain request and reply, shared with every other
// process that serves it, until stop is called.
func (c *Conn) Answer(subject string, answer func(data []byte) ([]byte, error)) (stop func(), err error) {
	sub, err := c.nc.QueueSubscribe(subject, "agentruntime", func(m *nats.Msg) {
		reply := nats.NewMsg(m.Reply)
		data, err := answer(m.Data)
		if err != nil {
			reply.Header.Set(micro.ErrorCodeHeader, "400")
			reply.Header.Set(micro.ErrorHeader, oneLine(err.Error()))
		}
		reply.Data = data
		_ = m.RespondMsg(reply) // who asked has its own time-out
	})
	if err != nil {
		return nil, fmt.Errorf("serve %s: %w", subject, translate(err))
	}
	return func() { _ = sub.Unsubscribe() }, nil
}
