package handlers_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/retry"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// failing is a provider's failure after it counted tokens.
func failing(class runtime.ErrorClass, usage events.Usage) error {
	return &runtime.ModelError{Provider: "test", Class: class, Status: 500, Usage: usage, Err: errors.New("the stream broke")}
}

// patience is a provider that asks to be asked later.
func patience(after time.Duration) error {
	return &runtime.LaterError{After: after, Err: &runtime.ModelError{Provider: "test", Class: runtime.ClassLimited, Status: 429, RetryAfter: after, Err: errors.New("slow down")}}
}

// first answers the first requests of a world with errors, and goes on with next.
func first(errs []error, next runtimetest.Step) runtimetest.Step {
	return func(step int, r *runtime.Request) (*runtime.Response, error) {
		if len(errs) > 0 {
			err := errs[0]
			errs = errs[1:]
			return nil, err
		}
		return next(step, r)
	}
}

// sourced gives a worker one model of the test's own.
type sourced struct{ model runtime.Model }

func (s sourced) Model(string) (runtime.Model, runtime.ModelLimits, error) {
	return s.model, runtime.ModelLimits{ContextTokens: 100_000}, nil
}

func TestAProviderThatAsksForPatienceHoldsNoWorker(t *testing.T) {
	w, worker := started(t, agent(), first([]error{patience(time.Hour), patience(2 * time.Hour)}, runtimetest.Complete(`"done"`)))
	for n, want := range []time.Duration{time.Hour, 2 * time.Hour} {
		before := w.Now()
		worker.Settle()
		r := only(t, w)
		if r.State != projector.StateParked || r.Reason != events.ParkProvider || r.Wait.Deadline == nil || !strings.Contains(r.Wait.Note, "slow down") {
			t.Fatalf("the run is %s, %+v", r.State, r.Wait)
		}
		if d := r.Wait.Deadline.Sub(before); d < want || d > want+2*time.Minute {
			t.Errorf("it waits for %s, the provider asked for %s", d, want)
		}
		if d, err := worker.Dispatcher.GetRun(t.Context(), "ns", r.ID); err != nil || d.Note != r.Wait.Note || !strings.Contains(d.Wake, "the time") {
			t.Errorf("the run is told of as %+v, %v", d, err)
		}
		if err := w.Idle(); err != nil || w.Timers() != 1 || len(w.Model.Requests()) != n+1 {
			t.Fatalf("%v, %d timers, %d requests", err, w.Timers(), len(w.Model.Requests()))
		}
		if !worker.Fire() {
			t.Fatal("no timer fired")
		}
	}
	worker.Settle()
	if r := only(t, w); r.State != projector.StateCompleted || len(w.Model.Requests()) != 3 {
		t.Errorf("the run is %s after %d requests", r.State, len(w.Model.Requests()))
	}
}

func TestARunThatWaitsForItsProviderCanBeCancelled(t *testing.T) {
	w, worker := started(t, agent(), first([]error{patience(time.Hour)}, runtimetest.Complete(`"done"`)))
	worker.Settle()
	w.Send(handlerstest.Cancel("2", only(t, w).ID, "enough"))
	worker.Settle()
	if r := only(t, w); r.State != projector.StateCancelled || r.Reason != "enough" {
		t.Errorf("the run is %s, %s", r.State, r.Reason)
	}
}

func TestTheSweepWakesARunWhoseProviderTimerWasLost(t *testing.T) {
	w, worker := started(t, agent(), first([]error{patience(time.Hour)}, runtimetest.Complete(`"done"`)))
	worker.Settle()
	w.Lose()
	w.Pass(2 * time.Hour)
	if swept, err := worker.Sweeper().Sweep(t.Context()); err != nil || swept.Told != 1 || len(swept.Stuck) != 0 {
		t.Fatalf("the sweep came to %+v, %v", swept, err)
	}
	worker.Settle()
	if r := only(t, w); r.State != projector.StateCompleted {
		t.Errorf("the run is %s", r.State)
	}
}

// A provider may ask for longer than a clock can tell.
func TestAProviderIsAskedAgainAfterADay(t *testing.T) {
	w, worker := started(t, agent(), first([]error{patience(1<<63 - 1)}, runtimetest.Complete(`"done"`)))
	before := w.Now()
	worker.Settle()
	if d := only(t, w).Wait.Deadline.Sub(before); d < 24*time.Hour || d > 25*time.Hour {
		t.Errorf("the run waits for %s", d)
	}
}

