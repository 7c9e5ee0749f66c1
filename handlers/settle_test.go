package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// parkedFor starts a world of a definition whose capability accepts every call,
// and whose model makes these calls.
func parkedFor(t *testing.T, v handlers.Version, calls ...events.ToolCall) (w *handlerstest.World, worker *handlerstest.Worker, run string) {
	t.Helper()
	w = approving()
	if len(calls) > 0 {
		w.Model.Respond = runtimetest.Script(runtimetest.Calls(calls...), runtimetest.CompleteQuoting())
	}
	worker = w.Start(t.Context(), nil)
	apply(t, worker, v)
	w.Send(handlerstest.Start("1", "tester", "Ask."))
	worker.Settle()
	return w, worker, parentOf(w, "1")
}

// openOf asks for the open calls of a run.
func openOf(t *testing.T, worker *handlerstest.Worker, run string) []handlers.OpenCall {
	t.Helper()
	api := &handlers.API{Host: worker.Dispatcher.Host}
	listed, err := api.Handle(t.Context(), worker.Namespace, handlers.VerbCalls, nil, []byte(`{"open":true,"run":"`+run+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	return listed.(handlers.OpenCallsAnswer).Calls
}

// putFile puts a file, for an answer to refer to.
func putFile(t *testing.T, worker *handlerstest.Worker, data string) (ref string) {
	t.Helper()
	request, err := json.Marshal(handlers.PutFile{Data: []byte(data)})
	if err != nil {
		t.Fatal(err)
	}
	put, err := (&handlers.API{Host: worker.Dispatcher.Host}).Handle(t.Context(), worker.Namespace, handlers.VerbFilePut, nil, request)
	if err != nil {
		t.Fatal(err)
	}
	return put.(handlers.PutFileAnswer).Ref
}

func TestOnlyOperatorsSayWhatBecameOfACallThatNobodyKnowsOf(t *testing.T) {
	for _, how := range []string{"a time-out", "a cancellation"} {
		w, worker, run, _ := asking(t, "24h")
		if how == "a time-out" {
			worker.Fire()
		} else {
			w.Send(handlerstest.Cancel("2", run, "no need"))
		}
		worker.Settle()
		e := resolve("r", run, "call_0_0", 0, "done", yes)
		w.Send(e)
		worker.Settle()
		refusedFor(t, w, handlers.RejectDenied)
		if n := len(runIn(t, w, run).Unknown); n != 1 {
			t.Errorf("after %s %d calls are unknown", how, n)
		}
		if err := operate(t, worker, e); err != nil {
			t.Errorf("an operator after %s: %v", how, err)
		}
	}
}

func TestATokenSettlesOneCall(t *testing.T) {
	ask := runtimetest.ToolCall("desk_approve", `{"seat":4}`)
	w, worker, run := parkedFor(t, approver(""), ask, ask)
	first := w.Services.Ledger[0].Header[handlers.HeaderSettle]
	w.Send(answer("1", run, first, yes))
	worker.Settle()
	second := answer("2", run, first, yes)
	second.Data = []byte(strings.Replace(string(second.Data), "call_0_0", "call_0_1", 1))
	w.Send(second)
	worker.Settle()
	refusedFor(t, w, handlers.RejectDenied)
	if open := openOf(t, worker, run); len(open) != 1 || open[0].Call != "call_0_1" {
		t.Errorf("open are %+v", open)
	}
}

func TestAnAnswerIsJudgedAtTheDoorAsItsRunWillJudgeIt(t *testing.T) {
	v := approver("")
	v.Capabilities[0].Output = json.RawMessage(`{"type":"object","properties":{"code":{"type":"string","pattern":"^[a-z0-9]+$"}},"required":["code"]}`)
	w, worker, run := parkedFor(t, v)
	w.Redactor = &runtimetest.Redactor{Secrets: []string{"hunter22"}}
	worker.Kill()
	worker = w.Start(t.Context(), nil)
	token := w.Services.Ledger[0].Header[handlers.HeaderSettle]
	large := putFile(t, worker, strings.Repeat("\x00", runtime.MaxAttachmentBytes/5+1))
	for i, c := range []struct{ output, reason string }{
		{`{"code":"hunter22"}`, handlers.RejectInput},
		{`{"code":"a","$attachments":[{"name":"a.txt","ref":"nothing"}]}`, handlers.RejectFile},
		{`{"code":"a","$attachments":[` + strings.Repeat(`{"name":"a.bin","ref":"`+large+`"},`, 4) + `{"name":"b.bin","ref":"` + large + `"}]}`, handlers.RejectInput},
	} {
		w.Send(answer(fmt.Sprint("bad", i), run, token, c.output))
		worker.Settle()
		refusedFor(t, w, c.reason)
	}
	w.Send(answer("good", run, token, `{"code":"a","$attachments":[{"name":"a.txt","ref":"`+putFile(t, worker, "row four")+`"},{"name":"b.txt","data":"cm93IGZpdmU="}]}`))
	worker.Admit()
	if r := runIn(t, w, run); r.Answer == nil || len(r.Answer.Files) != 2 || r.Answer.Files[0].Data != nil || r.Answer.Files[1].Data != nil || r.Answer.Files[1].Ref == "" {
		t.Errorf("the answer is stored as %+v", r.Answer)
	}
	worker.Settle()
	completed(t, w, run)
	session, _ := events.SessionOf(run)
	if parts := resultOf(t, w, session, "call_0_0").Parts; len(parts) != 3 || parts[1].File == nil || parts[1].File.Name != "a.txt" || parts[2].File.Size != 8 {
		t.Errorf("the result has the parts %+v", parts)
	}
}

// away is an object store that does not answer for some reads.
type away struct {
	handlers.Objects
	reads *int
}

func (o away) Get(ctx context.Context, ref string) ([]byte, error) {
	if *o.reads > 0 {
		*o.reads--
		return nil, errors.New("the object store does not answer")
	}
	return o.Objects.Get(ctx, ref)
}

func TestAnAnswerIsNotLostToAStoreThatIsAway(t *testing.T) {
	for _, deferred := range []bool{true, false} {
		w := approving()
		worker := w.Start(t.Context(), nil)
		apply(t, worker, approver(""))
		reads := 0
		output := `{"approved":true,"$attachments":[{"name":"a.txt","ref":"` + putFile(t, worker, "row four") + `"}]}`
		worker.Dispatcher.Host.Objects = away{worker.Dispatcher.Host.Objects, &reads}
		run := runOf(w.Namespace, "1")
		if !deferred {
			reads = 2
			w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) { return []byte(output), nil }
		}
		w.Send(handlerstest.Start("1", "tester", "Ask."))
		worker.Settle()
		if deferred {
			w.Send(answer("1", run, w.Services.Ledger[0].Header[handlers.HeaderSettle], output))
			worker.Admit()
			reads = 2
			worker.Settle()
		}
		completed(t, w, run)
		session, _ := events.SessionOf(run)
		if result := resultOf(t, w, session, "call_0_0"); reads != 0 || result.Outcome != events.OutcomeOK || len(result.Parts) != 2 {
			t.Errorf("deferred %v, %d reads did not fail: the call came to %s with %d parts", deferred, reads, result.Outcome, len(result.Parts))
		}
	}
}

func TestOnlyExactlyTheAcceptanceIsOne(t *testing.T) {
	for said, parts := range map[string]int{
		`{"accepted":true,"$attachments":[{"name":"a.txt","data":"aGk="}]}`: 2,
		`{"accepted":true,"eta":"1h"}`:                                      1,
		`{"accepted":false}`:                                                1,
	} {
		w := approving()
		w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) { return []byte(said), nil }
		worker := w.Start(t.Context(), nil)
		v := approver("")
		v.Capabilities[0].Output = nil
		apply(t, worker, v)
		w.Send(handlerstest.Start("1", "tester", "Ask."))
		worker.Settle()
		run := runOf(w.Namespace, "1")
		completed(t, w, run)
		session, _ := events.SessionOf(run)
		if result := resultOf(t, w, session, "call_0_0"); result.Outcome != events.OutcomeOK || len(result.Parts) != parts || parks(w, run) != 0 {
			t.Errorf("%s: the call came to %s with %d parts after %d parks", said, result.Outcome, len(result.Parts), parks(w, run))
		}
	}
}

