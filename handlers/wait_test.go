package handlers_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// troupe starts a world in which each agent follows its script and the first
// one was told to go.
func troupe(t *testing.T, scripts map[string]runtimetest.Step, versions ...handlers.Version) (*handlerstest.World, *handlerstest.Worker, string) {
	t.Helper()
	w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
	cast(scripts)(w)
	worker := w.Start(t.Context(), nil)
	apply(t, worker, versions...)
	w.Send(handlerstest.Start("1", versions[0].Agent.Slug, "Go."))
	return w, worker, parentOf(w, "1")
}

// kin is a troupe of a parent and a child. The child completes unless it is told
// to "wait", when it waits for a message.
func kin(t *testing.T, parent ...runtimetest.Step) (*handlerstest.World, *handlerstest.Worker, string) {
	t.Helper()
	child := func(step int, r *runtime.Request) (*runtime.Response, error) {
		if step == 0 && r.Messages[0].Parts[0].Text == "wait" {
			return runtimetest.Calls(wait(`{"messages":true}`))(step, r)
		}
		return runtimetest.Complete(`"done"`)(step, r)
	}
	return troupe(t, map[string]runtimetest.Step{"parent": runtimetest.Script(parent...), "child": child}, member("parent", "child"), member("child", "child"))
}

// answered is what a session's transcript has of a call.
func answered(t *testing.T, w *handlerstest.World, run, call string) (events.Outcome, string) {
	t.Helper()
	session, _ := events.SessionOf(run)
	r := resultOf(t, w, session, call)
	return r.Outcome, r.Parts[0].Text
}

