package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// started returns a world whose one run was admitted and not yet dispatched.
func started(t *testing.T, v handlers.Version, list ...runtimetest.Step) (*handlerstest.World, *handlerstest.Worker) {
	t.Helper()
	w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
	w.Model.Respond = runtimetest.Script(list...)
	worker := w.Start(t.Context(), nil)
	if _, err := worker.Dispatcher.Apply(t.Context(), "ns", &v); err != nil {
		t.Fatal(err)
	}
	w.Send(handlerstest.Start("1", "tester", "Go."))
	return w, worker
}

// only returns the world's one run.
func only(t *testing.T, w *handlerstest.World) projector.Run {
	t.Helper()
	all := runs(t, w)
	if len(all) != 1 {
		t.Fatalf("there are %d runs", len(all))
	}
	return all[0]
}

func TestAFailedReadNeverStartsARunAfresh(t *testing.T) {
	for n := 1; n <= 12; n++ {
		log := &eventstest.Faulty{Log: &eventstest.Memory{}}
		w := handlerstest.New(log, &eventstest.Memory{}, "ns")
		w.Model.Respond = runtimetest.Script(runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.CompleteQuoting())
		worker := w.Start(t.Context(), nil)
		v := agent("desk.book")
		if _, err := worker.Dispatcher.Apply(t.Context(), "ns", &v); err != nil {
			t.Fatal(err)
		}
		log.ReadFault = func(read int) (int, error) {
			if read >= n && read < n+3 {
				return 0, errors.New("the read fails")
			}
			return 0, nil
		}
		w.Send(handlerstest.Start("1", "tester", "Go."))
		for range 8 {
			worker.Settle()
		}
		log.ReadFault = nil
		if err := w.Idle(); err != nil {
			t.Errorf("reads from %d fail: %v", n, err)
		}
		if r := only(t, w); r.State != projector.StateCompleted || len(w.Services.Ledger) != 1 {
			t.Errorf("reads from %d fail: the run is %s, the service was called %d times", n, r.State, len(w.Services.Ledger))
		}
	}
}

func TestAnEditedDefinitionDoesNotDisturbARunUnderWay(t *testing.T) {
	w, worker := started(t, agent("desk.book"), runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.CompleteQuoting())
	first := w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) { return eventstest.AnswerLost, a.N == 4 })
	first.Settle()
	if !first.Dead() {
		t.Fatal("the first worker lives")
	}
	edited := agent()
	edited.Agent.Instructions = "Something else."
	if _, err := worker.Dispatcher.Apply(t.Context(), "ns", &edited); err != nil {
		t.Fatal(err)
	}
	worker.Settle()
	r := only(t, w)
	if r.State != projector.StateCompleted {
		t.Errorf("the run is %s: %+v", r.State, r.Failed)
	}
	for _, q := range w.Model.Requests() {
		if q.System != "Test." {
			t.Errorf("a request was made with the instructions %q", q.System)
		}
	}
}

func TestAMissingVersionAndAnotherContractAreRefusedWithoutTouchingTheRun(t *testing.T) {
	w, worker := started(t, agent(), runtimetest.Complete(`"done"`))
	admitting := w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) { return eventstest.AnswerLost, a.N == 1 })
	admitting.Settle()
	run := only(t, w)
	w.Forget()
	worker.Settle()
	if r := only(t, w); r.State != projector.StatePending {
		t.Errorf("without its definition the run is %s", r.State)
	}
	if err := w.Idle(); err == nil {
		t.Error("the work item of a run that cannot be carried on was acknowledged")
	}
	err := worker.Dispatcher.Carry(t.Context(), events.Key{Namespace: "ns", Session: run.Summary().Session})
	var missing *handlers.MissingVersionError
	if !errors.As(err, &missing) || missing.Definition != run.Admitted.Definition || missing.Contract != run.Admitted.Contract {
		t.Errorf("got %v", err)
	}
	other := agent()
	other.Agent.Instructions = "Another contract."
	w.Replace("ns", run.Admitted.Definition, &other)
	err = worker.Dispatcher.Carry(t.Context(), events.Key{Namespace: "ns", Session: run.Summary().Session})
	var contract *runtime.ContractError
	if !errors.As(err, &contract) || contract.Contract != run.Admitted.Contract || contract.BinaryContract == "" || !strings.Contains(err.Error(), contract.Contract) || !strings.Contains(err.Error(), contract.BinaryContract) {
		t.Errorf("got %v", err)
	}
	if len(w.Model.Requests()) != 0 {
		t.Error("the model was asked")
	}
}

