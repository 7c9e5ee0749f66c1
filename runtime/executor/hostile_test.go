//go:build linux

package executor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentruntime/agentruntime/runtime/executor"

	loop "github.com/agentruntime/agentruntime/runtime"
)

const (
	// How late a script may end. The promise is half a second; the margin is
	// for a machine with other things to do.
	lateness = 5 * time.Second

	short = 500 * time.Millisecond // for what runs until it is killed
	long  = 10 * time.Second       // for what runs out of memory first

	memory    = string(loop.ScriptMemory)
	timeout   = string(loop.ScriptTimeout)
	exception = string(loop.ScriptException)
	output    = string(loop.ScriptOutput)
)

// hostile is a script that would hang, fill or end the process it runs in.
type hostile struct {
	name  string
	limit time.Duration
	kinds string // any of these
	code  string // or "@repeat n text" for source made of n times the text
}

// source is made when it is needed, since the children run the initialization
// of this package too.
func (h hostile) source() string {
	var n int
	var text string
	if _, err := fmt.Sscanf(h.code, "@repeat %d %s", &n, &text); err == nil {
		return strings.Repeat(text, n)
	}
	return h.code
}

var corpus = []hostile{
	// What ends a Go process in a way that no recover sees.
	{"eval of deep source", long, memory, `eval('('.repeat(5e6))`},
	{"Function of deep source", long, memory, `new Function('['.repeat(5e6))`},
	{"RegExp of deep source", long, memory + exception, `new RegExp('('.repeat(5e6))`},
	{"deep JSON.parse", long, memory, `JSON.parse('['.repeat(2e7))`},
	{"deep JSON.stringify", long, memory, `let v = []; for (let i = 0; i < 2e6; i++) v = [v]; JSON.stringify(v)`},
	{"deep toString", long, memory + exception, `let v = []; for (let i = 0; i < 2e6; i++) v = [v]; String(v)`},
	{"deep flat", long, memory + exception, `let v = []; for (let i = 0; i < 2e6; i++) v = [v]; v.flat(Infinity)`},
	{"large repeat", long, memory, `'x'.repeat(2**40)`},
	{"large padStart", long, memory, `'x'.padStart(2**40)`},
	{"large Uint8Array", long, memory + exception, `new Uint8Array(2**40)`},
	{"large ArrayBuffer", long, memory + exception, `new ArrayBuffer(2**35)`},
	{"string doubling", long, memory, `let s = 'x'; for (;;) s += s`},
	{"array doubling", long, memory, `let a = [1]; for (;;) a = a.concat(a)`},
	{"deep source", long, memory, `@repeat 200000 (`},
	{"deep arrays in source", long, memory + string(loop.ScriptSyntax) + timeout, `@repeat 200000 [`},
	{"deep unary operators", long, memory + string(loop.ScriptSyntax) + timeout, `@repeat 250000 !`},
	{"deep proxy chain", long, memory + exception, `let p = {}; for (let i = 0; i < 3e6; i++) p = new Proxy(p, {}); p.x`},
	{"deep bind chain", long, memory + exception, `let f = () => 1; for (let i = 0; i < 3e6; i++) f = f.bind(null); f()`},
	{"deep prototype chain", long, memory + exception + timeout, `let o = {}; for (let i = 0; i < 1e6; i++) o = Object.create(o); o.x; for (;;) o.x`},
	{"large source", long, string(loop.ScriptSyntax), `@repeat 20000000 x`},

	// What fills memory.
	{"Array.fill", long, memory, `Array(1e9).fill(1)`},
	{"Array.from", long, memory, `Array.from({length: 1e9})`},
	{"Array.from with function", long, memory, `Array.from({length: 1e9}, () => ({}))`},
	{"replaceAll explosion", long, memory, `let s = 'a'.repeat(1e5); for (;;) s = s.replaceAll('a', s)`},
	{"split and join explosion", long, memory, `let s = 'a'.repeat(1e4); for (;;) s = s.split('').join(s)`},
	{"BigInt powers", short, memory + timeout + exception, `let b = 3n; for (;;) b = b ** 1000n`},
	{"BigInt shift", long, memory + exception, `1n << (2n ** 36n)`},
	{"BigInt to text", short, memory + timeout, `(7n ** 30000000n).toString()`},
	{"shared structure", long, memory, `let v = ['x'.repeat(1e5)]; for (let i = 0; i < 20; i++) v = [v, v]; return v`},
	{"shared small structure", short, timeout + memory, `let v = [1]; for (let i = 0; i < 40; i++) v = [v, v]; return v`},
	{"shared structure in input", long, memory, `let v = ['x'.repeat(1e5)]; for (let i = 0; i < 20; i++) v = [v, v]; await desk.book(v)`},
	{"shared structure in console", long, memory, `let v = ['x'.repeat(1e5)]; for (let i = 0; i < 20; i++) v = [v, v]; console.log(v)`},
	{"Map", long, memory + timeout, `const m = new Map(); for (let i = 0; ; i++) m.set(i, {i})`},
	{"closures", long, memory + timeout, `let f = null; for (;;) { const g = f; f = () => g }`},
	{"promises", long, memory + timeout, `for (;;) Promise.reject(1)`},
	{"endless iterator", short, memory + timeout, `[...function*() { for (;;) yield 1 }()]`},
	{"endless key list", long, memory + timeout, `Object.keys(new Proxy({}, {ownKeys: () => Array.from({length: 1e8}, (_, i) => 'k' + i)}))`},
	{"endless error message", long, memory, `let s = 'x'.repeat(1e8); throw new Error(s + s)`},

	// What never returns.
	{"loop", short, timeout, `for (;;);`},
	{"loop in a promise job", short, timeout, `await null; for (;;);`},
	{"endless promise jobs", short, timeout, `const f = () => Promise.resolve().then(f); f(); await new Promise(() => {})`},
	{"endless awaits", short, timeout, `for (;;) await null`},
	{"back-reference regex", short, timeout, `/^(a*)*\1b$/.test('a'.repeat(100))`},
	{"look-ahead regex", short, timeout, `/^(?=(a+)+\1c)(a|aa)+$/.test('a'.repeat(100))`},
	{"nested quantifiers", short, timeout, `/^(?:(a+)+\1?)+$/.test('a'.repeat(60) + 'b')`},
	{"sort with a loop", short, timeout, `[2, 1].sort(() => { for (;;); })`},
	{"indexOf over nothing", short, timeout + memory, `Array.prototype.indexOf.call({length: 2**53 - 1}, 1)`},
	{"join over nothing", short, timeout + memory + exception, `Array.prototype.join.call({length: 2**32}, '')`},
	{"endless finally", short, timeout, `for (;;) { try { throw 1 } catch { continue } finally { continue } }`},
	{"endless thenable", short, timeout, `return {then(f) { f(this) }}`},

	// What floods the worker.
	{"endless console", short, timeout, `for (;;) console.log('x'.repeat(1000))`},
	{"huge console line", long, memory, `console.log('x'.repeat(2e8), 'y'.repeat(2e8))`},
	{"huge value", long, output + memory, `return 'x'.repeat(2e7)`},
	{"flood of callbacks", short, string(loop.ScriptCallbacks), `for (let i = 0; i < 1e6; i++) desk.book({i})`},
	{"flood of awaited callbacks", long, string(loop.ScriptCallbacks), `for (let i = 0; i < 1e6; i++) await desk.book({i})`},
	{"huge input", long, exception + memory, `await desk.book({text: 'x'.repeat(3e7)})`},
	{"large inputs at once", short, string(loop.ScriptCallbacks) + timeout, `for (;;) await Promise.all(Array.from({length: 8}, () => desk.book('x'.repeat(250000))))`},
	{"callback that never returns", short, timeout, `await desk.never()`},
	{"callback that ignores its end", short, timeout, `await desk.deaf()`},
	{"callbacks that never return, not awaited", short, timeout, `for (let i = 0; i < 500; i++) desk.deaf(); return 1`},

	// What attacks the encoding of the outcome.
	{"toJSON loop", short, timeout, `return {toJSON() { for (;;); }}`},
	{"toJSON throws", short, output, `return {toJSON() { throw {toString() { throw 1 }} }}`},
	{"getter loop", short, timeout, `return {get x() { for (;;); }}`},
	{"proxy", short, output, `return new Proxy({}, {ownKeys() { throw new Error('no keys') }})`},
	{"endless proxy", short, memory + exception + output + timeout, `const h = {ownKeys: () => ['a'], getOwnPropertyDescriptor: () => ({value: new Proxy({}, h), enumerable: true, configurable: true}), get: () => new Proxy({}, h)}; return new Proxy({}, h)`},
	{"endless toJSON", short, memory + exception + output + timeout, `const f = () => ({a: {toJSON: f}}); return f()`},
	{"revoked proxy thrown", short, exception, `const {proxy, revoke} = Proxy.revocable({}, {}); revoke(); throw proxy`},
	{"error with a loop in its message", short, timeout, `throw Object.defineProperty(new Error(), 'message', {get() { for (;;); }})`},
	{"error with a loop in its stack", short, timeout, `throw Object.defineProperty(new Error('x'), 'stack', {get() { for (;;); }})`},
	{"error that overflows the stack", short, exception, `throw Object.defineProperty(new Error('x'), 'stack', {get() { return (function f() { return f() })() }})`},
	{"error with a stack that is no text", short, exception, `throw Object.assign(new Error('x'), {stack: Symbol()})`},
	{"callback from the outcome", short, exception, `throw {toJSON() { desk.book({}); throw 1 }, toString() { desk.book({}); return 'x' }}`},
	{"polluted prototypes", short, output + exception, `JSON.stringify = () => '"forged"'; JSON.parse = null; Promise.prototype.then = () => { throw 1 }; Object.prototype.toJSON = () => { throw 2 }; Array.prototype.push = null; return {a: 1}`},
	{"polluted thenable", short, string(loop.ScriptDeadlock), `Object.prototype.then = () => {}; return {a: 1}`},
	{"polluted Promise", short, exception, `globalThis.Promise = null; Function.prototype.call = null; Error.prototype.toString = () => { throw 1 }; throw new Error('x')`},
	{"escape from the wrapper", short, string(loop.ScriptSyntax), `})(); for (;;); (async()=>{`},
}

