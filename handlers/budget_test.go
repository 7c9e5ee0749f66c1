package handlers_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// budgeted gives an agent a budget.
func budgeted(v handlers.Version, on events.OnBudget, b events.Budget) handlers.Version {
	v.Agent.Budget, v.Agent.OnBudget = &b, on
	return v
}

// accounts are those of a run's tree, by run.
func accounts(t *testing.T, w *handlerstest.World, worker *handlerstest.Worker, run string) map[string]projector.Account {
	t.Helper()
	b, err := worker.Dispatcher.ShowBudget(t.Context(), w.Namespace, run)
	if err != nil {
		t.Fatal(err)
	}
	list := make(map[string]projector.Account)
	for _, a := range b.Accounts {
		list[a.Run] = a
	}
	return list
}

// outOf demands that a run has failed because a budget was spent.
func outOf(t *testing.T, w *handlerstest.World, run, by, what string) {
	t.Helper()
	r := runIn(t, w, run)
	if r.State != projector.StateFailed || r.Reason != events.FailureBudget || !strings.Contains(r.Failed.Error, by) || !strings.Contains(r.Failed.Error, what) {
		t.Errorf("the run is %s: %+v; want failed for %s of run %s", r.State, r.Failed, what, by)
	}
}

// thinking is a script that never ends.
func thinking(step int, r *runtime.Request) (*runtime.Response, error) {
	return runtimetest.RunJS(fmt.Sprint("return ", step))(step, r)
}

func TestATopUpBetweenARefusalAndTheParkWakesTheRun(t *testing.T) {
	for _, kill := range []eventstest.Fault{eventstest.None, eventstest.LostBefore, eventstest.AnswerLost} {
		w, helper, run := troupe(t, map[string]runtimetest.Step{"tester": runtimetest.Script(runtimetest.RunJS("return 1"), runtimetest.Complete(`1`))}, budgeted(member("tester"), events.OnBudgetHold, events.Budget{Steps: 1}))
		met := false
		var first *handlerstest.Worker
		first = w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
			if met || a.Type != factParked {
				return eventstest.None, false
			}
			met = true
			first.Before(func() { admit(t, helper, handlerstest.TopUp("t", run, 1)) })
			return kill, kill != eventstest.None
		})
		first.Settle()
		if !met {
			t.Fatal("the run did not park")
		}
		helper.Settle()
		completed(t, w, run)
	}
}

func TestATopUpIsNeverLost(t *testing.T) {
	tree := func() (*handlerstest.World, *handlerstest.Worker, string) {
		return troupe(t, map[string]runtimetest.Step{
			"root": runtimetest.Script(runtimetest.Calls(spawn("leaf", "one"), wait(`{}`)), runtimetest.Complete(`1`)),
			"leaf": runtimetest.Script(runtimetest.RunJS("return 1"), runtimetest.Complete(`2`)),
		}, budgeted(member("root", "leaf"), events.OnBudgetHold, events.Budget{Steps: 2}), member("leaf"))
	}
	calm, worker, _ := tree()
	worker.Settle()
	nth := make(map[string]int)
	for i, f := range calm.Appends() {
		if nth[f.Type]++; i == 0 {
			continue
		}
		for _, kill := range []eventstest.Fault{eventstest.None, eventstest.LostBefore, eventstest.AnswerLost} {
			w, helper, run := tree()
			met := false
			var first *handlerstest.Worker
			first = w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
				if met || a.Type != f.Type || a.Nth != nth[f.Type] {
					return eventstest.None, false
				}
				met = true
				first.Before(func() { admit(t, helper, handlerstest.TopUp("t", run, 10)) })
				return kill, kill != eventstest.None
			})
			first.Settle()
			if first.Dead() {
				helper.Settle()
			}
			if r := runIn(t, w, run); !met || r.State != projector.StateCompleted {
				t.Errorf("topped up before append %d (%s), then %s: the root is %s: %s", i+1, f.Type, kill, r.State, r.Reason)
			}
		}
	}
}