func TestProviderFailuresAreRetriedUnderTheSameClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures, note := 0, ""
		var w *handlerstest.World
		var worker *handlerstest.Worker
		w, worker = started(t, agent(), func(step int, r *runtime.Request) (*runtime.Response, error) {
			if failures++; failures == 12 {
				run := only(t, w)
				api := handlers.API{Host: w.Start(t.Context(), nil).Dispatcher.Host, Notes: w}
				d, err := api.Handle(t.Context(), "ns", handlers.VerbGet, nil, []byte(`{"run":"`+run.ID+`"}`))
				if err != nil {
					t.Error(err)
				} else {
					note = d.(*handlers.RunDetail).Note
				}
			}
			if failures <= 12 {
				return nil, &runtime.ModelError{Provider: "test", Class: runtime.ClassRetry, Status: 503, Err: errors.New("away")}
			}
			return runtimetest.Complete(`"done"`)(step, r)
		})
		began := time.Now()
		worker.Settle()
		if r := only(t, w); r.State != projector.StateCompleted || r.Failures != 0 {
			t.Errorf("the run is %s", r.State)
		}
		if !strings.Contains(note, "503") {
			t.Errorf("while the provider was away the run's note was %q", note)
		}
		if away := time.Since(began); away < time.Minute {
			t.Errorf("the provider was away for %s only", away)
		}
		claims := 0
		for _, f := range w.Facts() {
			if f.Type == events.TypeFor[events.RunClaimed]().Name {
				claims++
			}
		}
		if claims != 1 {
			t.Errorf("%d claims", claims)
		}
	})
}

func TestARunWhoseDeadlinePassesFailsWithThatReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := agent()
		v.Agent.Limits.Timeout = "5s"
		w, worker := started(t, v, runtimetest.Fails(&runtime.ModelError{Provider: "test", Class: runtime.ClassRetry, Err: errors.New("away")}))
		worker.Settle()
		if r := only(t, w); r.State != projector.StateFailed || r.Reason != events.FailureDeadline {
			t.Errorf("the run is %s, %s", r.State, r.Reason)
		}
	})
}

func TestWhatCannotSucceedFailsTheRun(t *testing.T) {
	for name, step := range map[string]runtimetest.Step{
		"a request the provider refuses": runtimetest.Fails(&runtime.ModelError{Provider: "test", Class: runtime.ClassInvalid, Status: 400, Err: errors.New("no")}),
		"a model that never calls":       runtimetest.Text("hm"),
	} {
		t.Run(name, func(t *testing.T) {
			w, worker := started(t, agent(), step, step, step, step, step, step)
			worker.Settle()
			r := only(t, w)
			if r.State != projector.StateFailed || r.Reason != events.FailureAborted || r.Failed.Error == "" {
				t.Errorf("the run is %s, %s", r.State, r.Reason)
			}
			if !slices.ContainsFunc(w.Published, func(e events.Event) bool { return strings.HasSuffix(e.Type, "run.failed") && e.Run == r.ID }) {
				t.Error("run_failed was not published")
			}
		})
	}
}

func TestARunThatKillsItsWorkersIsSetAside(t *testing.T) {
	w, _ := started(t, agent(), runtimetest.Complete(`"done"`))
	for range 2 * handlers.MaxFailures {
		worker := w.Start(t.Context(), nil)
		w.Model.Respond = func(int, *runtime.Request) (*runtime.Response, error) {
			worker.Kill()
			return nil, handlerstest.ErrKilled
		}
		worker.Settle()
		if r := runs(t, w); len(r) == 1 && r[0].State.Terminal() {
			break
		}
	}
	r := only(t, w)
	if r.State != projector.StateFailed || r.Reason != events.FailurePoison {
		t.Errorf("the run is %s, %s", r.State, r.Reason)
	}
	if n := len(w.Model.Requests()); n != handlers.MaxFailures {
		t.Errorf("the model was asked %d times", n)
	}
}

