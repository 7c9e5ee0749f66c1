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
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// asked counts the requests that reached each service.
func asked(w *handlerstest.World) map[string]int {
	n := make(map[string]int)
	for _, c := range w.Services.Ledger {
		n[strings.TrimPrefix(c.Subject, "svc.")]++
	}
	return n
}

func TestACrashAfterTwoOfThreeCallsRepeatsNeither(t *testing.T) {
	w, worker := started(t, agent("desk.book", "desk.free", "desk.pay"),
		runtimetest.Calls(runtimetest.RunJSCall("desk.book {}\nreturn"), runtimetest.RunJSCall("desk.free {}\nreturn"), runtimetest.RunJSCall("desk.pay {}\nreturn")),
		runtimetest.Complete(`1`))
	first := w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
		return eventstest.AnswerLost, a.Type == factCommitted && a.Nth == 4
	})
	first.Settle()
	worker.Settle()
	completed(t, w, runOf("ns", "1"))
	if n := asked(w); !first.Dead() || n["desk.book"] != 1 || n["desk.free"] != 1 || n["desk.pay"] != 0 {
		t.Errorf("asked were %v", n)
	}
	for i, want := range []events.Outcome{events.OutcomeOK, events.OutcomeOK, events.OutcomeUnknown} {
		if got, text := answered(t, w, runOf("ns", "1"), runtimetest.CallID(0, i)); got != want {
			t.Errorf("call %d is %s: %s", i, got, text)
		}
	}
}

func TestWhatAChildDidBeforeItParkedIsNotRepeated(t *testing.T) {
	w, worker, parent := troupe(t, map[string]runtimetest.Step{
		"parent": runtimetest.Script(runtimetest.Calls(spawn("child", "one"), wait(`{}`)), runtimetest.Complete(`1`)),
		"child":  runtimetest.Script(runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.Calls(wait(`{"messages":true}`)), runtimetest.Complete(`2`)),
	}, member("parent", "child"), able(member("child", "child"), "desk.book"))
	worker.Settle()
	child := childOf(w, parent, "call_0_0")
	if r := runIn(t, w, child); r.State != projector.StateParked {
		t.Fatalf("the child is %s", r.State)
	}
	w.Lose()
	second := w.Start(t.Context(), nil)
	if _, err := second.Sweeper().Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Send(handlerstest.Message("m", child, "Go on."))
	second.Settle()
	completed(t, w, parent)
	if n := asked(w)["desk.book"]; n != 1 || w.Executors.Started() != 1 {
		t.Errorf("the service was asked %d times by %d scripts", n, w.Executors.Started())
	}
}

func TestATaskThatIsDeliveredAgainAndAgainStandsOnce(t *testing.T) {
	for n := 1; ; n++ {
		w, _ := started(t, agent("desk.book"), runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.Complete(`1`))
		for range 4 {
			w.Send(handlerstest.Start("1", "tester", "Go."))
		}
		first := w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
			return []eventstest.Fault{eventstest.LostBefore, eventstest.AnswerLost}[n%2], a.N == (n+1)/2
		})
		first.Settle()
		if !first.Dead() {
			break
		}
		w.Send(handlerstest.Start("1", "tester", "Go."))
		w.Start(t.Context(), nil).Settle()
		r := only(t, w)
		completed(t, w, r.ID)
		tasks := 0
		session, _ := events.SessionOf(r.ID)
		for _, m := range fold(t, w, session).Window {
			if m.Role == events.RoleUser {
				tasks++
			}
		}
		if tasks != 1 {
			t.Errorf("kill %d: the task stands %d times", n, tasks)
		}
	}
}

