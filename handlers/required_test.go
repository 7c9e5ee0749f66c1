package handlers_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// TestACommandWithoutARequiredMemberIsMalformed sends every command without each of
// its required members, and with null for it: neither is a zero value.
func TestACommandWithoutARequiredMemberIsMalformed(t *testing.T) {
	w, worker, run, _ := asking(t, "")
	session, _ := events.SessionOf(run)
	whole := map[string]map[string]any{
		handlers.VerbStart:    {"agent": "tester", "message": "Go."},
		handlers.VerbContinue: {"session": session, "message": "Go."},
		handlers.VerbRetry:    {"run": run},
		handlers.VerbCancel:   {"run": run},
		handlers.VerbMessage:  {"run": run, "message": "Go."},
		handlers.VerbTopUp:    {"run": run, "steps": 1},
		handlers.VerbSettle:   {"run": run, "call": "call_0_0", "output": json.RawMessage(yes)},
		handlers.VerbResolve:  {"run": run, "call": "call_0_0", "index": 0, "as": "done"},
	}
	optional := []string{"message of run.start", "steps of budget.topup", "output of call.settle"} // either, or one of several
	before := len(w.Facts())
	for _, typ := range events.Types {
		if typ.Kind != events.Command {
			continue
		}
		verb := typ.Short()
		members := whole[verb]
		if members == nil {
			t.Errorf("%s is not tried", verb)
		}
		for name := range members {
			if slices.Contains(optional, name+" of "+verb) {
				continue
			}
			without, null := maps.Clone(members), maps.Clone(members)
			delete(without, name)
			null[name] = nil
			for what, data := range map[string]map[string]any{"without": without, "with null for": null} {
				_, err := ask(t, worker, verb, data)
				if err == nil || err.Code != handlers.RejectMalformed || !strings.Contains(err.Message, name+" is missing") {
					t.Errorf("%s %s %s: %v", verb, what, name, err)
				}
			}
		}
	}
	if after := len(w.Facts()); after != before {
		t.Errorf("%d facts came of it", after-before)
	}
	if _, err := ask(t, worker, handlers.VerbResolve, map[string]any{"run": run, "call": "call_0_0", "index": -1, "as": "done"}); err == nil || err.Code != handlers.RejectMalformed {
		t.Errorf("a negative index: %v", err)
	}
}

// ask makes a request over agent.api.
func ask(t *testing.T, worker *handlerstest.Worker, verb string, data map[string]any) (any, *handlers.APIError) {
	t.Helper()
	request, err := events.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	api := &handlers.API{Host: worker.Dispatcher.Host}
	answer, err := api.Handle(t.Context(), "ns", verb, nil, request)
	var refused *handlers.APIError
	if err != nil && !errors.As(err, &refused) {
		t.Fatal(err)
	}
	return answer, refused
}

func TestATokenThatIsGivenIsComparedWhoeverGivesIt(t *testing.T) {
	w, worker, run, token := asking(t, "")
	settle := func(token any) *handlers.APIError {
		t.Helper()
		_, refused := ask(t, worker, handlers.VerbSettle, map[string]any{"run": run, "call": "call_0_0", "token": token, "output": json.RawMessage(yes)})
		return refused
	}
	for _, wrong := range []string{"wrong", "", strings.ToUpper(token)} {
		if refused := settle(wrong); refused == nil || refused.Code != handlers.RejectDenied {
			t.Errorf("the token %q: %v", wrong, refused)
		}
	}
	if r := runIn(t, w, run); r.State != projector.StateParked || r.Answer != nil {
		t.Fatalf("the run is %s, its call is answered by %+v", r.State, r.Answer)
	}
	if refused := settle(token); refused != nil {
		t.Errorf("the token itself: %v", refused)
	}
	worker.Settle()
	completed(t, w, run)
	w, worker, run, _ = asking(t, "")
	if refused := settle(nil); refused != nil {
		t.Errorf("no token: %v", refused)
	}
	worker.Settle()
	completed(t, w, run)
}