func TestAHostileScriptEndsAloneAndInTime(t *testing.T) {
	f := newFactory(t, &executor.Factory{Warm: -1, Memory: 128 << 20})
	deaf := make(chan struct{})
	t.Cleanup(func() { close(deaf) })
	call := func(ctx context.Context, name string, input json.RawMessage) (json.RawMessage, error) {
		switch name {
		case "desk.never":
			<-ctx.Done()
			return nil, ctx.Err()
		case "desk.deaf":
			<-deaf
		}
		return json.RawMessage("null"), nil
	}
	files := watchFiles(t)
	for i, h := range slices.Concat(corpus, trickery) {
		if i%3 > 0 && !slow {
			continue // the larger run has them all
		}
		if executor.RaceBuild {
			h.limit = min(h.limit, 2*time.Second)
		}
		t.Run(h.name, func(t *testing.T) {
			source := h.source()
			before := residentMemory(t)
			p, err := f.New(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			checkHeld(t, p.Pid())
			files.since() // the program itself
			started := time.Now()
			_, err = p.Execute(context.Background(), &executor.Script{
				Code: source, Bindings: []string{"desk.book", "desk.never", "desk.deaf"}, Call: call, Limits: loop.ScriptLimits{Timeout: h.limit},
			})
			took := time.Since(started)
			checkHostile(t, h, err, took)
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if exists(p.Pid()) {
				t.Errorf("process %d is still there", p.Pid())
			}
			if files.since()[p.Pid()] {
				t.Error("it opened a file")
			}
			allowed := int64(64 << 20)
			if executor.RaceBuild {
				allowed *= 4 // memory and its shadow
			}
			if grown := peakMemory(t) - before; grown > allowed {
				t.Errorf("the worker grew by %d MiB", grown>>20)
			}
			t.Logf("%v after %.2f s, worker + %d KiB", err, took.Seconds(), (peakMemory(t)-before)>>10)
		})
	}
	if children := childProcesses(t); len(children) > 0 {
		t.Errorf("processes %v are left", children)
	}
	if result, err := execute(t, f, executor.Script{Code: "return 1"}); err != nil || string(result.Value) != "1" {
		t.Errorf("afterwards a script returns %v, %v", result, err)
	}
}

// checkHostile checks how a hostile script ended. With the race detector all
// is slower and the memory limit higher, so that time may run out first.
func checkHostile(t *testing.T, h hostile, err error, took time.Duration) {
	t.Helper()
	fault, ok := err.(*executor.Error)
	if !ok {
		t.Fatalf("got %v, want an error of the script", err)
	}
	kinds := h.kinds
	if executor.RaceBuild && h.limit > short {
		kinds += timeout
	}
	if !strings.Contains(kinds, string(fault.Kind)) {
		t.Errorf("got %v, want kind %s", fault, kinds)
	}
	if took > h.limit+lateness {
		t.Errorf("it took %s, the limit is %s", took, h.limit)
	}
	size := 0
	for _, line := range fault.Logs {
		size += len(line)
	}
	if size > executor.DefaultLog+len(executor.LogNote) || len(fault.Message) > 4<<10 {
		t.Errorf("it left %d bytes of logs and %d of message", size, len(fault.Message))
	}
}

func TestNoSourceMapIsOpened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "map")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	comment := "//# sourceMappingURL=file://" + path
	for _, code := range []string{
		"return 1\n" + comment,
		comment + "\nreturn 1",
		"return 1 /*\n" + comment + "\n*/",
		"return eval(" + strconv.Quote("1\n"+comment) + ")",
		"return (0, eval)(" + strconv.Quote("1\n"+comment) + ")",
		"return new Function(" + strconv.Quote("return 1\n"+comment) + ")()",
		"return new Function(" + strconv.Quote("a\n"+comment) + ", 'return 1')()",
		"return Object.getPrototypeOf(function*(){}).constructor(" + strconv.Quote("return 1\n"+comment) + ")().next().value",
		"return await Object.getPrototypeOf(async () => {}).constructor(" + strconv.Quote("return 1\n"+comment) + ")()",
	} {
		// To open a FIFO that nobody writes to would wait for ever.
		result, err := run(t, code)
		if err != nil || string(result.Value) != "1" {
			t.Errorf("%s: got %v, %v", code, result, err)
		}
	}
	if fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK, 0); err != unix.ENXIO {
		t.Errorf("somebody has opened the file: descriptor %d, %v", fd, err)
	}
}

