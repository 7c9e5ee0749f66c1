package handlers_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/handlers/limit"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// losing loses the nth record of callbacks, and the worker with it.
func losing(n int) func(handlerstest.Append) (eventstest.Fault, bool) {
	record := events.TypeFor[events.CallbacksRecorded]().Name
	return func(a handlerstest.Append) (eventstest.Fault, bool) {
		if a.Type == record {
			if n--; n == 0 {
				return eventstest.LostBefore, true
			}
		}
		return eventstest.None, false
	}
}

// interruptedRun starts a run whose worker dies by a plan, and has another one
// finish it.
func interruptedRun(t *testing.T, w *handlerstest.World, v handlers.Version, plan func(handlerstest.Append) (eventstest.Fault, bool), between func()) {
	t.Helper()
	worker := w.Start(t.Context(), plan)
	apply(t, worker, v)
	w.Send(handlerstest.Start("1", "tester", "Go."))
	worker.Settle()
	if !worker.Dead() {
		t.Fatal("the worker lives")
	}
	between()
	second := w.Start(t.Context(), nil)
	if _, err := second.Sweeper().Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	second.Settle()
	completed(t, w, parentOf(w, "1"))
}

func TestWhatWasDeniedBeforeACrashIsNotSentAfterIt(t *testing.T) {
	v := agent("page.read", "mail.send", "desk.book")
	v.Agent.Limits.NoEgressAfterUntrusted = true
	v.Capabilities[0].Untrusted, v.Capabilities[0].Effect = true, events.EffectRead
	v.Capabilities[1].Egress, v.Capabilities[1].Effect = true, events.EffectIdempotent
	v.Capabilities[2].Effect = events.EffectWrite
	w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
	w.Effects = map[string]events.Effect{"page.read": events.EffectRead, "mail.send": events.EffectIdempotent}
	w.Model.Respond = runtimetest.Script(runtimetest.RunJS("page.read {}\ntry mail.send {\"body\":\"what the page said\"}\ndesk.book {}\nreturn"), runtimetest.Complete(`1`))
	w.Services.Reached = func(_ int, by *handlerstest.Worker) {
		if reached(w, "svc.desk.book") == 1 {
			by.Kill()
		}
	}
	interruptedRun(t, w, v, nil, func() { w.Services.Reached = nil })
	if sent(w) != 0 {
		t.Errorf("%d mails left", sent(w))
	}
}

// Nobody knows what an interrupted script had read: what lets data out is not sent
// again, and stays unknown.
func TestWhatLetsDataOutIsNotSentAgainWhenTheScriptMayHaveRead(t *testing.T) {
	v := guarded("tester")
	v.Capabilities[0].Effect, v.Capabilities[1].Effect = events.EffectRead, events.EffectIdempotent
	w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
	w.Effects = map[string]events.Effect{"page.read": events.EffectRead, "mail.send": events.EffectIdempotent}
	w.Model.Respond = runtimetest.Script(runtimetest.RunJS("mail.send {}\nreturn"), runtimetest.Complete(`1`))
	w.Services.Reached = func(_ int, by *handlerstest.Worker) { by.Kill() }
	interruptedRun(t, w, v, nil, func() { w.Services.Reached = nil })
	if r := runIn(t, w, parentOf(w, "1")); sent(w) != 1 || len(r.Unknown) != 1 {
		t.Errorf("%d mails left, unknown: %+v", sent(w), r.Unknown)
	}
}