// completed demands that a run has completed in a sound world.
func completed(t *testing.T, w *handlerstest.World, run string) {
	t.Helper()
	if r := runIn(t, w, run); r.State != projector.StateCompleted {
		t.Errorf("the run is %s: %s", r.State, r.Reason)
	}
	if err := w.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// parks counts the parks of a run.
func parks(w *handlerstest.World, run string) (n int) {
	for _, f := range w.Facts() {
		if f.Run == run && f.Type == factParked {
			n++
		}
	}
	return n
}

func TestASecondWaitForWhatHasSettledReturnsAtOnce(t *testing.T) {
	w, worker, parent := kin(t, runtimetest.Calls(spawn("child", "one"), wait(`{"calls":["call_0_0"]}`)), runtimetest.Calls(wait(`{"calls":["call_0_0"]}`), wait(`{"calls":["call_0_0"],"mode":"any","timeout":"1h"}`)), runtimetest.Complete(`1`))
	worker.Settle()
	completed(t, w, parent)
	_, first := answered(t, w, parent, "call_0_1")
	for _, call := range []string{"call_1_0", "call_1_1"} {
		if outcome, again := answered(t, w, parent, call); again != first || outcome != events.OutcomeOK {
			t.Errorf("the wait %s says %s: %s", call, outcome, again)
		}
	}
	if n := parks(w, parent); n != 1 {
		t.Errorf("the parent parked %d times", n)
	}
}

func TestAWaitForWhatCannotComeIsAnErrorAtOnce(t *testing.T) {
	for what, list := range map[string][]events.ToolCall{
		"itself":                    {wait(`{"calls":["call_0_0"]}`)},
		"a call of no child":        {runtimetest.RunJSCall("return 1"), wait(`{"calls":["call_0_0"]}`)},
		"a call of nobody":          {wait(`{"calls":["call_9_9"]}`)},
		"nothing":                   {wait(`{}`)},
		"nothing, for a time":       {wait(`{"timeout":"1h"}`)},
		"nothing but an empty list": {wait(`{"calls":[]}`)},
		"a call that was refused":   {spawn("stranger", "x"), wait(`{"calls":["call_0_0"]}`)},
		"one good and one bad":      {spawn("child", "x"), wait(`{"calls":["call_0_0","call_9_9"]}`), wait(`{}`)},
	} {
		t.Run(what, func(t *testing.T) {
			w, worker, parent := kin(t, runtimetest.Calls(list...), runtimetest.Complete(`1`))
			worker.Settle()
			completed(t, w, parent)
			bad := min(1, len(list)-1)
			if outcome, text := answered(t, w, parent, runtimetest.CallID(0, bad)); outcome != events.OutcomeError || text == "" {
				t.Errorf("the wait is %s: %s", outcome, text)
			}
			if n := parks(w, parent); n != len(list)/3 {
				t.Errorf("the run parked %d times", n)
			}
		})
	}
}

func TestAChildCannotWaitForACallAboveIt(t *testing.T) {
	w, worker, root := troupe(t, map[string]runtimetest.Step{
		"root":   runtimetest.Script(runtimetest.Calls(spawn("middle", "one"), wait(`{}`)), runtimetest.Complete(`1`)),
		"middle": runtimetest.Script(runtimetest.Calls(runtimetest.ToolCall("spawn_leaf", `{"message":"x"}`)), runtimetest.Calls(wait(`{}`)), runtimetest.Complete(`2`)),
		"leaf":   runtimetest.Script(runtimetest.Calls(runtimetest.ToolCall("get_calls", `{"calls":["call_0_0"]}`), runtimetest.ToolCall("cancel_calls", `{"calls":["call_0_0"]}`), wait(`{"calls":["call_0_0"]}`)), runtimetest.Complete(`3`)),
	}, member("root", "middle"), member("middle", "leaf"), member("leaf", "leaf"))
	worker.Settle()
	completed(t, w, root)
	middle := childOf(w, root, "call_0_0")
	leaf := childOf(w, middle, "call_0_0")
	completed(t, w, leaf)
	for i := range 3 {
		if outcome, text := answered(t, w, leaf, runtimetest.CallID(0, i)); outcome != events.OutcomeError {
			t.Errorf("call %d about a call above is %s: %s", i, outcome, text)
		}
	}
	if parks(w, leaf) != 0 {
		t.Error("the leaf waited for its ancestor")
	}
}

func TestAWaitForAnyEndsWithTheFirstAndOneForAllWithTheLast(t *testing.T) {
	w, worker, parent := kin(t, runtimetest.Calls(spawn("child", "wait"), spawn("child", "now"), wait(`{"mode":"any","calls":["call_0_0","call_0_1"]}`)), runtimetest.Calls(wait(`{"calls":["call_0_0","call_0_1"]}`)), runtimetest.Complete(`1`))
	worker.Settle()
	session, _ := events.SessionOf(parent)
	first := waited(t, w, session, "call_0_2")
	if len(first.Settled) != 1 || first.Settled[0].CallID != "call_0_1" || len(first.Pending) != 1 || first.Pending[0].CallID != "call_0_0" {
		t.Errorf("the wait for any says %+v", first)
	}
	if r := runIn(t, w, parent); r.State != projector.StateParked || r.Missing != 1 {
		t.Fatalf("the parent is %s and misses %d", r.State, r.Missing)
	}
	w.Send(handlerstest.Message("2", childOf(w, parent, "call_0_0"), "Go on."))
	worker.Settle()
	completed(t, w, parent)
	if all := waited(t, w, session, "call_1_0"); len(all.Settled) != 2 || len(all.Pending) != 0 || all.TimedOut {
		t.Errorf("the wait for all says %+v", all)
	}
}

func TestATimeOutKeepsItsFirstDeadlineAndCancelsNobody(t *testing.T) {
	w, worker, parent := kin(t, runtimetest.Calls(spawn("child", "wait"), spawn("child", "now"), wait(`{"timeout":"1h","calls":["call_0_0","call_0_1"]}`)), runtimetest.Calls(runtimetest.ToolCall("cancel_calls", `{"calls":["call_0_0"]}`), wait(`{"calls":["call_0_0"]}`)), runtimetest.Complete(`1`))
	worker.Settle()
	deadline := *runIn(t, w, parent).Wait.Deadline
	for range 3 { // a restart moves nothing
		w.Pass(10 * time.Minute)
		w.Lose()
		worker = w.Start(t.Context(), nil)
		if _, err := worker.Sweeper().Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := worker.Dispatcher.Carry(t.Context(), w.Keys()[0]); err != nil {
			t.Fatal(err)
		}
		worker.Settle()
		if r := runIn(t, w, parent); r.State != projector.StateParked || !r.Wait.Deadline.Equal(deadline) {
			t.Fatalf("the parent is %s until %s, first until %s", r.State, r.Wait.Deadline, deadline)
		}
	}
	if !worker.Fire() {
		t.Fatal("no timer is armed")
	}
	worker.Settle()
	completed(t, w, parent)
	session, _ := events.SessionOf(parent)
	result := waited(t, w, session, "call_0_2")
	if !result.TimedOut || len(result.Settled) != 1 || len(result.Pending) != 1 {
		t.Errorf("the wait says %+v", result)
	}
	if child := runIn(t, w, childOf(w, parent, "call_0_0")); child.Cancel == nil || child.Cancel.Reason != "cancelled by its parent" {
		t.Errorf("the child was cancelled by %+v", child.Cancel)
	}
}

func TestAReparkedWaitKeepsItsDeadline(t *testing.T) {
	w, worker, parent := kin(t, runtimetest.Calls(spawn("child", "wait"), spawn("child", "wait"), wait(`{"timeout":"1h"}`)), runtimetest.Complete(`1`))
	worker.Settle()
	deadline := *runIn(t, w, parent).Wait.Deadline
	w.Pass(30 * time.Minute)
	// A claim without a reason makes the same wait again.
	st, err := worker.Dispatcher.OpenStore(t.Context(), w.Keys()[0])
	if err != nil || st == nil {
		t.Fatal(err)
	}
	second := w.Start(t.Context(), nil)
	if err := second.Dispatcher.Carry(t.Context(), w.Keys()[0]); err != nil {
		t.Fatal(err)
	}
	if r := runIn(t, w, parent); r.State != projector.StateParked || parks(w, parent) != 2 || !r.Wait.Deadline.Equal(deadline) || r.Missing != 2 {
		t.Errorf("the parent is %s after %d parks, until %v, first until %s; it misses %d", r.State, parks(w, parent), r.Wait.Deadline, deadline, r.Missing)
	}
}

func TestWhatHasSettledWinsOverTheTimer(t *testing.T) {
	w, worker, parent := kin(t, runtimetest.Calls(spawn("child", "wait"), wait(`{"timeout":"1h"}`)), runtimetest.Complete(`1`))
	worker.Settle()
	w.Send(handlerstest.Message("2", childOf(w, parent, "call_0_0"), "Go on."))
	worker.Admit()
	worker.React()
	for range 3 { // the child ends, its parent is told, and nobody has claimed it when the timer fires
		if runIn(t, w, parent).Missing > 0 {
			child, _ := events.SessionOf(childOf(w, parent, "call_0_0"))
			if err := worker.Dispatcher.Carry(t.Context(), events.Key{Namespace: "ns", Session: child}); err != nil {
				t.Fatal(err)
			}
			worker.React()
		}
	}
	if !worker.Fire() || runIn(t, w, parent).Timer == nil {
		t.Fatal("the timer did not fire")
	}
	worker.Settle()
	completed(t, w, parent)
	session, _ := events.SessionOf(parent)
	if result := waited(t, w, session, "call_0_1"); result.TimedOut || len(result.Settled) != 1 {
		t.Errorf("the wait says %+v", result)
	}
}

func TestALateTimerOfAnEarlierWaitEndsNoOther(t *testing.T) {
	w, worker, parent := kin(t, runtimetest.Calls(spawn("child", "now"), wait(`{"timeout":"1h"}`)), runtimetest.Calls(spawn("child", "wait"), wait(`{"timeout":"1h"}`)), runtimetest.Complete(`1`))
	var early handlers.Timer
	for early.CallID == "" {
		worker.Step()
		if r := runIn(t, w, parent); r.Wait != nil && r.Wait.CallID == "call_0_1" {
			early = handlers.Timer{Namespace: "ns", Run: parent, CallID: "call_0_1", At: *r.Wait.Deadline}
		}
	}
	worker.Settle()
	if r := runIn(t, w, parent); r.State != projector.StateParked || r.Wait.CallID != "call_1_1" {
		t.Fatalf("the parent is %s for %s", r.State, r.Wait.CallID)
	}
	w.Pass(early.At.Sub(w.Now()) + time.Millisecond)
	facts := len(w.Facts())
	if err := worker.Dispatcher.Fire(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	worker.Settle()
	if r := runIn(t, w, parent); r.State != projector.StateParked || len(w.Facts()) != facts {
		t.Errorf("the late timer appended %d facts, the parent is %s", len(w.Facts())-facts, r.State)
	}
}

func TestMessagesWakeOnlyAWaitThatAsksForThem(t *testing.T) {
	for _, asks := range []bool{false, true} {
		w, worker, parent := kin(t, runtimetest.Calls(spawn("child", "wait"), wait(fmt.Sprintf(`{"messages":%t}`, asks))), runtimetest.Calls(runtimetest.ToolCall("cancel_calls", `{"calls":["call_0_0"]}`), wait(`{"calls":["call_0_0"]}`)), runtimetest.Complete(`1`))
		worker.Settle()
		m := handlerstest.Message("m", parent, "Hello?")
		w.Send(m)
		w.Send(m)
		worker.Settle()
		if r := runIn(t, w, parent); (r.State == projector.StateParked) == asks {
			t.Errorf("asking for messages %t: the parent is %s", asks, r.State)
		}
		session, _ := events.SessionOf(parent)
		if asks {
			if result := waited(t, w, session, "call_0_1"); result.Messages != 1 || len(result.Pending) != 1 || result.TimedOut {
				t.Errorf("the wait says %+v", result)
			}
		} else {
			w.Send(handlerstest.Message("go", childOf(w, parent, "call_0_0"), "Go on."))
			worker.Settle()
		}
		completed(t, w, parent)
		heard := 0
		for i, msg := range fold(t, w, session).Window {
			if msg.Role == events.RoleUser && msg.Parts[0].Text == "Hello?" {
				heard++
				if before := fold(t, w, session).Window[i-1]; before.Role != events.RoleTool {
					t.Errorf("the message stands after one of %s", before.Role)
				}
			}
		}
		if heard != 1 {
			t.Errorf("the message stands %d times", heard)
		}
	}
}

func TestAMessageIsDeliveredAtTheNextBoundaryAlthoughNobodyWaits(t *testing.T) {
	w := inMemory()
	run := parentOf(w, "1")
	helper := w.Start(t.Context(), nil)
	apply(t, helper, agent())
	w.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
		if step == 0 {
			admit(t, helper, handlerstest.Message("m", run, "One more thing."))
			return runtimetest.RunJS("return 1")(step, r)
		}
		if last := r.Messages[len(r.Messages)-1]; last.Role != events.RoleUser || last.Parts[0].Text != "One more thing." {
			t.Errorf("the last message of the next request is %+v", last)
		}
		return runtimetest.Complete(`1`)(step, r)
	}
	w.Send(handlerstest.Start("1", "tester", "Go."))
	helper.Settle()
	completed(t, w, run)
}

func TestAMessageThatComesAtTheEndStaysInTheConversation(t *testing.T) {
	w := inMemory()
	run := parentOf(w, "1")
	helper := w.Start(t.Context(), nil)
	apply(t, helper, agent())
	steps(runtimetest.Complete(`1`), runtimetest.Complete(`2`))(w)
	m := handlerstest.Message("m", run, "One more thing.")
	var worker *handlerstest.Worker
	worker = w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
		if ends(a.Type) {
			worker.Before(func() { admit(t, helper, m) })
		}
		return eventstest.None, false
	})
	w.Send(handlerstest.Start("1", "tester", "Go."))
	worker.Settle()
	completed(t, w, run)
	admit(t, helper, m) // the same command again is the same answer
	late := handlerstest.Message("late", run, "Too late.")
	var refused *handlers.Rejection
	if _, err := helper.Dispatcher.Admit(t.Context(), w.Namespace, &late); !errors.As(err, &refused) || refused.Reason != handlers.RejectEnded {
		t.Errorf("a message to a run that has ended: %v", err)
	}
	session, _ := events.SessionOf(run)
	w.Send(handlerstest.Continue("c", session, "Go on."))
	worker.Settle()
	requests := w.Model.Requests()
	var texts []string
	for _, m := range requests[len(requests)-1].Messages {
		texts = append(texts, m.Parts[0].Text)
	}
	if n := strings.Count(strings.Join(texts, "|"), "One more thing."); n != 1 || slices.Contains(texts, "Too late.") {
		t.Errorf("the conversation goes on with %q", texts)
	}
}

