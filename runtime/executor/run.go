package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentruntime/agentruntime/events"

	loop "github.com/agentruntime/agentruntime/runtime"
)

// abandonAfter is how long a callback may ignore that its context has ended.
const abandonAfter = 250 * time.Millisecond

// run is one script in one child, seen from the worker.
type run struct {
	process *Process
	script  *Script
	limits  limits
	timeout time.Duration
	parent  context.Context // of Execute
	ctx     context.Context // of the callbacks
	running sync.WaitGroup  // callbacks
	logs    []string
	budget  logBudget
	made    int
	replies sync.Mutex // held while an answer is sent

	mu     sync.Mutex
	open   map[int]*frame // the callbacks in flight
	bytes  int            // of their inputs
	unsent int            // answers that the child has not read
	ended  bool
	result *Result
	err    error
}

// Execute runs the script. An *Error is the script's fault, and the only kind
// of error that is. When ctx ends first, the error is its cause. A process
// executes once; Close it afterwards all the same.
func (p *Process) Execute(ctx context.Context, s *Script) (*Result, error) {
	if err := p.take(s); err != nil {
		return nil, fmt.Errorf("run script: %w", err)
	}
	defer p.kill()
	if limit := or(p.factory.MaxCode, defaultCode); len(s.Code) > limit {
		return nil, &Error{Kind: loop.ScriptSyntax, Message: fmt.Sprintf("the script has %d bytes, more than %d", len(s.Code), limit)}
	}
	timeout := or(s.Limits.Timeout, or(p.factory.Timeout, defaultTimeout))
	callbacks, cancel := context.WithCancel(loop.WithScriptEnd(ctx, time.Now().Add(timeout)))
	r := &run{process: p, script: s, limits: p.factory.limits(s.Limits), timeout: timeout, parent: ctx, ctx: callbacks, open: make(map[int]*frame)}
	r.budget.left = r.limits.Logs + noteBytes
	p.wire.max = r.limits.fromChild()
	timer := time.AfterFunc(r.timeout, r.timeOut)
	stop := context.AfterFunc(ctx, func() { r.end(nil, fmt.Errorf("run script: %w", context.Cause(ctx))) })
	r.converse()
	timer.Stop()
	stop()
	cancel()
	r.abandon()
	return r.outcome()
}

// take claims the process for the script.
func (p *Process) take(s *Script) error {
	if err := CheckBindings(s.Bindings); err != nil {
		return err
	}
	if s.Call == nil && len(s.Bindings) > 0 {
		return errors.New("it has bindings and no Call")
	}
	if err := checkLimits(s.Limits); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	if p.used {
		return errors.New("the process has run a script before")
	}
	p.used = true
	return nil
}

// end ends the run, once: what comes first is the outcome.
func (r *run) end(result *Result, err error) {
	r.mu.Lock()
	if !r.ended {
		r.ended, r.result, r.err = true, result, err
	}
	r.mu.Unlock()
	r.process.kill()
}

func (r *run) timeOut() {
	r.mu.Lock()
	names := make([]string, 0, len(r.open))
	for _, f := range r.open {
		names = append(names, f.Name)
	}
	r.mu.Unlock()
	text := fmt.Sprintf("the script did not end within %s", r.timeout)
	if len(names) > 0 {
		slices.Sort(names)
		text += "; it was waiting for " + strings.Join(slices.Compact(names), ", ")
	}
	r.end(nil, &Error{Kind: loop.ScriptTimeout, Message: cut(text, r.limits.Message)})
}

// violation ends the run of a child that does not keep to the protocol.
func (r *run) violation(kind loop.ScriptErrorKind, text string) {
	r.end(nil, &Error{Kind: kind, Message: "the process of the script was stopped: " + text})
}

// converse sends the script and serves the child until the run has ended.
func (r *run) converse() {
	data, err := json.Marshal(order{Code: r.script.Code, Names: r.script.Bindings, Limits: r.limits, Attach: r.script.Attach != nil})
	if err == nil {
		err = r.process.wire.send(&frame{Type: frameRun, Data: data})
	}
	for err == nil && !r.over() {
		var f *frame
		if f, err = r.process.wire.receive(); err == nil {
			r.handle(f)
		}
	}
	if r.over() {
		return
	}
	var syntax *json.SyntaxError
	var shape *json.UnmarshalTypeError
	switch {
	case errors.Is(err, errOversize):
		r.violation(loop.ScriptOutput, "it sent a frame that is too large")
	case errors.As(err, &syntax), errors.As(err, &shape):
		r.violation(loop.ScriptKilled, "it sent a frame that is malformed")
	default:
		r.process.kill()
		<-r.process.exited
		r.process.mu.Lock()
		closed := r.process.closed
		r.process.mu.Unlock()
		if closed {
			r.end(nil, fmt.Errorf("run script: %w", errClosed))
		} else {
			r.end(nil, r.process.autopsy())
		}
	}
}

func (r *run) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// handle takes one frame of the child, which is not to be trusted.
func (r *run) handle(f *frame) {
	switch f.Type {
	case frameLog:
		text, ok := r.budget.take(f.Text)
		if !ok || r.budget.full {
			r.violation(loop.ScriptOutput, "it wrote more console output than it may")
			return
		}
		r.logs = append(r.logs, text)
	case frameCall:
		r.call(f)
	case frameDone:
		r.done(f)
	case frameFail:
		r.failed(f)
	default:
		r.violation(loop.ScriptKilled, "it sent a frame of an unknown type")
	}
}