func TestWhoIsToldOfADeadlineIsToldTheOneThatComesFirst(t *testing.T) {
	for _, c := range []struct {
		within, timeout string
		want            time.Duration
	}{{"", "1h", time.Hour}, {"24h", "1h", time.Hour}, {"1h", "24h", time.Hour}, {"1h", "", time.Hour}, {"", "", 0}} {
		v := approver(c.within)
		v.Agent.Limits.Timeout = c.timeout
		w, worker, run := parkedFor(t, v)
		open := openOf(t, worker, run)
		var told *time.Time
		for i := range w.Published {
			if d, err := events.PayloadOf[events.RunProgressData](&w.Published[i]); err == nil && d.Phase == events.PhaseWaiting {
				told = d.Until
			}
		}
		for what, at := range map[string]*time.Time{"call.list": open[0].Deadline, "run_progress": told} {
			got := time.Duration(0)
			if at != nil {
				got = at.Sub(w.Now()).Round(time.Minute)
			}
			if got != c.want {
				t.Errorf("settle_within %q, timeout %q: %s says %s", c.within, c.timeout, what, got)
			}
		}
	}
}

func TestACallThatIsAnsweredIsOpenNoMore(t *testing.T) {
	w, worker, run, token := asking(t, "")
	w.Send(answer("1", run, token, yes))
	worker.Admit()
	if open := openOf(t, worker, run); len(open) != 0 {
		t.Errorf("open are %+v", open)
	}
	w.Send(answer("2", run, token, no))
	worker.Admit()
	refusedFor(t, w, handlers.RejectSettled)
	facts := 0
	for _, f := range w.Facts() {
		if f.Type == events.TypeFor[events.CallAnswered]().Name {
			facts++
		}
	}
	if facts != 1 {
		t.Errorf("the log has %d answers", facts)
	}
}