func TestASpawnThatIsMadeAgainAfterACrashIsOneChild(t *testing.T) {
	w, helper, parent := kin(t, runtimetest.Calls(spawn("child", "now"), wait(`{}`)), runtimetest.CompleteQuoting())
	first := w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
		return eventstest.AnswerLost, a.Type == factAdmitted && a.Run != parent
	})
	first.Settle()
	helper.Settle()
	completed(t, w, parent)
	if n := len(runs(t, w)); !first.Dead() || n != 2 {
		t.Errorf("there are %d runs", n)
	}
}

func TestAChildIsNotPutIntoASessionOfAnother(t *testing.T) {
	w, worker, parent := kin(t, runtimetest.Calls(spawn("child", "now")), runtimetest.Calls(wait(`{}`)), runtimetest.Complete(`1`))
	e := handlerstest.Start("x", "child", "")
	e.Data = []byte(`{"agent":"child","message":"wait","session":"` + events.ChildSession("ns", parent, "call_0_0") + `"}`)
	if _, err := worker.Dispatcher.Admit(t.Context(), "ns", &e); err != nil {
		return // such a session is no command's
	}
	worker.Settle()
	if list := fold(t, w, events.ChildSession("ns", parent, "call_0_0")).Runs; len(list) != 1 || list[0].State != projector.StateParked {
		t.Errorf("the session of another has %d runs, its own is %s", len(list), list[0].State)
	}
}