func TestWaitsAmongOtherCallsKeepTheirOrder(t *testing.T) {
	w, worker, parent := troupe(t, map[string]runtimetest.Step{
		"parent": runtimetest.Script(runtimetest.Calls(spawn("child", "a"), spawn("child", "b")),
			runtimetest.Calls(runtimetest.RunJSCall("desk.book {}\nreturn"), wait(`{"calls":["call_0_0"]}`), runtimetest.RunJSCall("desk.free {}\nreturn"), wait(`{"calls":["call_0_1"]}`)),
			runtimetest.Complete(`1`)),
		"child": runtimetest.Script(runtimetest.Calls(wait(`{"messages":true}`)), runtimetest.Complete(`2`)),
	}, able(member("parent", "child"), "desk.book", "desk.free"), member("child", "child"))
	for _, call := range []string{"call_0_0", "call_0_1"} {
		worker.Settle()
		w.Lose()
		worker = w.Start(t.Context(), nil)
		if _, err := worker.Sweeper().Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Send(handlerstest.Message(call, childOf(w, parent, call), "Go on."))
	}
	worker.Settle()
	completed(t, w, parent)
	session, _ := events.SessionOf(parent)
	var order []string
	for _, m := range fold(t, w, session).Window {
		for _, p := range m.Parts {
			if p.Result != nil && strings.HasPrefix(p.Result.CallID, "call_1_") {
				order = append(order, p.Result.CallID+" "+string(p.Result.Outcome))
			}
		}
	}
	if want := []string{"call_1_0 ok", "call_1_1 ok", "call_1_2 ok", "call_1_3 ok"}; !slices.Equal(order, want) {
		t.Errorf("the results are %v", order)
	}
	if n := asked(w); n["desk.book"] != 1 || n["desk.free"] != 1 {
		t.Errorf("asked were %v", n)
	}
}