func TestACrashLoopAsksTheModelNoMoreThanTheBudgetAllows(t *testing.T) {
	const budget = 4
	for _, at := range []struct {
		what string
		fact string
		kill eventstest.Fault
	}{
		{"after every reservation", factReserved, eventstest.AnswerLost},
		{"before every response is stored", factCommitted, eventstest.LostBefore},
	} {
		w, _, run := troupe(t, map[string]runtimetest.Step{"tester": thinking}, budgeted(member("tester"), "", events.Budget{Steps: budget}))
		reservations := 0
		var worker *handlerstest.Worker
		for range 4 * budget {
			worker = w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
				if a.Type == factReserved {
					reservations++
				}
				return at.kill, a.Type == at.fact && reservations > 0
			})
			worker.Settle()
			if !worker.Dead() {
				break
			}
		}
		outOf(t, w, run, run, "steps")
		if n := len(w.Model.Requests()); n > budget || reservations > budget {
			t.Errorf("killed %s: %d requests after %d reservations; the budget is %d", at.what, n, reservations, budget)
		}
		a := accounts(t, w, worker, run)[run]
		if a.Steps != budget || len(a.Open) > budget {
			t.Errorf("killed %s: the account is %+v", at.what, a)
		}
	}
}

// meteredTree is a tree whose root has a budget that is never spent.
var meteredTree = []handlers.Version{budgeted(member("root", "middle"), "", events.Budget{Steps: 100, InputTokens: 1 << 40}), member("middle", "leaf"), budgeted(member("leaf"), "", events.Budget{OutputTokens: 1 << 40})}

func TestTheLedgerSaysWhatTheProviderSays(t *testing.T) {
	scripts := map[string]runtimetest.Step{
		"root":   runtimetest.Script(runtimetest.Calls(spawn("middle", "one"), spawn("middle", "two"), wait(`{"calls":["call_0_0","call_0_1"]}`)), runtimetest.Complete(`1`)),
		"middle": runtimetest.Script(runtimetest.Calls(spawn("leaf", "one"), wait(`{}`)), runtimetest.Complete(`2`)),
		"leaf":   runtimetest.Script(runtimetest.Text("Well."), runtimetest.Complete(`3`)),
	}
	check := func(what string, w *handlerstest.World, worker *handlerstest.Worker, run string, kills int, ended bool) {
		t.Helper()
		list := accounts(t, w, worker, run)
		var open int
		var alone events.Usage
		for _, a := range list {
			open += len(a.Open)
			alone = alone.Add(a.Committed)
			for _, other := range a.Other {
				alone = alone.Add(other)
			}
		}
		root := list[run]
		asked := len(w.Model.Requests())
		lost := int(root.Steps) - int(root.Tokens.Input/100)
		if int(root.Steps) < asked || int(root.Steps) > asked+kills || lost > kills || lost < 0 || root.Tokens != alone || root.Tokens.Output != root.Tokens.Input/10 {
			t.Errorf("%s: the provider was asked %d times, the root's account is %+v, all accounts together have %+v", what, asked, root, alone)
		}
		if !ended && open < lost || open > kills {
			t.Errorf("%s: %d requests were lost, %d are listed as open", what, lost, open)
		}
	}
	calm, worker, run := troupe(t, scripts, meteredTree...)
	worker.Settle()
	completed(t, calm, run)
	check("undisturbed", calm, worker, run, 0, true)
	nth := make(map[string]int)
	for i, f := range calm.Appends() {
		nth[f.Type]++
		for _, fault := range []eventstest.Fault{eventstest.LostBefore, eventstest.AnswerLost} {
			for _, kill := range []bool{false, true} {
				if !kill && i%3 > 0 && !slow {
					continue
				}
				what := fmt.Sprintf("append %d (%s), %s, killed %t", i+1, f.Type, fault, kill)
				w, helper, run := troupe(t, scripts, meteredTree...)
				met := false
				worker := w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
					if met || a.Type != f.Type || a.Nth != nth[f.Type] {
						return eventstest.None, false
					}
					met = true
					return fault, kill
				})
				worker.Settle()
				if kill {
					if i > 0 {
						check(what+", before the recovery", w, helper, run, 1, false)
					}
					helper.Settle()
				}
				completed(t, w, run)
				kills := 0
				if kill {
					kills = 1
				}
				check(what, w, helper, run, kills, true)
			}
		}
	}
}

