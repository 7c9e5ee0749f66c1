package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
)

// served returns a connection on which a service answers with what it was asked.
func served(t *testing.T) *jetstream.Conn {
	t.Helper()
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	s := &jetstream.Service{Conn: conn, Version: "1.0.0", Answer: func(_ context.Context, namespace, verb string, header map[string][]string, data []byte) ([]byte, string, error) {
		if verb == "refuse" {
			return nil, "not_found", errors.New("there is\nno such thing")
		}
		return fmt.Appendf(nil, "%s %s %s %s", namespace, verb, header["X"], data), "", nil
	}}
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for { // until the subscription has reached the server
		if _, err := conn.Request(t.Context(), "agent.api.ns.hello", nil, nil); !errors.Is(err, jetstream.ErrNoService) {
			return conn
		}
	}
}

func TestServiceAnswersRequests(t *testing.T) {
	conn := served(t)
	answer, err := conn.Request(t.Context(), "agent.api.team-1.run.get", map[string]string{"X": "1"}, []byte("data"))
	if err != nil || string(answer) != "team-1 run.get [1] data" {
		t.Errorf("answered %q, %v", answer, err)
	}
	_, err = conn.Request(t.Context(), "agent.api.ns.refuse", nil, nil)
	var refused *jetstream.ServiceError
	if !errors.As(err, &refused) || refused.Code != "not_found" || refused.Description != "there is no such thing" {
		t.Errorf("got %v", err)
	}
}

// A request whose answer would be stored as a fact is not answered.
func TestServiceAnswersNoSubjectOfItsOwn(t *testing.T) {
	conn := served(t)
	for _, reply := range []string{"agent.log.0.ns.victim", "$JS.API.STREAM.PURGE.AGENT_LOG_0"} {
		sub, err := conn.NATS().SubscribeSync(reply)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.NATS().PublishMsg(&nats.Msg{Subject: "agent.api.ns.hello", Reply: reply}); err != nil {
			t.Fatal(err)
		}
		// A later request's answer shows that this one was passed over.
		if _, err := conn.Request(t.Context(), "agent.api.ns.hello", nil, nil); err != nil {
			t.Fatal(err)
		}
		if n, _, err := sub.Pending(); err != nil || n != 0 {
			t.Errorf("%s got %d messages, %v", reply, n, err)
		}
	}
}

func TestARequestTellsNobodyFromNoAnswer(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{})
	if _, err := conn.Request(t.Context(), "svc.nobody", nil, nil); !errors.Is(err, jetstream.ErrNoService) {
		t.Errorf("got %v", err)
	}
	if _, err := conn.NATS().Subscribe("svc.silent", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := conn.Request(ctx, "svc.silent", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	stop, err := conn.Answer("svc.plain", func(data []byte) ([]byte, error) {
		if len(data) == 0 {
			return nil, errors.New("say something")
		}
		return data, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if answer, err := conn.Request(t.Context(), "svc.plain", nil, []byte("x")); err != nil || string(answer) != "x" {
		t.Errorf("answered %q, %v", answer, err)
	}
	var refused *jetstream.ServiceError
	if _, err := conn.Request(t.Context(), "svc.plain", nil, nil); !errors.As(err, &refused) {
		t.Errorf("got %v", err)
	}
}

func TestAnswersThatComeTooLateOrTwiceAreCounted(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{})
	asked, late := make(chan *nats.Msg, 1), make(chan struct{})
	if _, err := conn.NATS().Subscribe("svc.slow", func(m *nats.Msg) { asked <- m }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(late)
		_, _ = conn.Request(ctx, "svc.slow", nil, nil)
	}()
	m := <-asked
	cancel()
	<-late
	if err := errors.Join(m.Respond([]byte("late")), m.Respond([]byte("twice"))); err != nil {
		t.Fatal(err)
	}
	jetstreamtest.Eventually(t, "both answers to be counted", func() bool { return conn.LateAnswers() == 2 })
}
