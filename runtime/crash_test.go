package runtime_test

import (
	"errors"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// world returns a function for Scenario.New.
func world(steps ...rt.Step) func(testing.TB) *rt.Host {
	return func(testing.TB) *rt.Host { return newHost(steps...) }
}

// cancelTwice cancels so that the child is cancelled even when the outcome of
// one of the calls is lost.
func cancelTwice(call string) rt.Step {
	cancel := rt.ToolCall("cancel_calls", `{"calls":["`+call+`"]}`)
	return rt.Calls(cancel, cancel)
}

// crashScenarios are the runs that TestARunIsCarriedOnFromEveryPoint disturbs.
func crashScenarios() map[string]rt.Scenario {
	spawnTwice := rt.Calls(rt.ToolCall(spawn, help), rt.ToolCall(spawn, help))
	return map[string]rt.Scenario{
		"a script and a completion":  {New: world(rt.RunJS(booking), rt.CompleteQuoting())},
		"a failing script":           {New: world(rt.RunJS("desk.book {}\nthrow no seat"), rt.RunJS("return 1"), rt.CompleteQuoting())},
		"a question":                 {New: world(rt.RunJS("return 1"), rt.Ask("Which seat?"))},
		"arguments with white space": {New: world(rt.Call("run_js", "{ \"code\" :\n \"desk.book {}\" }"), rt.Call("complete", `{ "kind": "output", "output": [ 1.0, 1e3 ] }`))},
		"several calls in one response": {New: world(
			rt.Calls(rt.RunJSCall(booking), rt.RunJSCall("desk.list {}\nreturn"), rt.RunJSCall("return 7")), rt.CompleteQuoting())},
		"text before and between calls": {New: world(rt.Text("Let me see."), rt.RunJS(booking), rt.Text("Almost."), rt.CompleteQuoting())},
		"children that are waited for": {New: world(
			spawnTwice, rt.Call("wait_calls", `{}`), rt.CompleteQuoting())},
		"spawn, wait, continue, get, cancel": {New: world(
			spawnTwice,
			rt.Call("wait_calls", `{"mode":"all"}`),
			rt.Call("continue_agent", `{"session":"child-call_0_0","prompt":"more"}`),
			rt.Call("get_calls", `{"calls":["call_0_0","call_2_0"]}`),
			cancelTwice("call_2_0"),
			rt.Call("get_calls", `{"calls":["call_2_0"]}`),
			rt.CompleteQuoting())},
		"four calls of which two wait": {New: world(
			rt.Calls(rt.ToolCall(spawn, help), rt.ToolCall("wait_calls", `{}`), rt.RunJSCall(booking), rt.ToolCall("wait_calls", `{"calls":["call_0_0"]}`)),
			rt.CompleteQuoting())},
		"a time-out": {New: world(rt.Call(spawn, help), rt.Call("wait_calls", `{"timeout":"1m"}`), cancelTwice("call_0_0"), rt.CompleteQuoting()),
			Parked: func(h *rt.Host) { h.Controller.Advance(1 << 40) }},
		"a completion before other calls": {New: world(
			rt.Calls(rt.RunJSCall(booking), rt.ToolCall("complete", `{"kind":"output","output":1}`), rt.RunJSCall(booking), rt.ToolCall("complete", `{"kind":"output","output":2}`)))},
		"a completion that is refused": {New: world(
			rt.Calls(rt.ToolCall(spawn, help), rt.ToolCall("complete", `{"kind":"output","output":1}`), rt.ToolCall("wait_calls", `{}`), rt.ToolCall("complete", `{"kind":"output","output":2}`)))},
		"refused arguments": {New: world(
			rt.Calls(rt.ToolCall("run_js", `{"code":`), rt.ToolCall("run_js", `{"codes":1}`), rt.ToolCall("nothing", `{}`), rt.RunJSCall(booking)),
			rt.CompleteQuoting())},
		"a cut response": {New: world(rt.Cut(runtime.FinishLength, rt.RunJSCall(booking)), rt.Cut(runtime.FinishFilter), rt.CompleteQuoting())},
		"ids that are used again": {New: world(
			rt.Calls(events.ToolCall{ID: "x", Name: "get_calls", Arguments: []byte(`{"calls":[]}`)}, events.ToolCall{ID: "x", Name: "run_js", Arguments: []byte(`{"code":"return 1"}`)}),
			rt.Calls(events.ToolCall{ID: "x", Name: "run_js", Arguments: []byte(`{"code":"return 2"}`)}), rt.CompleteQuoting())},
		"a model that repeats itself": {New: func(testing.TB) *rt.Host {
			h := newHost(rt.RunJS("return 1"), rt.RunJS("return 1"), rt.RunJS("return 1"))
			h.Input.Definition.Limits.RepeatedCalls = 2
			return h
		}},
		"tool errors and refusals": {New: func(testing.TB) *rt.Host {
			h := newHost(rt.Calls(rt.ToolCall(spawn, help), rt.ToolCall("get_calls", `{"calls":["nope"]}`), rt.RunJSCall("try desk.book {}\nreturn")), rt.CompleteQuoting())
			h.Backend.Answer = failing(&runtime.DeniedError{Reason: "not this desk"})
			h.Controller.Intercept = func(method string) error {
				if method == "Spawn" {
					return &runtime.DeniedError{Reason: "no children today"}
				}
				return nil
			}
			return h
		}},
		"a conversation that is summarized twice": {New: func(testing.TB) *rt.Host { return longHost(16, 0) }},
		"a conversation whose results are pruned": {New: func(testing.TB) *rt.Host { return longHost(9, 2000) }},
		"a request that the provider refuses as too large": {New: func(testing.TB) *rt.Host {
			h := longHost(8, 0)
			h.Input.ModelLimits.ContextTokens = 100_000
			h.Model.Respond = takesAtMost(h, 3000)
			return h
		}},
		"a teardown that fails": {New: func(testing.TB) *rt.Host {
			h := newHost(rt.RunJS(booking), rt.CompleteQuoting())
			h.Factory.Close = func(int) error { return errors.New("the realm is stuck") }
			return h
		}},
	}
}

func TestARunIsCarriedOnFromEveryPoint(t *testing.T) {
	for name, scenario := range crashScenarios() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rt.CrashEverywhere(t, scenario)
		})
	}
}