func TestWhatAScriptWasToldWasNotMadeIsNotMadeLater(t *testing.T) {
	v := agent("desk.mark", "desk.book")
	v.Capabilities[0].Effect, v.Capabilities[1].Effect = events.EffectIdempotent, events.EffectWrite
	v.Agent.Limits.ScriptTimeout = "200ms"
	v.Capabilities[0].Limits = &events.CapabilityLimits{Concurrent: 1}
	w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
	w.Limits = &limit.Memory{}
	w.Effects = map[string]events.Effect{"desk.mark": events.EffectIdempotent}
	w.Model.Respond = runtimetest.Script(runtimetest.RunJS("try desk.mark {}\ndesk.book {}\nreturn"), runtimetest.Complete(`1`))
	other := &limit.Limiter{Store: w.Limits, Worker: "another"}
	held, err := other.Acquire(t.Context(), limit.Request{Key: limit.Key("capability", "ns", "desk.mark"), Limits: limit.Limits{Concurrent: 1}, Namespace: "r", Patience: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	interruptedRun(t, w, v, losing(1), func() { held.Release(limit.Outcome{}) })
	if reached(w, "svc.desk.mark") != 0 {
		_, text := answered(t, w, parentOf(w, "1"), "call_0_0")
		t.Errorf("sent for the first time after the crash; the model is told: %s", text)
	}
}

func TestWhatFinishedBeforeACancelIsTold(t *testing.T) {
	for _, unheard := range []bool{false, true} {
		v := agent("desk.book")
		v.Capabilities[0].Effect = events.EffectWrite
		w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
		w.Unheard = unheard
		w.Model.Respond = runtimetest.Script(runtimetest.RunJS("desk.book {\"n\":1}\ndesk.book {\"n\":2}\nreturn"), runtimetest.Complete(`1`))
		desk := w.Start(t.Context(), nil)
		worker := w.Start(t.Context(), nil)
		w.Services.Answer = func(_ string, h map[string]string, _ []byte) ([]byte, error) {
			w.Send(handlerstest.Cancel("2", h[handlers.HeaderRun], "no need"))
			desk.Admit()
			return []byte(`{"booked":true}`), nil
		}
		apply(t, worker, v)
		w.Send(handlerstest.Start("1", "tester", "Ask."))
		worker.Settle()
		r := runIn(t, w, parentOf(w, "1"))
		_, text := answered(t, w, r.ID, "call_0_0")
		if r.State != projector.StateCancelled || len(r.Unknown) != 0 || len(w.Services.Ledger) != 1 || !strings.Contains(text, `1. desk.book: finished with {"booked":true}`) {
			t.Errorf("unheard %v: %s, %d requests, unknown %+v, told %s", unheard, r.State, len(w.Services.Ledger), r.Unknown, text)
		}
	}
}

func TestWhatFinishedBeforeADeadlineIsTold(t *testing.T) {
	v := agent("desk.book")
	v.Capabilities[0].Effect = events.EffectWrite
	v.Agent.Limits.Timeout = "1s"
	w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
	w.Model.Respond = runtimetest.Script(runtimetest.RunJS("two"), runtimetest.Complete(`1`))
	w.Executors.Scripts = map[string]runtimetest.ScriptFunc{"two": func(ctx context.Context, call runtimetest.Callback) (any, error) {
		if _, err := call("desk.book", json.RawMessage(`{"n":1}`)); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return call("desk.book", json.RawMessage(`{"n":2}`))
	}}
	worker := w.Start(t.Context(), nil)
	apply(t, worker, v)
	w.Send(handlerstest.Start("1", "tester", "Ask."))
	worker.Settle()
	r := runIn(t, w, parentOf(w, "1"))
	if _, text := answered(t, w, r.ID, "call_0_0"); r.State != projector.StateFailed || len(r.Unknown) != 0 || len(w.Services.Ledger) != 1 || !strings.Contains(text, "1. desk.book: finished") {
		t.Errorf("%s: %d requests, unknown %+v, told %s", r.State, len(w.Services.Ledger), r.Unknown, text)
	}
}

// Callbacks read nothing of the fold, which their records advance meanwhile.
func TestCallbacksWithFilesMayBeMadeAtOnce(t *testing.T) {
	v := agent("desk.book")
	v.Capabilities[0].Effect = events.EffectWrite
	w := inMemory()
	steps(runtimetest.RunJS("at once"), runtimetest.Complete(`"done"`))(w)
	w.Executors.Scripts = map[string]runtimetest.ScriptFunc{"at once": func(_ context.Context, call runtimetest.Callback) (any, error) {
		done := make(chan error)
		for range 8 {
			go func() {
				_, err := call("desk.book", json.RawMessage(`{}`))
				_, again := call("desk.book", json.RawMessage(`{}`))
				if err == nil {
					err = again
				}
				done <- err
			}()
		}
		var failed error
		for range 8 {
			if err := <-done; err != nil {
				failed = err
			}
		}
		return 1, failed
	}}
	ref := events.Derive(52, "object", "big")
	w.SetObject(ref, []byte("big"))
	w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
		return []byte(`{"$attachments":[{"name":"a","ref":"` + ref + `"}]}`), nil
	}
	worker := w.Start(t.Context(), nil)
	apply(t, worker, v)
	w.Send(handlerstest.Start("1", "tester", "Go."))
	worker.Settle()
	completed(t, w, parentOf(w, "1"))
	if n := len(w.Services.Ledger); n != 16 {
		t.Errorf("%d requests", n)
	}
}
