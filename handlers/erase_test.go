package handlers_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// erasure asks for the erasure of a session, and returns the code of a refusal.
func erasure(t *testing.T, worker *handlerstest.Worker, session string) string {
	t.Helper()
	api := handlers.API{Host: worker.Dispatcher.Host}
	_, err := api.Handle(t.Context(), "ns", handlers.VerbErase, nil, []byte(`{"session":"`+session+`"}`))
	var refused *handlers.APIError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

// unreadable demands that a session's run is erased for whoever asks.
func unreadable(t *testing.T, w *handlerstest.World, worker *handlerstest.Worker, run string) {
	t.Helper()
	session, _ := events.SessionOf(run)
	api := handlers.API{Host: worker.Dispatcher.Host}
	for verb, request := range map[string]string{
		handlers.VerbGet:      `{"run":"` + run + `"}`,
		handlers.VerbTree:     `{"run":"` + run + `"}`,
		handlers.VerbBudget:   `{"run":"` + run + `"}`,
		handlers.VerbEvents:   `{"run":"` + run + `"}`,
		handlers.VerbContinue: `{"session":"` + session + `","message":"On."}`,
		handlers.VerbRetry:    `{"run":"` + run + `"}`,
		handlers.VerbMessage:  `{"run":"` + run + `","message":"On."}`,
		handlers.VerbCancel:   `{"run":"` + run + `"}`,
	} {
		answer, err := api.Handle(t.Context(), "ns", verb, nil, []byte(request))
		var erased *handlers.APIError
		if !errors.As(err, &erased) || erased.Code != handlers.RejectErased {
			t.Errorf("%s = %+v, %v", verb, answer, err)
		} else if want := "session ns/" + session + " was erased: nobody can read it or go on with it"; erased.Message != want {
			t.Errorf("%s: %q, want %q", verb, erased.Message, want)
		}
	}
	verified(t, w, session)
}

func TestAnErasedSessionIsReadByNobodyAndStillVerifies(t *testing.T) {
	w, _ := tale(t)
	worker := restart(t, w, wrapping("k1"))
	other := w.Start(t.Context(), nil)
	worker.Settle()
	run, session := runOf("ns", "1"), sessionOf(w)
	if _, err := other.Dispatcher.GetRun(t.Context(), "ns", run); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if code := erasure(t, worker, session); code != "" {
			t.Fatalf("refused: %s", code)
		}
		unreadable(t, w, worker, run)
		unreadable(t, w, other, run) // which has the session's key in its memory
	}
	last := stored(t, w, session)
	if e := last[len(last)-1]; e.Type != events.TypeFor[events.SessionErased]().Name || e.Encryption != "" {
		t.Errorf("the last fact is %s", e.Type)
	}
	if _, err := w.SessionKeys.Get(t.Context(), events.Key{Namespace: "ns", Session: session}); !errors.Is(err, events.ErrErased) {
		t.Errorf("the key is %v", err)
	}
	facts := len(last)
	w.Send(handlerstest.Start("1", "tester", "Go.")) // the command that started it
	w.Send(handlerstest.Continue("2", session, "On."))
	worker.Settle()
	if err := w.Idle(); err != nil {
		t.Error(err)
	}
	if n := len(stored(t, w, session)); n != facts {
		t.Errorf("%d facts became %d", facts, n)
	}
	if swept, err := worker.Sweeper().Sweep(t.Context()); err != nil || len(swept.Stuck) > 0 {
		t.Errorf("the sweep found %+v, %v", swept, err)
	}
	if err := worker.Dispatcher.Carry(t.Context(), events.Key{Namespace: "ns", Session: session}); err != nil {
		t.Errorf("a late hint is not acknowledged: %v", err)
	}
}