func TestSweepersAtOnceAndARestartWithOverlapExecuteOnce(t *testing.T) {
	w, _ := started(t, agent("desk.book"), runtimetest.Calls(runtimetest.RunJSCall("desk.book {\"n\":1}\nreturn"), runtimetest.RunJSCall("desk.book {\"n\":2}\nreturn")), runtimetest.CompleteQuoting())
	w.Silence = time.Second // nobody is known to be dead
	old, young := w.Start(t.Context(), nil), w.Start(t.Context(), nil)
	old.Dispatcher.Worker, young.Dispatcher.Worker = "node/1", "node/2"
	sweep := func() {
		a, b := old.Sweeper(), young.Sweeper()
		a.Progress = func(int) {
			if _, err := b.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if _, err := a.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	calls := 0
	w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
		if calls++; calls == 1 {
			sweep()
			young.Work() // the old one is alive
			stop()
			<-old.Dispatcher.Draining()
			young.Work()
			sweep()
		}
		return []byte(`1`), nil
	}
	old.Admit()
	if err := old.Dispatcher.Run(ctx, t.Context(), old.Queue(ctx)); err != nil {
		t.Fatal(err)
	}
	sweep()
	young.Settle()
	old.React()
	sweep()
	young.Settle()
	completed(t, w, runOf("ns", "1"))
	if r := only(t, w); asked(w)["desk.book"] != 2 || strings.Contains(string(r.Checkpoint.Reply.Output), "unknown") || r.Worker != "node/2" {
		t.Errorf("asked were %v, the run ended with %s as %s", asked(w), r.Worker, r.Checkpoint.Reply.Output)
	}
}

func TestARunOutlivesTwentyRestartsWithinOneTurn(t *testing.T) {
	const restarts = 20
	calls := make([]events.ToolCall, restarts+1)
	for i := range calls {
		calls[i] = runtimetest.RunJSCall(fmt.Sprintf("desk.book {\"n\":%d}\nreturn", i))
	}
	w, worker := started(t, agent("desk.book"), runtimetest.Calls(calls...), runtimetest.CompleteQuoting())
	worker.Admit()
	for range restarts {
		drained := w.Start(t.Context(), nil)
		ctx, stop := context.WithCancel(t.Context())
		w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
			stop()
			<-drained.Dispatcher.Draining()
			return []byte(`1`), nil
		}
		drained.React()
		if err := drained.Dispatcher.Run(ctx, t.Context(), drained.Queue(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(w.Services.Ledger); n != restarts {
		t.Errorf("%d workers made %d calls", restarts, n)
	}
	w.Services.Answer = nil
	worker.Settle()
	r := only(t, w)
	completed(t, w, r.ID)
	if len(w.Services.Ledger) != restarts+1 || len(w.Model.Requests()) != 2 || strings.Contains(string(r.Checkpoint.Reply.Output), "unknown") {
		t.Errorf("%d calls, %d requests: %s", len(w.Services.Ledger), len(w.Model.Requests()), r.Checkpoint.Reply.Output)
	}
}

// attempts counts how attempts end.
type attempts struct {
	handlers.NoMeter
	ended map[string]int
}

func (a attempts) AttemptEnded(outcome string) { a.ended[outcome]++ }

func TestAParkedRunOfAnotherContractIsRefusedListedAndCounted(t *testing.T) {
	w, worker, parent := kin(t, runtimetest.Calls(spawn("child", "wait"), wait(`{}`)), runtimetest.Complete(`1`))
	worker.Settle()
	r := runIn(t, w, parent)
	other := member("parent", "child")
	other.Agent.Description = "Another one."
	w.Replace("ns", r.Admitted.Definition, &other)
	facts, requests := len(w.Facts()), len(w.Model.Requests())
	worker = w.Start(t.Context(), nil)
	meter := attempts{ended: make(map[string]int)}
	worker.Dispatcher.Meter = meter
	swept, err := worker.Sweeper().Sweep(t.Context())
	if err != nil || len(swept.Stuck) != 1 || swept.Stuck[0].Run != parent {
		t.Errorf("stuck are %+v, %v", swept.Stuck, err)
	}
	w.Send(handlerstest.Message("m", childOf(w, parent, "call_0_0"), "Go on."))
	for range 4 {
		worker.Step()
	}
	session, _ := events.SessionOf(parent)
	var contract *runtime.ContractError
	if err := worker.Dispatcher.Carry(t.Context(), events.Key{Namespace: "ns", Session: session}); !errors.As(err, &contract) {
		t.Errorf("got %v", err)
	}
	if r := runIn(t, w, parent); r.State != projector.StateParked || r.Missing != 0 || meter.ended["blocked"] == 0 || len(w.Model.Requests()) != requests+1 {
		t.Errorf("the parent is %s, attempts ended as %v, %d facts more", r.State, meter.ended, len(w.Facts())-facts)
	}
}

// replaced is a log whose connection is replaced when its server was restarted.
type replaced struct{ events.Log }

func TestAParkedTreeGoesOnAfterServerAndWorkersWereRestarted(t *testing.T) {
	server := jetstreamtest.Server(t)
	log, ledger := &replaced{}, &replaced{}
	connect := func() {
		conn := jetstreamtest.Open(t, server, jetstream.Layout{})
		log.Log, ledger.Log = &jetstream.Log{Conn: conn}, &jetstream.Log{Conn: conn, Family: jetstream.FamilyBudget}
	}
	restart := func() {
		server.Shutdown()
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
	}
	connect()
	w := handlerstest.New(log, ledger, "ns")
	cast(map[string]runtimetest.Step{
		"parent": runtimetest.Script(runtimetest.Calls(spawn("child", "one"), wait(`{}`)), runtimetest.Complete(`1`)),
		"child":  runtimetest.Script(runtimetest.Calls(wait(`{"messages":true}`)), runtimetest.Complete(`2`)),
	})(w)
	worker := w.Start(t.Context(), nil)
	apply(t, worker, member("parent", "child"), member("child", "child"))
	for i := range 3 {
		w.Send(handlerstest.Start(fmt.Sprint(i), "parent", "Go."))
	}
	worker.Settle()
	worker.Kill()
	w.Lose()
	restart()
	connect()
	for i := range 3 {
		w.Send(handlerstest.Message(fmt.Sprint("m", i), childOf(w, parentOf(w, fmt.Sprint(i)), "call_0_0"), "Go on."))
	}
	worker = w.Start(t.Context(), nil)
	worker.Admit()
	w.Lose()
	sweeper := worker.Sweeper()
	sweeper.Progress = func(seen int) {
		if seen == 2 {
			restart()
		}
	}
	if swept, err := sweeper.Sweep(t.Context()); err == nil && len(swept.Stuck) == 0 {
		t.Error("the server went away during the sweep, and the sweep says nothing of it")
	}
	connect()
	sweeper.Progress = nil
	if swept, err := sweeper.Sweep(t.Context()); err != nil || len(swept.Stuck) > 0 {
		t.Fatalf("the next sweep found %+v, %v", swept.Stuck, err)
	}
	worker.Settle()
	for i := range 3 {
		completed(t, w, parentOf(w, fmt.Sprint(i)))
	}
}

func TestAWakeUpWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const parents = 40
		w, worker, _ := kin(t, runtimetest.Calls(spawn("child", "wait"), wait(`{}`)), runtimetest.Complete(`1`))
		for i := 2; i <= parents; i++ {
			w.Send(handlerstest.Start(fmt.Sprint(i), "parent", "Go."))
		}
		worker.Settle()
		for i := 1; i <= parents; i++ {
			w.Send(handlerstest.Message(fmt.Sprint("m", i), childOf(w, runOf("ns", fmt.Sprint(i)), "call_0_0"), "Go on."))
		}
		began := time.Now()
		worker.Settle()
		for i := 1; i <= parents; i++ {
			if r := runIn(t, w, runOf("ns", fmt.Sprint(i))); r.State != projector.StateCompleted {
				t.Errorf("run %d is %s", i, r.State)
			}
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("%d runs whose children had ended waited %s", parents, waited)
		}
	})
}

