package handlers_test

import (
	"strings"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// The worker that takes a run over has an older ledger of its tree in memory, in
// which the run has no account yet.
func TestWhatAKilledWorkerCommittedIsOnTheLedgerOfItsTree(t *testing.T) {
	w := inMemory()
	family(runtimetest.Script(runtimetest.Calls(spawn("child", "one"), wait(`{}`)), runtimetest.Calls(spawn("child", "two"), wait(`{}`)), runtimetest.Complete(`1`)))(w)
	stays := w.Start(t.Context(), nil)
	for _, v := range []handlers.Version{member("parent", "child"), limited(member("child"), "", 8)} {
		if _, err := stays.Dispatcher.Apply(t.Context(), w.Namespace, &v); err != nil {
			t.Fatal(err)
		}
	}
	checkpoints := 0
	dies := w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
		if strings.HasSuffix(a.Type, "checkpoint.committed") {
			checkpoints++
		}
		return eventstest.None, checkpoints == 2 // the response
	})
	w.Send(handlerstest.Start("1", "parent", "Go."))
	for first := ""; ; {
		stays.Admit()
		stays.React()
		_, pending := w.Items()
		if len(pending) == 0 {
			break
		}
		session := w.Item(pending[0]).Key.Session
		child := strings.HasPrefix(session, "c")
		if child && first == "" {
			first = session
		}
		if child && session != first && !dies.Dead() {
			dies.AttendTo(pending[0])
			continue
		}
		stays.AttendTo(pending[0])
	}
	b, err := stays.Dispatcher.ShowBudget(t.Context(), w.Namespace, parentOf(w, "1"))
	if err != nil || !dies.Dead() || len(b.Accounts) != 2 {
		t.Fatalf("%+v, %v; the worker is dead: %t", b, err, dies.Dead())
	}
	for _, a := range b.Accounts {
		if a.Tokens.Input != 100 || len(a.Open) != 0 {
			t.Errorf("run %s has spent %d input tokens, open %v", a.Run, a.Tokens.Input, a.Open)
		}
	}
}

func TestASweepThatIsOvertakenByTheRunsEndLeavesItAlone(t *testing.T) {
	w := inMemory()
	cast(map[string]runtimetest.Step{"parent": runtimetest.Script(runtimetest.Calls(wait(`{"messages":true,"timeout":"1h"}`)))})(w)
	other := w.Start(t.Context(), nil)
	v := member("parent", "parent")
	if _, err := other.Dispatcher.Apply(t.Context(), w.Namespace, &v); err != nil {
		t.Fatal(err)
	}
	var sweeps *handlerstest.Worker
	sweeps = w.Start(t.Context(), func(handlerstest.Append) (eventstest.Fault, bool) {
		sweeps.Before(func() {
			w.Send(handlerstest.Cancel("2", parentOf(w, "1"), "enough"))
			other.Settle()
		})
		return eventstest.None, false
	})
	w.Send(handlerstest.Start("1", "parent", "Go."))
	other.Settle()
	w.LoseTimers()
	w.Pass(2 * time.Hour)
	if _, err := sweeps.Sweeper().Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	other.Settle()
	if r := runs(t, w); len(r) != 1 || r[0].State != projector.StateCancelled {
		t.Errorf("the runs are %+v", r)
	}
}
