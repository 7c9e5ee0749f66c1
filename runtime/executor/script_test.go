//go:build linux

package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/runtime/executor"

	loop "github.com/agentruntime/agentruntime/runtime"
)

func TestAScriptReturnsJSON(t *testing.T) {
	for _, test := range []struct{ code, want string }{
		{"return 1 + 1", `2`},
		{"", `null`},
		{"return undefined", `null`},
		{"return () => 1", `null`},
		{"return", `null`},
		{"return {a: [1, 'é<&>', null, true]}", `{"a":[1,"é<&>",null,true]}`},
		{"return await (async () => 'x')()", `"x"`},
		{"return Promise.resolve(7)", `7`},
		{"return {then(f) { f(8) }}", `8`},
		{"return {toJSON() { return 'mine' }}", `"mine"`},
		{"return '\\ud83d\\ude00'.slice(0, 1) + 'a' + '\\ud83d\\ude00' + '\\\\ud800'", `"\ufffda😀\\ud800"`},
		{"return 'a' // the wrapper's end is on a line of its own", `"a"`},
		{"return JSON.rawJSON('\"\\\\ud83d\\\\ude00\"')", `"\ud83d\ude00"`},
		{"return new Date(0).getHours()", `0`},
		{"function f(n) { return n ? f(n - 1) + 1 : 0 } return f(400)", `400`},
		{"await null; await null; return typeof setTimeout + typeof require + typeof process + typeof fetch", `"undefinedundefinedundefinedundefined"`},
	} {
		result, err := run(t, test.code)
		if err != nil {
			t.Errorf("%s: %v", test.code, err)
		} else if string(result.Value) != test.want {
			t.Errorf("%s: got %s, want %s", test.code, result.Value, test.want)
		}
	}
}

func TestAFailureHasKindLineAndMessage(t *testing.T) {
	for _, test := range []struct {
		code    string
		kind    loop.ScriptErrorKind
		line    int
		message string
	}{
		{"let x = ;", loop.ScriptSyntax, 1, "Unexpected token ;"},
		{"\n\nlet y = (", loop.ScriptSyntax, 3, "Unexpected"},
		{"let a = 1;\nlet a = 2", loop.ScriptSyntax, 2, "a"},
		{"\nasync function* g() {}", loop.ScriptSyntax, 2, "Async generators"},
		{"return 1 /* never closed", loop.ScriptSyntax, 1, ""},
		{"throw new TypeError('no')", loop.ScriptException, 1, "TypeError: no"},
		{"\n\nnull.x", loop.ScriptException, 3, "Cannot read property 'x' of undefined"},
		{"\nfunction f() {\n  throw new Error('deep')\n}\nf()", loop.ScriptException, 3, "Error: deep"},
		{"await null;\n\nthrow new Error('late')", loop.ScriptException, 3, "Error: late"},
		{"throw 'text'", loop.ScriptException, 0, "text"},
		{"throw {code: 7}", loop.ScriptException, 0, `{"code":7}`},
		{"throw null", loop.ScriptException, 0, "null"},
		{"throw undefined", loop.ScriptException, 0, "undefined"},
		{"throw Symbol('s')", loop.ScriptException, 0, "s"},
		{"\nfunction f() { return f() } f()", loop.ScriptException, 2, "stack overflow"},
		{"function f() { return f() } try { f() } finally { return 1 }", loop.ScriptException, 1, "stack overflow"},
		{"await new Promise(() => {})", loop.ScriptDeadlock, 0, "nothing can settle"},
		{"return {then() {}}", loop.ScriptDeadlock, 0, "nothing can settle"},
		{"Promise.reject(new Error('lost')); return 1", loop.ScriptException, 1, "nobody awaited it: Error: lost"},
		{"return 10n", loop.ScriptOutput, 0, "BigInt"},
		{"const o = {}; o.o = o; return o", loop.ScriptOutput, 0, "circular"},
		{"return {get x() { throw new Error('getter') }}", loop.ScriptOutput, 0, "getter"},
		{"return JSON.rawJSON('1e9999999999999999999')", loop.ScriptOutput, 0, "exponent"},
		{"return 'x'.repeat(300000)", loop.ScriptOutput, 0, "262144"},
		{"let v = 0; for (let i = 0; i < 200; i++) v = [v]; return v", loop.ScriptOutput, 0, "deeper"},
		{"eval('syntax error here')", loop.ScriptException, 1, "SyntaxError"},
	} {
		_, err := run(t, test.code)
		fault := failure(t, err, test.kind)
		if fault.Line != test.line || !strings.Contains(fault.Message, test.message) {
			t.Errorf("%q: got line %d and %q, want line %d and %q", test.code, fault.Line, fault.Message, test.line, test.message)
		}
	}
}