func TestATreeIsAsDeepAndAsWideAsItMayBe(t *testing.T) {
	deep := runtimetest.Script(runtimetest.Calls(spawn("child", "one")), runtimetest.Calls(wait(`{}`)), runtimetest.Complete(`1`))
	w, worker, parent := troupe(t, map[string]runtimetest.Step{"child": deep}, member("child", "child"))
	worker.Dispatcher.Tree.Depth = 2
	worker.Settle()
	completed(t, w, parent)
	all := runs(t, w)
	if len(all) != 3 {
		t.Fatalf("%d generations", len(all))
	}
	want := (&handlers.TreeError{What: "depth", Limit: 2}).Error()
	if outcome, text := answered(t, w, all[2].ID, "call_0_0"); outcome != events.OutcomeError || text != want || all[2].Admitted.Depth != 2 {
		t.Errorf("at depth %d the call is %s: %s", all[2].Admitted.Depth, outcome, text)
	}

	w, worker, parent = kin(t, runtimetest.Calls(spawn("child", "a"), spawn("child", "b"), spawn("child", "c"), spawn("child", "d"), wait(`{}`)), runtimetest.Complete(`1`))
	worker.Dispatcher.Tree.Width = 2
	worker.Settle()
	completed(t, w, parent)
	want = (&handlers.TreeError{What: "width", Limit: 2}).Error()
	for i, outcome := range []events.Outcome{events.OutcomeOK, events.OutcomeOK, events.OutcomeError, events.OutcomeError} {
		if got, text := answered(t, w, parent, runtimetest.CallID(0, i)); got != outcome || got == events.OutcomeError && text != want {
			t.Errorf("spawn %d is %s: %s", i, got, text)
		}
	}
}