// The ledger equals what the provider counted, whatever came of the requests.
func TestTokensOfRequestsThatFailedAreOnTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := agent()
		v.Agent.Budget = &events.Budget{Steps: 100, InputTokens: 1_000_000}
		part := func(n int64) error { return failing(runtime.ClassRetry, events.Usage{Input: n, Output: 1}) }
		w, worker := started(t, v)
		w.Model.Respond = first([]error{part(1000), failing(runtime.ClassRetry, events.Usage{}), part(2000), part(4000), patience(time.Hour), part(8000)}, runtimetest.Complete(`"done"`))
		worker.Dispatcher.Models = sourced{&retry.Model{Next: w.Model, Attempts: 3}}
		worker.Settle()
		if r := only(t, w); r.State != projector.StateParked || r.FailedRequests != 3 {
			t.Fatalf("the run is %s, %d requests of it failed", r.State, r.FailedRequests)
		}
		worker.Fire()
		worker.Settle()
		r := only(t, w)
		if r.State != projector.StateCompleted || len(w.Model.Requests()) != 7 {
			t.Fatalf("the run is %s after %d requests", r.State, len(w.Model.Requests()))
		}
		b, err := worker.Dispatcher.ShowBudget(t.Context(), "ns", r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := b.Accounts[0].Tokens, (events.Usage{Input: 15_100, Output: 14}); got != want {
			t.Errorf("the ledger has %+v, the provider counted %+v", got, want)
		}
		if a := b.Accounts[0]; len(a.Open) != 0 || a.Committed != r.Checkpoint.Usage {
			t.Errorf("the account is %+v", a)
		}
	})
}

// A budget bounds requests that fail, too.
func TestABudgetIsSpentByRequestsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := agent()
		v.Agent.Budget = &events.Budget{InputTokens: 2500}
		w, worker := started(t, v, runtimetest.Fails(failing(runtime.ClassRetry, events.Usage{Input: 1000})))
		worker.Settle()
		if r := only(t, w); r.State != projector.StateFailed || r.Reason != events.FailureBudget || len(w.Model.Requests()) != 3 {
			t.Errorf("the run is %s, %s after %d requests", r.State, r.Reason, len(w.Model.Requests()))
		}
	})
}

func TestARunMakesOnlySoManyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		talking := func(step int, r *runtime.Request) (*runtime.Response, error) {
			return runtimetest.Call("run_js", `{"code":"return `+strings.Repeat("1", step+1)+`"}`)(step, r)
		}
		w, worker := started(t, agent())
		w.Model.Respond = first([]error{failing(runtime.ClassRetry, events.Usage{Input: 1}), failing(runtime.ClassRetry, events.Usage{}), patience(time.Hour)}, talking)
		worker.Dispatcher.Requests = 5
		worker.Settle()
		worker.Fire()
		worker.Settle()
		r := only(t, w)
		// Four responses and the one that broke; what the provider did not
		// answer does not count.
		if r.State != projector.StateFailed || r.Reason != events.FailureAborted || !strings.Contains(r.Failed.Error, "requests.per_run") || r.Checkpoint.Steps != 4 || len(w.Model.Requests()) != 7 {
			t.Errorf("the run is %s, %+v after %d requests", r.State, r.Failed, len(w.Model.Requests()))
		}
	})
}

func TestARunThatIsReleasedKeepsTheCountOfItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := started(t, agent())
		worker := w.Start(t.Context(), nil)
		worker.Dispatcher.Grace = time.Second
		ctx, stop := context.WithCancel(t.Context())
		w.Model.Respond = func(int, *runtime.Request) (*runtime.Response, error) {
			stop()
			return nil, failing(runtime.ClassRetry, events.Usage{Input: 5})
		}
		worker.Admit()
		if err := worker.Dispatcher.Run(ctx, t.Context(), worker.Queue(ctx)); err != nil {
			t.Fatal(err)
		}
		if r := only(t, w); r.State != projector.StatePending || r.FailedRequests == 0 {
			t.Errorf("the run is %s, %d requests of it failed", r.State, r.FailedRequests)
		}
	})
}