// meddling is what others do at any time: it changes when a run goes on, and
// never whether.
var meddling = map[string]func(*testing.T, *handlerstest.World, *handlerstest.Worker){
	"a message": func(t *testing.T, w *handlerstest.World, other *handlerstest.Worker) {
		for _, r := range runs(t, w) {
			if !r.State.Terminal() {
				admit(t, other, handlerstest.Message("meddled-"+r.ID, r.ID, "By the way."))
			}
		}
	},
	"a timer": func(_ *testing.T, _ *handlerstest.World, other *handlerstest.Worker) { other.Fire() },
	"a loss and a sweep": func(t *testing.T, w *handlerstest.World, other *handlerstest.Worker) {
		w.Lose()
		if _, err := other.Sweeper().Sweep(t.Context()); err != nil {
			t.Error(err)
		}
	},
}

func TestWhateverComesBeforeAnAppendLeavesNothingStuck(t *testing.T) {
	for what, meddle := range meddling {
		for k, s := range trees {
			w, worker := stage(t, &s)
			for _, c := range s.Commands("ns") {
				w.Send(c)
				for worker.Settle(); s.Timers && worker.Fire(); worker.Settle() {
				}
			}
			nth := make(map[string]int)
			for i, f := range w.Appends() {
				if nth[f.Type]++; (i+k)%3 != 0 && !slow {
					continue
				}
				w, other := stage(t, &s)
				script := w.Model.Respond
				w.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
					if response, err := script(step, r); err == nil {
						return response, nil
					}
					return runtimetest.Complete(`"beyond its script"`)(step, r)
				}
				met := false
				var first *handlerstest.Worker
				first = w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
					if !met && a.Type == f.Type && a.Nth == nth[f.Type] {
						met = true
						first.Before(func() { meddle(t, w, other) })
					}
					return eventstest.None, false
				})
				for _, c := range s.Commands("ns") {
					w.Send(c)
					for first.Settle(); first.Fire(); first.Settle() {
					}
				}
				for run, state := range endings(t, w) {
					if !strings.Contains(state, "completed") && !strings.Contains(state, "failed") && !strings.Contains(state, "cancelled") {
						t.Errorf("%s, %s before append %d (%s): run %s is %s", s.Name, what, i+1, f.Type, run, state)
					}
				}
				sent, said := 0, 0
				for _, f := range w.Facts() {
					if f.Type == events.TypeFor[events.MessageReceived]().Name {
						sent++
					}
				}
				for _, key := range w.Keys() {
					for _, m := range fold(t, w, key.Session).Window {
						if strings.HasPrefix(m.ID, "message-") {
							said++
						}
					}
				}
				if said != sent {
					t.Errorf("%s, %s before append %d (%s): %d of %d messages are in the conversations", s.Name, what, i+1, f.Type, said, sent)
				}
			}
		}
	}
}

