package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// ended demands what the first call of the only run was told, and how many
// effects nobody knows.
func ended(t *testing.T, w *handlerstest.World, state projector.State, outcome events.Outcome, unknown int, says ...string) *events.ToolResult {
	t.Helper()
	run := only(t, w)
	r := resultOf(t, w, w.Keys()[0].Session, "call_0_0")
	if run.State != state || r.Outcome != outcome || len(run.Unknown) != unknown {
		t.Errorf("the run is %s, its call %s, and %d effects are unknown", run.State, r.Outcome, len(run.Unknown))
	}
	for _, part := range says {
		if not, ok := strings.CutPrefix(part, "!"); ok == strings.Contains(r.Parts[0].Text, not) {
			t.Errorf("told about %q:\n%s", part, r.Parts[0].Text)
		}
	}
	return r
}

// next carries on what a dead worker has left, until it rests.
func next(t *testing.T, w *handlerstest.World, plan func(handlerstest.Append) (eventstest.Fault, bool)) {
	t.Helper()
	worker := w.Start(t.Context(), plan)
	worker.Sweeper().Sweep(t.Context())
	worker.Settle()
}

// begun applies an agent and starts its run with a worker that dies in the nth
// call of a capability.
func begun(t *testing.T, w *handlerstest.World, v handlers.Version, n int) {
	t.Helper()
	w.Services.Reached = func(at int, by *handlerstest.Worker) {
		if at == n {
			by.Kill()
		}
	}
	worker := w.Start(t.Context(), nil)
	apply(t, worker, v)
	w.Send(handlerstest.Start("1", "tester", "Go."))
	worker.Settle()
}

// The script was told that nobody knows, and took back what it may have done.
func TestWhatAScriptHasTakenBackIsNotMadeAgain(t *testing.T) {
	w := inMemory()
	steps(runtimetest.RunJS("try desk.mark {\"seat\":4}\ndesk.unmark {\"seat\":4}\ndesk.book {}\nreturn"), runtimetest.Complete(`1`))(w)
	marked := false
	w.Services.Answer = func(subject string, _ map[string]string, _ []byte) ([]byte, error) {
		switch marked = subject == "svc.desk.mark" || marked && subject != "svc.desk.unmark"; {
		case len(w.Services.Ledger) == 1:
			return nil, errors.New("connection reset")
		}
		return []byte(`1`), nil
	}
	v := agent("desk.mark", "desk.unmark", "desk.book")
	v.Capabilities[0].Effect, v.Capabilities[1].Effect = events.EffectIdempotent, events.EffectIdempotent
	begun(t, w, v, 3)
	next(t, w, nil)
	if marked || len(w.Services.Ledger) != 3 {
		t.Errorf("the seat is marked: %t, after %d calls", marked, len(w.Services.Ledger))
	}
	ended(t, w, projector.StateCompleted, events.OutcomeUnknown, 2, "1. desk.mark: not known", "2. desk.unmark: finished", "3. desk.book: not known", "first find out")
}

// The first sending may have taken effect, whatever is answered to the second.
func TestAnErrorOfTheSecondSendingLeavesTheFirstUnknown(t *testing.T) {
	for name, first := range map[string]runtimetest.Step{
		"called by the model": runtimetest.Calls(runtimetest.ToolCall("desk_mark", `{}`)), "called by a script": runtimetest.RunJS("desk.mark {}\nreturn"),
	} {
		t.Run(name, func(t *testing.T) {
			w := inMemory()
			steps(first, runtimetest.Complete(`1`))(w)
			w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
				if len(w.Services.Ledger) > 1 {
					return nil, &handlers.ServiceError{Code: "503", Description: "the database is away"}
				}
				return []byte(`1`), nil
			}
			begun(t, w, marking(events.EffectIdempotent), 1)
			next(t, w, nil)
			ended(t, w, projector.StateCompleted, events.OutcomeUnknown, 1, "the database is away", "it was sent again with the same key", "!Nothing that it did is unknown")
		})
	}
}

// What was carried out the second time is known, even if it gave nothing of use.
func TestAnAnswerOfTheSecondSendingThatDoesNotFitIsKnown(t *testing.T) {
	w := inMemory()
	steps(runtimetest.RunJS("desk.mark {}\nreturn"), runtimetest.Complete(`1`))(w)
	v := marking(events.EffectIdempotent)
	v.Capabilities[0].Output = json.RawMessage(`{"type":"string"}`)
	begun(t, w, v, 1)
	next(t, w, nil)
	ended(t, w, projector.StateCompleted, events.OutcomeUnknown, 0, "was sent again with the same key and failed: desk.mark was carried out", "Nothing that it did is unknown")
}

