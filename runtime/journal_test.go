package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	sched "runtime"
	"sync/atomic"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// power is an error that ends the attempt, as the end of its process would.
type power struct{}

func (power) Error() string { return "the power is out" }

// FatalToolError implements runtime.FatalToolError.
func (power) FatalToolError() {}

// knowing is a backend that can be asked.
type knowing struct {
	*rt.Backend
	status func(c *runtime.Callback) (*runtime.CallbackStatus, error)
}

// Status implements runtime.Inquirer.
func (k knowing) Status(_ context.Context, c *runtime.Callback) (*runtime.CallbackStatus, error) {
	return k.status(c)
}

// attempt runs a world's run with a journaled store, on no host at all.
func attempt(t *testing.T, h *rt.Host, store runtime.Store, backend runtime.Backend) (*runtime.Result, error) {
	t.Helper()
	return attemptIn(t.Context(), h, store, backend)
}

func attemptIn(ctx context.Context, h *rt.Host, store runtime.Store, backend runtime.Backend) (*runtime.Result, error) {
	in := h.Input
	in.Model, in.Store, in.Backend, in.ExecutorFactory = h.Model, store, backend, h.Factory
	in.Controller, in.Sink, in.Redactor, in.Estimator = h.Controller, h.Sink, h.Redactor, h.Estimator
	return runtime.Run(ctx, in)
}

func TestAHostWithoutALogTellsExactlyWhatAnInterruptedScriptDid(t *testing.T) {
	says := func(state, result string) func(*runtime.Callback) (*runtime.CallbackStatus, error) {
		return func(*runtime.Callback) (*runtime.CallbackStatus, error) {
			return &runtime.CallbackStatus{State: state, Result: json.RawMessage(result)}, nil
		}
	}
	for _, c := range []struct {
		name   string
		effect events.Effect
		status func(*runtime.Callback) (*runtime.CallbackStatus, error)
		says   []string
		sent   int // in all
	}{
		{"a write", events.EffectWrite, nil, []string{"2. desk.list: not known whether it took effect", "first find out"}, 2},
		{"a write whose service says done", events.EffectWrite, says("done", `{"n":1}`), []string{`2. desk.list: as its service says it finished with {"n":1}`, "Nothing that it did is unknown"}, 2},
		{"a write whose service says done and no more", events.EffectWrite, says("done", ""), []string{`2. desk.list: as its service says it finished`, "Nothing that it did is unknown"}, 2},
		{"a write whose service says not done", events.EffectWrite, says("not-done", ""), []string{"2. desk.list: as its service says it did not take effect"}, 2},
		{"a write whose service does not know", events.EffectWrite, says("unknown", ""), []string{"2. desk.list: not known"}, 2},
		{"a write whose service says another word", events.EffectWrite, says("perhaps", ""), []string{`2. desk.list: not known whether it took effect (the worker that was to call desk.list stopped before its answer was stored; its service was asked what became of it and answered the state "perhaps"`}, 2},
		{"a write whose service cannot be asked", events.EffectWrite, func(*runtime.Callback) (*runtime.CallbackStatus, error) { return nil, errClosed }, []string{"2. desk.list: not known", "did not tell: the desk is closed"}, 2},
		{"what is idempotent", events.EffectIdempotent, nil, []string{`2. desk.list: was sent again with the same key and finished with "again"`, "Nothing that it did is unknown"}, 3},
		{"a read", events.EffectRead, nil, []string{"2. desk.list: a read that was under way; it changes nothing and may be made again", "Nothing that it did is unknown"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(rt.RunJS("desk.book {\"seat\":4}\ndesk.list {}\nreturn"), rt.CompleteQuoting())
			h.Input.Capabilities[0].Effect, h.Input.Capabilities[1].Effect = events.EffectWrite, c.effect
			if c.status != nil {
				h.Input.Capabilities[1].Status = &events.Route{}
			}
			h.Backend.Answer = func(_ context.Context, k *runtime.Callback) (json.RawMessage, error) {
				switch {
				case k.Again:
					return json.RawMessage(`"again"`), nil
				case k.Index == 1:
					return nil, power{}
				}
				return json.RawMessage(`"booked"`), nil
			}
			store := rt.Journaled{Store: h.Store}
			if _, err := attempt(t, h, store.Take(), h.Backend); !errors.As(err, &power{}) {
				t.Fatalf("the attempt ended with %v", err)
			}
			var backend runtime.Backend = h.Backend
			if c.status != nil {
				backend = knowing{h.Backend, c.status}
			}
			result, err := attempt(t, h, store.Take(), backend)
			if err != nil || result.Reply == nil {
				t.Fatalf("the run ended with %+v, %v", result, err)
			}
			wantParts(t, string(result.Reply.Output), append(jsonParts(c.says), `1. desk.book: finished with \"booked\"`, `"outcome":"unknown"`)...)
			if n := len(h.Backend.Ledger()); n != c.sent {
				t.Errorf("%d callbacks were sent, want %d", n, c.sent)
			}
		})
	}
}

