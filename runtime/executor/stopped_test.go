//go:build linux

package executor_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/runtime/executor"

	loop "github.com/agentruntime/agentruntime/runtime"
)

// slowly answers calls after a while, unless they are cut.
type slowly struct{ answered, cut atomic.Int32 }

func (s *slowly) call(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
	select {
	case <-time.After(100 * time.Millisecond):
		s.answered.Add(1)
		return json.RawMessage(`{}`), nil
	case <-ctx.Done():
		s.cut.Add(1)
		return nil, ctx.Err()
	}
}

func TestWhatIsInFlightIsAnsweredHoweverItsScriptFails(t *testing.T) {
	for _, c := range []struct {
		name, code string
		kind       loop.ScriptErrorKind
		answered   int32
	}{
		{"one call too many", `for (let i = 0; i < 4; i++) desk.book({i}); return 1`, loop.ScriptCallbacks, 3},
		{"one too many that waits", `for (let i = 0; i < 2; i++) desk.book({i}); await 0; desk.book({}); desk.book({})`, loop.ScriptCallbacks, 3},
		{"a panic of the engine", `desk.book({}); await 0; return eval('"\\u{10ffff}"')`, loop.ScriptException, 1},
		{"a panic of the engine after an answer", `await desk.book({}); desk.book({}); eval('"\\u{10ffff}"')`, loop.ScriptException, 2},
		{"an end of the stack", `desk.book({}); (function f() { f() })()`, loop.ScriptException, 1},
		{"a call made by reading what was rejected", `Promise.reject({toString() { desk.book({}); return 'x' }, toJSON() { throw 1 }}); return 1`, loop.ScriptException, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var host slowly
			_, err := execute(t, newFactory(t, &executor.Factory{Warm: -1, MaxCallbacks: 3}),
				executor.Script{Code: c.code, Bindings: []string{"desk.book"}, Call: host.call})
			failure(t, err, c.kind)
			if host.answered.Load() != c.answered || host.cut.Load() > 0 {
				t.Errorf("%d calls were answered, want %d, and %d cut", host.answered.Load(), c.answered, host.cut.Load())
			}
		})
	}
}

func TestNoScriptGoesOnAfterOneCallbackTooMany(t *testing.T) {
	const (
		call    = `desk.book({})`
		closing = `return() { for (;;); }`
		ones    = `{[Symbol.iterator]() { return {next() { return {value: {}} }, ` + closing + `} }}`
	)
	for _, code := range []string{
		`try { ` + call + ` } catch {} finally { for (;;); }`,
		`console.log({toJSON() { ` + call + ` }}); for (;;);`,
		`await null; try { ` + call + ` } catch {} for (;;);`,
		`Array.from({length: 1}, () => ` + call + `); for (;;);`,
		`JSON.stringify({toJSON() { ` + call + ` }}); for (;;);`,
		`desk.book({toJSON() { ` + call + ` }}).catch(() => {}); for (;;);`,
		`new Promise(() => ` + call + `).catch(() => {}); for (;;);`,
		`return {toJSON() { ` + call + ` }}`,
		`return {then() { ` + call + ` }}`,
		`throw {toString() { ` + call + ` }, toJSON() { throw 1 }}`,
		`throw Object.defineProperty(new Error('x'), 'stack', {get() { ` + call + ` }})`,
		`Promise.reject({toString() { ` + call + ` }, toJSON() { throw 1 }}); return 1`,
		`for (const x of ` + ones + `) ` + call,
		`const [{x = ` + call + `}] = ` + ones,
		`new Map({[Symbol.iterator]() { return {next() { return {value: {get 0() { ` + call + ` }}} }, ` + closing + `} }})`,
		`Array.from(` + ones + `, () => ` + call + `)`,
		`Promise.all({[Symbol.iterator]() { return {next() { return {value: {get then() { ` + call + ` }}} }, ` + closing + `} }})`,
		`for (const x of ` + ones + `) for (const y of ` + ones + `) await ` + call,
	} {
		t.Run(code, func(t *testing.T) {
			var calls atomic.Int32
			_, err := execute(t, newFactory(t, &executor.Factory{Warm: -1, MaxCallbacks: 1}), executor.Script{
				Code: "await desk.book({});" + code, Bindings: []string{"desk.book"}, Limits: loop.ScriptLimits{Timeout: 5 * time.Second},
				Call: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
					calls.Add(1)
					return nil, nil
				},
			})
			if fault := failure(t, err, loop.ScriptCallbacks); calls.Load() != 1 || !strings.Contains(fault.Message, "more than 1 callbacks") {
				t.Errorf("got %v after %d calls", fault, calls.Load())
			}
		})
	}
}

