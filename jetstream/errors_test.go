package jetstream

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/agentruntime/agentruntime/events"
)

func api(class int, code natsjs.ErrorCode) error {
	return &natsjs.APIError{Code: class, ErrorCode: code, Description: "text is never read"}
}

func TestErrorsAreMappedByCode(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want error // nil: neither
	}{
		{"another message is the last one", api(400, 10071), events.ErrConflict},
		{"another proposal is in flight", api(400, 10164), events.ErrConflict},
		{"no leader", api(503, 10008), events.ErrUnanswered},
		{"disk full", api(503, 10023), events.ErrUnanswered},
		{"store failed", api(503, 10077), events.ErrUnanswered},
		{"stream offline", api(500, 10118), events.ErrUnanswered},
		{"not the leader", api(500, 10009), events.ErrUnanswered},
		{"storage exceeded", api(500, 10047), events.ErrUnanswered},
		{"account resources exceeded", api(400, 10002), events.ErrUnanswered},
		{"too many requests", api(429, 10167), events.ErrUnanswered},
		{"too many batches", api(429, 10210), events.ErrUnanswered},
		{"the same message id is in process", api(409, 10158), events.ErrUnanswered},
		{"subject not ready for an expectation", api(503, 10163), events.ErrUnanswered},
		{"time-out", nats.ErrTimeout, events.ErrUnanswered},
		{"no responders", nats.ErrNoResponders, events.ErrUnanswered},
		{"no stream", natsjs.ErrNoStreamResponse, events.ErrUnanswered},
		{"connection closed", nats.ErrConnectionClosed, events.ErrUnanswered},
		{"reconnecting", nats.ErrReconnectBufExceeded, events.ErrUnanswered},
		{"deadline of the request", context.DeadlineExceeded, events.ErrUnanswered},
		{"caller gone", context.Canceled, events.ErrUnanswered},
		{"wrapped", fmt.Errorf("publish: %w", api(503, 10008)), events.ErrUnanswered},
		{"message too large for the stream", api(400, 10054), nil},
		{"headers too large", api(400, 10097), nil},
		{"stream sealed", api(400, 10109), nil},
		{"payload too large for the server", nats.ErrMaxPayload, nil},
		{"subject invalid", nats.ErrBadSubject, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := translate(c.err)
			for _, sentinel := range []error{events.ErrConflict, events.ErrUnanswered} {
				if errors.Is(got, sentinel) != (sentinel == c.want) {
					t.Errorf("translate(%v) = %v; is %q: %t", c.err, got, sentinel, errors.Is(got, sentinel))
				}
			}
			if !errors.Is(got, c.err) && apiError(got) == nil {
				t.Errorf("translate(%v) = %v hides the cause", c.err, got)
			}
		})
	}
	if translate(nil) != nil {
		t.Error("translate(nil) is an error")
	}
}

func TestVersionsAreComparedByNumber(t *testing.T) {
	for version, older := range map[string]bool{
		"2.15.3": false, "2.15.10": false, "2.16.0": false, "3.0.0": false, "2.15.3-RC.1": false,
		"2.15.2": true, "2.9.30": true, "1.99.99": true, "": true,
	} {
		if got := olderThan(version, "2.15.3"); got != older {
			t.Errorf("olderThan(%q) = %t", version, got)
		}
	}
}