func TestAResultThatTheCapabilityCouldNotReturnSettlesNothing(t *testing.T) {
	for _, direct := range []bool{true, false} {
		v, call := booking(direct, events.EffectWrite, false)
		v.Capabilities[0].Output = json.RawMessage(`{"type":"object","properties":{"desk":{"type":"string"}},"required":["desk"]}`)
		w := inMemory()
		w.Model.Respond = runtimetest.Script(call, runtimetest.Complete(`1`))
		w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) { return nil, errors.New("connection reset") }
		worker := w.Start(t.Context(), nil)
		apply(t, worker, v)
		w.Send(handlerstest.Start("1", "tester", "Go."))
		worker.Settle()
		run := parentOf(w, "1")
		command := func(id, result string) error {
			return operate(t, worker, resolve(id, run, "call_0_0", 0, "done", result))
		}
		for _, wrong := range []string{`{"nope":1}`, `"A1"`, `null`} {
			if err := command("r", wrong); reasonOf(t, err) != handlers.RejectInput {
				t.Errorf("direct %t: the result %s: %v", direct, wrong, err)
			}
		}
		if list := unknownCalls(t, w, worker, run); len(list) != 1 {
			t.Errorf("direct %t: listed are %+v", direct, list)
		}
		for range 2 {
			if err := command("r", `{"desk":"A1"}`); err != nil { // the command that was refused, corrected
				t.Errorf("direct %t: %v", direct, err)
			}
		}
		if list := unknownCalls(t, w, worker, run); len(list) != 0 {
			t.Errorf("direct %t: still listed are %+v", direct, list)
		}
	}
}

// Nobody can say what a capability returns once its definition is lost: a result is
// taken as it is, and a late answer changes nothing all the same.
func TestWhatNoDefinitionIsThereForIsNotHeldAgainstOne(t *testing.T) {
	w, worker, run, token := asking(t, "24h")
	worker.Fire()
	worker.Settle()
	w.LoseDefinitions()
	worker.Kill()
	worker = w.Start(t.Context(), nil)
	w.Send(answer("late", run, token, yes))
	worker.Admit()
	refusedFor(t, w, handlers.RejectSettled)
	buried := len(w.Buried)
	if err := operate(t, worker, resolve("r", run, "call_0_0", 0, "done", `{"any":1}`)); err != nil {
		t.Error(err)
	}
	if list := unknownCalls(t, w, worker, run); len(list) != 0 || len(w.Buried) != buried {
		t.Errorf("listed are %+v; refused are %v", list, w.Buried[buried:])
	}
}

// TestACallIsRefusedForOneReasonAsLongAsThereIsItsRun settles what is no deferred
// call, and what was one, while the run is under way, after it has ended and after
// its session has gone on.
func TestACallIsRefusedForOneReasonAsLongAsThereIsItsRun(t *testing.T) {
	w := approving()
	v := approver("")
	v.Capabilities = append(v.Capabilities, agent("desk.look").Capabilities...)
	v.Agent.Capabilities = append(v.Agent.Capabilities, "desk.look")
	approve := runtimetest.Calls(runtimetest.ToolCall("desk_approve", `{}`))
	w.Model.Respond = runtimetest.Script(approve, runtimetest.RunJS("desk.look {}\nreturn"), approve, runtimetest.Complete(`1`), runtimetest.Complete(`2`))
	w.Services.Answer = func(_ string, h map[string]string, _ []byte) ([]byte, error) {
		if h[handlers.HeaderSettle] == "" {
			return []byte(`1`), nil
		}
		return []byte(`{"accepted":true}`), nil
	}
	worker := w.Start(t.Context(), nil)
	apply(t, worker, v)
	w.Send(handlerstest.Start("1", "tester", "Ask."))
	worker.Settle()
	run := parentOf(w, "1")
	settle := func(call string) string {
		t.Helper()
		_, refused := ask(t, worker, handlers.VerbSettle, map[string]any{"run": run, "call": call, "output": json.RawMessage(yes)})
		if refused == nil {
			return ""
		}
		return refused.Code
	}
	call := func(request int) string { return w.Services.Ledger[request].Header[handlers.HeaderCall] }
	first := call(0)
	if code := settle(first); code != "" {
		t.Fatal(code)
	}
	worker.Settle()
	script, second := call(1), call(2)
	looks := func(when string) {
		t.Helper()
		for name, c := range map[string][2]string{
			"no call":            {"nocall", handlers.RejectNoCall},
			"a call of a script": {script, handlers.RejectNoCall},
			"a settled one":      {first, handlers.RejectSettled},
		} {
			if code := settle(c[0]); code != c[1] {
				t.Errorf("%s, %s: %s, want %s", when, name, code, c[1])
			}
		}
	}
	looks("under way")
	if code := settle(second); code != "" {
		t.Fatal(code)
	}
	worker.Settle()
	completed(t, w, run)
	looks("ended")
	w.Send(handlerstest.Continue("2", w.Keys()[0].Session, "And?"))
	worker.Settle()
	looks("gone on")
	if code := settle(second); code != handlers.RejectSettled {
		t.Errorf("the newest one: %s", code)
	}
}
