package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// Callback makes one callback of a script.
type Callback func(name string, input json.RawMessage) (json.RawMessage, error)

// ScriptFunc is a script written in Go. What it returns becomes the script's
// value; an error that is no *runtime.ScriptError is the host's.
type ScriptFunc func(ctx context.Context, call Callback) (any, error)

// Factory is a runtime.ExecutorFactory whose executors run Go functions, or a
// tiny language:
//
//	NAME INPUT        calls a capability; a failure fails the script
//	try NAME INPUT    calls a capability; a failure is an answer like any other
//	attach NAME TEXT  adds a file to the result
//	log TEXT          writes to the console
//	throw TEXT        fails the script
//	return            ends it with the list of what the calls answered
//	return VALUE      ends it with a JSON value
//
// A script that ends without a return has the value null.
type Factory struct {
	// Scripts are scripts in Go, by their code.
	Scripts map[string]ScriptFunc

	// New, Execute and Close, when set, may fail executor n, counted from 1.
	New, Execute, Close func(n int) error

	mu        sync.Mutex
	executors []*executor
	limits    []runtime.ScriptLimits
}

var _ runtime.ExecutorFactory = (*Factory)(nil)

// NewExecutor implements runtime.ExecutorFactory.
func (f *Factory) NewExecutor(ctx context.Context) (runtime.Executor, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.executors) + 1
	if f.New != nil {
		if err := f.New(n); err != nil {
			return nil, err
		}
	}
	e := &executor{factory: f, number: n}
	f.executors = append(f.executors, e)
	return e, nil
}

// Describe implements runtime.ExecutorFactory.
func (f *Factory) Describe() string {
	return "Runs a script of lines, each of which calls, logs, throws or returns."
}

// Started returns how many executors were started.
func (f *Factory) Started() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.executors)
}

// Ran returns the code of every script that was executed, in order.
func (f *Factory) Ran() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var codes []string
	for _, e := range f.executors {
		codes = append(codes, e.ran...)
	}
	return codes
}

// Limits returns what every script that was executed was limited to, in order.
func (f *Factory) Limits() []runtime.ScriptLimits {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.limits)
}

// Open returns how many executors were not closed.
func (f *Factory) Open() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(f.executors), func(e *executor) bool { return e.closed > 0 }))
}

// Misused returns what was done to executors that must not be.
func (f *Factory) Misused() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []error
	for _, e := range f.executors {
		if e.closed > 1 {
			all = append(all, fmt.Errorf("executor %d was closed %d times", e.number, e.closed))
		}
		if len(e.ran) > 1 {
			all = append(all, fmt.Errorf("executor %d ran %d scripts", e.number, len(e.ran)))
		}
	}
	return errors.Join(all...)
}

type executor struct {
	factory *Factory
	number  int
	ran     []string
	closed  int
}

// Execute implements runtime.Executor.
func (e *executor) Execute(ctx context.Context, s *runtime.Script) (*runtime.ScriptResult, error) {
	if err := e.begin(s); err != nil {
		return nil, err
	}
	call := func(name string, input json.RawMessage) (json.RawMessage, error) { return s.Call(ctx, name, input) }
	function, ok := e.factory.Scripts[s.Code]
	if !ok {
		return interpret(s, call)
	}
	value, err := function(ctx, call)
	if err != nil {
		return nil, err
	}
	data, err := events.Marshal(value)
	return &runtime.ScriptResult{Value: data}, err
}

func (e *executor) begin(s *runtime.Script) error {
	f := e.factory
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.closed > 0 {
		return fmt.Errorf("executor %d was closed before it ran", e.number)
	}
	e.ran = append(e.ran, s.Code)
	f.limits = append(f.limits, s.Limits)
	if f.Execute != nil {
		return f.Execute(e.number)
	}
	return nil
}

// Close implements runtime.Executor.
func (e *executor) Close() error {
	f := e.factory
	f.mu.Lock()
	defer f.mu.Unlock()
	e.closed++
	if f.Close != nil {
		return f.Close(e.number)
	}
	return nil
}

// interpret runs the tiny language.
func interpret(s *runtime.Script, call Callback) (*runtime.ScriptResult, error) {
	var logs []string
	answers := []json.RawMessage{}
	for i, line := range strings.Split(s.Code, "\n") {
		fail := func(kind runtime.ScriptErrorKind, message string) (*runtime.ScriptResult, error) {
			return nil, &runtime.ScriptError{Kind: kind, Message: message, Line: i + 1, Logs: logs}
		}
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "":
		case "log":
			logs = append(logs, rest)
		case "attach":
			name, text, _ := strings.Cut(rest, " ")
			if err := s.Attach(runtime.Attachment{Name: name, Data: []byte(text)}); err != nil {
				return fail(runtime.ScriptException, err.Error())
			}
		case "throw":
			return fail(runtime.ScriptException, rest)
		case "return":
			value := json.RawMessage(rest)
			if rest == "" {
				value, _ = events.Marshal(answers) // they are JSON
			}
			return &runtime.ScriptResult{Value: value, Logs: logs}, nil
		default:
			tolerant := word == "try"
			if tolerant {
				word, rest, _ = strings.Cut(rest, " ")
			}
			if !slices.Contains(s.Bindings, word) {
				return fail(runtime.ScriptException, word+" is not defined")
			}
			answer, err := call(word, json.RawMessage(rest))
			if err != nil && !tolerant {
				return fail(runtime.ScriptException, err.Error())
			}
			if err != nil {
				answer, _ = events.Marshal(err.Error())
			}
			answers = append(answers, answer)
		}
	}
	return &runtime.ScriptResult{Logs: logs}, nil
}
