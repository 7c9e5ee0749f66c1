package handlers_test

import (
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

func TestARequestOfAKilledWorkerStaysOpenWhenTheRunAdvances(t *testing.T) {
	w, helper, run := troupe(t, map[string]runtimetest.Step{"tester": runtimetest.Script(runtimetest.Complete(`1`))}, budgeted(member("tester"), "", events.Budget{Steps: 9}))
	first := w.Start(t.Context(), nil)
	answer := w.Model.Respond
	w.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
		first.Kill()
		return answer(step, r)
	}
	first.Settle()
	w.Model.Respond = answer
	helper.Settle()
	completed(t, w, run)
	a := accounts(t, w, helper, run)[run]
	if len(a.Open) != 1 {
		t.Errorf("the provider was asked %d times, the account has %d steps and tokens of %d answers, and lists %d open requests", len(w.Model.Requests()), a.Steps, a.Tokens.Input/100, len(a.Open))
	}
}

func TestARunThatCannotBeCarriedOnCanBeCancelled(t *testing.T) {
	w, worker, parent := kin(t, runtimetest.Calls(spawn("child", "wait"), wait(`{}`)), runtimetest.Complete(`1`))
	worker.Settle()
	w.Forget() // or a release with another contract
	admit(t, worker, handlerstest.Cancel("c", parent, "enough"))
	worker.Settle()
	for range 3 {
		if _, err := worker.Sweeper().Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		worker.Settle()
	}
	if r := runIn(t, w, parent); r.State != projector.StateCancelled {
		t.Errorf("a run that was asked to stop is %s for ever", r.State)
	}
}

func TestARunThatCannotBeCarriedOnExpires(t *testing.T) {
	child := member("child", "child")
	v := member("parent", "child")
	v.Agent.Limits.Timeout = "1h"
	w, worker, parent := troupe(t, map[string]runtimetest.Step{"parent": runtimetest.Script(runtimetest.Calls(spawn("child", "x"), wait(`{}`)), runtimetest.Complete(`1`)), "child": runtimetest.Script(runtimetest.Calls(wait(`{"messages":true}`)))}, v, child)
	worker.Settle()
	w.Forget()
	w.Pass(2 * time.Hour)
	for worker.Fire() {
		worker.Settle()
	}
	for range 3 {
		_, _ = worker.Sweeper().Sweep(t.Context())
		worker.Settle()
	}
	if r := runIn(t, w, parent); !r.State.Terminal() {
		t.Errorf("an hour after its deadline the run is %s (expired told: %t)", r.State, r.Expired)
	}
}

func TestARequestThatWasGivenUpStaysOpen(t *testing.T) {
	w, worker, run := troupe(t, map[string]runtimetest.Step{"tester": runtimetest.Script(runtimetest.Complete(`1`))}, budgeted(member("tester"), "", events.Budget{Steps: 9}))
	helper := w.Start(t.Context(), nil)
	worker.Admit()
	f := &inFlight{begun: make(chan struct{}), free: make(chan struct{})}
	worker.Dispatcher.Models = hangingModels{f.hang, runtimetest.Complete(`"late"`)}
	go func() {
		<-f.begun
		admit(t, helper, handlerstest.Cancel("c", run, "enough"))
		helper.React()
	}()
	worker.Work()
	a := accounts(t, w, helper, run)[run]
	if a.Steps == 1 && a.Tokens == (events.Usage{}) && len(a.Open) != 1 {
		t.Errorf("one request was sent and interrupted; usage %+v open %+v", a.Tokens, a.Open)
	}
}
