package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/runtime/executor"

	loop "github.com/agentruntime/agentruntime/runtime"
)

// Random scripts are made of the pieces that hurt, and of pieces of the scripts
// that are known to.
var (
	fuzzValues = strings.Split("0 | -1 | 1e9 | 2**31 | 2**53 | NaN | 1n | 10n**50n | '' | 'x' | '\\ud800' | 'ab'.repeat(1e5) | null | undefined | true | [] | ({}) | [1,2,3] | (() => 1) | Symbol() | new Date(0) | new Map() | new Set() | "+
		`/(a+)+$/ | /(a*)*\1b/ | new Error('e') | Promise.resolve(1) | new Uint8Array(1e6) | globalThis | desk.book | Object.prototype | Array.prototype | v | w | f | this | Array(1e7) | await desk.book(v)`, " | ")
	fuzzCalls = strings.Fields(`String Number Object Array.from JSON.stringify JSON.parse Object.keys Object.freeze Object.getOwnPropertyDescriptors Reflect.ownKeys eval Function RegExp
		Promise.all Promise.race BigInt Math.max parseInt encodeURIComponent structuredClone desk.book console.log Symbol`)
	fuzzMembers = strings.Fields(`length constructor prototype __proto__ then toJSON toString valueOf message stack name concat(v) repeat(1e6) split('') join(w) map(f) flatMap(f) sort(f) reduce(f) fill(w)
		replaceAll('x',w) padEnd(1e7) normalize() slice(1) push(v) splice(0,1) call(v) apply(v,w) bind(v) at(-1) flat(Infinity) test(v) exec(w) match(/x*/g) next() entries() size`)
	fuzzStatements = []string{
		"v = %;", "w = %;", "var x% = %;", "v.x = %;", "f = async () => %;", "try { % } catch (e) { v = e } finally { w = % }",
		"for (let i = 0; i < 1000; i++) { v = % }", "while (%) { if (Math.random() < .1) break; w = % }", "await %;", "await desk.book(%);", "desk.book(%);", "console.log(%);",
		"Object.defineProperty(Object.prototype, 'p', {get() { return w }, configurable: true});", "v = new Proxy({}, {get: () => v});",
		"v = {toJSON() { return w }};", "v = {then(f, r) { f(w) }};", "v = class { static x = %; get y() { return w } };", "v = function*() { yield v; yield* [w] }();",
		"v = `a${%}b${%}`;", "label: { break label }", "switch (%) { case %: v = 1 }", "if (Math.random() < .2) throw %;", "if (Math.random() < .2) return %;", "delete v.x;", "v = [...'abc', %];", "({a: w} = {a: %});",
		"//# sourceMappingURL=file:///etc/passwd\n",
	}
)

func fuzzScript(r *rand.Rand) string {
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	var expression func(depth int) string
	expression = func(depth int) string {
		switch n := r.IntN(8); {
		case depth == 0 || n < 3:
			return pick(fuzzValues)
		case n < 5:
			return "(" + expression(depth-1) + ")." + pick(fuzzMembers)
		case n < 6:
			return pick(fuzzCalls) + "(" + expression(depth-1) + ", " + expression(depth-1) + ")"
		default:
			return "(" + expression(depth-1) + pick([]string{" + ", " * ", " in ", " ?? ", " instanceof ", ", ", " ** ", " << "}) + expression(depth-1) + ")"
		}
	}
	var b strings.Builder
	b.WriteString("let v = 1, w = 2, f = x => x;\n")
	for range 1 + r.IntN(12) {
		statement := pick(fuzzStatements)
		switch r.IntN(40) {
		case 0:
			statement = pick([]string{"/*", "})(", "}", "`", "\u2028"})
		case 1, 2:
			// A script that is known to hurt, in the middle of another.
			code := corpus[r.IntN(len(corpus))].code
			if !strings.HasPrefix(code, "@") {
				statement = code
			}
		}
		for strings.Contains(statement, "%") {
			statement = strings.Replace(statement, "%", expression(3), 1)
		}
		b.WriteString(statement + "\n")
	}
	return b.String()
}

