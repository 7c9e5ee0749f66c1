package runtime_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// guarded runs until a guard stops the run, again and again.
func guarded(t *testing.T, h *rt.Host, guard string, limit int) {
	t.Helper()
	for range 2 {
		err := stop(t, h)
		var failed *runtime.GuardError
		if !errors.As(err, &failed) || failed.Guard != guard || failed.Limit != limit {
			t.Fatalf("the run ended with %v, want guard %s at %d", err, guard, limit)
		}
	}
	if err := h.Check(); err != nil {
		t.Error(err)
	}
	commits := h.Store.Commits()
	if last := commits[len(commits)-1].Checkpoint; last.Phase != projector.PhaseModel {
		t.Errorf("the failed run stands in phase %s", last.Phase)
	}
}

func TestAModelThatRepeatsACallIsToldAndThenStopped(t *testing.T) {
	once := rt.Call("run_js", `{"code":"return"}`)
	spaced := rt.Call("run_js", `{ "code" : "return" }`)
	h := newHost(once, spaced, once, once)
	h.Input.Definition.Limits.RepeatedCalls = 3
	guarded(t, h, runtime.GuardRepeatedCalls, 3)
	if n := h.Factory.Started(); n != 3 {
		t.Errorf("the call was made %d times", n)
	}
	for i, told := range []bool{false, false, true} {
		if _, text := h.Result(rt.CallID(i, 0)); strings.Contains(text, "Notice: this identical call") != told {
			t.Errorf("result %d is %s", i, text)
		}
	}
	wantResult(t, h, "call_3_0", events.OutcomeError, "was not made")
}

func TestRepetitionsInOneResponseAreToldBeforeTheRunFails(t *testing.T) {
	call := rt.RunJSCall("return")
	h := newHost(rt.Calls(slices.Repeat([]events.ToolCall{call}, 5)...), rt.Calls(call))
	h.Input.Definition.Limits.RepeatedCalls = 2
	guarded(t, h, runtime.GuardRepeatedCalls, 2)
	if n := h.Factory.Started(); n != 2 {
		t.Errorf("the call was made %d times", n)
	}
	wantResult(t, h, "call_0_4", events.OutcomeError, "was not made", "Notice: this identical call")
}

func TestAnotherCallBetweenRepetitionsResetsTheGuard(t *testing.T) {
	a, b := rt.RunJSCall("return 1"), rt.RunJSCall("return 2")
	h := newHost(rt.Calls(a, a, b, a), rt.Calls(a), rt.Calls(b), rt.Complete(`1`))
	h.Input.Definition.Limits.RepeatedCalls = 2
	finish(t, h)
}

func TestAModelThatOnlyTalksIsToldAndThenStopped(t *testing.T) {
	h := newHost(rt.Text("a"), rt.RunJS("return"), rt.Text("b"), rt.Text("c"), rt.Text("d"))
	h.Input.Definition.Limits.SilentAnswers = 2
	guarded(t, h, runtime.GuardSilentAnswers, 2)
	if n := strings.Count(rt.RenderMessages(h.Transcript()), "You answered without calling a tool"); n != 4 {
		t.Errorf("the model was told %d times", n)
	}
}

func TestTheDefaultsOfTheGuards(t *testing.T) {
	h := newHost(slices.Repeat([]rt.Step{rt.Text("hm")}, 10)...)
	guarded(t, h, runtime.GuardSilentAnswers, runtime.DefaultSilentAnswers)
	h = newHost(slices.Repeat([]rt.Step{rt.RunJS("return")}, 10)...)
	guarded(t, h, runtime.GuardRepeatedCalls, runtime.DefaultRepeatedCalls)
}

func TestAModelWhoseCompletionsAreNotAcceptedIsToldAndThenStopped(t *testing.T) {
	schema := rawJSON(`{"type":"object","properties":{"seat":{"type":"integer"}},"required":["seat"]}`)
	h := newHost()
	h.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
		return rt.Complete(`{"seat":"`+strings.Repeat("x", step)+`"}`)(step, r)
	}
	h.Input.Definition.Output = schema
	guarded(t, h, runtime.GuardRejectedCompletions, runtime.DefaultRejectedCompletions)
	for i := range 5 {
		wantResult(t, h, rt.CallID(i, 0), events.OutcomeError, "do not fit the tool's schema", `at "/output/seat"`)
	}
	if n := h.Controller.Charges(); n != 5 {
		t.Errorf("%d requests were charged", n)
	}
	commits := h.Store.Commits()
	if g := commits[len(commits)-1].Checkpoint.Guard; g.Rejected != 5 {
		t.Errorf("the guard has %+v", g)
	}
}

func TestACompletionThatTheControllerRefusesCounts(t *testing.T) {
	h := newHost()
	h.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
		return rt.Complete(strings.Repeat("1", step+1))(step, r)
	}
	h.Input.Definition.Limits.RejectedCompletions = 2
	h.Controller.Policy = func(*events.Reply) error { return &runtime.DeniedError{Reason: "somebody must look at it"} }
	guarded(t, h, runtime.GuardRejectedCompletions, 2)
	wantResult(t, h, "call_1_0", events.OutcomeDenied, "somebody must look")
}

func TestACallThatSucceedsBetweenResetsTheCountOfRejectedCompletions(t *testing.T) {
	refused := rt.ToolCall("complete", `{"kind":"output"}`)
	h := newHost(rt.Calls(refused, rt.RunJSCall("return 1"), refused), rt.RunJS("throw no"), rt.RunJS("return 2"), rt.Calls(refused), rt.Complete(`1`))
	h.Input.Definition.Limits.RejectedCompletions = 2
	finish(t, h)
	h = newHost(rt.Calls(refused, rt.RunJSCall("return 1"), refused), rt.RunJS("throw no"), rt.Calls(rt.RunJSCall("return 2"), refused, rt.RunJSCall("throw no"), refused, rt.RunJSCall("throw not")))
	h.Input.Definition.Limits.RejectedCompletions = 2
	guarded(t, h, runtime.GuardRejectedCompletions, 2)
}

func TestACompletionOfACutResponseCountsOnlyWhenItIsBroken(t *testing.T) {
	h := newHost(rt.Cut(runtime.FinishLength, rt.ToolCall("complete", `{"kind":"output","output":1}`)),
		rt.Cut(runtime.FinishLength, rt.ToolCall("complete", `{"kind":"outp`)), rt.Complete(`1`))
	h.Input.Definition.Limits.RejectedCompletions = 2
	finish(t, h)
}