func TestARequestOfAKilledWorkerIsListedAsOpen(t *testing.T) {
	w, helper, run := troupe(t, map[string]runtimetest.Step{"tester": runtimetest.Script(runtimetest.Complete(`1`))}, budgeted(member("tester"), "", events.Budget{Steps: 9}))
	first := w.Start(t.Context(), nil)
	answer := w.Model.Respond
	w.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
		first.Kill()
		return answer(step, r)
	}
	first.Settle()
	w.Model.Respond = answer
	if a := accounts(t, w, helper, run)[run]; len(a.Open) != 1 || a.Open[0].Run != run || a.Steps != 1 || a.Tokens != (events.Usage{}) {
		t.Errorf("after the kill the account is %+v", a)
	}
	helper.Settle()
	completed(t, w, run)
	if a := accounts(t, w, helper, run)[run]; a.Steps != 2 || a.Tokens.Input != 100 {
		t.Errorf("after the recovery the account is %+v", a)
	}
}

func TestAChildsOwnBudgetEndsTheChildAlone(t *testing.T) {
	w, worker, run := troupe(t, map[string]runtimetest.Step{
		"root": runtimetest.Script(runtimetest.Calls(spawn("leaf", "one"), wait(`{}`)), runtimetest.CompleteQuoting()),
		"leaf": thinking,
	}, budgeted(member("root", "leaf"), "", events.Budget{Steps: 10}), budgeted(member("leaf"), "", events.Budget{Steps: 3}))
	worker.Settle()
	completed(t, w, run)
	leaf := childOf(w, run, "call_0_0")
	outOf(t, w, leaf, leaf, "steps")
	if list := accounts(t, w, worker, run); list[leaf].Steps != 3 || list[run].Steps != 5 {
		t.Errorf("the accounts are %+v", list)
	}
	session, _ := events.SessionOf(run)
	if result := waited(t, w, session, "call_0_1"); !strings.Contains(result.Settled[0].Error, events.FailureBudget) {
		t.Errorf("the parent is told %+v", result.Settled)
	}
}

func TestTokensAloneAreABudget(t *testing.T) {
	for what, b := range map[string]events.Budget{"input_tokens": {InputTokens: 250}, "output_tokens": {OutputTokens: 25}} {
		w, worker, run := troupe(t, map[string]runtimetest.Step{"tester": thinking}, budgeted(member("tester"), "", b))
		worker.Settle()
		outOf(t, w, run, run, what)
		if n := len(w.Model.Requests()); n != 3 {
			t.Errorf("%s: %d requests", what, n)
		}
	}
}

func TestOnlyALimitOfStepsOrTokensKeepsALedger(t *testing.T) {
	for what, v := range map[string]handlers.Version{"no budget": member("root", "leaf"), "a time-out": budgeted(member("root", "leaf"), "", events.Budget{Timeout: "1h"})} {
		w, worker, run := troupe(t, map[string]runtimetest.Step{
			"root": runtimetest.Script(runtimetest.Calls(spawn("leaf", "one"), wait(`{}`)), runtimetest.Complete(`1`)),
			"leaf": runtimetest.Script(runtimetest.Complete(`2`)),
		}, v, member("leaf"))
		worker.Settle()
		completed(t, w, run)
		if n := len(w.Appends()) - len(w.Facts()); n != 0 || len(accounts(t, w, worker, run)) != 0 {
			t.Errorf("%s: the ledger has %d records", what, n)
		}
		if r := runIn(t, w, run); (r.Admitted.Deadline != nil) != (v.Agent.Budget != nil) {
			t.Errorf("%s: the deadline is %v", what, r.Admitted.Deadline)
		}
	}
}

