package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/agentruntime/agentruntime/events"
)

// Timers fires at a time, never before it. A firing is a hint: it may come more
// than once, late, or not at all.
type Timers struct {
	Conn *Conn
	Wait time.Duration // how long a firing may be worked on; 30s when zero

	consumer consumer
}

// TimerKind is what a timer is for. A run has at most one pending timer for its
// deadline, and one for each call that waits.
type TimerKind string

// The kinds.
const (
	TimerWait     TimerKind = "wait"     // a parked call's time-out
	TimerDeadline TimerKind = "deadline" // the run's own
)

// Timer is one moment of one run.
type Timer struct {
	Namespace string
	Run       string
	Kind      TimerKind
	CallID    string // of the parked call; empty for the run's deadline
	At        time.Time
}

// FiredTimer is a firing handed out.
type FiredTimer struct {
	Timer
	Delivery
}

type timerData struct {
	CallID string    `json:"call_id,omitempty"`
	At     time.Time `json:"at"`
}

// Headers of the server's message schedules.
const (
	headerSchedule       = "Nats-Schedule"
	headerScheduleTarget = "Nats-Schedule-Target"
	headerScheduleTTL    = "Nats-Schedule-TTL"
	headerScheduleNext   = "Nats-Schedule-Next"
	headerScheduler      = "Nats-Scheduler"
)

// firedTTL is how long a firing that nobody handles is kept.
const firedTTL = "24h"

// Arm makes the timer the only one for its call, or for the run's deadline. A time that has passed
// fires at once.
func (t *Timers) Arm(ctx context.Context, timer Timer) error {
	at, err := timer.place()
	if err != nil {
		return err
	}
	data, err := json.Marshal(timerData{timer.CallID, timer.At})
	if err != nil {
		return err
	}
	header := nats.Header{
		headerSchedule:       {"@at " + timer.At.UTC().Format(time.RFC3339Nano)},
		headerScheduleTarget: {"agent.fired." + timer.tokens()},
		headerScheduleTTL:    {firedTTL},
	}
	if _, err := t.Conn.publish(ctx, at, t.Conn.timeout, header, data); err != nil {
		return fmt.Errorf("arm the %s timer of run %s: %w", timer.Kind, timer.Run, err)
	}
	return nil
}

// Cancel removes a pending timer, if there is one. A firing under way is not
// stopped.
func (t *Timers) Cancel(ctx context.Context, timer Timer) error {
	at, err := timer.place()
	if err != nil {
		return err
	}
	// The server purges the schedule named by a message beside it.
	header := nats.Header{headerScheduleNext: {"purge"}, headerScheduler: {at.subject}}
	setTTL(header, time.Second)
	if _, err := t.Conn.publish(ctx, place{at.stream, at.subject + ".cancelled"}, t.Conn.timeout, header, nil); err != nil {
		return fmt.Errorf("cancel the %s timer of run %s: %w", timer.Kind, timer.Run, err)
	}
	return nil
}

// Next waits for a firing until ctx ends. events.ErrNotFound means that the stream is
// lost, with every pending timer.
func (t *Timers) Next(ctx context.Context) (FiredTimer, error) {
	t.consumer.set(t.Conn, streamTimers, 16, natsjs.ConsumerConfig{Durable: "timers", AckWait: waitOf(t.Wait), FilterSubject: "agent.fired.>"})
	for {
		m, err := t.consumer.next(ctx)
		if err != nil {
			return FiredTimer{}, err
		}
		var data timerData
		tokens := strings.Split(m.Subject(), ".")
		if len(tokens) == 5 && json.Unmarshal(m.Data(), &data) == nil {
			kind, _, _ := strings.Cut(tokens[4], "_")
			return FiredTimer{Timer{tokens[2], tokens[3], TimerKind(kind), data.CallID, data.At}, delivery(m)}, nil
		}
		if err := m.TermWithReason("no timer fires like this"); err != nil {
			return FiredTimer{}, translate(err)
		}
	}
}

// tokens names the timer. The time-out of each call has one of its own: arming
// one late replaces no other.
func (t *Timer) tokens() string {
	kind := string(t.Kind)
	if t.Kind == TimerWait {
		kind += "_" + events.Derive(10, t.CallID)
	}
	return t.Namespace + "." + t.Run + "." + kind
}

func (t *Timer) place() (place, error) {
	if _, err := events.KeyOfRun(t.Namespace, t.Run); err != nil {
		return place{}, err
	}
	if t.Kind != TimerWait && t.Kind != TimerDeadline {
		return place{}, fmt.Errorf("run %s: there is no timer of kind %q", t.Run, t.Kind)
	}
	return place{streamTimers, "agent.timer." + t.tokens()}, nil
}
