package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// approver is an agent that asks for an approval, which comes later.
func approver(within string) handlers.Version {
	v := agent("desk.approve")
	c := &v.Capabilities[0]
	c.Expose, c.Deferred, c.SettleWithin = events.ExposeTool, true, within
	c.Input = json.RawMessage(`{"type":"object"}`)
	c.Output = json.RawMessage(`{"type":"object","properties":{"approved":{"type":"boolean"}},"required":["approved"]}`)
	return v
}

// asking starts a world whose run waits for an approval, and returns the token
// that the service was given.
func asking(t *testing.T, within string) (w *handlerstest.World, worker *handlerstest.Worker, run, token string) {
	t.Helper()
	w = handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
	w.Model.Respond = runtimetest.Script(runtimetest.Calls(runtimetest.ToolCall("desk_approve", `{"seat":4}`)), runtimetest.CompleteQuoting())
	w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) { return []byte(`{"accepted": true}`), nil }
	worker = w.Start(t.Context(), nil)
	apply(t, worker, approver(within))
	w.Send(handlerstest.Start("1", "tester", "Ask."))
	worker.Settle()
	run = parentOf(w, "1")
	if r := runIn(t, w, run); r.State != projector.StateParked || r.Reason != events.ParkCall || len(w.Services.Ledger) != 1 {
		t.Fatalf("the run is %s (%s) after %d requests", r.State, r.Reason, len(w.Services.Ledger))
	}
	return w, worker, run, w.Services.Ledger[0].Header[handlers.HeaderSettle]
}

// answer returns a call.settle command.
func answer(id, run, token, output string) events.Event {
	e, err := events.New(events.SettleCall{Run: run, Call: "call_0_0", Token: token, Output: json.RawMessage(output)})
	if err != nil {
		panic(err)
	}
	e.ID, e.Source = id, "/desk"
	return e
}

const yes, no = `{"approved":true}`, `{"approved":false}`

// refusedFor demands that the last command was refused, for that reason.
func refusedFor(t *testing.T, w *handlerstest.World, reason string) {
	t.Helper()
	if n := len(w.Buried); n == 0 || w.Buried[n-1].Reason != reason {
		t.Errorf("the dead letters are %v, want the last one for %s", w.Buried, reason)
	}
}

func TestADeferredCallIsAnsweredAfterARestartOfEverything(t *testing.T) {
	w, worker, run, token := asking(t, "")
	worker.Kill()
	w.Lose()
	worker = w.Start(t.Context(), nil)
	w.Send(answer("1", run, token, yes))
	worker.Settle()
	completed(t, w, run)
	if outcome, text := answered(t, w, run, "call_0_0"); outcome != events.OutcomeOK || text != yes {
		t.Errorf("the call came to %s %s", outcome, text)
	}
	if len(w.Services.Ledger) != 1 || parks(w, run) != 1 {
		t.Errorf("%d requests and %d parks, want one of each", len(w.Services.Ledger), parks(w, run))
	}
}

func TestTheFirstAnswerToADeferredCallCounts(t *testing.T) {
	w, worker, run, token := asking(t, "")
	w.Send(answer("1", run, token, yes))
	w.Send(answer("1", run, token, yes))
	worker.Admit()
	if len(w.Buried) != 0 {
		t.Errorf("the same answer again was refused: %v", w.Buried)
	}
	w.Send(answer("2", run, token, no))
	worker.Admit()
	refusedFor(t, w, handlers.RejectSettled)
	worker.Settle()
	completed(t, w, run)
	if _, text := answered(t, w, run, "call_0_0"); text != yes {
		t.Errorf("the call came to %s", text)
	}
	buried := len(w.Buried)
	w.Send(answer("1", run, token, yes))
	worker.Settle()
	if len(w.Buried) != buried {
		t.Errorf("the answer that counted was refused when it came again after the end: %v", w.Buried)
	}
	w.Send(answer("3", run, token, no))
	worker.Settle()
	refusedFor(t, w, handlers.RejectSettled)
}