func TestARejectionHandledLaterIsNoFailure(t *testing.T) {
	result, err := run(t, "const p = Promise.reject(1); await null; try { await p } catch (e) { return 'caught ' + e }")
	if err != nil || string(result.Value) != `"caught 1"` {
		t.Errorf("got %v, %v", result, err)
	}
}

func TestSourceThatClosesTheWrapperIsRefused(t *testing.T) {
	for _, code := range []string{
		"})(); console.log('out'); (async()=>{",
		"}, console.log('out'), async () => {",
		"})() + (async () => {",
		"})()(async () => {",
		"}).call(async () => {",
		"})(1), (async () => {",
		"}); (async () => {",
		"})()\n//",
		"})()\n(async () => {",
		"})\n``(async () => {",
	} {
		_, err := run(t, code)
		if fault := failure(t, err, loop.ScriptSyntax); len(fault.Logs) > 0 {
			t.Errorf("%q ran: %q", code, fault.Logs)
		}
	}
}

func TestConsoleOutputComesInOrderAndReadable(t *testing.T) {
	result, err := run(t, `
		console.log('a', 1, true, null, undefined, {b: [2]}, [3]);
		console.info(new RangeError('far'));
		console.warn(() => 1, Symbol('s'), 5n);
		const loop = {}; loop.loop = loop;
		console.error(loop, {toJSON() { throw 1 }}, {toJSON() { throw 1 }, toString() { throw 2 }});
		console.debug();`)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`a 1 true null undefined {"b":[2]} [3]`,
		`RangeError: far`,
		`[function] s 5`,
		`[object Object] [object Object] [object]`,
		``,
	}
	if diff := cmp.Diff(want, result.Logs); diff != "" {
		t.Error(diff)
	}
}

func TestConsoleOutputIsBoundedAndCutOnARune(t *testing.T) {
	for _, code := range []string{
		"for (let i = 0; i < 20000; i++) console.log('é' + i)",
		"console.log('😀'.repeat(50000)); console.log('never kept')",
		"for (let i = 0; i < 100000; i++) console.log()",
	} {
		result, err := run(t, code+"; return 1")
		if err != nil {
			t.Fatal(err)
		}
		total := 0
		for _, line := range result.Logs {
			total += len(line)
			if !utf8.ValidString(line) {
				t.Errorf("%s: %q is not valid UTF-8", code, line)
			}
		}
		if total > executor.DefaultLog+len(executor.LogNote) || len(result.Logs) > executor.DefaultLog/16+1 {
			t.Errorf("%s: kept %d bytes in %d lines", code, total, len(result.Logs))
		}
		if last := result.Logs[len(result.Logs)-1]; !strings.Contains(last, "…") {
			t.Errorf("%s: the last line %q does not say that output is missing", code, last)
		}
	}
}

func TestAMessageIsCutOnARune(t *testing.T) {
	_, err := run(t, "throw new Error('😀'.repeat(5000))")
	fault := failure(t, err, loop.ScriptException)
	if len(fault.Message) > 4<<10 || len(fault.Message) < 4<<10-8 || !utf8.ValidString(fault.Message) {
		t.Errorf("the message has %d bytes, valid UTF-8: %t", len(fault.Message), utf8.ValidString(fault.Message))
	}
}

