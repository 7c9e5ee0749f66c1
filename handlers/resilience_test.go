package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

func TestErrorsWhileLoadingAreNoDeaths(t *testing.T) {
	log := &eventstest.Faulty{Log: &eventstest.Memory{}}
	w := handlerstest.New(log, &eventstest.Memory{}, "ns")
	w.Model.Respond = runtimetest.Script(runtimetest.Complete(`"done"`))
	worker := w.Start(t.Context(), nil)
	v := agent()
	if _, err := worker.Dispatcher.Apply(t.Context(), "ns", &v); err != nil {
		t.Fatal(err)
	}
	w.Send(handlerstest.Start("1", "tester", "Go."))
	worker.Admit()
	log.ReadFault = func(int) (int, error) { return 0, errors.New("the read fails") }
	for range 3 * handlers.MaxFailures {
		worker.Work()
	}
	log.ReadFault = nil
	worker.Settle()
	if r := only(t, w); r.State != projector.StateCompleted || len(w.Buried) > 0 {
		t.Errorf("the run is %s, the dead letters are %v", r.State, w.Buried)
	}
}

func TestAFactOfANewerReleaseIsLeftToANewerRelease(t *testing.T) {
	log := &eventstest.Memory{}
	w := handlerstest.New(log, &eventstest.Memory{}, "ns")
	w.Model.Respond = runtimetest.Script(runtimetest.Complete(`"done"`))
	worker := w.Start(t.Context(), nil)
	v := agent()
	if _, err := worker.Dispatcher.Apply(t.Context(), "ns", &v); err != nil {
		t.Fatal(err)
	}
	w.Send(handlerstest.Start("1", "tester", "Go."))
	worker.Admit()
	key := w.Keys()[0]
	e := events.Event{ID: "x", Source: "/new", Type: events.FactPrefix + "novel.v2", Namespace: key.Namespace, Session: key.Session, DataContentType: "application/json", Data: []byte(`{}`), Time: time.Now().UTC()}
	e.ContentHash = e.Content()
	if _, err := log.AppendUnfenced(t.Context(), key, &e); err != nil {
		t.Fatal(err)
	}
	for range 3 * handlers.MaxFailures {
		worker.Work()
	}
	if err := w.Idle(); len(w.Buried) > 0 || err == nil {
		t.Errorf("the work item is done (%v), the dead letters are %v", err, w.Buried)
	}
	facts := w.Facts()
	var unknown *projector.UnknownFactError
	if err := worker.Dispatcher.React(t.Context(), &facts[0].Event, events.Position{Sequence: facts[0].Sequence}); !errors.As(err, &unknown) {
		t.Errorf("the reaction to a fact of the session: %v", err)
	}
}

func TestARunIsReleasedWhenTheGraceEndsDuringARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := started(t, agent())
		first := w.Start(t.Context(), nil)
		first.Dispatcher.Grace = time.Second
		ctx, stop := context.WithCancel(t.Context())
		first.Dispatcher.Models = blockingModels{stop}
		first.Admit()
		if err := first.Dispatcher.Run(ctx, t.Context(), first.Queue(ctx)); err != nil {
			t.Fatal(err)
		}
		r := only(t, w)
		if r.State != projector.StatePending {
			t.Errorf("after the drain the run is %s: its claim was not released", r.State)
		}
	})
}

type blockingModels struct{ stop func() }

func (b blockingModels) Model(string) (runtime.Model, runtime.ModelLimits, error) {
	return b, runtime.ModelLimits{ContextTokens: 1000}, nil
}

func (b blockingModels) Generate(ctx context.Context, _ *runtime.Request) (*runtime.Response, error) {
	b.stop()
	<-ctx.Done()
	return nil, &runtime.ModelError{Provider: "test", Class: runtime.ClassRetry, Err: ctx.Err()} // what an HTTP client returns
}

func TestARefusedContinuationMayBeSentAgain(t *testing.T) {
	w, worker := memoryWorld(t)
	w.Send(handlerstest.Start("1", "tester", "Go."))
	worker.Admit()
	again := handlerstest.Continue("c1", w.Keys()[0].Session, "More.")
	w.Send(again)
	worker.Admit()
	if got := rejections(t, w); len(got) != 1 || got[0] != handlers.RejectBusy {
		t.Fatalf("rejected as %v", got)
	}
	worker.Settle()
	w.Send(again)
	worker.Settle()
	if r := runs(t, w); len(r) != 2 || r[1].State != projector.StateCompleted {
		t.Errorf("the runs are %+v", r)
	}
}