func TestAChildIsGrantedWhatItsParentIsAndItsOwnDefinitionNames(t *testing.T) {
	root, middle, leaf := able(member("root", "middle"), "desk.book", "desk.free"), able(member("middle", "leaf"), "desk.book"), able(member("leaf"), "archive.read")
	w, worker, run := troupe(t, map[string]runtimetest.Step{
		"root":   runtimetest.Script(runtimetest.Calls(spawn("middle", "one"), wait(`{}`)), runtimetest.Complete(`1`)),
		"middle": runtimetest.Script(runtimetest.RunJS("desk.book {}\ndesk.pay {}\nreturn"), runtimetest.Calls(spawn("leaf", "one"), wait(`{}`)), runtimetest.Complete(`2`)),
		"leaf":   runtimetest.Script(runtimetest.RunJS("archive.read {}\ntry archive.burn {}\nreturn"), runtimetest.Complete(`3`)),
	}, root, middle, leaf)
	worker.Admit()
	// The children's definitions gain capabilities once the root is admitted.
	apply(t, worker, able(middle, "desk.book", "desk.pay"), able(leaf, "archive.read", "archive.burn"))
	worker.Settle()
	completed(t, w, run)
	middleRun := childOf(w, run, "call_0_0")
	leafRun := childOf(w, middleRun, "call_1_0")
	for r, want := range map[string][]string{run: {"desk.book", "desk.free", "archive.read"}, middleRun: {"desk.book", "archive.read"}, leafRun: {"archive.read"}} {
		if got := runIn(t, w, r).Admitted.Capabilities; !slices.Equal(got, want) {
			t.Errorf("run %s is granted %v, want %v", r, got, want)
		}
	}
	var asked []string
	for _, c := range w.Services.Ledger {
		asked = append(asked, c.Subject)
	}
	if want := []string{"svc.desk.book", "svc.archive.read"}; !slices.Equal(asked, want) {
		t.Errorf("asked were %v", asked)
	}
}