// AGENTRUNTIME_FUZZ_SCRIPTS says for how long random scripts are run, as a
// duration; AGENTRUNTIME_FUZZ_SEED repeats those of a failure.
func TestARandomScriptEndsAloneAndInTime(t *testing.T) {
	length := time.Second
	if slow {
		length = time.Minute
	}
	if text := os.Getenv("AGENTRUNTIME_FUZZ_SCRIPTS"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("AGENTRUNTIME_FUZZ_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("AGENTRUNTIME_FUZZ_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	f := newFactory(t, &executor.Factory{Warm: -1, Memory: 96 << 20})
	files := watchFiles(t)
	const limit = 150 * time.Millisecond
	kinds := make(map[string]int)
	before := residentMemory(t)
	ran := 0
	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); ran++ {
		code := fuzzScript(r)
		p, err := f.New(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		files.since()
		started := time.Now()
		result, err := p.Execute(context.Background(), &executor.Script{
			Code: code, Bindings: []string{"desk.book"}, Limits: loop.ScriptLimits{Timeout: limit, Callbacks: 100},
			Call: func(_ context.Context, _ string, input json.RawMessage) (json.RawMessage, error) { return input, nil },
		})
		took := time.Since(started)
		_ = p.Close()
		var fault *executor.Error
		switch {
		case err == nil && !json.Valid(result.Value):
			t.Errorf("script %d returned %s:\n%s", ran, result.Value, code)
		case err == nil:
			kinds["result"]++
		case !errors.As(err, &fault) || fault.Message == "" || len(fault.Message) > 4<<10 || fault.Kind == loop.ScriptKilled:
			t.Errorf("script %d ended with %v:\n%s", ran, err, code)
		default:
			kinds[string(fault.Kind)]++
		}
		if took > limit+lateness {
			t.Errorf("script %d took %s:\n%s", ran, took, code)
		}
		if exists(p.Pid()) || files.since()[p.Pid()] {
			t.Errorf("script %d: its process is there: %t, or it opened a file:\n%s", ran, exists(p.Pid()), code)
		}
	}
	allowed := int64(64 << 20)
	if executor.RaceBuild {
		allowed *= 4
	}
	grown := peakMemory(t) - before
	if children := childProcesses(t); len(children) > 0 || grown > allowed {
		t.Errorf("processes %v are left; the worker grew by %d MiB", children, grown>>20)
	}
	t.Logf("%d scripts: %v; the worker grew by %d KiB", ran, kinds, grown>>10)
}

func TestOneStringBuiltInKillsOnlyItsChild(t *testing.T) {
	f := newFactory(t, &executor.Factory{Warm: -1, Memory: 96 << 20})
	bystander, err := f.New(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer bystander.Close()
	waiting, release := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		result, err := bystander.Execute(context.Background(), &executor.Script{Code: "return await ping()", Bindings: []string{"ping"},
			Call: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
				close(waiting)
				<-release
				return json.RawMessage(`"alive"`), nil
			}})
		if err == nil && string(result.Value) != `"alive"` {
			err = errors.New(string(result.Value))
		}
		ended <- err
	}()
	<-waiting
	for _, code := range []string{"return 'x'.repeat(2**40)", "return 'x'.padStart(2**40)", "let s = 'x'.repeat(1e6); for (;;) s = s.concat(s)"} {
		_, err := execute(t, f, executor.Script{Code: code, Limits: loop.ScriptLimits{Timeout: long}})
		failure(t, err, loop.ScriptMemory)
	}
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAScriptsOwnLimitsComeFirst(t *testing.T) {
	f := newFactory(t, &executor.Factory{Warm: -1, MaxValue: 100, MaxLogs: 100, MaxCallbacks: 2, MaxConcurrent: 1, Timeout: 300 * time.Millisecond})
	opened := make(chan struct{}, 8)
	own := loop.ScriptLimits{Timeout: 20 * time.Second, Callbacks: 8, Concurrent: 4, Output: 1 << 20, Logs: 1 << 20}
	for name, c := range map[string]struct {
		code string
		kind loop.ScriptErrorKind // of the worker's default
	}{
		"timeout":   {"for (let n = 0, t = Date.now(); Date.now() - t < 600; n++); return 1", loop.ScriptTimeout},
		"callbacks": {"for (let i = 0; i < 8; i++) await desk.book(); return 1", loop.ScriptCallbacks},
		"output":    {"return 'x'.repeat(500000)", loop.ScriptOutput},
	} {
		script := executor.Script{Code: c.code, Bindings: []string{"desk.book"}, Call: echo}
		_, err := execute(t, f, script)
		failure(t, err, c.kind)
		script.Limits = own
		if _, err := execute(t, f, script); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	result, err := execute(t, f, executor.Script{Code: "console.log('x'.repeat(500000))", Limits: own})
	if err != nil || len(result.Logs[0]) != 500000 {
		t.Errorf("logs: %v, %v", len(result.Logs), err)
	}
	// The first three wait for a fourth, which there is only with the script's
	// own limit.
	count := make(chan int, 1)
	count <- 0
	_, err = execute(t, f, executor.Script{Code: "await Promise.all([1, 2, 3, 4].map(i => desk.book(i)))", Bindings: []string{"desk.book"}, Limits: own,
		Call: func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
			n := <-count + 1
			count <- n
			if n == 4 {
				close(opened)
			}
			select {
			case <-opened:
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}})
	if err != nil {
		t.Error(err)
	}
	if _, err := execute(t, f, executor.Script{Code: "return 1", Limits: loop.ScriptLimits{Callbacks: 1 << 30}}); err == nil {
		t.Error("a limit out of range was accepted")
	}
}