// jsonParts returns texts as they stand in JSON.
func jsonParts(list []string) []string {
	out := make([]string, len(list))
	for i, text := range list {
		data, _ := json.Marshal(text)
		out[i] = string(data[1 : len(data)-1])
	}
	return out
}

// A record that fails stops the attempt, and what it announces is not sent.
func TestACallbackThatCannotBeRecordedIsNotSent(t *testing.T) {
	h := newHost(rt.RunJS(booking), rt.CompleteQuoting())
	store := rt.Journaled{Store: h.Store}
	first := store.Take()
	h.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
		defer func() {
			if step == 0 {
				h.Factory.Execute = func(int) error { store.Take(); return nil }
			}
		}()
		return rt.Script(rt.RunJS(booking), rt.CompleteQuoting())(step, r)
	}
	if _, err := attempt(t, h, first, h.Backend); !errors.Is(err, rt.ErrStale) {
		t.Errorf("the attempt ended with %v", err)
	}
	if n := len(h.Backend.Ledger()); n != 0 {
		t.Errorf("%d callbacks were sent", n)
	}
	if n := h.Factory.Open(); n != 0 {
		t.Errorf("%d executors are open", n)
	}
}

// However many callbacks are made again, no more are under way than a script may
// have.
func TestCallbacksAreMadeAgainAsManyAtATimeAsAScriptMay(t *testing.T) {
	const n, most = 40, 3
	h := newHost(rt.RunJS("many"), rt.CompleteQuoting())
	h.Input.Capabilities[0].Effect = events.EffectIdempotent
	h.Input.Definition.Limits.ScriptConcurrent = most
	store := rt.Journaled{Store: h.Store}
	made := make(chan bool, n)
	h.Factory.Scripts = map[string]rt.ScriptFunc{"many": func(ctx context.Context, call rt.Callback) (any, error) {
		for range n {
			go call("desk.book", json.RawMessage(`{}`))
		}
		for range n {
			<-made
		}
		return nil, errClosed
	}}
	var underWay, peak atomic.Int32
	h.Backend.Answer = func(ctx context.Context, k *runtime.Callback) (json.RawMessage, error) {
		if !k.Again {
			made <- true
			<-ctx.Done()
			return nil, ctx.Err()
		}
		for now := underWay.Add(1); ; {
			if old := peak.Load(); now <= old || peak.CompareAndSwap(old, now) {
				break
			}
		}
		for range 100 {
			sched.Gosched() // the others may overtake
		}
		underWay.Add(-1)
		return json.RawMessage(`"again"`), nil
	}
	if _, err := attempt(t, h, store.Take(), h.Backend); err == nil {
		t.Fatal("the attempt did not end")
	}
	result, err := attempt(t, h, store.Take(), h.Backend)
	if err != nil {
		t.Fatal(err)
	}
	wantParts(t, string(result.Reply.Output), "40. desk.book: was sent again")
	if peak.Load() > most || peak.Load() == 0 {
		t.Errorf("%d were under way", peak.Load())
	}
}