func TestOnlyWhoHasTheCallsTokenSettlesIt(t *testing.T) {
	w, worker, run, token := asking(t, "")
	for i, other := range []string{"", "guess", strings.ToUpper(token)} {
		w.Send(answer(fmt.Sprint("g", i), run, other, yes))
		worker.Settle()
		refusedFor(t, w, handlers.RejectDenied)
	}
	// A run without deferred capabilities has no token at all: nor does an empty
	// secret make one.
	plain := agent()
	plain.Agent.Slug = "plain"
	apply(t, worker, plain)
	w.Send(handlerstest.Start("p", "plain", "Go."))
	worker.Settle()
	forged := events.Derive(40, "settle", "", parentOf(w, "p"), "call_0_0")
	w.Send(answer("f", parentOf(w, "p"), forged, yes))
	worker.Settle()
	refusedFor(t, w, handlers.RejectDenied)
	if r := runIn(t, w, run); r.State != projector.StateParked {
		t.Errorf("the run is %s", r.State)
	}
	w.Send(answer("1", run, token, yes))
	worker.Settle()
	completed(t, w, run)
}

// rows is a lister of what it returns.
type rows func() []handlers.Row

func (r rows) List(context.Context, string, handlers.Filter) ([]handlers.Row, string, error) {
	return r(), "", nil
}

func TestAnOperatorSettlesADeferredCallWithoutItsToken(t *testing.T) {
	w, worker, run, _ := asking(t, "")
	api := &handlers.API{Host: worker.Dispatcher.Host, Lister: rows(func() []handlers.Row { return []handlers.Row{{Summary: runIn(t, w, run).Summary()}} })}
	listed, err := api.Handle(t.Context(), "ns", handlers.VerbCalls, nil, []byte(`{"open":true}`))
	if err != nil {
		t.Fatal(err)
	}
	calls := listed.(handlers.OpenCallsAnswer).Calls
	if len(calls) != 1 || calls[0].Run != run || calls[0].Call != "call_0_0" || calls[0].Capability != "desk.approve" || string(calls[0].Input) != `{"seat":4}` {
		t.Errorf("the open calls are %+v", calls)
	}
	if _, err := api.Handle(t.Context(), "ns", handlers.VerbSettle, nil, []byte(`{"run":"`+run+`","call":"call_0_0","error":"no desk left"}`)); err != nil {
		t.Fatal(err)
	}
	worker.Settle()
	completed(t, w, run)
	if outcome, text := answered(t, w, run, "call_0_0"); outcome != events.OutcomeError || !strings.Contains(text, "no desk left") {
		t.Errorf("the call came to %s %s", outcome, text)
	}
	listed, err = api.Handle(t.Context(), "ns", handlers.VerbCalls, nil, []byte(`{"open":true}`))
	if err != nil || len(listed.(handlers.OpenCallsAnswer).Calls) != 0 {
		t.Errorf("the open calls are %+v, %v", listed, err)
	}
}

func TestAnAnswerThatTheRunCouldNotUseIsRefusedWhileAnotherCanStillCome(t *testing.T) {
	w, worker, run, token := asking(t, "")
	for _, c := range []struct{ data, reason string }{
		{`"output":{"approved":"yes"}`, handlers.RejectInput},
		{`"output":1`, handlers.RejectInput},
		{`"error":""`, handlers.RejectMalformed},
		{`"output":{"approved":true},"error":"both"`, handlers.RejectMalformed},
		{`"output":{"approved":true},"call":"call_9_9"`, handlers.RejectMalformed}, // twice
		{`"output":"` + strings.Repeat("x", handlers.MaxAnswer) + `"`, handlers.RejectMalformed},
	} {
		e := answer("x"+events.Derive(8, c.data), run, token, yes)
		e.Data = []byte(`{"run":"` + run + `","call":"call_0_0","token":"` + token + `",` + c.data + `}`)
		w.Send(e)
		worker.Settle()
		refusedFor(t, w, c.reason)
	}
	api := &handlers.API{Host: worker.Dispatcher.Host}
	if _, err := api.Handle(t.Context(), "ns", handlers.VerbSettle, nil, []byte(`{"run":"`+run+`","call":"call_7","output":1}`)); err == nil || !strings.HasPrefix(err.Error(), handlers.RejectNoCall) {
		t.Errorf("a call that does not exist: %v", err)
	}
	w.Send(answer("1", run, token, no))
	worker.Settle()
	completed(t, w, run)
}

func TestADeferredCallThatIsNeverAnsweredEndsAtItsDeadline(t *testing.T) {
	w, worker, run, token := asking(t, "24h")
	worker.Fire()
	worker.Settle()
	completed(t, w, run)
	if outcome, text := answered(t, w, run, "call_0_0"); outcome != events.OutcomeUnknown || !strings.Contains(text, "did not answer by") {
		t.Errorf("the call came to %s %s", outcome, text)
	}
	w.Send(answer("1", run, token, yes))
	worker.Settle()
	refusedFor(t, w, handlers.RejectSettled)
}

