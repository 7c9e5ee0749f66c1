package executor

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/parser"

	loop "github.com/agentruntime/agentruntime/runtime"
)

const (
	sourceName   = "script"
	sourcePrefix = "(async () => {"
	sourceSuffix = "\n})()"
	maxCalls     = 512 // of functions inside one another
)

// realm is the world of one script. What it needs of the language it takes
// before the script can change it.
type realm struct {
	vm     *goja.Runtime
	wire   *wire
	limits limits
	logs   logBudget

	parse, stringify goja.Callable
	errorClass       *goja.Object
	typeErrorClass   *goja.Object

	open     map[int]*callback // sent and not answered
	waiting  []*callback       // not sent yet
	inFlight int               // bytes of the inputs of those sent
	made     int
	exceeded bool            // the script made more callbacks than it may
	broken   bool            // the engine cannot run the script any further
	rejected []*goja.Promise // nobody looked, in order; nil where somebody did later
	position map[*goja.Promise]int
}

func newRealm(w *wire) *realm {
	r := &realm{
		vm: goja.New(), wire: w,
		open: make(map[int]*callback), position: make(map[*goja.Promise]int),
	}
	r.vm.SetParserOptions(parser.WithDisableSourceMaps)
	r.vm.SetMaxCallStackSize(maxCalls)
	r.vm.SetPromiseRejectionTracker(r.trackRejection)
	json := r.vm.Get("JSON").ToObject(r.vm)
	r.parse, _ = goja.AssertFunction(json.Get("parse"))
	r.stringify, _ = goja.AssertFunction(json.Get("stringify"))
	r.errorClass = r.vm.Get("Error").ToObject(r.vm)
	r.typeErrorClass = r.vm.Get("TypeError").ToObject(r.vm)
	r.addConsole()
	if err := r.vm.GlobalObject().Delete("GoError"); err != nil { // it is for hosts that show Go errors to scripts
		panic(err)
	}
	return r
}

func (r *realm) limit(l limits) {
	r.limits = l
	r.logs.left = l.Logs
}

// run runs the script to its end and returns the frame that says how it ended.
func (r *realm) run(code string) *frame {
	program, failure := compile(code)
	if failure != nil {
		failure.Text = cut(failure.Text, r.limits.Message)
		return failure
	}
	main, err := r.start(program)
	for err == nil && main.State() == goja.PromiseStatePending && len(r.open) > 0 {
		err = r.step()
	}
	// The outcome is taken before the callbacks that were not awaited come
	// back, so that they do not change a value that was returned.
	last := r.drain(r.outcome(main, err))
	// To read a rejection may run the script, which may call again.
	last = r.drain(r.reportRejections(main, last))
	if r.exceeded {
		return r.tooMany() // wherever that was
	}
	return last
}

// collapse gives up the script after a panic of the engine.
func (r *realm) collapse(x any) *frame {
	kind, text := loop.ScriptException, fmt.Sprint(x)
	for _, refused := range []string{"makeslice:", "growslice:", "Buffer: too large"} {
		if strings.Contains(text, refused) {
			kind = loop.ScriptMemory // an allocation that Go does not even try
		}
	}
	last := r.fail(kind, "the JavaScript engine failed: "+text, 0)
	if r.exceeded {
		last = r.tooMany()
	}
	r.breakDown()
	return r.drain(last)
}

// drain waits for the callbacks that are open. What they lead to can turn
// success into failure.
func (r *realm) drain(last *frame) *frame {
	for len(r.open) > 0 {
		if err := r.step(); err != nil && last.Type == frameDone {
			last = r.failure(err)
		}
	}
	return last
}

// compile wraps the source in an async function and compiles it, or returns
// the failure. The wrapper stands on the source's first line, so that line
// numbers are the script's own.
func compile(code string) (*goja.Program, *frame) {
	source := sourcePrefix + code + sourceSuffix
	lines := strings.Count(code, "\n") + 1
	fail := func(line int, text string) *frame {
		return &frame{Type: frameFail, Kind: loop.ScriptSyntax, Line: min(line, lines), Text: text}
	}
	tree, err := parse(source)
	var list parser.ErrorList
	if errors.As(err, &list) && len(list) > 0 {
		return nil, fail(list[0].Position.Line, list[0].Message)
	} else if err != nil {
		return nil, fail(0, err.Error())
	}
	if !isWrapped(tree, len(source)) {
		return nil, fail(0, "the script closes a brace or parenthesis that it did not open")
	}
	program, err := goja.CompileAST(tree, true)
	var refused *goja.CompilerSyntaxError
	if errors.As(err, &refused) {
		return nil, fail(refused.File.Position(refused.Offset).Line, refused.Message)
	} else if err != nil {
		return nil, fail(0, err.Error())
	}
	return program, nil
}

// parse parses the source. The parser panics on some of what it cannot read.
func parse(source string) (tree *ast.Program, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("the parser cannot read this, write it in another way: %v", x)
		}
	}()
	return parser.ParseFile(nil, sourceName, source, 0, parser.WithDisableSourceMaps)
}

// isWrapped reports whether the program is one call of the wrapper and the
// wrapper holds all of the source.
func isWrapped(tree *ast.Program, size int) bool {
	if len(tree.Body) != 1 {
		return false
	}
	statement, ok := tree.Body[0].(*ast.ExpressionStatement)
	if !ok {
		return false
	}
	call, ok := statement.Expression.(*ast.CallExpression)
	if !ok || len(call.ArgumentList) != 0 {
		return false
	}
	function, ok := call.Callee.(*ast.ArrowFunctionLiteral)
	// Idx1 is the position, counted from 1, after the closing brace, which
	// three more characters follow.
	return ok && function.Async && int(function.Idx1()) == size-len(")()")+1
}

