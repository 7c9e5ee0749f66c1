package events_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
)

func TestMemoryLog(t *testing.T) {
	eventstest.TestLog(t, func(*testing.T) events.Log { return &eventstest.Memory{} })
}

func TestAppenderInMemory(t *testing.T) { eventstest.TestAppender(t, &eventstest.Memory{}) }

func TestAttendInMemory(t *testing.T) { eventstest.TestAttend(t, &eventstest.Memory{}) }

// The suite is worth what it refuses: each broken protocol must fail it.
func TestASuiteRefusesBrokenAppenders(t *testing.T) {
	var ids atomic.Int64
	appender := func(breakIt func(*events.Appender)) eventstest.Protocol {
		return eventstest.Protocol{Commit: func(ctx context.Context, log events.Log, key events.Key, s events.State, decide func() (*events.Event, error)) (*events.Record, error) {
			a := &events.Appender{Log: log, NewID: func() string { return fmt.Sprint("m", ids.Add(1)) }, Pause: events.Sleep}
			breakIt(a)
			return a.Commit(ctx, key, s, decide)
		}}
	}
	correct := appender(func(*events.Appender) {})
	restamped := eventstest.Protocol{Commit: func(ctx context.Context, log events.Log, key events.Key, s events.State, decide func() (*events.Event, error)) (*events.Record, error) {
		var first *events.Event
		return correct.Commit(ctx, log, key, s, func() (*events.Event, error) {
			if first != nil {
				again := *first
				return &again, nil
			}
			e, err := decide()
			if e != nil {
				kept := *e
				first = &kept
			}
			return e, err
		})
	}}
	for name, p := range map[string]eventstest.Protocol{
		"last record only":            appender(events.LastRecordOnly),
		"committed outranks fenced":   appender(events.CommittedOutranksFenced),
		"epoch instead of claim id":   appender(events.EpochInsteadOfClaim),
		"any claim is mine":           appender(events.HoldsAnyClaim),
		"a conflict is a lost race":   appender(events.GivesUpOnConflict),
		"the old decision re-stamped": restamped,
	} {
		t.Run(name, func(t *testing.T) { refused(t, p, eventstest.AppenderCases()) })
	}
	t.Run("the harness itself passes", func(t *testing.T) {
		for _, c := range eventstest.AppenderCases() {
			if err := eventstest.RunCase(t.Context(), &eventstest.Memory{}, correct, c); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
	})
}

func TestASuiteRefusesBrokenAttendance(t *testing.T) {
	var ids atomic.Int64
	appender := func(log events.Log) *events.Appender {
		return &events.Appender{Log: log, NewID: func() string { return fmt.Sprint("w", ids.Add(1)) }, Pause: events.Sleep}
	}
	type attend = func(ctx context.Context, log events.Log, hint events.Hint, e events.Errand) error
	forgiving := func(cause error) attend {
		return func(ctx context.Context, log events.Log, hint events.Hint, e events.Errand) error {
			if err := appender(log).Attend(ctx, hint, e); !errors.Is(err, cause) {
				return err
			}
			return nil
		}
	}
	for name, a := range map[string]attend{
		"acknowledge when busy":        forgiving(events.ErrBusy),
		"acknowledge when fenced":      forgiving(events.ErrFenced),
		"acknowledge when unresolved":  forgiving(events.ErrUnresolved),
		"the hint's sequence ignored":  brokenAttend(appender, true, false),
		"no leader read before an ack": brokenAttend(appender, false, false),
		"promises not kept":            brokenAttend(appender, false, true),
	} {
		t.Run(name, func(t *testing.T) { refused(t, eventstest.Protocol{Attend: a}, eventstest.AttendCases()) })
	}
}

// brokenAttend is Attend without one of its parts.
func brokenAttend(appender func(events.Log) *events.Appender, ignoreSequence, leaderRead bool) func(context.Context, events.Log, events.Hint, events.Errand) error {
	return func(ctx context.Context, log events.Log, hint events.Hint, e events.Errand) error {
		a := appender(log)
		atLeast := hint.Sequence
		if ignoreSequence {
			atLeast = 0
		}
		if err := a.Load(ctx, hint.Key, e, atLeast); err != nil {
			return err
		}
		for e.Runnable() {
			if err := e.Drive(ctx); err != nil {
				return err
			}
			if leaderRead {
				if err := a.LoadLatest(ctx, hint.Key, e); err != nil {
					return err
				}
			}
		}
		if leaderRead {
			return nil
		}
		return e.Keep(ctx)
	}
}

func refused(t *testing.T, p eventstest.Protocol, cases []eventstest.Case) {
	t.Helper()
	failed := 0
	for _, c := range cases {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if err := eventstest.RunCase(ctx, &eventstest.Memory{}, p, c); err != nil {
			failed++
			t.Logf("%s: %v", c.Name, err)
		}
		cancel()
	}
	if failed == 0 {
		t.Error("no case of the suite refuses it")
	}
}