func TestTheCorpusIsLarge(t *testing.T) {
	names := make([]string, 0, len(corpus))
	all := slices.Concat(corpus, trickery)
	for _, h := range all {
		names = append(names, h.name)
	}
	slices.Sort(names)
	if n := len(slices.Compact(names)); n < 100 || n != len(all) {
		t.Errorf("%d different scripts of %d", n, len(all))
	}
}

// residentMemory returns what this process has in memory, and lets the kernel
// measure its peak anew.
func residentMemory(t *testing.T) int64 {
	t.Helper()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	return statusBytes(t, "VmRSS:")
}

func peakMemory(t *testing.T) int64 {
	t.Helper()
	return statusBytes(t, "VmHWM:")
}

func statusBytes(t *testing.T, key string) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, key); ok {
			var kib int64
			if _, err := fmt.Sscan(value, &kib); err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("/proc/self/status has no %s", key)
	return 0
}

// exists reports whether there is a process of that number, a zombie included.
func exists(pid int) bool { return unix.Kill(pid, 0) == nil }

// childProcesses returns the children of this process, zombies included.
func childProcesses(t *testing.T) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended since
		}
		var state string
		var parent int
		_, rest, _ := strings.Cut(string(stat), ") ")
		if _, err := fmt.Sscan(rest, &state, &parent); err == nil && parent == os.Getpid() {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}