func TestAFailedScriptKeepsItsLogs(t *testing.T) {
	for kind, code := range map[loop.ScriptErrorKind]string{
		loop.ScriptException: "throw 1",
		loop.ScriptTimeout:   "for (;;);",
		loop.ScriptMemory:    "'x'.repeat(2**40)",
		loop.ScriptDeadlock:  "await new Promise(() => {})",
		loop.ScriptOutput:    "return 1n",
	} {
		_, err := execute(t, newFactory(t, nil), executor.Script{Code: "console.log('before');" + code, Limits: loop.ScriptLimits{Timeout: 2 * time.Second}})
		if diff := cmp.Diff([]string{"before"}, failure(t, err, kind).Logs); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
}

func TestNothingReachesTheNextScript(t *testing.T) {
	f := newFactory(t, &executor.Factory{Warm: 1})
	if _, err := execute(t, f, executor.Script{Code: "globalThis.leak = 1; Array.prototype.leak = 2; JSON.leak = 3"}); err != nil {
		t.Fatal(err)
	}
	result, err := execute(t, f, executor.Script{Code: "return [typeof leak, typeof [].leak, typeof JSON.leak]"})
	if err != nil || string(result.Value) != `["undefined","undefined","undefined"]` {
		t.Errorf("got %v, %v", result, err)
	}
}

func TestDescriptionNamesWhatIsMissing(t *testing.T) {
	for _, word := range []string{"await", "eturn", "timers", "fetch", "require", "process", "Intl", "async generators", "for await", "import", `\p{`, "2^53", "next script", "nobody awaited", "its value is lost", "512 deep"} {
		if !strings.Contains(new(executor.Factory).Describe(), word) {
			t.Errorf("the description lacks %q", word)
		}
	}
}

func TestBindingsAreChecked(t *testing.T) {
	for _, name := range []string{
		"", "a-b", "a..b", ".a", "a.", "1a", "a b", "é", "a.1", "a\n", strings.Repeat("a", 201),
		"complete", "run_js", "continue_agent", "get_calls", "wait_calls", "cancel_calls", "spawn_", "spawn_writer", "complete.x", "spawn_a.b",
		"class", "await", "arguments", "JSON", "Promise.all", "console", "console.log", "globalThis.x", "constructor", "then",
		"desk.then", "desk.__proto__", "desk.constructor.x", "desk.toJSON",
	} {
		if err := executor.CheckBindings([]string{name}); err == nil {
			t.Errorf("%q is accepted", name)
		}
	}
	for _, names := range [][]string{{"a", "a"}, {"a.b", "a"}, {"a", "a$", "a.b.c"}, make([]string, 1001)} {
		if err := executor.CheckBindings(names); err == nil {
			t.Errorf("%.40q are accepted together", names)
		}
	}
	if err := executor.CheckBindings([]string{"desk.book", "desk.delete", "desk.complete", "ping", "a.b.c", "$._"}); err != nil {
		t.Error(err)
	}
	f := newFactory(t, nil)
	_, err := execute(t, f, executor.Script{Bindings: []string{"complete"}, Call: echo})
	if fault := (*executor.Error)(nil); err == nil || errors.As(err, &fault) {
		t.Errorf("a control tool was bound: %v", err)
	}
	if _, err := execute(t, f, executor.Script{Bindings: []string{"ping"}}); err == nil {
		t.Error("a binding without Call was accepted")
	}
}

func TestNoBindingHidesAGlobal(t *testing.T) {
	result, err := run(t, "return Object.getOwnPropertyNames(globalThis)")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	if err := json.Unmarshal(result.Value, &names); err != nil {
		t.Fatal(err)
	}
	if len(names) < 40 {
		t.Errorf("the realm has only %q", names)
	}
	for _, name := range names {
		if executor.CheckBindings([]string{name}) == nil {
			t.Errorf("%q is a global and may be bound", name)
		}
	}
}

func TestScriptsRunTogether(t *testing.T) {
	f := newFactory(t, &executor.Factory{Warm: 2})
	done := make(chan error)
	for i := range 8 {
		go func() {
			p, err := f.New(context.Background())
			if err != nil {
				done <- err
				return
			}
			defer p.Close()
			result, err := p.Execute(context.Background(), &executor.Script{Code: fmt.Sprintf("return (await desk.book({n: %d})).n", i), Bindings: []string{"desk.book"}, Call: echo})
			if err == nil && string(result.Value) != fmt.Sprint(i) {
				err = fmt.Errorf("script %d returned %s", i, result.Value)
			}
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// A model cannot act on an error that says nothing.
func TestWhatIsThrownIsNeverToldAsNothing(t *testing.T) {
	f := newFactory(t, nil)
	for _, code := range []string{"throw ''", "throw ' '", "throw Symbol()", "const e = new Error(); e.name = ''; throw e", "Promise.reject(''); return 1", "throw {toString() { return '' }}", "throw new String('')"} {
		_, err := execute(t, f, executor.Script{Code: code})
		var failed *executor.Error
		if !errors.As(err, &failed) || strings.TrimSpace(failed.Message) == "" || strings.HasSuffix(failed.Message, ": ") {
			t.Errorf("%s: %v", code, err)
		}
	}
}
