package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
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

// neverRan demands that a run that was refused to its parent was admitted as
// cancelled, and that nothing is left under way.
func neverRan(t *testing.T, w *handlerstest.World, run string) {
	t.Helper()
	if r := runIn(t, w, run); r.State != projector.StateCancelled || r.Worker != "" {
		t.Errorf("the call was refused, and its run is %s by worker %q", r.State, r.Worker)
	}
	for _, r := range runs(t, w) {
		if !r.State.Terminal() {
			t.Errorf("run %s is %s", r.ID, r.State)
		}
	}
}

// A worker stalls while it admits a child. Another one, configured with a
// narrower tree, takes the run over, refuses the call and ends the run; then the
// first one's append comes.
func TestASpawnThatALaterClaimRefusedNeverRuns(t *testing.T) {
	w, strict, parent := kin(t, runtimetest.Calls(spawn("child", "one")), runtimetest.Calls(spawn("child", "wait"), wait(`{"calls":["call_0_0"]}`)), runtimetest.Complete(`1`))
	strict.Dispatcher.Tree = handlers.TreeLimits{Width: 1}
	session, _ := events.SessionOf(parent)
	var stalls *handlerstest.Worker
	stalls = w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
		if a.Type == factAdmitted && a.Nth == 3 {
			stalls.Before(func() {
				strict.Takeover()
				_ = strict.Dispatcher.Carry(t.Context(), events.Key{Namespace: "ns", Session: session})
				if outcome, text := answered(t, w, parent, "call_1_0"); outcome != events.OutcomeError {
					t.Fatalf("the call is %s: %s", outcome, text)
				}
			})
		}
		return eventstest.None, false
	})
	stalls.Settle()
	strict.Settle()
	completed(t, w, parent)
	neverRan(t, w, childOf(w, parent, "call_1_0"))
}

// The same for the session of a child that had not ended when the call was
// refused, and has when the stalled worker comes to it.
func TestAContinuationThatALaterClaimRefusedNeverRuns(t *testing.T) {
	session := events.ChildSession("ns", runOf("ns", "1"), "call_0_0")
	key := events.Key{Namespace: "ns", Session: session}
	again := runtimetest.ToolCall("continue_agent", fmt.Sprintf(`{"session":%q,"prompt":"again"}`, session))
	w, first, parent := kin(t, runtimetest.Calls(spawn("child", "wait")), runtimetest.Calls(again, wait(`{"calls":["call_0_0"]}`)), runtimetest.Complete(`1`))
	parentSession, _ := events.SessionOf(parent)
	parentKey := events.Key{Namespace: "ns", Session: parentSession}
	first.Admit()
	model := w.Model.Respond
	w.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
		if step == 1 && r.System == "parent" { // the child parks before the parent goes on
			_ = first.Dispatcher.Carry(t.Context(), key)
		}
		return model(step, r)
	}
	stalls, stalled := w.Start(t.Context(), nil), false
	w.OnRead(func(k events.Key) {
		if stalled || k != key {
			return
		}
		c := runIn(t, w, parent).Checkpoint
		if c == nil || len(c.Calls) == 0 || c.Calls[0].ID != "call_1_0" || c.Calls[0].State != events.CallDispatched {
			return
		}
		stalled = true
		helper := w.Start(t.Context(), nil)
		w.LoseLeases()
		_ = helper.Dispatcher.Carry(t.Context(), parentKey) // refuses the call: the child is busy
		admit(t, helper, handlerstest.Message("m", childOf(w, parent, "call_0_0"), "go"))
		_ = helper.Dispatcher.Carry(t.Context(), key) // the child ends
	})
	_ = stalls.Dispatcher.Carry(t.Context(), parentKey)
	w.OnRead(nil)
	if outcome, text := answered(t, w, parent, "call_1_0"); !stalled || outcome != events.OutcomeError {
		t.Fatalf("stalled is %t, the call is %s: %s", stalled, outcome, text)
	}
	last := w.Start(t.Context(), nil)
	last.Takeover()
	last.Settle()
	completed(t, w, parent)
	neverRan(t, w, events.RunFor("ns", session, parent, "call_1_0"))
}

// duringTake runs f while the lease is taken: between the claim and the attempt.
type duringTake struct {
	handlers.Leases
	f func()
}

func (d duringTake) Take(ctx context.Context, key events.Key, l handlers.Lease) error {
	d.f()
	return d.Leases.Take(ctx, key, l)
}

