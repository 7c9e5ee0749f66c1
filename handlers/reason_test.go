package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// booking is an agent whose desk can be asked what became of a booking, and the
// model's first response, which books: by a call of its own, or by a script.
func booking(direct bool, effect events.Effect, asked bool) (handlers.Version, runtimetest.Step) {
	v := agent("desk.book")
	c := &v.Capabilities[0]
	c.Effect, c.Input = effect, json.RawMessage(`{"type":"object"}`)
	if asked {
		c.Status = &events.Route{NATS: &events.NATSRoute{Subject: "svc.desk.status"}}
	}
	if !direct {
		return v, runtimetest.RunJS("desk.book {\"seat\":4}\nreturn")
	}
	c.Expose = events.ExposeTool
	return v, runtimetest.Calls(runtimetest.ToolCall("desk_book", `{"seat":4}`))
}

// TestWhyNobodyKnowsIsToldOfEveryUnknownCall holds the reason that call.list tells
// against what happened.
func TestWhyNobodyKnowsIsToldOfEveryUnknownCall(t *testing.T) {
	reset := errors.New("connection reset")
	says := func(answer string, err error) func(map[string]string) ([]byte, error) {
		return func(map[string]string) ([]byte, error) { return []byte(answer), err }
	}
	const cancel, deadline = "cancel", "deadline"
	for _, c := range []struct {
		name   string
		effect events.Effect
		status func(map[string]string) ([]byte, error)
		answer func(map[string]string) ([]byte, error) // nil: the worker dies of the request
		again  func(map[string]string) ([]byte, error) // that of a request that is made again
		ends   string                                  // what ends the run while nobody carries it on
		want   []string
	}{
		{"a worker stopped", events.EffectWrite, nil, nil, nil, "", []string{"stopped before its answer was stored"}},
		{"its service says nonsense", events.EffectWrite, says(`{"state":"nonsense"}`, nil), nil, nil, "", []string{"stopped before its answer was stored; its service was asked", `answered the state "nonsense"`}},
		{"its service does not know", events.EffectWrite, says(`{"state":"unknown"}`, nil), nil, nil, "", []string{"its service was asked what became of it and does not know"}},
		{"its service has no status", events.EffectWrite, says(`{"weather":1}`, nil), nil, nil, "", []string{"its service was asked what became of it and did not tell", "weather"}},
		{"its service cannot be asked", events.EffectWrite, says("", reset), nil, nil, "", []string{"did not tell", "connection reset"}},
		{"sent again, and its answer is lost", events.EffectIdempotent, nil, nil, says("", reset), "", []string{"stopped before its answer was stored; it was sent again with the same key", "was lost: connection reset"}},
		{"sent again, and not answered", events.EffectIdempotent, nil, nil, says("", context.DeadlineExceeded), "", []string{"it was sent again with the same key: desk.book did not answer within 30s"}},
		{"its answer is lost", events.EffectWrite, nil, says("", reset), nil, "", []string{"the answer of desk.book was lost: connection reset"}},
		{"not answered", events.EffectWrite, nil, says("", context.DeadlineExceeded), nil, "", []string{"desk.book did not answer within 30s"}},
		{"its run was cancelled", events.EffectWrite, nil, nil, nil, cancel, []string{"its run was cancelled (no need) before an answer was stored"}},
		{"its run's deadline came", events.EffectWrite, nil, nil, nil, deadline, []string{"its run failed (deadline) before an answer was stored"}},
	} {
		for _, direct := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, by the model itself %t", c.name, direct), func(t *testing.T) {
				v, call := booking(direct, c.effect, c.status != nil)
				v.Agent.Limits.Timeout = "1h"
				w := inMemory()
				w.Effects = map[string]events.Effect{"desk.book": c.effect}
				w.Model.Respond = runtimetest.Script(call, runtimetest.Complete(`1`))
				w.Services.Answer = func(_ string, h map[string]string, _ []byte) ([]byte, error) {
					switch {
					case h[handlers.HeaderInquiry] != "":
						return c.status(h)
					case c.answer == nil && c.again != nil:
						return c.again(h)
					case c.answer == nil:
						return nil, reset // the worker is dead
					}
					return c.answer(h)
				}
				w.Services.Reached = func(n int, by *handlerstest.Worker) {
					if n == 1 && c.answer == nil {
						by.Kill()
					}
				}
				worker := w.Start(t.Context(), nil)
				apply(t, worker, v)
				w.Send(handlerstest.Start("1", "tester", "Go."))
				worker.Settle()
				run := parentOf(w, "1")
				if worker.Dead() {
					worker = w.Start(t.Context(), nil)
					switch c.ends {
					case cancel:
						w.Send(handlerstest.Cancel("c", run, "no need"))
						worker.Admit()
					case deadline:
						worker.Fire()
					}
					if _, err := worker.Sweeper().Sweep(t.Context()); err != nil {
						t.Fatal(err)
					}
					worker.Settle()
				}
				if r := runIn(t, w, run); !r.State.Terminal() {
					t.Fatalf("the run is %s", r.State)
				}
				toldWhy(t, w, worker, run, c.want...)
				if err := w.Check(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// toldWhy demands that one call of a run is unknown, and that its reason says so.
func toldWhy(t *testing.T, w *handlerstest.World, worker *handlerstest.Worker, run string, want ...string) {
	t.Helper()
	list := unknownCalls(t, w, worker, run)
	if len(list) != 1 {
		t.Fatalf("listed are %+v", list)
	}
	for _, part := range want {
		if !strings.Contains(list[0].Reason, part) {
			t.Errorf("the reason is %q, want %q in it", list[0].Reason, part)
		}
	}
	for _, advice := range []string{"Do not", "first find out", "is not known"} {
		if strings.Contains(list[0].Reason, advice) {
			t.Errorf("the reason %q advises the model", list[0].Reason)
		}
	}
}

func TestWhyNobodyKnowsIsToldOfACallThatItsServiceAccepted(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(w *handlerstest.World, worker *handlerstest.Worker, run string)
		want string
	}{
		"its time is over": {func(_ *handlerstest.World, worker *handlerstest.Worker, _ string) { worker.Fire() },
			"desk.approve accepted the call and did not answer by "},
		"its run is cancelled": {func(w *handlerstest.World, _ *handlerstest.Worker, run string) {
			w.Send(handlerstest.Cancel("c", run, "no need"))
		}, "its service accepted it, and its run was cancelled (no need) before the answer came"},
	} {
		t.Run(name, func(t *testing.T) {
			w, worker, run, _ := asking(t, "24h")
			c.end(w, worker, run)
			worker.Settle()
			toldWhy(t, w, worker, run, c.want)
		})
	}
}

// TestWhyNobodyKnowsSurvivesAKillAtEveryAppend kills the worker at every append of a
// run whose model made a call that its service does not answer. The call is made
// once at most, and listed once, with a reason, exactly when it was dispatched.
func TestWhyNobodyKnowsSurvivesAKillAtEveryAppend(t *testing.T) {
	for _, fault := range []eventstest.Fault{eventstest.LostBefore, eventstest.AnswerLost} {
		for n := 1; ; n++ {
			v, call := booking(true, events.EffectWrite, false)
			w := inMemory()
			w.Model.Respond = runtimetest.Script(call, runtimetest.Complete(`1`))
			w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) { return nil, context.DeadlineExceeded }
			met := false
			worker := w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
				if a.N == n {
					met = true
					return fault, true
				}
				return eventstest.None, false
			})
			apply(t, worker, v)
			w.Send(handlerstest.Start("1", "tester", "Ask."))
			worker.Settle()
			if worker.Dead() {
				worker = w.Start(t.Context(), nil)
				if _, err := worker.Sweeper().Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
				worker.Settle()
			}
			run := parentOf(w, "1")
			completed(t, w, run)
			if requests := len(w.Services.Ledger); requests > 1 {
				t.Errorf("append %d %s: %d requests", n, fault, requests)
			}
			toldWhy(t, w, worker, run)
			if list := unknownCalls(t, w, worker, run); len(list) == 1 && list[0].Reason == "" {
				t.Errorf("append %d %s: no reason", n, fault)
			}
			if !met {
				if n < 7 {
					t.Errorf("only %d appends", n-1)
				}
				break
			}
		}
	}
}
