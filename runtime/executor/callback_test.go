//go:build linux

package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/runtime/executor"

	loop "github.com/agentruntime/agentruntime/runtime"
)

// desk runs code with the bindings that the tests use, all served by call.
func desk(t *testing.T, code string, call func(context.Context, string, json.RawMessage) (json.RawMessage, error)) (*executor.Result, error) {
	t.Helper()
	return execute(t, newFactory(t, nil), executor.Script{
		Code: code, Bindings: []string{"desk.book", "desk.room.delete", "ping"}, Call: call, Limits: loop.ScriptLimits{Timeout: 20 * time.Second},
	})
}

func TestCallbacksTakeAndGiveJSON(t *testing.T) {
	type request struct{ Name, Input string }
	var got []request
	result, err := desk(t, `
		const a = await desk.book({seat: 4, name: 'é<', none: undefined});
		const b = await desk.room.delete([1]);
		const c = await ping();
		const d = await ping(null);
		return [a, b, c, d]`,
		func(_ context.Context, name string, input json.RawMessage) (json.RawMessage, error) {
			got = append(got, request{name, string(input)})
			return []json.RawMessage{[]byte(`{"ok":"<é>"}`), []byte(`1.5`), nil, []byte(` [ ] `)}[len(got)-1], nil
		})
	if err != nil {
		t.Fatal(err)
	}
	want := []request{{"desk.book", `{"seat":4,"name":"é<"}`}, {"desk.room.delete", `[1]`}, {"ping", `{}`}, {"ping", `null`}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if want := `[{"ok":"<é>"},1.5,null,[]]`; string(result.Value) != want {
		t.Errorf("got %s, want %s", result.Value, want)
	}
}

func TestAFailedCallbackThrowsAnError(t *testing.T) {
	refuse := func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
		return nil, errors.New("no seat left: " + strings.Repeat("é", 10000))
	}
	result, err := desk(t, "try { await ping() } catch (e) { return [e instanceof Error, e.name, e.message.slice(0, 12), e.message.length, Object.keys(e)] }", refuse)
	if err != nil {
		t.Fatal(err)
	}
	if want := `[true,"Error","no seat left",2054,[]]`; string(result.Value) != want {
		t.Errorf("got %s, want %s", result.Value, want)
	}
	_, err = desk(t, "await null;\n\nawait ping()", refuse)
	if fault := failure(t, err, loop.ScriptException); fault.Line != 3 || !strings.HasPrefix(fault.Message, "Error: no seat left") {
		t.Errorf("got %v", fault)
	}
}

func TestBadCallsAreErrorsTheScriptCanCatch(t *testing.T) {
	called := false
	for code, want := range map[string]string{
		"ping(1, 2)":  "takes one argument",
		"ping(1n)":    "BigInt",
		"ping(()=>1)": "function",
		"ping({toJSON() { throw new Error('mine') }})":                                   "mine",
		"ping('x'.repeat(300000))":                                                       "262144",
		"ping(JSON.rawJSON('1e9999999999999999999'))":                                    "exponent",
		"ping((() => { let v = 0; for (let i = 0; i < 200; i++) v = [v]; return v })())": "deeper",
	} {
		result, err := desk(t, "try { await "+code+" } catch (e) { return e instanceof TypeError && e.message }",
			func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
				called = true
				return nil, nil
			})
		if err != nil || !strings.Contains(string(result.Value), want) {
			t.Errorf("%s: got %v, %v, want %q", code, result, err, want)
		}
	}
	if called {
		t.Error("a bad call reached the host")
	}
}

func TestBadAnswersAreErrorsTheScriptCanCatch(t *testing.T) {
	for answer, want := range map[string]string{
		`{"a":1,"a":2}`:                        "not valid JSON",
		`{`:                                    "not valid JSON",
		`"` + strings.Repeat("x", 1<<20) + `"`: "more than 1048576",
	} {
		result, err := desk(t, "try { await ping() } catch (e) { return e.message }",
			func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
				return json.RawMessage(answer), nil
			})
		if err != nil || !strings.Contains(string(result.Value), want) {
			t.Errorf("%.20s: got %v, %v, want %q", answer, result, err, want)
		}
	}
}

func TestBindingsCannotBeReplaced(t *testing.T) {
	result, err := desk(t, `
		const failed = [];
		for (const f of [() => { desk.book = 1 }, () => { globalThis.desk = 1 }, () => { delete desk.book }])
			try { f(); failed.push(false) } catch (e) { failed.push(e instanceof TypeError) }
		const desc = [typeof desk, desk.book.name, Object.keys(desk).join()];
		const own = await (() => { const desk = {book: async x => x}; return desk.book(5) })();
		return [failed, desc, own]`, echo)
	if err != nil {
		t.Fatal(err)
	}
	if want := `[[true,true,true],["object","desk.book","book,room"],5]`; string(result.Value) != want {
		t.Errorf("got %s, want %s", result.Value, want)
	}
}