func TestASignalBetweenAClaimAndItsAttemptIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, helper := started(t, agent(), runtimetest.Complete(`1`))
		dies := w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
			return eventstest.AnswerLost, a.Type == factCommitted // the model is asked next, without another commit
		})
		dies.Admit()
		dies.Work()
		worker := w.Start(t.Context(), nil)
		f := &inFlight{make(chan struct{}), make(chan struct{})}
		worker.Dispatcher.Models = hangingModels{f.hang, runtimetest.Complete(`"late"`)}
		worker.Dispatcher.Leases = duringTake{worker.Dispatcher.Leases, func() {
			admit(t, helper, handlerstest.Cancel("c", runOf("ns", "1"), "enough"))
			reactTo(t, helper, func(*events.Record) bool { return true })
		}}
		done := make(chan struct{})
		go func() { defer close(done); worker.Work() }()
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Errorf("the model request goes on, and the run is %s", only(t, w).State)
			close(f.free)
			<-done
		}
		if r := only(t, w); r.State != projector.StateCancelled {
			t.Errorf("the run is %s", r.State)
		}
	})
}

// list is a list of sessions.
type list func(ctx context.Context, namespace string) iter.Seq2[events.Entry, error]

func (l list) Sessions(ctx context.Context, namespace string) iter.Seq2[events.Entry, error] {
	return l(ctx, namespace)
}

func TestTheFirstSweepThatSucceedsArmsEveryTimer(t *testing.T) {
	w, worker, _ := kin(t, runtimetest.Calls(spawn("child", "wait"), wait(`{"timeout":"1h"}`)), runtimetest.Complete(`1`))
	worker.Settle()
	armed := w.Armed()
	w.LoseTimers()
	sweeper := w.Start(t.Context(), nil).Sweeper()
	away := true
	sweeper.Sessions = list(func(ctx context.Context, namespace string) iter.Seq2[events.Entry, error] {
		if away {
			return func(yield func(events.Entry, error) bool) { yield(events.Entry{}, errors.New("the server is away")) }
		}
		return w.Sessions(ctx, namespace)
	})
	if _, err := sweeper.Sweep(t.Context()); err == nil {
		t.Fatal("a sweep without a list succeeded")
	}
	away = false
	if _, err := sweeper.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.Armed(); len(armed) != 1 || !slices.Equal(got, armed) {
		t.Errorf("armed were %+v, and after a sweep that failed and one that did not %+v", armed, got)
	}
}

func TestAnUnansweredReadMakesNoRunStuck(t *testing.T) {
	for n := 1; ; n++ {
		log := &eventstest.Faulty{Log: &eventstest.Memory{}}
		w := handlerstest.New(log, &eventstest.Memory{}, "ns")
		family(runtimetest.Script(runtimetest.Calls(spawn("child", "one"), wait(`{}`)), runtimetest.Complete(`1`)))(w)
		worker := w.Start(t.Context(), nil)
		apply(t, worker, member("parent", "child"), member("child"))
		w.Send(handlerstest.Start("1", "parent", "Go."))
		worker.Admit()
		worker.Work()
		sweeper, reads := w.Start(t.Context(), nil).Sweeper(), 0
		log.ReadFault = func(int) (int, error) {
			if reads++; reads == n {
				return 0, events.ErrUnanswered
			}
			return 0, nil
		}
		swept, err := sweeper.Sweep(t.Context())
		log.ReadFault = nil
		if len(swept.Stuck) > 0 {
			t.Errorf("read %d is not answered (the sweep's error is %v), and stuck are %+v", n, err, swept.Stuck)
		}
		if reads < n {
			if n < 4 {
				t.Errorf("a sweep makes %d reads", reads)
			}
			return
		}
	}
}

// The server's clock is ahead of the worker's.
func TestAnEarlyTimerIsHandedOutAgain(t *testing.T) {
	w, worker, parent := kin(t, runtimetest.Calls(wait(`{"messages":true,"timeout":"1h"}`)), runtimetest.Complete(`1`))
	worker.Settle()
	timer := w.Armed()[0]
	facts := len(w.Facts())
	var early *handlers.EarlyError
	if err := worker.Dispatcher.Fire(t.Context(), timer); !errors.As(err, &early) || early.By <= 0 || early.By > time.Hour {
		t.Fatalf("an early timer: %v", err)
	}
	if n := len(w.Facts()); n != facts || !slices.Equal(w.Armed(), []handlers.Timer{timer}) {
		t.Errorf("an early timer appended %d facts, and armed are %+v", n-facts, w.Armed())
	}
	w.Pass(early.By)
	if err := worker.Dispatcher.Fire(t.Context(), timer); err != nil {
		t.Fatal(err)
	}
	worker.Settle()
	if session, _ := events.SessionOf(parent); !waited(t, w, session, "call_0_0").TimedOut {
		t.Error("the wait was not ended by its timer")
	}
	// Whatever it comes for, a timer that means nothing any more is acknowledged.
	w.Pass(-2 * time.Hour)
	if err := worker.Dispatcher.Fire(t.Context(), timer); err != nil {
		t.Errorf("an early timer of a wait that is over: %v", err)
	}
}