func TestAReadThatNobodyAnswersMayBeMadeAgain(t *testing.T) {
	v := approver("24h")
	v.Capabilities[0].Effect = events.EffectRead
	told := func(t *testing.T, w *handlerstest.World, run string) {
		t.Helper()
		if _, text := endOfCall(t, w, run, "call_0_0"); !strings.Contains(text, "changes nothing and may be made again") || strings.Contains(text, "not known") {
			t.Errorf("the model reads: %s", text)
		}
		if n := len(runIn(t, w, run).Unknown); n != 0 {
			t.Errorf("%d calls are unknown", n)
		}
	}
	w, worker, run := parkedFor(t, v)
	worker.Fire()
	worker.Settle()
	completed(t, w, run)
	told(t, w, run)
	if outcome, _ := answered(t, w, run, "call_0_0"); outcome != events.OutcomeError {
		t.Errorf("the call came to %s", outcome)
	}

	w, worker, run = parkedFor(t, v)
	w.Send(handlerstest.Cancel("2", run, "no need"))
	worker.Settle()
	told(t, w, run)

	w = approving()
	w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) { return nil, errors.New("connection reset") }
	worker = w.Start(t.Context(), nil)
	apply(t, worker, v)
	w.Send(handlerstest.Start("1", "tester", "Ask."))
	worker.Settle()
	told(t, w, runOf(w.Namespace, "1"))
}

func TestEveryCallIsToldToBeSettledAlsoOneThatEndsWithItsRun(t *testing.T) {
	ask := runtimetest.ToolCall("desk_approve", `{"seat":4}`)
	for name, c := range map[string]struct {
		events []string
		end    func(w *handlerstest.World, worker *handlerstest.Worker, run, token string)
		want   []events.Outcome
	}{
		"an answer that counted": {[]string{"call_dispatched", "call_settled"}, func(w *handlerstest.World, worker *handlerstest.Worker, run, token string) {
			w.Send(answer("1", run, token, yes))
			w.Send(handlerstest.Cancel("2", run, "no need"))
			worker.Admit()
		}, []events.Outcome{events.OutcomeOK, events.OutcomeSkipped}},
		"a cancellation": {[]string{"call_settled"}, func(w *handlerstest.World, _ *handlerstest.Worker, run, _ string) {
			w.Send(handlerstest.Cancel("2", run, "no need"))
		}, []events.Outcome{events.OutcomeUnknown, events.OutcomeSkipped}},
		"a failure": {[]string{"call_settled"}, func(w *handlerstest.World, worker *handlerstest.Worker, _, _ string) {
			w.Pass(2 * time.Hour)
			for worker.Fire() {
			}
		}, []events.Outcome{events.OutcomeUnknown, events.OutcomeSkipped}},
		"nobody asks": {[]string{"call_dispatched"}, func(w *handlerstest.World, _ *handlerstest.Worker, run, _ string) {
			w.Send(handlerstest.Cancel("2", run, "no need"))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			v := approver("")
			v.Agent.Events, v.Agent.Limits.Timeout = c.events, "1h"
			w, worker, run := parkedFor(t, v, ask, ask)
			c.end(w, worker, run, w.Services.Ledger[0].Header[handlers.HeaderSettle])
			worker.Settle()
			var got []events.Outcome
			ended := false
			for i := range w.Published {
				e := &w.Published[i]
				ended = ended || strings.HasSuffix(e.Type, "run.cancelled") || strings.HasSuffix(e.Type, "run.failed")
				if e.Type != events.TypeFor[events.CallSettledData]().Name {
					continue
				}
				d, err := events.PayloadOf[events.CallSettledData](e)
				if err != nil || ended || d.Name != "desk_approve" {
					t.Fatalf("%+v after the end %v: %v", d, ended, err)
				}
				if outcome, _ := endOfCall(t, w, run, d.CallID); outcome != d.Outcome {
					t.Errorf("call %s came to %s and is told to be %s", d.CallID, outcome, d.Outcome)
				}
				got = append(got, d.Outcome)
			}
			if !ended || !slices.Equal(got, c.want) {
				t.Errorf("the end is told %v, and calls are %v, want %v", ended, got, c.want)
			}
		})
	}
}

