package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// mixed is an agent with a capability of every effect. That of desk.pay can be
// asked what became of a payment.
func mixed() handlers.Version {
	v := agent("desk.look", "desk.mark", "desk.book", "desk.pay")
	for i, effect := range []events.Effect{events.EffectRead, events.EffectIdempotent, events.EffectWrite, events.EffectWrite} {
		v.Capabilities[i].Effect = effect
	}
	v.Capabilities[3].Status = &events.Route{NATS: &events.NATSRoute{Subject: "svc.desk.pay.status"}}
	return v
}

// fiveCalls are the callbacks of the scripts, in their order.
var fiveCalls = []struct{ name, input string }{
	{"desk.look", `{"n":0}`}, {"desk.book", `{"n":1}`}, {"desk.mark", `{"n":2}`}, {"desk.pay", `{"n":3}`}, {"desk.book", `{"n":4}`},
}

// inTurn makes the five callbacks one after the other, atOnce all together.
func inTurn() string {
	var code strings.Builder
	for _, c := range fiveCalls {
		fmt.Fprintf(&code, "%s %s\n", c.name, c.input)
	}
	return code.String() + "return"
}

func atOnce(_ context.Context, call runtimetest.Callback) (any, error) {
	errs := make([]error, len(fiveCalls))
	var wait sync.WaitGroup
	for i, c := range fiveCalls {
		wait.Go(func() { _, errs[i] = call(c.name, json.RawMessage(c.input)) })
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return "all", nil
}

// honest answers an inquiry from what reached the service.
func honest(w *handlerstest.World) func(string, map[string]string, []byte) ([]byte, error) {
	return func(subject string, header map[string]string, data []byte) ([]byte, error) {
		if header[handlers.HeaderInquiry] == "" {
			return fmt.Appendf(nil, `{"of":%s}`, data), nil
		}
		if want := fmt.Sprintf(`{"key":%q}`, header[handlers.HeaderKey]); subject != "svc.desk.pay.status" || string(data) != want {
			return nil, fmt.Errorf("%s is no inquiry", data)
		}
		if w.Services.Sent(header[handlers.HeaderKey]) > 0 {
			return []byte(`{"state":"done","result":{"paid":true}}`), nil
		}
		return []byte(`{"state":"not-done"}`), nil
	}
}

// resolvable demands that nothing stayed unknown that could be found out.
func resolvable(w *handlerstest.World) error {
	for _, key := range w.Keys() {
		s, _, err := w.Session(context.Background(), key)
		if err != nil {
			return err
		}
		for _, r := range s.Runs {
			for _, c := range r.Unknown {
				if c.Capability != "desk.book" {
					return fmt.Errorf("callback %d of %s is unknown and could be found out", c.Index, c.Capability)
				}
			}
		}
	}
	return nil
}

var callbackScenarios = []handlerstest.Scenario{
	{
		Name: "five callbacks in turn", Versions: []handlers.Version{mixed()}, Judge: resolvable,
		Prepare: func(w *handlerstest.World) {
			steps(runtimetest.RunJS(inTurn()), runtimetest.Complete(`"done"`))(w)
			w.Services.Answer = honest(w)
		},
		Commands: start("Go."),
	},
	{
		Name: "five callbacks at once", Versions: []handlers.Version{mixed()}, Judge: resolvable, Parallel: true,
		Prepare: func(w *handlerstest.World) {
			steps(runtimetest.RunJS("at once"), runtimetest.Complete(`"done"`))(w)
			w.Executors.Scripts = map[string]runtimetest.ScriptFunc{"at once": atOnce}
			w.Services.Answer = honest(w)
		},
		Commands: start("Go."),
	},
	{
		Name: "a script that fails after five callbacks", Versions: []handlers.Version{mixed()}, Judge: resolvable,
		Prepare: func(w *handlerstest.World) {
			steps(runtimetest.RunJS(strings.TrimSuffix(inTurn(), "return")+"throw enough"), runtimetest.Complete(`"done"`))(w)
			w.Services.Answer = honest(w)
		},
		Commands: start("Go."),
	},
}

func TestTheNoticeOfAScriptIsExactWhateverAppendIsLostOrKilled(t *testing.T) {
	crashEverywhere(t, callbackScenarios, false, inMemory)
}

func TestTheNoticeOfAScriptIsExactOnJetStream(t *testing.T) {
	list := callbackScenarios
	if !slow {
		list = list[:2]
	}
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) { crashEverywhere(t, list, !slow, on(conn)) })
}

// died does a script with five callbacks whose worker dies when the nth request
// has reached its service, and returns the run, and what it was told.
func died(t *testing.T, n int, script string) (w *handlerstest.World, run *projector.Run, text string) {
	t.Helper()
	return diedAgain(t, n, script, nil)
}

