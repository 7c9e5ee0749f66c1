package handlers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// partly is a log that answers reads of one session with an error.
type partly struct {
	events.Log
	key *events.Key
	err error
}

// Read implements events.Log.
func (l partly) Read(ctx context.Context, key events.Key, after uint64, limit int) ([]events.Record, error) {
	if key == *l.key {
		return nil, l.err
	}
	return l.Log.Read(ctx, key, after, limit)
}

// twoRuns is a world with two runs that nobody was told to look at.
func twoRuns(t *testing.T, log events.Log) (*handlerstest.World, *handlerstest.Worker) {
	t.Helper()
	w := handlerstest.New(log, &eventstest.Memory{}, "ns")
	worker := w.Start(t.Context(), nil)
	apply(t, worker, agent())
	w.Send(handlerstest.Start("1", "tester", "Ask."))
	w.Send(handlerstest.Start("2", "tester", "Ask."))
	worker.Admit()
	w.Lose()
	return w, worker
}

func TestASweepWakesRunsThoughWhatItSawCannotBeNoted(t *testing.T) {
	_, worker := twoRuns(t, &eventstest.Memory{})
	sweeper := worker.Sweeper()
	full := errors.New("the disk is full")
	seen := 0
	sweeper.Saw = func(context.Context, *projector.Session) error { seen++; return full }
	for n := 2; n <= 4; n += 2 {
		if got, err := sweeper.Sweep(t.Context()); got.Hinted != 2 || !errors.Is(err, full) || seen != n {
			t.Errorf("%d runs were hinted and %d sessions seen: %v", got.Hinted, seen, err)
		}
	}
}

func TestASessionThatGivesNoAnswerHoldsUpTheSweepOfNoOther(t *testing.T) {
	var silent events.Key
	w, worker := twoRuns(t, partly{&eventstest.Memory{}, &silent, events.ErrUnanswered})
	silent = w.Keys()[0]
	sweeper := worker.Sweeper()
	if got, err := sweeper.Sweep(t.Context()); got.Hinted != 1 || !errors.Is(err, events.ErrUnanswered) {
		t.Errorf("%d runs were hinted: %v", got.Hinted, err)
	}
	silent = events.Key{}
	if got, err := sweeper.Sweep(t.Context()); got.Hinted != 2 || err != nil {
		t.Errorf("when it answers again %d runs are hinted: %v", got.Hinted, err)
	}
}

func TestAChildIsSweptThoughItsParentCannotBeRead(t *testing.T) {
	var broken events.Key
	w := handlerstest.New(partly{&eventstest.Memory{}, &broken, &events.DamageError{}}, &eventstest.Memory{}, "ns")
	family(runtimetest.Script(runtimetest.Calls(spawn("child", "one"), wait(`{}`)), runtimetest.Complete(`"never"`)))(w)
	worker := w.Start(t.Context(), nil)
	apply(t, worker, member("parent", "child"), member("child"))
	for _, c := range begin("parent")("ns") {
		w.Send(c)
	}
	worker.Admit()
	parent := w.Keys()[0]
	if err := worker.Dispatcher.Carry(t.Context(), parent); err != nil {
		t.Fatal(err)
	}
	w.Lose()
	broken = parent
	got, err := worker.Sweeper().Sweep(t.Context())
	if got.Hinted != 1 || len(got.Stuck) != 1 || got.Stuck[0].Session != parent.Session || err != nil {
		t.Errorf("the sweep came to %+v, %v", got, err)
	}
}

func TestARunThatIsToEndIsSweptThoughItsVersionIsGone(t *testing.T) {
	for _, how := range []string{"cancelled", "past its deadline"} {
		w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
		w.Model.Respond = runtimetest.Script(runtimetest.Calls(runtimetest.ToolCall("desk_approve", `{"seat":4}`)), runtimetest.CompleteQuoting())
		w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) { return []byte(`{"accepted":true}`), nil }
		worker := w.Start(t.Context(), nil)
		v := approver("")
		v.Agent.Limits.Timeout = "2h"
		apply(t, worker, v)
		w.Send(handlerstest.Start("1", "tester", "Ask."))
		worker.Settle()
		run := parentOf(w, "1")
		if how == "cancelled" {
			w.Send(handlerstest.Cancel("2", run, "no need"))
			worker.Admit()
		} else {
			w.Pass(3 * time.Hour)
		}
		w.Lose()
		w.LoseDefinitions()
		worker = w.Start(t.Context(), nil)
		got, err := worker.Sweeper().Sweep(t.Context())
		if err != nil || got.Hinted != 1 || len(got.Stuck) != 0 {
			t.Errorf("%s: the sweep came to %+v, %v", how, got, err)
		}
		worker.Work()
		if r := runIn(t, w, run); !r.State.Terminal() {
			t.Errorf("%s: the run is %s", how, r.State)
		}
	}
}