func TestAnAnswerThatStandsWinsOverATimerThatHasFired(t *testing.T) {
	w, worker, run, token := asking(t, "24h")
	w.Send(answer("1", run, token, yes))
	worker.Admit()
	worker.Fire()
	worker.Settle()
	completed(t, w, run)
	if _, text := answered(t, w, run, "call_0_0"); text != yes {
		t.Errorf("the call came to %s", text)
	}
}

func TestAnAnswerBetweenATimeOutAndItsCommitIsHeard(t *testing.T) {
	w, worker, run, token := asking(t, "24h")
	worker.Kill()
	late := w.Start(t.Context(), nil)
	var second *handlerstest.Worker
	second = w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
		if a.Type == events.TypeFor[events.CheckpointCommitted]().Name {
			second.Before(func() {
				w.Send(answer("1", run, token, yes))
				late.Admit()
			})
		}
		return eventstest.None, false
	})
	second.Fire()
	second.Settle()
	completed(t, w, run)
	if _, text := answered(t, w, run, "call_0_0"); text != yes {
		t.Errorf("the call came to %s", text)
	}
	if unknown := runIn(t, w, run).Unknown; len(unknown) != 0 {
		t.Errorf("it has an answer and is listed as unknown: %+v", unknown)
	}
}

func TestACancelledRunWaitsForNoAnswer(t *testing.T) {
	w, worker, run, token := asking(t, "")
	w.Send(handlerstest.Cancel("2", run, "no need"))
	worker.Settle()
	if r := runIn(t, w, run); r.State != projector.StateCancelled {
		t.Errorf("the run is %s", r.State)
	}
	w.Send(answer("1", run, token, yes))
	worker.Settle()
	refusedFor(t, w, handlers.RejectSettled)
	session, _ := events.SessionOf(run)
	w.Send(handlerstest.Continue("3", session, "Go on."))
	worker.Settle()
	if err := w.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAServiceMayAnswerADeferredCallAtOnceOrBeforeItAccepts(t *testing.T) {
	for _, early := range []bool{false, true} {
		w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
		w.Model.Respond = runtimetest.Script(runtimetest.Calls(runtimetest.ToolCall("desk_approve", `{"seat":4}`)), runtimetest.CompleteQuoting())
		desk := w.Start(t.Context(), nil)
		worker := w.Start(t.Context(), nil)
		w.Services.Answer = func(_ string, h map[string]string, _ []byte) ([]byte, error) {
			if !early {
				return []byte(yes), nil
			}
			w.Send(answer("1", h[handlers.HeaderRun], h[handlers.HeaderSettle], yes))
			desk.Admit()
			return []byte(`{"accepted":true}`), nil
		}
		apply(t, worker, approver(""))
		w.Send(handlerstest.Start("1", "tester", "Ask."))
		worker.Settle()
		run := parentOf(w, "1")
		completed(t, w, run)
		if _, text := answered(t, w, run, "call_0_0"); text != yes || parks(w, run) != 0 {
			t.Errorf("early %v: the call came to %s after %d parks", early, text, parks(w, run))
		}
	}
}

func TestTheSecretOfDeferredCallsIsShownToNobody(t *testing.T) {
	w, worker, run, token := asking(t, "")
	api := &handlers.API{Host: worker.Dispatcher.Host}
	shown, err := api.Handle(t.Context(), "ns", handlers.VerbEvents, nil, []byte(`{"run":"`+run+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	data, err := events.Marshal(shown)
	if err != nil {
		t.Fatal(err)
	}
	secret := runIn(t, w, run).Admitted.SettleKey
	if secret == "" || strings.Contains(string(data), secret) || strings.Contains(string(data), token) {
		t.Errorf("run.events shows the secret %q", secret)
	}
	if !strings.Contains(string(data), `\"agent\":\"tester\"`) && !strings.Contains(string(data), `"agent":"tester"`) {
		t.Errorf("run.events lost the admission: %s", data)
	}
}

// TestADeferredCallSurvivesAKillAtEveryAppend kills the worker at every append of
// a run that asks for an approval. The request is made at most once, and the call
// is unknown exactly when it was dispatched and no request was made.
func TestADeferredCallSurvivesAKillAtEveryAppend(t *testing.T) {
	for _, fault := range []eventstest.Fault{eventstest.LostBefore, eventstest.AnswerLost} {
		for n := 1; ; n++ {
			w := inMemory()
			w.Model.Respond = runtimetest.Script(runtimetest.Calls(runtimetest.ToolCall("desk_approve", `{"seat":4}`)), runtimetest.CompleteQuoting())
			w.Services.Answer = func(_ string, h map[string]string, _ []byte) ([]byte, error) {
				w.Send(answer("a", h[handlers.HeaderRun], h[handlers.HeaderSettle], yes))
				return []byte(`{"accepted":true}`), nil
			}
			met := false
			worker := w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
				if a.N == n {
					met = true
					return fault, true
				}
				return eventstest.None, false
			})
			apply(t, worker, approver("24h"))
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
			outcome, text := answered(t, w, run, "call_0_0")
			switch requests := len(w.Services.Ledger); {
			case requests > 1, requests == 1 && (outcome != events.OutcomeOK || text != yes), requests == 0 && outcome != events.OutcomeUnknown:
				t.Errorf("append %d %s: %d requests, and the call came to %s %s", n, fault, requests, outcome, text)
			}
			if err := w.Idle(); err != nil {
				t.Errorf("append %d %s: %v", n, fault, err)
			}
			if !met {
				if n < 8 {
					t.Errorf("only %d appends", n-1)
				}
				break
			}
		}
	}
}

func TestWhatADefinitionSaysOfDeferredCallsIsChecked(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*events.Capability)
	}{
		{"expose", func(c *events.Capability) { c.Expose = "model" }},
		{"input", func(c *events.Capability) { c.Input = json.RawMessage(`{"type":"string"}`) }},
		{"deferred", func(c *events.Capability) { c.Expose = events.ExposeBoth }},
		{"deferred", func(c *events.Capability) { c.Expose = "" }},
		{"settle_within", func(c *events.Capability) { c.SettleWithin = "soon" }},
		{"settle_within", func(c *events.Capability) { c.Deferred, c.SettleWithin = false, "1h" }},
	} {
		v := approver("")
		c.change(&v.Capabilities[0])
		if err := v.Check(); err == nil || !strings.Contains(err.Error(), ": "+c.field+": ") {
			t.Errorf("%+v: %v, want an error of %s", v.Capabilities[0], err, c.field)
		}
	}
	if v := approver("1h"); v.Check() != nil {
		t.Errorf("a sound one is refused: %v", v.Check())
	}
}