func TestASessionThatKillsItsReadersBecomesADeadLetter(t *testing.T) {
	w, worker := started(t, agent(), runtimetest.Complete(`"done"`))
	w.Send(handlerstest.Start("2", "tester", "Go."))
	worker.Admit()
	key := w.Keys()[0]
	for range handlers.MaxFailures {
		reader := w.Start(t.Context(), nil)
		w.OnRead(func(k events.Key) {
			if k == key {
				reader.Kill()
			}
		})
		reader.Work()
	}
	w.OnRead(nil)
	worker.Settle()
	if len(w.Buried) == 0 {
		t.Error("there is no dead letter")
	}
	for _, l := range w.Buried {
		if l.Reason != "poison" || !strings.Contains(string(l.Data), key.Session) {
			t.Errorf("a dead letter is %s: %s", l.Reason, l.Data)
		}
	}
	states := make(map[projector.State]int)
	for _, r := range runs(t, w) {
		states[r.State]++
	}
	if states[projector.StateCompleted] != 1 || states[projector.StatePending] != 1 {
		t.Errorf("the runs are %v", states)
	}
}

func TestADrainedWorkerLeavesNoUnknown(t *testing.T) {
	w, _ := started(t, agent("desk.book"), runtimetest.Calls(runtimetest.RunJSCall("desk.book {}\nreturn"), runtimetest.RunJSCall("desk.book {}\nreturn")), runtimetest.CompleteQuoting())
	first := w.Start(t.Context(), nil)
	ctx, stop := context.WithCancel(t.Context())
	w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
		stop() // SIGTERM in the middle of the first call
		<-first.Dispatcher.Draining()
		return []byte(`1`), nil
	}
	first.Admit()
	if err := first.Dispatcher.Run(ctx, t.Context(), first.Queue(ctx)); err != nil {
		t.Fatal(err)
	}
	if r := only(t, w); r.State != projector.StatePending || len(w.Services.Ledger) != 1 {
		t.Fatalf("after the drain the run is %s and %d calls were made", r.State, len(w.Services.Ledger))
	}
	w.Services.Answer = nil
	second := w.Start(t.Context(), nil)
	second.Settle()
	r := only(t, w)
	if r.State != projector.StateCompleted || strings.Contains(string(r.Checkpoint.Reply.Output), "unknown") || len(w.Services.Ledger) != 2 {
		t.Errorf("the run is %s: %s", r.State, r.Checkpoint.Reply.Output)
	}
}

func TestAFrozenWorkerCommitsNothingAndSendsNothingAfterTheTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := started(t, agent("desk.book", "desk.free"), runtimetest.RunJS("desk.book {}\ntry desk.free {}\nreturn"), runtimetest.CompleteQuoting())
		frozen := w.Start(t.Context(), nil)
		frozen.Dispatcher.TTL = 3 * time.Second
		inCall, thaw := make(chan struct{}), make(chan struct{})
		w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
			close(inCall)
			<-thaw
			return []byte(`1`), nil
		}
		done := make(chan struct{})
		go func() { defer close(done); frozen.Settle() }()
		<-inCall
		w.FailRenewals(errors.New("the holder is frozen"))
		if err := events.Sleep(t.Context(), 4*time.Second); err != nil {
			t.Fatal(err)
		}
		w.FailRenewals(nil)
		second := w.Start(t.Context(), nil)
		second.Takeover()
		second.Settle()
		r := only(t, w)
		if r.State != projector.StateCompleted || strings.Count(string(r.Checkpoint.Reply.Output), `"outcome":"unknown"`) != 1 {
			t.Errorf("the run is %s: %s", r.State, r.Checkpoint.Reply.Output)
		}
		facts := len(w.Facts())
		close(thaw)
		<-done
		if after := len(w.Facts()); after != facts {
			t.Errorf("the thawed worker appended %d facts", after-facts)
		}
		if n := len(w.Services.Ledger); n != 1 {
			t.Errorf("%d requests left the frozen worker: %v", n, w.Services.Ledger)
		}
	})
}

func TestAnOutageOfTheLogFailsNoRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &eventstest.Memory{}
		log := &eventstest.Faulty{Log: memory}
		w := handlerstest.New(log, &eventstest.Memory{}, "ns")
		w.Model.Respond = runtimetest.Script(runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.CompleteQuoting())
		worker := w.Start(t.Context(), nil)
		v := agent("desk.book")
		if _, err := worker.Dispatcher.Apply(t.Context(), "ns", &v); err != nil {
			t.Fatal(err)
		}
		var away time.Time
		log.Plan = func(n int, _ *events.Event) eventstest.Fault {
			if n == 4 {
				away = time.Now()
			}
			if n >= 4 && time.Since(away) < time.Minute {
				return eventstest.LostBefore
			}
			return eventstest.None
		}
		w.Send(handlerstest.Start("1", "tester", "Go."))
		worker.Settle()
		if time.Since(away) < time.Minute {
			t.Fatal("there was no outage")
		}
		if err := w.Idle(); err != nil {
			t.Error(err)
		}
		if r := only(t, w); r.State != projector.StateCompleted {
			t.Errorf("the run is %s: %+v", r.State, r.Failed)
		}
	})
}

func TestALeaseEndsWhenItIsNotRenewedWhateverTheReason(t *testing.T) {
	for name, fail := range map[string]error{
		"a refusal": handlers.ErrLeaseLost,
		"an error":  errors.New("the network is cut"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, worker := started(t, agent("desk.book"), runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.CompleteQuoting())
				worker.Dispatcher.TTL = 9 * time.Second
				w.FailRenewals(fail)
				began := time.Now()
				var stopped time.Duration
				w.Executors.Scripts = map[string]runtimetest.ScriptFunc{"desk.book {}\nreturn": func(ctx context.Context, call runtimetest.Callback) (any, error) {
					<-ctx.Done()
					stopped = time.Since(began)
					_, err := call("desk.book", []byte(`{}`))
					return nil, err
				}}
				worker.Admit()
				worker.Work()
				if stopped == 0 || stopped >= 9*time.Second {
					t.Errorf("the holder stopped after %s, the lease is 9s", stopped)
				}
				if n := len(w.Services.Ledger); n != 0 {
					t.Errorf("%d requests left after the lease was lost", n)
				}
				if r := only(t, w); r.State != projector.StateRunning {
					t.Errorf("the run is %s: a worker without a lease decided it", r.State)
				}
			})
		})
	}
}

func TestAnOpenClaimIsWaitedOut(t *testing.T) {
	w, _ := started(t, agent(), runtimetest.Complete(`"done"`))
	first := w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) { return eventstest.AnswerLost, a.N == 2 })
	first.Settle()
	second := w.Start(t.Context(), nil)
	w.Silence = time.Second // the holder was seen alive a second ago
	second.Settle()
	if r := only(t, w); r.Worker != first.Dispatcher.Worker || r.State != projector.StateRunning {
		t.Errorf("the run was taken over by %s", r.Worker)
	}
	if err := w.Idle(); err == nil {
		t.Error("the work item was acknowledged because another worker is alive")
	}
	second.Dispatcher.Gone = func(worker string) bool { return worker == first.Dispatcher.Worker }
	second.Settle()
	if r := only(t, w); r.State != projector.StateCompleted {
		t.Errorf("the claim of a worker that is known to be gone was waited out: the run is %s", r.State)
	}
}

func TestASnapshotShortensLoadingAndChangesNothing(t *testing.T) {
	const steps = handlers.SnapshotEvery
	var list []runtimetest.Step
	for i := range steps {
		list = append(list, runtimetest.RunJS(fmt.Sprintf("desk.book {\"n\":%d}\nreturn", i)))
	}
	w, worker := started(t, agent("desk.book"), append(list, runtimetest.Complete(`"done"`))...)
	worker.Settle()
	if r := only(t, w); r.State != projector.StateCompleted {
		t.Fatalf("the run is %s: %+v", r.State, r.Failed)
	}
	key := w.Keys()[0]
	want, _, err := w.Session(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if !w.HasSnapshot(key) {
		t.Fatal("no snapshot was written")
	}
	got, err := worker.Dispatcher.Latest(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	sameFold(t, got, want)
	w.SpoilSnapshot(key)
	if got, err = worker.Dispatcher.Latest(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	sameFold(t, got, want)
}

func sameFold(t *testing.T, got, want *projector.Session) {
	t.Helper()
	a, err := events.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := events.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(a) != string(b) {
		t.Errorf("the folds differ:\n%s\n%s", a, b)
	}
}