func TestAModelThatAlwaysStartsChildrenStopsAtTheBudgetOfItsTree(t *testing.T) {
	const budget = 25
	w, worker, root := troupe(t, map[string]runtimetest.Step{"child": func(step int, r *runtime.Request) (*runtime.Response, error) {
		return runtimetest.Calls(spawn("child", fmt.Sprint(step)), spawn("child", "other"), wait(`{"timeout":"1s"}`))(step, r)
	}}, budgeted(member("child", "child"), "", events.Budget{Steps: budget}))
	worker.Dispatcher.Tree.Depth = 1000
	for worker.Settle(); worker.Fire(); worker.Settle() {
	}
	outOf(t, w, root, root, "steps")
	for _, r := range runs(t, w) {
		if !r.State.Terminal() {
			t.Errorf("run %s is %s", r.ID, r.State)
		}
	}
	if n := len(w.Model.Requests()); n != budget {
		t.Errorf("%d requests, the budget is %d", n, budget)
	}
}

func TestOnlyAnOperatorContinuesTheSessionOfAChild(t *testing.T) {
	w, worker, parent := kin(t, runtimetest.Calls(spawn("child", "now"), wait(`{}`)), runtimetest.Complete(`1`))
	worker.Settle()
	completed(t, w, parent)
	session := events.ChildSession("ns", parent, "call_0_0")
	api := handlers.API{Host: worker.Dispatcher.Host}
	for i := range 2 {
		var refused *handlers.Rejection
		c := handlerstest.Continue(fmt.Sprint("c", i), session, "More.")
		if _, err := worker.Dispatcher.Admit(t.Context(), "ns", &c); !errors.As(err, &refused) || refused.Reason != handlers.RejectChild {
			t.Fatalf("a command after %d continuations by operators: %v", i, err)
		}
		if _, err := api.Handle(t.Context(), "ns", handlers.VerbContinue, nil, []byte(`{"session":"`+session+`","message":"More."}`)); err != nil {
			t.Fatal(err)
		}
		worker.Settle()
	}
}

func TestOnlyTheLastFailedRunOfASessionIsRetried(t *testing.T) {
	fail := true
	w, worker, run := troupe(t, map[string]runtimetest.Step{"tester": func(step int, r *runtime.Request) (*runtime.Response, error) {
		if fail {
			return nil, &runtime.ModelError{Provider: "test", Class: runtime.ClassInvalid, Status: 400, Err: errors.New("no")}
		}
		return runtimetest.Complete(`1`)(step, r)
	}}, member("tester"))
	refused := func(id, run, reason string) {
		t.Helper()
		var r *handlers.Rejection
		c := handlerstest.Retry(id, run)
		if _, err := worker.Dispatcher.Admit(t.Context(), "ns", &c); !errors.As(err, &r) || r.Reason != reason {
			t.Errorf("the retry %s: %v, want %s", id, err, reason)
		}
	}
	worker.Admit()
	refused("early", run, handlers.RejectBusy)
	worker.Settle()
	fail = false
	retry := handlerstest.Retry("r", run)
	again := admit(t, worker, retry).Run
	worker.Settle()
	if a := admit(t, worker, retry); a.Run != again {
		t.Errorf("the same retry is %s and %s", again, a.Run)
	}
	completed(t, w, again)
	if r := runIn(t, w, again); r.Admitted.Retries != run {
		t.Errorf("run %s retries %q", again, r.Admitted.Retries)
	}
	refused("not last", run, handlers.RejectNotFailed)
	refused("not failed", again, handlers.RejectNotFailed)
	refused("nobody", runOf("ns", "nobody"), handlers.RejectNoRun)
}