func TestAForeignSessionIsNotContinuedAndKeepsNoTraceOfIt(t *testing.T) {
	other := events.SessionFor("ns", "/test", "2")
	w, worker, parent := kin(t, runtimetest.Calls(runtimetest.ToolCall("continue_agent", `{"session":"`+other+`","prompt":"Mine now."}`), runtimetest.ToolCall("continue_agent", `{"session":"nobody","prompt":"x"}`)), runtimetest.Complete(`1`))
	w.Send(handlerstest.Start("2", "child", "Mine."))
	worker.Settle()
	completed(t, w, parent)
	for i := range 2 {
		if outcome, text := answered(t, w, parent, runtimetest.CallID(0, i)); outcome != events.OutcomeDenied {
			t.Errorf("the call is %s: %s", outcome, text)
		}
	}
	for _, f := range w.Facts() {
		if f.Session == "nobody" || f.Session == other && f.Run != parentOf(w, "2") {
			t.Errorf("%s stands in session %s", f.Type, f.Session)
		}
	}
	if n := len(runs(t, w)); n != 2 {
		t.Errorf("there are %d runs", n)
	}
}

func TestOfTwoContinuationsOfAChildAtOnceOneWins(t *testing.T) {
	session := events.ChildSession("ns", runOf("ns", "1"), "call_0_0")
	more := runtimetest.ToolCall("continue_agent", `{"session":"`+session+`","prompt":"wait"}`)
	w, worker, parent := kin(t, runtimetest.Calls(spawn("child", "now"), wait(`{}`)), runtimetest.Calls(more, more), runtimetest.Calls(wait(`{}`)), runtimetest.Complete(`1`))
	worker.Settle()
	completed(t, w, parent)
	a, _ := answered(t, w, parent, "call_1_0")
	b, text := answered(t, w, parent, "call_1_1")
	if a != events.OutcomeOK || b != events.OutcomeError || !strings.Contains(text, "has not ended") {
		t.Errorf("the answers are %s and %s: %s", a, b, text)
	}

	// An operator is faster than the parent by one append.
	w, helper, parent := kin(t, runtimetest.Calls(spawn("child", "now"), wait(`{}`)), runtimetest.Calls(more), runtimetest.Complete(`1`))
	api := handlers.API{Host: helper.Dispatcher.Host}
	var first *handlerstest.Worker
	first = w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
		if a.Type == factAdmitted && a.Nth == 3 {
			first.Before(func() {
				if _, err := api.Handle(t.Context(), "ns", handlers.VerbContinue, nil, []byte(`{"session":"`+session+`","message":"Now."}`)); err != nil {
					t.Error(err)
				}
			})
		}
		return eventstest.None, false
	})
	first.Settle()
	completed(t, w, parent)
	if outcome, text := answered(t, w, parent, "call_1_0"); outcome != events.OutcomeError || !strings.Contains(text, "has not ended") {
		t.Errorf("the answer is %s: %s", outcome, text)
	}
}