// diedAgain is died with faults for the appends of the second worker, and a third
// one when that dies of them.
func diedAgain(t *testing.T, n int, script string, plan func(handlerstest.Append) (eventstest.Fault, bool)) (w *handlerstest.World, run *projector.Run, text string) {
	t.Helper()
	w = inMemory()
	w.Effects = map[string]events.Effect{"desk.look": events.EffectRead, "desk.mark": events.EffectIdempotent}
	steps(runtimetest.RunJS(script), runtimetest.Complete(`"done"`))(w)
	w.Executors.Scripts = map[string]runtimetest.ScriptFunc{"at once": atOnce}
	w.Services.Answer = honest(w)
	w.Services.Reached = func(at int, by *handlerstest.Worker) {
		if at == n {
			by.Kill()
		}
	}
	worker := w.Start(t.Context(), nil)
	v := mixed()
	if _, err := worker.Dispatcher.Apply(t.Context(), w.Namespace, &v); err != nil {
		t.Fatal(err)
	}
	w.Send(handlerstest.Start("1", "tester", "Go."))
	worker.Settle()
	if !worker.Dead() {
		t.Fatalf("request %d was not made", n)
	}
	for _, plan := range []func(handlerstest.Append) (eventstest.Fault, bool){plan, nil} {
		worker = w.Start(t.Context(), plan)
		if _, err := worker.Sweeper().Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if worker.Settle(); !worker.Dead() {
			break
		}
	}
	if err := w.Check(t.Context()); err != nil {
		t.Errorf("request %d: %v", n, err)
	}
	if err := resolvable(w); err != nil {
		t.Errorf("request %d: %v", n, err)
	}
	s, _, err := w.Session(t.Context(), w.Keys()[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Window {
		for _, p := range m.Parts {
			if p.Result != nil && p.Result.Outcome == events.OutcomeUnknown {
				text = p.Result.Parts[0].Text
			}
		}
	}
	return w, s.Current(), text
}

func TestADeathInTheMiddleOfARequestIsToldExactly(t *testing.T) {
	// What is known of callback i when the worker died in request n.
	finished, unknown := "finished with", "not known whether it took effect"
	again, asked := "was sent again with the same key and finished", `as its service says it finished with {"paid":true}`
	for n, want := range [][]string{
		nil, // a read that was under way need not stand in the journal
		{finished, unknown},
		{finished, finished, again},
		{finished, finished, finished, asked},
		{finished, finished, finished, finished, unknown},
	} {
		_, run, text := died(t, n+1, inTurn())
		if run.State != projector.StateCompleted {
			t.Errorf("request %d: the run is %s", n+1, run.State)
		}
		for i, c := range fiveCalls {
			line := fmt.Sprintf("\n%d. %s: ", i+1, c.name)
			if i >= len(want) {
				if strings.Contains(text, line) {
					t.Errorf("request %d: callback %d was never made and is listed:\n%s", n+1, i, text)
				}
			} else if !strings.Contains(text, line+want[i]) {
				t.Errorf("request %d: callback %d is not told to be %q:\n%s", n+1, i, want[i], text)
			}
		}
		open := n == 1 || n == 4
		if open != strings.Contains(text, "first find out") || open != (len(run.Unknown) == 1) || (n == 0) != strings.Contains(text, "nothing took effect") {
			t.Errorf("request %d: %d callbacks are unknown:\n%s", n+1, len(run.Unknown), text)
		}
	}
	for n := range fiveCalls {
		died(t, n+1, "at once")
	}
}

// Whoever finds out what became of callbacks may die of it as well.
func TestADeathWhileCallbacksAreFoundOutChangesNothing(t *testing.T) {
	record := events.TypeFor[events.CallbacksRecorded]().Name
	for _, n := range []int{3, 4} {
		for _, fault := range []eventstest.Fault{eventstest.LostBefore, eventstest.AnswerLost} {
			for _, kill := range []bool{true, false} {
				met := false
				w, run, text := diedAgain(t, n, inTurn(), func(a handlerstest.Append) (eventstest.Fault, bool) {
					if met || a.Type != record {
						return eventstest.None, false
					}
					met = true
					return fault, kill
				})
				if !met || run.State != projector.StateCompleted || !strings.Contains(text, "Nothing that it did is unknown") || len(run.Unknown) != 0 {
					t.Errorf("request %d, %v, killed %t: met %t, the run is %s:\n%s", n, fault, kill, met, run.State, text)
				}
				if err := w.Idle(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// A callback costs one append at most, and reads none of their own.
func TestJournalingCostsAtMostOneAppendForEachCallback(t *testing.T) {
	for name, c := range map[string]struct {
		code string
		most int
		each int // exactly, when it is told
	}{
		"in turn":            {inTurn(), 5, 5},
		"at once":            {"at once", 5, 0},
		"reads":              {strings.Repeat("desk.look {}\n", 20) + "return", 0, 0},
		"a write, and reads": {"desk.book {}\n" + strings.Repeat("desk.look {}\n", 20) + "return", 2, 2},
	} {
		w, worker := started(t, mixed(), runtimetest.RunJS(c.code), runtimetest.Complete(`"done"`))
		w.Executors.Scripts = map[string]runtimetest.ScriptFunc{"at once": atOnce}
		worker.Settle()
		n := 0
		for _, f := range w.Facts() {
			if f.Type == events.TypeFor[events.CallbacksRecorded]().Name {
				n++
			}
		}
		if r := only(t, w); r.State != projector.StateCompleted || n > c.most || c.each > 0 && n != c.each {
			t.Errorf("%s: the run is %s after %d records of callbacks", name, r.State, n)
		}
	}
}

// resolve returns a call.resolve command.
func resolve(id, run, call string, index int, as, result string) events.Event {
	e, err := events.New(events.ResolveCall{Run: run, Call: call, Index: index, As: as, Result: json.RawMessage(result)})
	if err != nil {
		panic(err)
	}
	e.ID, e.Source = id, "/test"
	return e
}

// operate carries out a command as operators send it, over the API.
func operate(t *testing.T, worker *handlerstest.Worker, e events.Event) error {
	t.Helper()
	api := &handlers.API{Host: worker.Dispatcher.Host}
	_, err := api.Handle(t.Context(), worker.Namespace, strings.TrimPrefix(e.Type, events.TypePrefix), e.Header(), e.Data)
	return err
}

// reasonOf is why a command was refused, or nothing.
func reasonOf(t *testing.T, err error) string {
	t.Helper()
	var refused *handlers.Rejection
	var typed *handlers.APIError
	switch {
	case errors.As(err, &refused):
		return refused.Reason
	case errors.As(err, &typed):
		return typed.Code
	case err != nil:
		t.Errorf("no refusal: %v", err)
	}
	return ""
}

func TestAnOperatorSettlesWhatNobodyKnewOnce(t *testing.T) {
	w, run, _ := died(t, 2, inTurn())
	worker := w.Start(t.Context(), nil)
	api := &handlers.API{Host: worker.Dispatcher.Host, Lister: listed{handlers.Row{Summary: run.Summary()}}}
	list := func(request string) []handlers.UnknownCall {
		t.Helper()
		answer, err := api.Handle(t.Context(), w.Namespace, handlers.VerbCalls, nil, []byte(request))
		if err != nil {
			t.Fatal(err)
		}
		return answer.(handlers.CallsAnswer).Calls
	}
	calls := list(`{"unknown":true}`)
	if len(calls) != 1 || calls[0].Capability != "desk.book" || calls[0].Index != 1 || string(calls[0].Input) != `{"n":1}` || w.Services.Sent(calls[0].Key) != 1 {
		t.Fatalf("listed: %+v", calls)
	}
	admit := func(e events.Event) error { return operate(t, worker, e) }
	refused := func(what string, err error, reason string) {
		t.Helper()
		if reasonOf(t, err) != reason {
			t.Errorf("%s: %v", what, err)
		}
	}
	call := calls[0].Call
	refused("another callback", admit(resolve("a", run.ID, call, 0, "done", "")), handlers.RejectNotUnknown)
	refused("another run", admit(resolve("b", events.RunFor(w.Namespace, w.Keys()[0].Session, "/test", "none"), call, 1, "done", "")), handlers.RejectNoRun)
	refused("another word", admit(resolve("c", run.ID, call, 1, "maybe", "")), handlers.RejectMalformed)
	refused("a result of nothing", admit(resolve("d", run.ID, call, 1, "not-done", "1")), handlers.RejectMalformed)
	for range 2 {
		if err := admit(resolve("e", run.ID, call, 1, "done", `{"seat":7}`)); err != nil {
			t.Fatal(err)
		}
	}
	refused("a second answer", admit(resolve("f", run.ID, call, 1, "not-done", "")), handlers.RejectNotUnknown)
	if calls = list(fmt.Sprintf(`{"unknown":true,"run":%q}`, run.ID)); len(calls) != 0 {
		t.Errorf("still listed: %+v", calls)
	}
	w.Send(handlerstest.Continue("next", w.Keys()[0].Session, "And?"))
	w.Model.Respond = runtimetest.Script(nil, nil, runtimetest.Complete(`"told"`))
	worker.Settle()
	requests := w.Model.Requests()
	last, n := requests[len(requests)-1], 0
	for _, m := range last.Messages {
		if slices.ContainsFunc(m.Parts, func(p events.Part) bool {
			return strings.Contains(p.Text, `callback 2 (desk.book) of call `+call) && strings.Contains(p.Text, `returned {"seat":7}`)
		}) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the next run's model was told %d times", n)
	}
	if err := w.Check(t.Context()); err != nil {
		t.Error(err)
	}
}