func (r *run) done(f *frame) {
	if r.waits() {
		return
	}
	if err := events.CheckJSON(f.Data, events.JSONLimits{MaxBytes: r.limits.Value}); err != nil {
		r.violation(loop.ScriptOutput, "it returned a value that cannot be passed on")
		return
	}
	r.end(&Result{Value: f.Data}, nil)
}

// waits ends the run of a child that ended it with calls open.
func (r *run) waits() bool {
	r.mu.Lock()
	open := len(r.open)
	r.mu.Unlock()
	if open > 0 {
		r.violation(loop.ScriptKilled, "it ended with callbacks in flight")
	}
	return open > 0
}

func (r *run) failed(f *frame) {
	if r.waits() {
		return
	}
	switch f.Kind {
	case loop.ScriptSyntax, loop.ScriptException, loop.ScriptMemory, loop.ScriptOutput, loop.ScriptDeadlock, loop.ScriptCallbacks:
	default:
		r.violation(loop.ScriptKilled, "it failed in an unknown way")
		return
	}
	line := f.Line
	if line < 0 || line > strings.Count(r.script.Code, "\n")+1 {
		line = 0
	}
	r.end(nil, &Error{Kind: f.Kind, Message: cut(f.Text, r.limits.Message), Line: line})
}

// call starts a callback.
func (r *run) call(f *frame) {
	r.made++
	r.mu.Lock()
	// It may call as soon as it has read an answer, of which the sender learns later.
	full := len(r.open) >= r.limits.Concurrent || len(r.open)+r.unsent > r.limits.Concurrent ||
		len(r.open) > 0 && r.bytes+len(f.Data) > maxInFlight
	if !r.ended {
		r.open[f.ID] = f
		r.bytes += len(f.Data)
	}
	r.mu.Unlock()
	switch {
	case r.made > r.limits.Callbacks:
		r.violation(loop.ScriptCallbacks, "it made more callbacks than it may")
	case f.ID != r.made || full || !slices.Contains(r.script.Bindings, f.Name) && !r.attaches(f):
		r.violation(loop.ScriptKilled, "it made a callback that it may not make")
	case events.CheckJSON(f.Data, events.JSONLimits{MaxBytes: r.inputLimit(f)}) != nil:
		r.violation(loop.ScriptOutput, "it sent an input that cannot be passed on")
	default:
		r.running.Go(func() { r.answer(f) })
	}
}

// answer serves a callback and sends the answer.
func (r *run) answer(f *frame) {
	reply := &frame{Type: frameReply, ID: f.ID, Fail: true}
	output, err := r.invoke(f.Name, f.Data)
	if r.parent.Err() != nil {
		return // the script must not get on before the run is ended
	}
	switch {
	case err != nil:
		reply.Text = cut(err.Error(), r.limits.Message)
	case len(output) > r.limits.Output:
		reply.Text = fmt.Sprintf("the answer of %s has %d bytes, more than %d", f.Name, len(output), r.limits.Output)
	case len(output) == 0:
		reply.Fail, reply.Data = false, json.RawMessage("null")
	case events.CheckJSON(output, events.JSONLimits{MaxBytes: r.limits.Output}) != nil:
		reply.Text = "the answer of " + f.Name + " is not valid JSON"
	default:
		reply.Fail, reply.Data = false, output
	}
	r.reply(f, reply)
}

// reply sends an answer. It is counted until the child has read it, and is
// counted off before the next one is sent: so at most one that was read is.
func (r *run) reply(f, reply *frame) {
	r.mu.Lock()
	delete(r.open, f.ID)
	r.bytes -= len(f.Data)
	r.unsent++
	r.mu.Unlock()
	r.replies.Lock()
	defer r.replies.Unlock()
	if r.over() {
		return
	}
	_ = r.process.wire.send(reply) // a child that is gone is noticed by the reader
	r.mu.Lock()
	r.unsent--
	r.mu.Unlock()
}

// invoke calls the host. A host that panics, or ends the goroutine, ends the
// run and not the worker.
func (r *run) invoke(name string, input json.RawMessage) (output json.RawMessage, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		err = errors.New("the callback failed")
		fault := fmt.Errorf("run script: callback %s did not return", name)
		if x := recover(); x != nil {
			fault = fmt.Errorf("run script: callback %s panicked: %v\n%s", name, x, debug.Stack())
		}
		r.end(nil, fault)
	}()
	if name == attachName {
		err = r.attach(input)
	} else {
		output, err = r.script.Call(r.ctx, name, input)
	}
	returned = true
	return output, err
}

// abandon waits for the callbacks that heed their context.
func (r *run) abandon() {
	finished := make(chan struct{})
	go func() {
		r.running.Wait()
		close(finished)
	}()
	timer := time.NewTimer(abandonAfter)
	defer timer.Stop()
	select {
	case <-finished:
	case <-timer.C:
	}
}

func (r *run) outcome() (*Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.result != nil {
		r.result.Logs = r.logs
		return r.result, nil
	}
	if fault, ok := r.err.(*Error); ok { // not one that a cause of the caller's wraps
		fault.Logs = r.logs
	}
	return nil, r.err
}