func TestHoldIsInheritedUnlessTheChildSaysOtherwise(t *testing.T) {
	for _, own := range []events.OnBudget{"", events.OnBudgetFail} {
		leaf := member("leaf")
		leaf.Agent.OnBudget = own
		w, worker, run := troupe(t, map[string]runtimetest.Step{
			"root": runtimetest.Script(runtimetest.Calls(spawn("leaf", "one"), wait(`{}`)), runtimetest.Complete(`1`)),
			"leaf": runtimetest.Script(runtimetest.RunJS("return 1"), runtimetest.Complete(`2`)),
		}, budgeted(member("root", "leaf"), events.OnBudgetHold, events.Budget{Steps: 2}), leaf)
		worker.Settle()
		child := childOf(w, run, "call_0_0")
		if own != "" {
			outOf(t, w, child, run, "steps")
			continue
		}
		if r := runIn(t, w, child); r.State != projector.StateParked || r.Wait.Reason != events.ParkBudget {
			t.Fatalf("the child is %s: %s", r.State, r.Reason)
		}
		w.Send(handlerstest.TopUp("t", run, 2))
		worker.Settle()
		completed(t, w, run)
		completed(t, w, child)
	}
}

func TestATopUpAddsOnceToALimitThatThereIs(t *testing.T) {
	w, worker, run := troupe(t, map[string]runtimetest.Step{"root": runtimetest.Script(runtimetest.Calls(spawn("leaf", "one"), wait(`{}`)), runtimetest.Complete(`1`)), "leaf": thinking},
		budgeted(member("root", "leaf"), events.OnBudgetHold, events.Budget{Steps: 2}), member("leaf"))
	worker.Settle()
	refused := func(id string, add events.TopUpBudget, reason string) {
		t.Helper()
		e, err := events.New(add)
		if err != nil {
			t.Fatal(err)
		}
		e.ID, e.Source = id, "/test"
		var r *handlers.Rejection
		if _, err := worker.Dispatcher.Admit(t.Context(), "ns", &e); !errors.As(err, &r) || r.Reason != reason {
			t.Errorf("%s: %v", id, err)
		}
	}
	leaf := childOf(w, run, "call_0_0")
	refused("no tokens", events.TopUpBudget{Run: run, Steps: 1, InputTokens: 1}, handlers.RejectNoBudget)
	refused("no limit", events.TopUpBudget{Run: leaf, Steps: 1}, handlers.RejectNoBudget)
	refused("nothing", events.TopUpBudget{Run: run}, handlers.RejectMalformed)
	refused("less", events.TopUpBudget{Run: run, Steps: -1}, handlers.RejectMalformed)
	refused("nobody", events.TopUpBudget{Run: runOf("ns", "nobody"), Steps: 1}, handlers.RejectNoRun)
	if a := accounts(t, w, worker, run)[run]; a.Limit.Steps != 2 {
		t.Fatalf("the limit is %+v", a.Limit)
	}
	top := handlerstest.TopUp("t", run, 3)
	w.Send(top)
	worker.Settle()
	w.Send(top)
	worker.Settle()
	admit(t, w.Start(t.Context(), nil), top)
	worker.Settle()
	if a := accounts(t, w, worker, run)[run]; a.Limit.Steps != 5 || a.Steps != 5 || len(w.Model.Requests()) != 5 {
		t.Errorf("after three times the same top-up the account is %+v", a)
	}
	if r := runIn(t, w, leaf); r.State != projector.StateParked || r.Wait.Reason != events.ParkBudget {
		t.Errorf("the leaf is %s: %s", r.State, r.Reason)
	}
}