func TestCallbacksRunTogetherUpToTheLimit(t *testing.T) {
	var mu sync.Mutex
	var inFlight, most int
	var reached bool
	full := make(chan struct{})
	result, err := desk(t, "return (await Promise.all(Array.from({length: 20}, (_, i) => ping(i)))).length",
		func(ctx context.Context, _ string, input json.RawMessage) (json.RawMessage, error) {
			mu.Lock()
			inFlight++
			if most = max(most, inFlight); most == 8 && !reached {
				reached = true
				close(full)
			}
			mu.Unlock()
			defer func() {
				mu.Lock()
				inFlight--
				mu.Unlock()
			}()
			select {
			case <-full:
				return input, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
	if err != nil || string(result.Value) != "20" || most != 8 {
		t.Errorf("got %v, %v; %d at once", result, err, most)
	}
}

func TestCallbacksNotAwaitedAreWaitedFor(t *testing.T) {
	var calls atomic.Int32
	count := func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
		calls.Add(1)
		return nil, nil
	}
	result, err := desk(t, "const o = {n: 1}; for (let i = 0; i < 20; i++) ping().then(() => { o.n++; return desk.book() }); return o", count)
	if err != nil || string(result.Value) != `{"n":1}` || calls.Load() != 40 {
		t.Errorf("got %v, %v after %d calls", result, err, calls.Load())
	}
	calls.Store(0)
	_, err = desk(t, "for (let i = 0; i < 20; i++) ping(); throw new Error('after')", count)
	if failure(t, err, loop.ScriptException); calls.Load() != 20 {
		t.Errorf("%d calls were made", calls.Load())
	}
	_, err = desk(t, "ping(); return 1", func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
		return nil, errors.New("lost")
	})
	if fault := failure(t, err, loop.ScriptException); !strings.Contains(fault.Message, "nobody awaited it: Error: lost") {
		t.Errorf("got %v", fault)
	}
}

func TestAfterAStackOverflowOnlyOpenCallsAreWaitedFor(t *testing.T) {
	var calls atomic.Int32
	_, err := desk(t, "for (let i = 0; i < 20; i++) ping(); (function f() { f() })()",
		func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			calls.Add(1)
			return nil, nil
		})
	if failure(t, err, loop.ScriptException); calls.Load() != 8 {
		t.Errorf("%d calls were made", calls.Load())
	}
}

func TestAStackOverflowClosesTheIteratorsAroundIt(t *testing.T) {
	_, err := desk(t, "for (const x of {[Symbol.iterator]() { return {next() { return {} }, return() { console.log('closed'); return {} }} }}) (function f() { f() })()", echo)
	if fault := failure(t, err, loop.ScriptException); !strings.Contains(fault.Message, "stack overflow") || len(fault.Logs) != 1 {
		t.Errorf("got %v, with the log %q", fault, fault.Logs)
	}
}

func TestTooManyCallbacksEndTheScript(t *testing.T) {
	var calls atomic.Int32
	_, err := desk(t, "for (;;) { try { await ping() } catch {} }",
		func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			calls.Add(1)
			return nil, nil
		})
	if fault := failure(t, err, loop.ScriptCallbacks); calls.Load() != 1000 || !strings.Contains(fault.Message, "1000") {
		t.Errorf("got %v after %d calls", fault, calls.Load())
	}
}

func TestATimeoutNamesTheCallbackAndCancelsIt(t *testing.T) {
	var ended atomic.Bool
	_, err := execute(t, newFactory(t, nil), executor.Script{
		Code: "await desk.book()", Bindings: []string{"desk.book"}, Limits: loop.ScriptLimits{Timeout: 200 * time.Millisecond},
		Call: func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
			<-ctx.Done()
			ended.Store(true)
			return nil, ctx.Err()
		},
	})
	if fault := failure(t, err, loop.ScriptTimeout); !strings.Contains(fault.Message, "waiting for desk.book") || !ended.Load() {
		t.Errorf("got %v; the callback has ended: %t", fault, ended.Load())
	}
}

func TestAHostThatPanicsIsNoFaultOfTheScript(t *testing.T) {
	for name, call := range map[string]func(){
		"panicked":       func() { panic("host") },
		"did not return": runtime.Goexit,
	} {
		_, err := desk(t, "try { await ping() } catch {}", func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			call()
			return nil, nil
		})
		if fault := (*executor.Error)(nil); err == nil || errors.As(err, &fault) || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v", err)
		}
	}
}

func TestACauseEndsTheRunFromInsideACallback(t *testing.T) {
	fatal := errors.New("fatal")
	ctx, cancel := context.WithCancelCause(context.Background())
	p, err := newFactory(t, nil).New(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	_, err = p.Execute(ctx, &executor.Script{
		Code: "try { await ping() } catch {} return 1", Bindings: []string{"ping"},
		Call: func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
			cancel(fatal)
			<-ctx.Done()
			return nil, fmt.Errorf("seen by nobody")
		},
	})
	if !errors.Is(err, fatal) {
		t.Errorf("got %v", err)
	}
}