func TestSourceThatTheParserCannotReadIsASyntaxError(t *testing.T) {
	_, err := run(t, `return "\u{10ffff}"`)
	if fault := failure(t, err, loop.ScriptSyntax); !strings.Contains(fault.Message, `\u{10ffff}`) {
		t.Errorf("got %v", fault)
	}
}

func TestWhatThrowsWhileAFileIsReadRejectsItsPromise(t *testing.T) {
	for _, arguments := range []string{`'a', {get base64() { throw new Error('boom') }}`, `{get x() { throw new Error('boom') }}, 'x'`, `'a', 'x', {get x() { throw new Error('boom') }}`} {
		got, result, err := attaching(t, `let p; try { p = attach(`+arguments+`) } catch { return 'thrown' } try { await p } catch (e) { return e instanceof TypeError && e.message }`, nil)
		if err != nil || !strings.Contains(string(result.Value), "boom") || len(got) > 0 {
			t.Errorf("%s: got %v, %v", arguments, result, err)
		}
	}
	_, _, err := attaching(t, `try { attach('a', {get base64() { return (function f() { return f() })() }}) } catch {} return 1`, nil)
	if fault := failure(t, err, loop.ScriptException); !strings.Contains(fault.Message, "stack overflow") {
		t.Errorf("got %v", fault)
	}
}

func TestInputsInFlightAreBounded(t *testing.T) {
	const code = `return (await Promise.all(Array.from({length: 7}, () => ping('x'.repeat(4000000))))).length`
	var calls atomic.Int32
	fourth, fifth := make(chan struct{}), make(chan struct{})
	result, err := execute(t, newFactory(t, &executor.Factory{Warm: -1, MaxInput: 4 << 20}), executor.Script{
		Code: code, Bindings: []string{"ping"}, Limits: loop.ScriptLimits{Timeout: 20 * time.Second},
		Call: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			switch calls.Add(1) {
			case 4:
				close(fourth)
			case 5:
				close(fifth)
			}
			<-fourth // 16 MB are in flight
			select {
			case <-fifth:
			case <-time.After(500 * time.Millisecond):
			}
			return nil, nil
		},
	})
	if err != nil || string(result.Value) != "7" || calls.Load() != 7 {
		t.Errorf("got %v, %v after %d calls", result, err, calls.Load())
	}
}

func TestAChildThatCallsAsSoonAsItReadsAnAnswerIsServed(t *testing.T) {
	for _, concurrent := range []int{1, 2, 256} {
		result, err := execute(t, newFactory(t, &executor.Factory{Warm: -1, MaxConcurrent: concurrent}), executor.Script{
			Code: `return (await Promise.all(Array.from({length: 1000}, (_, i) => ping(i)))).length`, Bindings: []string{"ping"}, Call: echo})
		if err != nil || string(result.Value) != "1000" {
			t.Errorf("%d at once: got %v, %v", concurrent, result, err)
		}
	}
}

func TestAfterExecuteNoCallbackIsRunningThatHeedsItsContext(t *testing.T) {
	var ended atomic.Bool
	_, err := execute(t, newFactory(t, nil), executor.Script{
		Code: "ping(); for (;;);", Bindings: []string{"ping"}, Limits: loop.ScriptLimits{Timeout: 300 * time.Millisecond},
		Call: func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
			<-ctx.Done()
			<-time.After(30 * time.Millisecond)
			ended.Store(true)
			return nil, ctx.Err()
		},
	})
	if failure(t, err, loop.ScriptTimeout); !ended.Load() {
		t.Error("a callback is running")
	}
}