func TestASessionOfManyShortRunsGetsASnapshot(t *testing.T) {
	w, worker := memoryWorld(t)
	w.Send(handlerstest.Start("1", "tester", "Go."))
	worker.Settle()
	key := w.Keys()[0]
	for i := range 150 {
		w.Send(handlerstest.Continue(fmt.Sprintf("c%d", i), key.Session, "More."))
		worker.Settle()
	}
	if !w.HasSnapshot(key) {
		t.Errorf("%d runs and no snapshot", len(runs(t, w)))
	}
}

func TestAMalformedCommandIsAnsweredByItsIDAndSource(t *testing.T) {
	w, worker := memoryWorld(t)
	e := handlerstest.Start("good-id", "tester", "Go.")
	h := e.Header()
	h["ce-time"] = []string{"yesterday"}
	w.SendRaw("ns", "run.start", h, e.Data)
	worker.Settle()
	if len(w.Published) != 1 {
		t.Fatal(w.Published)
	}
	d, _ := events.PayloadOf[events.RunRejectedData](&w.Published[0])
	if d.Command != "good-id" || d.Source == "" {
		t.Errorf("answered %+v correlation %q", d, w.Published[0].CorrelationID)
	}
}

func TestMembersOfACommandAreMatchedExactly(t *testing.T) {
	for data, reason := range map[string]string{
		`{"agent":"nobody","AGENT":"tester","message":"a"}`:  handlers.RejectMalformed,
		`{"Agent":"tester","message":"a"}`:                   handlers.RejectMalformed,
		`{"agent":"tester","message":"hi","input":null}`:     "",
		`{"agent":"tester","input":null}`:                    handlers.RejectMalformed,
		`{"agent":"tester","input":"text"}`:                  handlers.RejectMalformed,
		`{"agent":"tester","message":"   "}`:                 handlers.RejectMalformed,
		`{"agent":"tester","message":"hi","labels":null}`:    "",
		`{"agent":"tester","message":"hi","labels":{"a":1}}`: handlers.RejectMalformed,
		`null`: handlers.RejectMalformed,
		`[]`:   handlers.RejectMalformed,
		`{"agent":"tester","message":"hi","labels":{"a":"` + strings.Repeat("x", 5000) + `"}}`: handlers.RejectMalformed,
	} {
		w, worker := memoryWorld(t)
		e := handlerstest.Start("1", "tester", "Go.")
		e.Data = []byte(data)
		w.Send(e)
		worker.Settle()
		got := strings.Join(rejections(t, w), " ")
		if got != reason || (len(runs(t, w)) == 1) != (reason == "") {
			t.Errorf("%.80s: rejected as %q, want %q", data, got, reason)
		}
	}
}

func TestACheckpointOfAnotherVersionIsNotClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := started(t, agent(), runtimetest.Complete(`"done"`))
		first := w.Start(t.Context(), nil)
		first.Admit()
		key := w.Keys()[0]
		st, err := first.Dispatcher.OpenStore(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		r := only(t, w)
		if err := st.SaveCheckpoint(t.Context(), &projector.Checkpoint{Version: 2, ContractHash: r.Admitted.Contract, Revision: 1, Phase: projector.PhaseModel}); err != nil {
			t.Fatal(err)
		}
		second := w.Start(t.Context(), nil)
		second.Takeover()
		facts := len(w.Facts())
		err = second.Dispatcher.Carry(t.Context(), key)
		var contract *runtime.ContractError
		if !errors.As(err, &contract) || contract.Version != 2 || contract.BinaryVersion != projector.CheckpointVersion {
			t.Errorf("got %v", err)
		}
		if n := len(w.Facts()); n != facts {
			t.Errorf("%d facts were appended", n-facts)
		}
	})
}

func TestAHintBeyondTheEndIsAHintAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := started(t, agent(), runtimetest.Complete(`"done"`))
		first := w.Start(t.Context(), nil)
		first.Admit()
		w.Purge()
		if err := first.Dispatcher.Work.Publish(t.Context(), events.Hint{Key: w.Keys()[0], Sequence: 1 << 40}); err != nil {
			t.Fatal(err)
		}
		first.Work()
		if r := only(t, w); r.State != projector.StateCompleted {
			t.Errorf("the run is %s", r.State)
		}
	})
}