// Whoever dies between the fact and the key, the reactions drop the key.
func TestAnErasureThatWasBegunIsFinished(t *testing.T) {
	for _, fault := range []eventstest.Fault{eventstest.AnswerLost, eventstest.None} {
		w, _ := tale(t)
		restart(t, w, wrapping("k1")).Settle()
		dying := w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
			return fault, strings.HasSuffix(a.Type, "session.erased")
		})
		erasure(t, dying, sessionOf(w))
		if !dying.Dead() {
			t.Fatal("the worker lives")
		}
		key := events.Key{Namespace: "ns", Session: sessionOf(w)}
		if _, err := w.SessionKeys.Get(t.Context(), key); err != nil {
			t.Fatalf("the key is %v", err)
		}
		worker := w.Start(t.Context(), nil)
		worker.Settle()
		if _, err := w.SessionKeys.Get(t.Context(), key); !errors.Is(err, events.ErrErased) {
			t.Errorf("the key is %v", err)
		}
		unreadable(t, w, worker, runOf("ns", "1"))
	}
}

func TestASessionIsErasedOnlyWhenNothingAroundItIsUnderWay(t *testing.T) {
	w, _, parent := kin(t, runtimetest.Calls(spawn("child", "wait")), runtimetest.Calls(wait(`{}`)), runtimetest.Complete(`1`))
	worker := restart(t, w, wrapping("k1"))
	worker.Settle()
	child := childOf(w, parent, "call_0_0")
	below, _ := events.SessionOf(child)
	if code := erasure(t, worker, sessionOf(w)); code != handlers.RejectBusy {
		t.Errorf("a parent under way: %q", code)
	}
	if code := erasure(t, worker, below); code != handlers.RejectBusy {
		t.Errorf("a child under way: %q", code)
	}
	if code := erasure(t, worker, "nobody"); code != handlers.RejectNoSession {
		t.Errorf("no session: %q", code)
	}
	w.Send(handlerstest.Message("m", child, "Go on."))
	worker.Settle()
	completed(t, w, parent)
	if code := erasure(t, worker, below); code != "" {
		t.Errorf("the child: %q", code)
	}
	unreadable(t, w, worker, child)
	tree, err := worker.Dispatcher.Host.Tree(t.Context(), "ns", parent)
	if err != nil || len(tree.Children) != 1 || tree.Children[0].State != handlers.StateErased || !tree.Settled {
		t.Errorf("the tree is %+v, %v", tree, err)
	}
	if code := erasure(t, worker, sessionOf(w)); code != "" {
		t.Errorf("the parent: %q", code)
	}
	unreadable(t, w, worker, parent)
}

// A parent that goes on after its child's session was erased is told so.
func TestAModelReadsThatAChildWasErased(t *testing.T) {
	w, _, parent := kin(t, runtimetest.Calls(spawn("child", "do")), runtimetest.Calls(wait(`{}`)), runtimetest.Complete(`1`))
	worker := restart(t, w, wrapping("k1"))
	worker.Settle()
	below := events.ChildSession("ns", parent, "call_0_0")
	if code := erasure(t, worker, below); code != "" {
		t.Fatalf("refused: %s", code)
	}
	session, _ := events.SessionOf(parent)
	cast(map[string]runtimetest.Step{"parent": runtimetest.Script(runtimetest.Complete(`0`), runtimetest.Complete(`0`), runtimetest.Complete(`0`),
		runtimetest.Calls(runtimetest.ToolCall("continue_agent", `{"session":"`+below+`","prompt":"On."}`)), runtimetest.Complete(`2`))})(w)
	w.Send(handlerstest.Continue("2", session, "On."))
	worker.Settle()
	s := fold(t, w, session)
	if last := s.Current(); len(s.Runs) != 2 || !last.State.Terminal() {
		t.Fatalf("the session has %d runs, the last is %s: %s", len(s.Runs), last.State, last.Reason)
	}
	told := false
	for _, m := range s.Window {
		for _, p := range m.Parts {
			told = told || p.Result != nil && p.Result.Name == "continue_agent" && p.Result.Outcome == events.OutcomeError && strings.Contains(p.Result.Parts[0].Text, "erased")
		}
	}
	if !told {
		t.Error("the model was not told")
	}
}