func TestATimerEndsWithItsWait(t *testing.T) {
	for name, end := range map[string]func(*handlerstest.World, *handlerstest.Worker, string){
		"its child ended": func(w *handlerstest.World, worker *handlerstest.Worker, parent string) {
			w.Send(handlerstest.Message("m", childOf(w, parent, "call_0_0"), "go"))
		},
		"the run was cancelled": func(w *handlerstest.World, worker *handlerstest.Worker, parent string) {
			w.Send(handlerstest.Cancel("c", parent, "enough"))
		},
	} {
		w, worker, parent := kin(t, runtimetest.Calls(spawn("child", "wait"), wait(`{"timeout":"720h"}`)), runtimetest.Calls(wait(`{"messages":true,"timeout":"24h"}`)), runtimetest.Complete(`1`))
		worker.Settle()
		if armed := w.Armed(); len(armed) != 1 || armed[0].CallID != "call_0_1" {
			t.Fatalf("%s: armed are %+v", name, armed)
		}
		end(w, worker, parent)
		worker.Settle()
		armed := w.Armed()
		if r := runIn(t, w, parent); r.State.Terminal() != (len(armed) == 0) || len(armed) > 0 && (len(armed) != 1 || armed[0].CallID != "call_1_0") {
			t.Errorf("%s: the parent is %s, armed are %+v", name, r.State, armed)
		}
	}
}

func TestAnAnswerAboutManyChildrenIsBoundedAndEachCanBeHadAlone(t *testing.T) {
	const bound = 128 << 10 // of the replies, and something for what is told beside them
	long := `"` + strings.Repeat("x", 100<<10) + `"`
	w, worker, parent := troupe(t, map[string]runtimetest.Step{
		"parent": runtimetest.Script(
			runtimetest.Calls(spawn("long", "a"), spawn("long", "b"), spawn("short", "c"), wait(naming(3))),
			runtimetest.Calls(runtimetest.ToolCall("get_calls", `{"calls":["call_0_1"]}`)),
			runtimetest.Complete(`1`)),
		"long":  runtimetest.Script(runtimetest.Complete(long)),
		"short": runtimetest.Script(runtimetest.Complete(`"tiny"`)),
	}, within(member("parent", "long", "short"), 1_000_000), member("long"), member("short"))
	worker.Settle()
	completed(t, w, parent)
	session, _ := events.SessionOf(parent)
	if _, text := answered(t, w, parent, "call_0_3"); len(text) > bound+4096 {
		t.Errorf("the answer has %d bytes", len(text))
	}
	for i, s := range waited(t, w, session, "call_0_3").Settled {
		if whole := i != 1; (s.Reply != nil) != whole || (s.Note == "") != whole {
			t.Errorf("call %s: there is a reply: %t, note %q", s.CallID, s.Reply != nil, s.Note)
		}
	}
	if _, text := answered(t, w, parent, "call_1_0"); !strings.Contains(text, long[1:len(long)-1]) {
		t.Errorf("asked for alone, the answer has %d bytes", len(text))
	}
}

func TestNoTopUpMakesALimitOverflow(t *testing.T) {
	const most = 1_000_000_000_000
	w, worker, run := troupe(t, map[string]runtimetest.Step{"tester": thinking}, budgeted(member("tester"), events.OnBudgetHold, events.Budget{Steps: 2}))
	worker.Settle()
	for id, add := range map[string]int64{"all": math.MaxInt64, "more": most + 1} {
		e := handlerstest.TopUp(id, run, add)
		var refused *handlers.Rejection
		if _, err := worker.Dispatcher.Admit(t.Context(), "ns", &e); !errors.As(err, &refused) || refused.Reason != handlers.RejectMalformed {
			t.Errorf("%d steps more: %v", add, err)
		}
	}
	admit(t, worker, handlerstest.TopUp("most", run, most))
	if a := accounts(t, w, worker, run)[run]; a.Limit.Steps != most+2 {
		t.Errorf("the limit is %d", a.Limit.Steps)
	}
	// Nor is there a limit that would leave no room for one.
	v := budgeted(member("greedy"), "", events.Budget{InputTokens: math.MaxInt64})
	if _, err := worker.Dispatcher.Apply(t.Context(), "ns", &v); err == nil {
		t.Error("a definition may ask for a budget that cannot be raised")
	}
}
