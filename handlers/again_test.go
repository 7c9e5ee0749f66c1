package handlers_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/handlers/limit"
	"github.com/agentruntime/agentruntime/handlers/policy"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// marking is an agent with one capability, which scripts call and the model.
func marking(effect events.Effect) handlers.Version {
	v := agent("desk.mark")
	c := &v.Capabilities[0]
	c.Expose, c.Effect, c.Input = events.ExposeBoth, effect, json.RawMessage(`{"type":"object"}`)
	return v
}

// The first sending took effect, and its worker died before it could say so.
func TestWhatIsNotMadeAgainAfterACrashStaysUnknown(t *testing.T) {
	for path, first := range map[string]runtimetest.Step{
		"called by the model": runtimetest.Calls(runtimetest.ToolCall("desk_mark", `{"seat":4}`)),
		"called by a script":  runtimetest.RunJS("desk.mark {\"seat\":4}\nreturn"),
	} {
		for _, why := range []string{"denied", "nobody serves it", "no turn"} {
			t.Run(path+", "+why, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					defer rest()
					v := marking(events.EffectIdempotent)
					if why == "no turn" {
						v.Capabilities[0].Limits = &events.CapabilityLimits{PerMinute: 1}
					}
					w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
					w.Model.Respond = runtimetest.Script(first, runtimetest.Complete(`"done"`))
					w.Limits = &limit.Memory{}
					m := ruled(w)
					w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
						if len(w.Services.Ledger) > 1 {
							return nil, handlers.ErrNoService
						}
						if why == "denied" {
							m.rule(func(r *policy.Rules) { r.Capabilities = nil })
						}
						return []byte(`1`), nil
					}
					dies := w.Start(t.Context(), func(handlerstest.Append) (eventstest.Fault, bool) {
						return eventstest.LostBefore, len(w.Services.Ledger) > 0
					})
					apply(t, dies, v)
					w.Send(handlerstest.Start("1", "tester", "Go."))
					dies.Settle()
					heir := w.Start(t.Context(), nil)
					heir.Takeover()
					heir.Settle()
					outcomes, texts := results(t, w, w.Keys()[0].Session)
					if r := only(t, w); r.State != projector.StateCompleted || !dies.Dead() {
						t.Fatalf("the run is %s, the first worker is dead: %t", r.State, dies.Dead())
					}
					if outcomes[0] != events.OutcomeUnknown || !strings.Contains(texts[0], "first find out") {
						t.Errorf("the model is told %s: %q", outcomes[0], texts[0])
					}
				})
			})
		}
	}
}

// A service may answer 412 for reasons of its own.
func TestAServiceThatRefusesTheEpochOfTheNewestWorkerFailsTheCallAlone(t *testing.T) {
	for _, effect := range []events.Effect{events.EffectRead, events.EffectIdempotent, events.EffectWrite} {
		w, worker := started(t, marking(effect), runtimetest.Calls(runtimetest.ToolCall("desk_mark", `{"seat":4}`)), runtimetest.Complete(`"done"`))
		w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
			return nil, &handlers.ServiceError{Code: handlers.CodeStaleEpoch, Description: "the desk has changed"}
		}
		worker.Settle()
		outcomes, texts := results(t, w, w.Keys()[0].Session)
		if r := only(t, w); r.State != projector.StateCompleted || len(w.Services.Ledger) != 1 || outcomes[0] != events.OutcomeError || !strings.Contains(texts[0], "the desk has changed") {
			t.Errorf("%s: the run is %s after %d calls, told %s %q", effect, r.State, len(w.Services.Ledger), outcomes[0], texts[0])
		}
	}
}

func TestACallbackThatWasNeverMadeHasReadNothing(t *testing.T) {
	for _, how := range []string{"nobody serves it", "no turn"} {
		synctest.Test(t, func(t *testing.T) {
			defer rest()
			v := guarded("tester")
			v.Capabilities[0].Limits = &events.CapabilityLimits{Concurrent: 1}
			w, _ := started(t, v, runtimetest.RunJS("try page.read {}\nreturn"), runtimetest.RunJS(sendMail), runtimetest.Complete(`"done"`))
			w.Limits = &limit.Memory{}
			if how == "no turn" {
				other := &limit.Limiter{Store: w.Limits, Worker: "another"}
				held, err := other.Acquire(t.Context(), limit.Request{Key: limit.Key("capability", "ns", "page.read"), Limits: limit.Limits{Concurrent: 1}, Namespace: "r", Patience: time.Second})
				if err != nil {
					t.Fatal(err)
				}
				defer held.Release(limit.Outcome{})
			}
			w.Services.Answer = func(subject string, _ map[string]string, _ []byte) ([]byte, error) {
				if subject == "svc.page.read" {
					return nil, handlers.ErrNoService
				}
				return []byte(`1`), nil
			}
			w.Start(t.Context(), nil).Settle()
			if r := only(t, w); r.State != projector.StateCompleted || r.Untrusted || sent(w) != 1 {
				t.Errorf("%s: the run is %s, untrusted %t, and %d mails left", how, r.State, r.Untrusted, sent(w))
			}
		})
	}
}