func TestWhatWasSpentIsOnTheLedgerWhileACallWaits(t *testing.T) {
	w, worker, run := parkedFor(t, budgeted(approver(""), "", events.Budget{Steps: 9}))
	if a := accounts(t, w, worker, run)[run]; a.Steps != 1 || a.Tokens == (events.Usage{}) || len(a.Open) != 0 {
		t.Errorf("the account has %d steps, %+v, and %d open requests", a.Steps, a.Tokens, len(a.Open))
	}
}

func TestTheErrorOfAServiceIsBounded(t *testing.T) {
	w, worker, run, token := asking(t, "")
	e := answer("1", run, token, yes)
	data, err := json.Marshal(events.SettleCall{Run: run, Call: "call_0_0", Token: token, Error: strings.Repeat("no ", 300_000)})
	if err != nil {
		t.Fatal(err)
	}
	e.Data = data
	w.Send(e)
	worker.Admit()
	if r := runIn(t, w, run); r.Answer == nil || len(r.Answer.Error) > 5<<10 || !strings.HasPrefix(r.Answer.Error, "no no") {
		t.Errorf("the answer is %+v", r.Answer)
	}
	worker.Settle()
	completed(t, w, run)
}

// beginnings counts reads of a session from its first fact.
type beginnings struct {
	events.Log
	session string
	n       *int
}

func (b beginnings) Read(ctx context.Context, key events.Key, after uint64, limit int) ([]events.Record, error) {
	if after == 0 && key.Session == b.session {
		*b.n++
	}
	return b.Log.Read(ctx, key, after, limit)
}

func TestAnAnswerThatIsLateReadsNoWholeLog(t *testing.T) {
	w, worker, run, token := asking(t, "")
	w.Send(answer("1", run, token, yes))
	worker.Settle()
	session, _ := events.SessionOf(run)
	n := 0
	worker.Dispatcher.Host.Log = beginnings{worker.Dispatcher.Host.Log, session, &n}
	cost := func(e events.Event) int {
		n = 0
		w.Send(e)
		worker.Admit()
		return n
	}
	again := cost(answer("1", run, token, yes))
	if late := cost(answer("2", run, token, no)); late >= again {
		t.Errorf("a late answer reads the session %d times, and the one that counted %d times when it comes again", late, again)
	}
	refusedFor(t, w, handlers.RejectSettled)
}

func TestADeferredToolOfAnMCPServerNeedsAnOutputSchema(t *testing.T) {
	v := approver("")
	c := &v.Capabilities[0]
	c.Route = events.Route{MCP: &events.MCPRoute{Server: "desk", Tool: "approve"}}
	if err := v.Check(); err == nil || !strings.Contains(err.Error(), ": deferred: ") {
		t.Errorf("a tool without an output schema: %v", err)
	}
	c.Route.MCP.Structured = true
	if err := v.Check(); err != nil {
		t.Errorf("a tool with an output schema: %v", err)
	}
}

func TestAWriteWhoseServiceSaysDoneAndNoMoreIsCarriedOut(t *testing.T) {
	w := approving()
	w.Services.Answer = func(_ string, h map[string]string, _ []byte) ([]byte, error) {
		if h[handlers.HeaderInquiry] != "" {
			return []byte(`{"state":"done"}`), nil
		}
		return []byte(yes), nil
	}
	w.Services.Reached = func(n int, by *handlerstest.Worker) {
		if n == 1 {
			by.Kill()
		}
	}
	worker := w.Start(t.Context(), nil)
	v := approver("")
	v.Capabilities[0].Deferred, v.Capabilities[0].Effect = false, events.EffectWrite
	v.Capabilities[0].Status = &events.Route{NATS: &events.NATSRoute{Subject: "svc.status"}}
	apply(t, worker, v)
	w.Send(handlerstest.Start("1", "tester", "Ask."))
	worker.Settle()
	worker = w.Start(t.Context(), nil)
	worker.Settle()
	run := runOf(w.Namespace, "1")
	completed(t, w, run)
	outcome, text := answered(t, w, run, "call_0_0")
	if outcome != events.OutcomeOK || !strings.Contains(text, "was carried out") {
		t.Errorf("the call came to %s %s", outcome, text)
	}
}
