package runtime_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

var errStuck = errors.New("the realm is stuck")

// stuckHost is a world in which no executor can be torn down.
func stuckHost(steps ...rt.Step) *rt.Host {
	h := newHost(steps...)
	h.Factory.Close = func(int) error { return errStuck }
	return h
}

func wantNotPersisted(t *testing.T, h *rt.Host) {
	t.Helper()
	for _, c := range h.Store.Commits() {
		if strings.Contains(string(c.Data), errStuck.Error()) {
			t.Errorf("revision %d keeps the teardown's failure: %s", c.Checkpoint.Revision, c.Data)
		}
	}
}

func TestAFailedTeardownDoesNotChangeACompletedRun(t *testing.T) {
	h := stuckHost(rt.RunJS("return 1"), rt.RunJS("return 2"), rt.Complete(`1`))
	result := finish(t, h)
	if !errors.Is(result.CleanupError, errStuck) || strings.Count(result.CleanupError.Error(), errStuck.Error()) != 2 {
		t.Errorf("the cleanup error of two executors is %v", result.CleanupError)
	}
	wantNotPersisted(t, h)
	if again := finish(t, h); again.CleanupError != nil {
		t.Errorf("another attempt tells of it: %v", again.CleanupError)
	}
}

func TestAFailedTeardownIsJoinedWithWaiting(t *testing.T) {
	h := stuckHost(rt.Call(spawn, help), rt.Calls(rt.RunJSCall("return 1"), rt.ToolCall("wait_calls", `{}`)), rt.Complete(`1`))
	result, err := h.Run(t.Context())
	if !errors.Is(err, runtime.ErrWaiting) || !errors.Is(err, errStuck) || result == nil || !result.Waiting || result.Reply != nil || !errors.Is(result.CleanupError, errStuck) {
		t.Fatalf("got %+v, %v", result, err)
	}
	wantNotPersisted(t, h)
	h.Controller.SettleAll()
	if again := finish(t, h); again.CleanupError != nil {
		t.Errorf("another attempt tells of it: %v", again.CleanupError)
	}
}

func TestAFailedTeardownIsInTheChainOfAnUnfinishedRun(t *testing.T) {
	h := stuckHost(rt.RunJS("return 1"), rt.Fails(errClosed))
	if err := stop(t, h); !errors.Is(err, errStuck) || !errors.Is(err, errClosed) {
		t.Errorf("got %v", err)
	}
	wantNotPersisted(t, h)
}

func TestAFailedSaveOfTheCompletionIsNoCompletion(t *testing.T) {
	h := stuckHost(rt.RunJS("return 1"), rt.Complete(`1`))
	for _, fault := range []rt.SaveFault{rt.SaveLost, rt.SaveAnswerLost} {
		h.Store.SaveFault = func(n int) rt.SaveFault {
			if n >= 4 {
				return fault
			}
			return rt.SaveWorks
		}
		if err := stop(t, h); !errors.Is(err, rt.ErrInjected) {
			t.Errorf("got %v", err)
		}
	}
	h.Store.SaveFault = nil
	if result := finish(t, h); result.CleanupError != nil {
		t.Errorf("loading the committed reply tells of %v", result.CleanupError)
	}
}

func TestAnExecutorIsStartedOnlyForAScript(t *testing.T) {
	h := newHost(rt.Call(spawn, help), rt.Calls(rt.ToolCall("run_js", `{}`), rt.ToolCall("wait_calls", `{}`)), rt.Complete(`1`))
	if _, err := h.Run(t.Context()); !errors.Is(err, runtime.ErrWaiting) {
		t.Fatal(err)
	}
	h.Controller.SettleAll()
	finish(t, h)
	if n := h.Factory.Started(); n != 0 {
		t.Errorf("%d executors were started and there was no script to run", n)
	}
}

func TestAnExecutorIsClosedOnEveryExit(t *testing.T) {
	fatal := &rt.FatalError{Err: errClosed}
	for name, arrange := range map[string]func(*rt.Host, context.CancelFunc){
		"success": func(*rt.Host, context.CancelFunc) {},
		"script error": func(h *rt.Host, _ context.CancelFunc) {
			h.Factory.Execute = func(int) error { return &runtime.ScriptError{Kind: runtime.ScriptTimeout} }
		},
		"host error":   func(h *rt.Host, _ context.CancelFunc) { h.Factory.Execute = func(int) error { return errClosed } },
		"fatal":        func(h *rt.Host, _ context.CancelFunc) { h.Backend.Answer = failing(fatal) },
		"cancellation": func(h *rt.Host, cancel context.CancelFunc) { h.Backend.Answer = cancelsFirst(cancel) },
		"lost save": func(h *rt.Host, _ context.CancelFunc) {
			h.Store.SaveFault = func(n int) rt.SaveFault { return map[int]rt.SaveFault{3: rt.SaveLost}[n] }
		},
	} {
		h := newHost(rt.RunJS(booking), rt.Complete(`1`))
		ctx, cancel := context.WithCancel(t.Context())
		arrange(h, cancel)
		_, err := h.Run(ctx)
		cancel()
		if h.Factory.Started() != 1 || h.Factory.Open() != 0 {
			t.Errorf("%s (%v): %d executors started, %d open", name, err, h.Factory.Started(), h.Factory.Open())
		}
		if err := h.Factory.Misused(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// cancelsFirst answers a callback after it cancelled the attempt.
func cancelsFirst(cancel context.CancelFunc) func(context.Context, *runtime.Callback) (rawJSON, error) {
	return func(context.Context, *runtime.Callback) (rawJSON, error) {
		cancel()
		return rawJSON(`1`), nil
	}
}

func TestAFactoryThatFailsStopsTheAttempt(t *testing.T) {
	h := newHost(rt.RunJS(booking), rt.CompleteQuoting())
	h.Factory.New = func(int) error { return errClosed }
	if err := stop(t, h); !errors.Is(err, errClosed) {
		t.Fatal(err)
	}
	h.Factory.New = nil
	finish(t, h)
	wantResult(t, h, "call_0_0", "unknown")
}