// ending are executors that tell callbacks when their script ends.
type ending struct {
	runtime.ExecutorFactory
	after time.Duration
}

type endingExecutor struct {
	runtime.Executor
	after time.Duration
}

func (f ending) NewExecutor(ctx context.Context) (runtime.Executor, error) {
	e, err := f.ExecutorFactory.NewExecutor(ctx)
	return endingExecutor{e, f.after}, err
}

func (e endingExecutor) Execute(ctx context.Context, s *runtime.Script) (*runtime.ScriptResult, error) {
	script, end := *s, time.Now().Add(e.after)
	script.Call = func(ctx context.Context, name string, input json.RawMessage) (json.RawMessage, error) {
		return s.Call(runtime.WithScriptEnd(ctx, end), name, input)
	}
	return e.Executor.Execute(ctx, &script)
}

// What a script has left is counted from its own start, and by its executor.
func TestACallbackWaitsForItsTurnForWhatItsScriptHasLeft(t *testing.T) {
	for _, c := range []struct{ bound, busy, least, most time.Duration }{
		{30 * time.Second, 20 * time.Second, 28 * time.Second, 30 * time.Second},
		{2 * time.Minute, 0, 105 * time.Second, 2 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			defer rest()
			w, _ := started(t, restricted(events.CapabilityLimits{Concurrent: 1}), runtimetest.RunJS("busy"), runtimetest.Complete(`"done"`))
			w.Limits = &limit.Memory{}
			other := &limit.Limiter{Store: w.Limits, Worker: "another"}
			held, err := other.Acquire(t.Context(), limit.Request{Key: limit.Key("capability", "ns", "desk.book"), Limits: limit.Limits{Concurrent: 1}, Namespace: "r", Patience: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer held.Release(limit.Outcome{})
			var took time.Duration
			w.Executors.Scripts = map[string]runtimetest.ScriptFunc{"busy": func(ctx context.Context, call runtimetest.Callback) (any, error) {
				began := time.Now()
				_ = events.Sleep(ctx, c.busy)
				_, err := call("desk.book", []byte(`{}`))
				took = time.Since(began)
				return nil, err
			}}
			worker := w.Start(t.Context(), nil)
			worker.Dispatcher.Executors = ending{worker.Dispatcher.Executors, c.bound}
			worker.Settle()
			if took < c.least || took >= c.most {
				t.Errorf("a script of %s was told after %s", c.bound, took)
			}
		})
	}
}

// fetched counts the bytes that are read of stored files.
type fetched struct {
	handlers.Objects
	bytes int
}

func (o *fetched) Get(ctx context.Context, ref string) ([]byte, error) {
	data, err := o.Objects.Get(ctx, ref)
	o.bytes += len(data)
	return data, err
}

func TestAnAnswerCannotMakeAWorkerReadMoreFilesThanACallAttaches(t *testing.T) {
	w, worker := started(t, agent("desk.draw"), runtimetest.RunJS("desk.draw {}\nreturn"), runtimetest.RunJS("desk.draw {}\nreturn"), runtimetest.Complete(`"done"`))
	objects := &fetched{Objects: worker.Dispatcher.Objects}
	worker.Dispatcher.Host.Objects = objects
	data, err := events.Marshal(handlers.PutFile{Data: []byte(strings.Repeat("x", 7<<20))})
	if err != nil {
		t.Fatal(err)
	}
	put, err := (&handlers.API{Host: worker.Dispatcher.Host}).Handle(t.Context(), "ns", handlers.VerbFilePut, nil, data)
	if err != nil {
		t.Fatal(err)
	}
	refs := 0
	w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
		refs = map[int]int{0: 2000, 2000: runtime.MaxAttachments}[refs] // too many files, then too many bytes
		list := make([]handlers.AnsweredFile, refs)
		for i := range list {
			list[i] = handlers.AnsweredFile{Name: "a", Ref: put.(handlers.PutFileAnswer).Ref}
		}
		return json.Marshal(map[string]any{"$attachments": list})
	}
	worker.Settle()
	_, texts := results(t, w, w.Keys()[0].Session)
	if objects.bytes > runtime.MaxAttachmentBytes+8<<20 || !strings.Contains(texts[0], "at most 16") || !strings.Contains(texts[1], "bytes in one file") {
		t.Errorf("%d bytes were read; told %q", objects.bytes, texts)
	}
}