func TestWhatTheModelReadByItsOwnCallIsReadAsWell(t *testing.T) {
	for _, deferred := range []bool{false, true} {
		v := guarded("tester")
		for i := range v.Capabilities {
			v.Capabilities[i].Expose, v.Capabilities[i].Deferred = events.ExposeTool, deferred && v.Capabilities[i].Untrusted
		}
		w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
		w.Model.Respond = runtimetest.Script(runtimetest.Calls(runtimetest.ToolCall("mail_send", `{}`), runtimetest.ToolCall("page_read", `{}`), runtimetest.ToolCall("mail_send", `{}`)), runtimetest.Complete(`1`))
		w.Services.Answer = func(subject string, h map[string]string, _ []byte) ([]byte, error) {
			if !deferred || h[handlers.HeaderSettle] == "" {
				return []byte(`1`), nil
			}
			e, err := events.New(events.SettleCall{Run: h[handlers.HeaderRun], Call: h[handlers.HeaderCall], Token: h[handlers.HeaderSettle], Output: json.RawMessage(`1`)})
			if err != nil {
				return nil, err
			}
			e.ID, e.Source = "read", "/page"
			w.Send(e)
			return []byte(`{"accepted":true}`), nil
		}
		worker := w.Start(t.Context(), nil)
		apply(t, worker, v)
		w.Send(handlerstest.Start("1", "tester", "Go."))
		worker.Settle()
		completed(t, w, parentOf(w, "1"))
		if sent(w) != 1 || read(w) != 1 || !runIn(t, w, parentOf(w, "1")).Untrusted {
			t.Errorf("deferred %v: %d mails were sent and %d pages read", deferred, sent(w), read(w))
		}
		if outcome, _ := answered(t, w, parentOf(w, "1"), "call_0_2"); outcome != events.OutcomeDenied {
			t.Errorf("deferred %v: the second mail came to %s", deferred, outcome)
		}
	}
}
