package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// controls makes one call of every method of the controller but BeforeModel.
var controls = map[string]rt.Step{
	"Spawn":    rt.Call(spawn, help),
	"Continue": rt.Call("continue_agent", `{"session":"s","prompt":"p"}`),
	"Get":      rt.Call("get_calls", `{"calls":[]}`),
	"Cancel":   rt.Call("cancel_calls", `{"calls":[]}`),
	"Wait":     rt.Call("wait_calls", `{}`),
	"Complete": rt.Complete(`1`),
}

// intercepted is a world in which one method answers with an error once.
func intercepted(method string, err error) *rt.Host {
	h := newHost(controls[method], rt.Complete(`2`))
	once := false
	h.Controller.Intercept = func(called string) error {
		if called != method || once {
			return nil
		}
		once = true
		return err
	}
	return h
}

func TestAnOrdinaryControllerErrorIsAToolError(t *testing.T) {
	for method := range controls {
		h := intercepted(method, errClosed)
		finish(t, h)
		wantResult(t, h, "call_0_0", events.OutcomeError, errClosed.Error())
	}
}

func TestADeniedControllerCallIsDenied(t *testing.T) {
	for method := range controls {
		h := intercepted(method, fmt.Errorf("policy: %w", &runtime.DeniedError{Reason: "not you"}))
		finish(t, h)
		wantResult(t, h, "call_0_0", events.OutcomeDenied, "not you")
	}
}

func TestAFatalControllerErrorStopsTheAttempt(t *testing.T) {
	for method := range controls {
		h := intercepted(method, fmt.Errorf("wrapped: %w", &rt.FatalError{Err: errClosed}))
		err := stop(t, h)
		var fatal runtime.FatalToolError
		if !errors.As(err, &fatal) || !errors.Is(err, errClosed) {
			t.Errorf("%s: got %v", method, err)
		}
		if outcome, _ := h.Result("call_0_0"); outcome != "" {
			t.Errorf("%s: the call has the outcome %s", method, outcome)
		}
	}
}

func TestAFatalBackendErrorStopsTheScriptAndTheAttempt(t *testing.T) {
	h := newHost(rt.RunJS("try desk.book {}\ntry desk.list {}\nreturn"), rt.CompleteQuoting())
	var script context.Context
	h.Backend.Answer = func(ctx context.Context, _ *runtime.Callback) (rawJSON, error) {
		script = ctx
		return nil, fmt.Errorf("wrapped: %w", &rt.FatalError{Err: errClosed})
	}
	if err := stop(t, h); !errors.Is(err, errClosed) {
		t.Fatal(err)
	}
	if n := len(h.Backend.Ledger()); n != 1 {
		t.Errorf("%d callbacks were dispatched", n)
	}
	if script.Err() == nil || !errors.Is(context.Cause(script), errClosed) {
		t.Errorf("the script's context ended with %v", context.Cause(script))
	}
	finish(t, h)
	wantResult(t, h, "call_0_0", events.OutcomeUnknown, "Do not simply repeat it")
}

func TestAnOrdinaryBackendErrorIsAnExceptionInTheScript(t *testing.T) {
	h := newHost(rt.Calls(rt.RunJSCall("desk.list {}\ndesk.book {}\nlog never"), rt.RunJSCall("try desk.book {}\nreturn")), rt.CompleteQuoting())
	h.Backend.Answer = func(_ context.Context, c *runtime.Callback) (rawJSON, error) {
		if c.Capability.Name == "desk.list" {
			return rawJSON(`[]`), nil
		}
		return nil, errClosed
	}
	finish(t, h)
	wantResult(t, h, "call_0_0", events.OutcomeError, errClosed.Error(), "1. desk.list: finished", "2. desk.book: failed", "Do not repeat the whole script")
	wantResult(t, h, "call_0_1", events.OutcomeOK, errClosed.Error())
}

func TestAFailedScriptKeepsItsLogs(t *testing.T) {
	h := newHost(rt.RunJS("log before\nthrow no seat"), rt.Complete(`1`))
	finish(t, h)
	wantResult(t, h, "call_0_0", events.OutcomeError, "no seat", "line 2", "before")
}

func TestAnErrorOfTheStoreTheModelOrTheBudgetStopsTheAttempt(t *testing.T) {
	for _, op := range []string{rt.OpSave, rt.OpGenerate, rt.OpBeforeModel, rt.OpExecute, rt.OpLoad} {
		h := newHost(rt.RunJS(booking), rt.CompleteQuoting())
		done := false
		h.Plan = func(o rt.Op) rt.Fault {
			if o.Name == op && !done {
				done = true
				return rt.FailsFirst
			}
			return rt.Works
		}
		if err := stop(t, h); !errors.Is(err, rt.ErrInjected) {
			t.Errorf("%s: got %v", op, err)
		}
		if last := h.Ops()[len(h.Ops())-1]; last.Name != op && last.Name != rt.OpClose {
			t.Errorf("%s failed and then there was %s", op, last)
		}
		finish(t, h)
	}
}

func TestTheLastStepOfABudgetStopsAtTheGate(t *testing.T) {
	h := newHost(rt.Complete(`1`))
	h.Controller.Limit = 1
	h.Plan = func(op rt.Op) rt.Fault {
		if op.Name == rt.OpBeforeModel && op.Attempt == 1 {
			return rt.KilledAfter
		}
		return rt.Works
	}
	if _, err := h.Run(t.Context()); !errors.Is(err, rt.ErrKilled) {
		t.Fatal(err)
	}
	if err := stop(t, h); !errors.Is(err, rt.ErrBudget) || len(h.Model.Requests()) != 0 {
		t.Errorf("got %v after %d requests", err, len(h.Model.Requests()))
	}
}

func TestACancelledContextStopsTheAttemptInTheMiddleOfACall(t *testing.T) {
	reason := errors.New("the lease is lost")
	for _, code := range []string{"desk.book {}\nreturn", "try desk.book {}\nthrow x"} {
		h := newHost(rt.RunJS(code), rt.CompleteQuoting())
		ctx, cancel := context.WithCancelCause(t.Context())
		h.Backend.Answer = func(context.Context, *runtime.Callback) (rawJSON, error) {
			cancel(reason)
			return rawJSON(`1`), nil
		}
		if result, err := h.Run(ctx); !errors.Is(err, reason) || result != nil {
			t.Errorf("got %+v, %v", result, err)
		}
		if last := h.Ops()[len(h.Ops())-1]; last.Name != rt.OpClose {
			t.Errorf("after the cancellation there was %s", last)
		}
		h.Backend.Answer = nil
		finish(t, h)
		wantResult(t, h, "call_0_0", events.OutcomeUnknown)
	}
}

func TestAParkIsReportedAlthoughTheContextHasEnded(t *testing.T) {
	h := newHost(rt.Call("wait_calls", `{"messages":true}`))
	ctx, cancel := context.WithCancel(t.Context())
	h.Controller.Intercept = func(string) error {
		cancel()
		return fmt.Errorf("parked: %w", runtime.ErrWaiting)
	}
	if result, err := h.Run(ctx); !errors.Is(err, runtime.ErrWaiting) || result == nil || !result.Waiting {
		t.Errorf("got %+v, %v", result, err)
	}
}