// start runs the script up to its first wait.
func (r *realm) start(program *goja.Program) (*goja.Promise, error) {
	v, err := r.vm.RunProgram(program)
	if err != nil {
		r.breakDown()
		return nil, err
	}
	main, ok := v.Export().(*goja.Promise)
	if !ok {
		return nil, errors.New("the wrapped script returned no promise")
	}
	return main, nil
}

// breakDown gives up the script after an error that it cannot catch. Calls
// already sent are still waited for.
func (r *realm) breakDown() {
	r.broken = true
	r.waiting = nil
}

// outcome is what the script has come to.
func (r *realm) outcome(main *goja.Promise, err error) *frame {
	if r.exceeded {
		return r.tooMany()
	}
	if err != nil {
		return r.failure(err)
	}
	switch main.State() {
	case goja.PromiseStateFulfilled:
		return r.returned(main.Result())
	case goja.PromiseStateRejected:
		text, line := r.explain(main.Result())
		return r.fail(loop.ScriptException, text, line)
	}
	return r.fail(loop.ScriptDeadlock, "the script awaits a promise that nothing can settle: no callback is in flight", 0)
}

// returned encodes the script's value.
func (r *realm) returned(v goja.Value) *frame {
	text, err := r.encode(v)
	switch {
	case isUncatchable(err):
		return r.failure(err)
	case err != nil:
		return r.fail(loop.ScriptOutput, "the returned value has no JSON form: "+err.Error(), 0)
	case text == "":
		text = "null"
	case len(text) > r.limits.Value:
		return r.fail(loop.ScriptOutput, fmt.Sprintf("the returned value has %d bytes of JSON, more than %d: return less",
			len(text), r.limits.Value), 0)
	}
	if err := checkValue(text, r.limits.Value); err != nil {
		return r.fail(loop.ScriptOutput, "the returned value cannot be passed on: "+err.Error(), 0)
	}
	return &frame{Type: frameDone, Data: []byte(text)}
}

// failure is the frame for an error of the engine.
func (r *realm) failure(err error) *frame {
	var stack *goja.StackOverflowError
	if errors.As(err, &stack) {
		line := 0
		if frames := stack.Stack(); len(frames) > 0 {
			line = frames[0].Position().Line
		}
		return r.fail(loop.ScriptException, fmt.Sprintf("stack overflow: functions are nested deeper than %d calls", maxCalls), line)
	}
	return r.fail(loop.ScriptException, err.Error(), 0)
}

// tooMany is the frame for a script that made more callbacks than it may.
func (r *realm) tooMany() *frame {
	return r.fail(loop.ScriptCallbacks, fmt.Sprintf("the script made more than %d callbacks", r.limits.Callbacks), 0)
}

func (r *realm) fail(kind loop.ScriptErrorKind, text string, line int) *frame {
	return &frame{Type: frameFail, Kind: kind, Text: cut(text, r.limits.Message), Line: line}
}

// trackRejection keeps the promises that were rejected and have no handler.
func (r *realm) trackRejection(p *goja.Promise, operation goja.PromiseRejectionOperation) {
	if operation == goja.PromiseRejectionReject {
		r.position[p] = len(r.rejected)
		r.rejected = append(r.rejected, p)
	} else if i, ok := r.position[p]; ok {
		r.rejected[i] = nil
		delete(r.position, p)
	}
}

// reportRejections makes the first rejection that nobody looked at the
// script's failure, and writes it to the log when the script failed anyway.
func (r *realm) reportRejections(main *goja.Promise, last *frame) *frame {
	if r.broken {
		return last
	}
	for _, p := range r.rejected {
		if p == nil || p == main {
			continue
		}
		text, line := r.explain(p.Result())
		text = "a promise was rejected and nobody awaited it: " + text
		if last.Type != frameDone {
			r.log(text)
			continue
		}
		last = r.fail(loop.ScriptException, text, line)
	}
	return last
}

// explain returns the message of what was thrown, and its line. Reading it may
// run code of the script, which may throw again.
func (r *realm) explain(v goja.Value) (text string, line int) {
	if text = r.display(v); strings.TrimSpace(text) == "" {
		text = "what was thrown has no text"
	}
	object, ok := v.(*goja.Object)
	if !ok {
		return text, 0
	}
	var trace string
	if err := r.try(func() { trace = r.stackOf(object) }); err != nil {
		return text, 0
	}
	return text, lineOf(trace)
}

func (r *realm) stackOf(object *goja.Object) string {
	if v := object.Get("stack"); v != nil {
		return v.String()
	}
	return ""
}

// lineOf returns the line of the innermost place of the script in a trace.
func lineOf(trace string) int {
	for {
		_, place, found := strings.Cut(trace, "\tat ")
		if !found {
			return 0
		}
		trace = place
		place, _, _ = strings.Cut(place, "\n")
		if i := strings.Index(place, sourceName+":"); i >= 0 {
			digits, _, _ := strings.Cut(place[i+len(sourceName)+1:], ":")
			if line, err := strconv.Atoi(digits); err == nil {
				return line
			}
		}
	}
}

// try runs code that may enter the script. The error is what it threw.
func (r *realm) try(f func()) (err error) {
	defer func() {
		if x := recover(); x != nil {
			stop, ok := x.(error)
			if !ok || !isUncatchable(stop) {
				panic(x)
			}
			err = stop
		}
	}()
	if thrown := r.vm.Try(f); thrown != nil {
		return thrown
	}
	return nil
}

// isUncatchable reports whether an error is one that no script can catch: it
// leaves every function of it.
func isUncatchable(err error) bool {
	var stack *goja.StackOverflowError
	var interrupted *goja.InterruptedError
	return errors.As(err, &stack) || errors.As(err, &interrupted)
}