func TestAnOutageOfTheLeasesFailsNoRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := started(t, agent(), runtimetest.Complete(`"done"`))
		worker := w.Start(t.Context(), nil)
		worker.Admit()
		inner := worker.Dispatcher.Leases
		began := time.Now()
		worker.Dispatcher.TTL = 10 * time.Second
		worker.Dispatcher.Leases = noTake{inner, began}
		for time.Since(began) < 3*time.Minute && !only(t, w).State.Terminal() {
			worker.Work()
			if err := events.Sleep(t.Context(), 10*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		if r := only(t, w); r.State != projector.StateCompleted {
			t.Errorf("after a minute without the lease bucket the run is %s, %s after %s", r.State, r.Reason, time.Since(began))
		}
	})
}

type noTake struct {
	handlers.Leases
	began time.Time
}

func (n noTake) Take(ctx context.Context, key events.Key, l handlers.Lease) error {
	if time.Since(n.began) < time.Minute {
		return errors.New("the bucket has no leader")
	}
	return n.Leases.Take(ctx, key, l)
}

// brokenFactory fails once.
type brokenFactory struct {
	runtime.ExecutorFactory
	n *int
}

func (b brokenFactory) NewExecutor(ctx context.Context) (runtime.Executor, error) {
	if *b.n++; *b.n <= 1 {
		return nil, errors.New("fork: resource temporarily unavailable")
	}
	return b.ExecutorFactory.NewExecutor(ctx)
}

func TestAnExecutorThatDoesNotStartIsStartedAgain(t *testing.T) {
	w, worker := started(t, agent("desk.book"), runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.CompleteQuoting())
	n := 0
	worker.Dispatcher.Executors = brokenFactory{worker.Dispatcher.Executors, &n}
	worker.Settle()
	r := only(t, w)
	if r.State != projector.StateCompleted || strings.Contains(string(r.Checkpoint.Reply.Output), "unknown") {
		t.Errorf("the run is %s: %s", r.State, r.Checkpoint.Reply.Output)
	}
}

func TestResponsesThatAreNoneAreNotPaidForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, worker := started(t, agent(), func(step int, r *runtime.Request) (*runtime.Response, error) {
			response, err := runtimetest.Complete(`"done"`)(step, r)
			response.Finish = "recitation"
			return response, err
		})
		worker.Settle()
		if r := only(t, w); r.State != projector.StateFailed || len(w.Model.Requests()) != handlers.MaxInvalid {
			t.Errorf("the run is %s after %d requests", r.State, len(w.Model.Requests()))
		}
	})
}

func TestAnUnreadableSessionIsListedAndHidesNone(t *testing.T) {
	w, worker := memoryWorld(t)
	w.Send(handlerstest.Start("1", "tester", "Go."))
	w.Send(handlerstest.Start("2", "tester", "Go."))
	worker.Settle()
	key := w.Keys()[0]
	for _, kind := range []string{"cancel.requested", "novel"} {
		e := events.Event{ID: kind, Source: "/new", Type: events.FactPrefix + kind, Namespace: key.Namespace, Session: key.Session, Run: "r", DataContentType: "application/json", Data: []byte(`{"reason":7}`)}
		e.ContentHash = e.Content()
		if _, err := w.Log.AppendUnfenced(t.Context(), key, &e); err != nil {
			t.Fatal(err)
		}
		swept, err := worker.Sweeper().Sweep(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// Data that does not fit an external fact says nothing; a type that
		// is not known makes the session unreadable, and the sweep says so.
		if want := map[string]int{"cancel.requested": 0, "novel": 1}[kind]; len(swept.Stuck) != want {
			t.Errorf("after %s the sweep found %+v", kind, swept.Stuck)
		}
	}
}

func TestAReplyTooLargeToBeToldIsRefused(t *testing.T) {
	w, worker := started(t, within(agent(), 1_000_000), runtimetest.Complete(string(handlerstest.Large(handlers.MaxReply))), runtimetest.Complete(string(handlerstest.Large(handlers.MaxReply-100))))
	worker.Settle()
	r := only(t, w)
	if r.State != projector.StateCompleted || r.Checkpoint.Steps != 2 {
		t.Errorf("the run is %s after %d steps", r.State, r.Checkpoint.Steps)
	}
}