// The result was to tell what had finished, and is not committed.
func TestWhatFinishedIsToldOfARunThatIsAskedToStopBeforeTheResult(t *testing.T) {
	seat := func() ([]byte, error) { return []byte(`{"seat":4}`), nil }
	long, _ := json.Marshal(make([]int, 3000))
	own, script := runtimetest.Calls(runtimetest.ToolCall("desk_mark", `{}`)), runtimetest.RunJS("desk.mark {}\nreturn")
	for name, c := range map[string]struct {
		first   runtimetest.Step
		answer  func() ([]byte, error)
		outcome events.Outcome
		says    string
	}{
		"called by a script":                    {script, seat, events.OutcomeUnknown, `1. desk.mark: finished with {"seat":4}`},
		"called by the model":                   {own, seat, events.OutcomeOK, `{"seat":4}`},
		"called by the model, a long answer":    {own, func() ([]byte, error) { return long, nil }, events.OutcomeOK, string(long)},
		"called by the model, an error":         {own, func() ([]byte, error) { return nil, &handlers.ServiceError{Code: "409", Description: "taken"} }, events.OutcomeError, "desk.mark failed: "},
		"called by the model, nobody serves it": {own, func() ([]byte, error) { return nil, handlers.ErrNoService }, events.OutcomeSkipped, "desk.mark was not called: "},
		"called by the model, with a file":      {own, func() ([]byte, error) { return hello("", nil, nil) }, events.OutcomeOK, `{"ok":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := inMemory()
			steps(c.first, runtimetest.Complete(`1`))(w)
			w.Unheard = true
			w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) { return c.answer() }
			other := w.Start(t.Context(), nil)
			var worker *handlerstest.Worker
			worker = w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
				if a.Type == factCommitted && a.Nth == 3 {
					worker.Before(func() {
						e := handlerstest.Cancel("c", a.Run, "stop")
						if _, err := other.Dispatcher.Admit(context.Background(), w.Namespace, &e); err != nil {
							t.Error(err)
						}
					})
				}
				return eventstest.None, false
			})
			v := marking(events.EffectWrite)
			v.Agent.Events = []string{"call_settled"}
			apply(t, worker, v)
			w.Send(handlerstest.Start("1", "tester", "Go."))
			worker.Settle()
			r := ended(t, w, projector.StateCancelled, c.outcome, 0)
			if !strings.HasPrefix(r.Parts[0].Text, c.says) && !strings.Contains(r.Parts[0].Text, "\n"+c.says) {
				t.Errorf("told %q", r.Parts[0].Text)
			}
			if files := len(r.Parts) - 1; files != strings.Count(name, "file") {
				t.Errorf("%d files", files)
			}
			for _, fact := range w.Facts() {
				if payload, _ := fact.Payload(); payload != nil {
					if end, ok := payload.(events.RunCancelled); ok && (len(end.Calls) != 1 || end.Calls[0].Outcome != c.outcome) {
						t.Errorf("the fact says %+v", end.Calls)
					}
				}
			}
		})
	}
}

// The grace of a drain is over while the script goes on.
func TestWhatFinishedIsToldWhenADrainEndsItsScript(t *testing.T) {
	w := inMemory()
	steps(runtimetest.RunJS("s"), runtimetest.Complete(`1`))(w)
	worker := w.Start(t.Context(), nil)
	worker.Dispatcher.Grace = 50 * time.Millisecond
	apply(t, worker, agent("desk.book"))
	w.Send(handlerstest.Start("1", "tester", "Go."))
	worker.Admit()
	ctx, stop := context.WithCancel(t.Context())
	w.Executors.Scripts = map[string]runtimetest.ScriptFunc{"s": func(ctx context.Context, call runtimetest.Callback) (any, error) {
		if _, err := call("desk.book", json.RawMessage(`{}`)); err != nil {
			return nil, err
		}
		stop()
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	worker.React()
	if err := worker.Dispatcher.Run(ctx, t.Context(), worker.Queue(ctx)); err != nil {
		t.Fatal(err)
	}
	w.Start(t.Context(), nil).Settle()
	ended(t, w, projector.StateCompleted, events.OutcomeUnknown, 0, "1. desk.book: finished with", "Nothing that it did is unknown")
}

// A service that says not-done refuses the callback by its lower epoch.
func TestAnInquiryHasAHigherEpochThanWhatItAsksAbout(t *testing.T) {
	w := inMemory()
	steps(runtimetest.RunJS("s"), runtimetest.Complete(`1`))(w)
	v := agent("desk.pay")
	v.Capabilities[0].Status = &events.Route{NATS: &events.NATSRoute{Subject: "svc.desk.pay.status"}}
	worker := w.Start(t.Context(), nil)
	apply(t, worker, v)
	w.Send(handlerstest.Start("1", "tester", "Go."))
	sent, release := make(chan bool), make(chan bool)
	epochs := make(map[string]string)
	w.Services.Answer = func(_ string, h map[string]string, _ []byte) ([]byte, error) {
		epochs[h[handlers.HeaderInquiry]] = h[handlers.HeaderEpoch]
		if h[handlers.HeaderInquiry] == "" {
			close(sent)
			<-release
			return []byte(`1`), nil
		}
		return []byte(`{"state":"not-done"}`), nil
	}
	w.Executors.Scripts = map[string]runtimetest.ScriptFunc{"s": func(_ context.Context, call runtimetest.Callback) (any, error) {
		go call("desk.pay", json.RawMessage(`{}`))
		<-sent
		return nil, errors.New("the executor's pipe broke")
	}}
	worker.Settle()
	close(release)
	if epochs[""] != "1" || epochs["status"] != "2" {
		t.Errorf("epochs %v", epochs)
	}
	ended(t, w, projector.StateCompleted, events.OutcomeUnknown, 0, "as its service says it did not take effect")
}

// hello is an answer that comes with a file.
func hello(string, map[string]string, []byte) ([]byte, error) {
	return []byte(`{"ok":1,"$attachments":[{"name":"a.txt","media_type":"text/plain","data":"aGVsbG8="}]}`), nil
}

// The second worker dies between what it found out and the result.
func TestTheFileOfACallbackThatWasMadeAgainOutlivesAnotherDeath(t *testing.T) {
	w := inMemory()
	steps(runtimetest.RunJS("desk.mark {}\nreturn"), runtimetest.Complete(`1`))(w)
	w.Services.Answer = hello
	begun(t, w, marking(events.EffectIdempotent), 1)
	next(t, w, func(a handlerstest.Append) (eventstest.Fault, bool) {
		return eventstest.LostBefore, a.Type == factCommitted
	})
	next(t, w, nil)
	r := ended(t, w, projector.StateCompleted, events.OutcomeUnknown, 0, `finished with {"ok":1}`, "!lost")
	if len(r.Parts) != 2 || r.Parts[1].File == nil || r.Parts[1].File.Name != "a.txt" || len(w.Services.Ledger) != 2 {
		t.Errorf("parts %+v after %d calls", r.Parts, len(w.Services.Ledger))
	}
}

// A file waits for the end of its script: one that was lost is told of.
func TestTheFileOfAnInterruptedScriptIsToldToBeLost(t *testing.T) {
	w := inMemory()
	steps(runtimetest.RunJS("desk.draw {}\ndesk.book {}\nreturn"), runtimetest.Complete(`1`))(w)
	w.Services.Answer = hello
	begun(t, w, agent("desk.draw", "desk.book"), 2)
	next(t, w, nil)
	ended(t, w, projector.StateCompleted, events.OutcomeUnknown, 1, `1. desk.draw: finished with {"ok":1}; of its 1 files 1 were lost`)
}

func TestAScriptThatChangedNothingIsToldSoWhenItsRunIsCancelled(t *testing.T) {
	w := inMemory()
	steps(runtimetest.RunJS("s"), runtimetest.Complete(`1`))(w)
	w.Unheard = true
	other, worker := w.Start(t.Context(), nil), w.Start(t.Context(), nil)
	v := agent("desk.look")
	v.Capabilities[0].Effect = events.EffectRead
	apply(t, worker, v)
	w.Send(handlerstest.Start("1", "tester", "Go."))
	w.Executors.Scripts = map[string]runtimetest.ScriptFunc{"s": func(_ context.Context, call runtimetest.Callback) (any, error) {
		_, _ = call("desk.look", json.RawMessage(`{}`))
		e := handlerstest.Cancel("c", runOf(w.Namespace, "1"), "stop")
		_, err := other.Dispatcher.Admit(context.Background(), w.Namespace, &e)
		return 1, err
	}}
	worker.Settle()
	ended(t, w, projector.StateCancelled, events.OutcomeUnknown, 0, "may be run again", "!Check before")
}

// Whatever is cut, what nobody knows is listed, and what is not listed is counted.
func TestANoticeThatHasNoRoomListsWhatIsUnknown(t *testing.T) {
	const n = 300
	w := inMemory()
	steps(runtimetest.RunJS("many"), runtimetest.Complete(`1`))(w)
	w.Executors.Scripts = map[string]runtimetest.ScriptFunc{"many": func(ctx context.Context, call runtimetest.Callback) (any, error) {
		for i := range n {
			if _, err := call("desk.book", json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))); err != nil && ctx.Err() != nil {
				return nil, err
			}
		}
		return nil, nil
	}}
	w.Services.Answer = func(_ string, h map[string]string, _ []byte) ([]byte, error) {
		if i := h[handlers.HeaderIndex]; i == "100" || i == "150" {
			return nil, errors.New("connection reset")
		}
		return []byte(`"` + strings.Repeat("x", 60) + `"`), nil
	}
	begun(t, w, within(agent("desk.book"), 5000), n)
	next(t, w, nil)
	r := ended(t, w, projector.StateCompleted, events.OutcomeUnknown, 3, "\n101. desk.book: not known", "\n151. desk.book: not known", "\n300. desk.book: not known", "more: finished", "first find out", "!left out here", "!cut in its middle")
	if len(r.Parts[0].Text) > 12<<10 {
		t.Errorf("the notice has %d bytes", len(r.Parts[0].Text))
	}
}

// A service may come back later than the worker.
func TestAServiceThatComesBackLaterThanItsWorkerIsWaitedFor(t *testing.T) {
	w := inMemory()
	steps(runtimetest.RunJS("desk.mark {}\nreturn"), runtimetest.Complete(`1`))(w)
	w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
		if n := len(w.Services.Ledger); n == 2 || n == 3 {
			return nil, handlers.ErrNoService
		}
		return []byte(`1`), nil
	}
	begun(t, w, marking(events.EffectIdempotent), 1)
	next(t, w, nil)
	ended(t, w, projector.StateCompleted, events.OutcomeUnknown, 0, "was sent again with the same key and finished with 1")
}

// A script may get over what nobody knows. An operator finds it all the same.
func TestAnUnknownThatAScriptGotOverIsListed(t *testing.T) {
	w, worker := started(t, agent("desk.book"), runtimetest.RunJS("try desk.book {}\nreturn"), runtimetest.Complete(`1`))
	w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) { return nil, errors.New("connection reset") }
	worker.Settle()
	ended(t, w, projector.StateCompleted, events.OutcomeOK, 1)
}

// A drain that ends a script in the middle of a callback tells nobody an outcome,
// whether the request heeds that or not: what may be made again is.
func TestWhatADrainInterruptsIsMadeAgain(t *testing.T) {
	for _, heeds := range []bool{true, false} {
		w := inMemory()
		steps(runtimetest.RunJS("s"), runtimetest.Complete(`1`))(w)
		worker := w.Start(t.Context(), nil)
		worker.Dispatcher.Grace = 50 * time.Millisecond
		apply(t, worker, marking(events.EffectIdempotent))
		w.Send(handlerstest.Start("1", "tester", "Go."))
		worker.Admit()
		ctx, stop := context.WithCancel(t.Context())
		over, script := make(chan struct{}), make(chan context.Context, 1)
		w.Executors.Scripts = map[string]runtimetest.ScriptFunc{"s": func(ctx context.Context, call runtimetest.Callback) (any, error) {
			script <- ctx
			told := make(chan struct{})
			go func() { defer close(told); _, _ = call("desk.mark", json.RawMessage(`{}`)) }()
			<-ctx.Done()
			if heeds {
				<-told
			}
			return nil, ctx.Err()
		}}
		w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
			if len(w.Services.Ledger) > 1 {
				return []byte(`1`), nil
			}
			stop()
			if heeds {
				ended := <-script
				<-ended.Done()
				return nil, context.Cause(ended)
			}
			<-over
			return []byte(`1`), nil
		}
		worker.React()
		err := worker.Dispatcher.Run(ctx, t.Context(), worker.Queue(ctx))
		close(over)
		if err != nil {
			t.Fatal(err)
		}
		w.Start(t.Context(), nil).Settle()
		ended(t, w, projector.StateCompleted, events.OutcomeUnknown, 0, "was sent again with the same key and finished with 1")
	}
}

// What is made again may attach as much as the call might have.
func TestWhatIsMadeAgainAttachesNoMoreThanOneCallMay(t *testing.T) {
	w := inMemory()
	steps(runtimetest.RunJS("s"), runtimetest.Complete(`1`))(w)
	both, release := make(chan bool, 2), make(chan bool)
	w.Executors.Scripts = map[string]runtimetest.ScriptFunc{"s": func(_ context.Context, call runtimetest.Callback) (any, error) {
		for range 2 {
			go call("desk.mark", json.RawMessage(`{}`))
		}
		<-both
		<-both
		return nil, errors.New("the executor's pipe broke")
	}}
	w.Services.Answer = func(_ string, h map[string]string, _ []byte) ([]byte, error) {
		if h[handlers.HeaderEpoch] == "1" {
			both <- true
			<-release
			return []byte(`1`), nil
		}
		files := make([]string, runtime.MaxAttachments/2+2)
		for i := range files {
			files[i] = fmt.Sprintf(`{"name":"%s-%d.txt","data":"aGVsbG8="}`, h[handlers.HeaderIndex], i)
		}
		return []byte(`{"ok":1,"$attachments":[` + strings.Join(files, ",") + `]}`), nil
	}
	worker := w.Start(t.Context(), nil)
	apply(t, worker, marking(events.EffectIdempotent))
	w.Send(handlerstest.Start("1", "tester", "Go."))
	worker.Settle()
	close(release)
	r := ended(t, w, projector.StateCompleted, events.OutcomeUnknown, 0, "a call attaches at most")
	if n := len(r.Parts) - 1; n > runtime.MaxAttachments {
		t.Errorf("the result has %d files", n)
	}
}

func TestAFileThatCameTwiceIsNotLost(t *testing.T) {
	w := inMemory()
	steps(runtimetest.RunJS("desk.mark {}\nreturn"), runtimetest.Complete(`1`))(w)
	w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
		return []byte(`{"ok":1,"$attachments":[{"name":"a.txt","data":"aGVsbG8="},{"name":"a.txt","data":"aGVsbG8="}]}`), nil
	}
	begun(t, w, marking(events.EffectIdempotent), 1)
	next(t, w, nil)
	ended(t, w, projector.StateCompleted, events.OutcomeUnknown, 0, `finished with {"ok":1}`, "!lost")
}

// What a service says that a callback returned is checked like what it returns.
func TestAStatusWhoseResultDoesNotFitIsNoResult(t *testing.T) {
	for status, says := range map[string]string{
		`{"state":"done","result":5}`:    "as its service says it failed: desk.mark was carried out",
		`{"state":"done","result":"ok"}`: `as its service says it finished with "ok"`,
		`{"state":"done"}`:               "as its service says it finished\n",
	} {
		w := inMemory()
		steps(runtimetest.RunJS("desk.mark {}\nreturn"), runtimetest.Complete(`1`))(w)
		w.Services.Answer = func(_ string, h map[string]string, _ []byte) ([]byte, error) {
			if h[handlers.HeaderInquiry] != "" {
				return []byte(status), nil
			}
			return []byte(`"ok"`), nil
		}
		v := marking(events.EffectWrite)
		v.Capabilities[0].Output = json.RawMessage(`{"type":"string"}`)
		v.Capabilities[0].Status = &events.Route{NATS: &events.NATSRoute{Subject: "svc.status"}}
		begun(t, w, v, 1)
		next(t, w, nil)
		ended(t, w, projector.StateCompleted, events.OutcomeUnknown, 0, says)
	}
}

// The notice of an ended run quotes what its script has read.
func TestARunThatEndsInAScriptThatHasReadWhatIsNotTrustedIsMarked(t *testing.T) {
	w := inMemory()
	steps(runtimetest.RunJS("s"), runtimetest.Complete(`1`))(w)
	w.Unheard = true
	other, worker := w.Start(t.Context(), nil), w.Start(t.Context(), nil)
	v := agent("page.read", "desk.book")
	v.Capabilities[0].Effect, v.Capabilities[0].Untrusted = events.EffectRead, true
	apply(t, worker, v)
	w.Send(handlerstest.Start("1", "tester", "Go."))
	w.Executors.Scripts = map[string]runtimetest.ScriptFunc{"s": func(_ context.Context, call runtimetest.Callback) (any, error) {
		_, _ = call("page.read", json.RawMessage(`{}`))
		_, _ = call("desk.book", json.RawMessage(`{}`))
		e := handlerstest.Cancel("c", runOf(w.Namespace, "1"), "stop")
		_, err := other.Dispatcher.Admit(context.Background(), w.Namespace, &e)
		return 1, err
	}}
	worker.Settle()
	if r := ended(t, w, projector.StateCancelled, events.OutcomeUnknown, 0, "1. page.read: finished"); !r.Untrusted || !only(t, w).Untrusted {
		t.Errorf("the result is untrusted: %t, the run: %t", r.Untrusted, only(t, w).Untrusted)
	}
}
