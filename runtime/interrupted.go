package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// Inquirer is what a Backend may implement besides: it asks the service of a
// capability with a Status what became of a callback.
type Inquirer interface {
	// Status asks for the callback with the same CallID and Index. An error
	// leaves open what became of it, unless it is a FatalToolError, which
	// stops the attempt.
	Status(ctx context.Context, c *Callback) (*CallbackStatus, error)
}

// CallbackStatus is what a service says of a callback.
type CallbackStatus struct {
	State  string          `json:"state"` // done, not-done or unknown
	Result json.RawMessage `json:"result,omitempty"`
}

// The states of a CallbackStatus. A service that says not-done refuses the
// callback should it still arrive.
const (
	StatusDone    = events.ResolvedDone
	StatusNotDone = events.ResolvedNotDone
	StatusUnknown = "unknown"
)

// interrupted commits the outcome of a call that an earlier attempt dispatched
// and that is never made again.
func (l *loop) interrupted(ctx context.Context, k int) error {
	call := &l.checkpoint.Calls[k]
	o := unknown(call.Name)
	if journal, ok := l.in.Store.(Journal); ok && call.Name == toolRunJS {
		list, err := journal.Callbacks(ctx, call.ID)
		if err != nil {
			return fmt.Errorf("read the callbacks of call %s: %w", call.ID, err)
		}
		if err := l.resolve(ctx, journal, call.ID, list); err != nil {
			return err
		}
		if parts := projector.FilesOf(list); len(parts) > 0 {
			l.keep(call.ID, parts)
		}
		o.brief = func(most int) string { return projector.TellScript(scriptLost, list, most) }
		o.text = redactText(l.in.Redactor, o.brief(projector.MaxTold))
	}
	return l.settle(ctx, k, o)
}

// scriptLost is how an interrupted script came not to have a result.
const scriptLost = "Unknown outcome. The worker that ran this script stopped before the script's result was stored. What the script returned is not known."

// resolve finds out what became of the callbacks of an interrupted script, as far
// as that can be without the script: what is idempotent is sent again with the
// same key, and the service of a write that can be asked is asked, as many at a
// time as a script may have under way. What was found out is recorded before it
// is told, with the files that it came with.
func (l *loop) resolve(ctx context.Context, journal Journal, callID string, list []projector.Callback) error {
	var (
		wait   sync.WaitGroup
		host   = &callbacks{loop: l, call: callID} // of all: what a call may attach, they may together
		slots  = make(chan struct{}, l.scriptConcurrency())
		failed = make([]error, len(list))
		found  = make([]*events.CallbackDone, len(list))
	)
	for i := range list {
		if c := &list[i]; c.Open() {
			slots <- struct{}{}
			wait.Go(func() {
				defer func() { <-slots }()
				found[i], failed[i] = l.findOut(ctx, host, c)
			})
		}
	}
	wait.Wait()
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("find out about the callbacks of call %s: %w", callID, err)
	}
	record := events.CallbacksRecorded{CallID: callID}
	for i, done := range found {
		if done != nil {
			list[i].Done = done
			record.Done = append(record.Done, *done)
		}
	}
	if len(record.Done) == 0 {
		return nil
	}
	if err := journal.RecordCallbacks(ctx, &record); err != nil {
		return fmt.Errorf("record the callbacks of call %s: %w", callID, err)
	}
	return nil
}

// scriptConcurrency is how many callbacks a script may have under way.
func (l *loop) scriptConcurrency() int {
	if n := l.limits.script.Concurrent; n > 0 {
		return n
	}
	return DefaultScriptConcurrent
}

// callAgain makes a callback that an earlier attempt dispatched once more. Unless
// that one was carried out, what the first one did stays unknown, if it could do
// anything.
func (l *loop) callAgain(ctx context.Context, c *Callback) (json.RawMessage, error) {
	output, err := l.in.Backend.Call(ctx, c)
	var typed *CallbackError
	if err == nil || c.Capability.Effect == events.EffectRead || stops(ctx, err) || errors.Is(err, ErrWaiting) ||
		errors.As(err, &typed) && typed.Outcome == events.OutcomeError {
		return output, err
	}
	again := "; it was sent again with the same key: " + whyOf(err)
	if notSent(err) {
		again = ", and the call was not made again (" + err.Error() + ")"
	}
	return nil, stillUnknown(workerStopped(c.Capability.Name) + again)
}

// findOut returns what became of a callback, or why that stays unknown though it
// was tried to find out, or nil when it could not be tried. An error stops the
// attempt. A callback whose script was told that nobody knows is not sent again:
// the script may have acted on that, and taken back what it did.
func (l *loop) findOut(ctx context.Context, host *callbacks, c *projector.Callback) (*events.CallbackDone, error) {
	capability, ok := l.box.capabilities[c.Capability]
	if !ok {
		return nil, nil
	}
	callback := &Callback{CallID: host.call, Index: c.Index, Capability: capability.Capability, Input: c.Input, Again: true, Attach: host.attacher(c.Index), MayHaveRead: l.untrusted}
	if c.Effect == events.EffectIdempotent && len(c.Input) > 0 && c.Done == nil {
		output, err := capability.checked(l.callAgain(ctx, callback))
		if stops(ctx, err) {
			return nil, errors.Join(context.Cause(ctx), err)
		}
		done := doneOf(c.Index, output, err)
		if done.Outcome == events.OutcomeUnknown {
			return &done, nil
		}
		// Before the record: whoever finds an outcome in it asks for no files again.
		parts, err := l.store(ctx, host.call, host.came(c.Index))
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			done.Files = append(done.Files, *p.File)
		}
		done.Attached, done.Resolved = len(done.Files), events.ResolvedAgain
		return &done, nil
	}
	state, output, said, err := l.inquire(ctx, capability, callback)
	var done events.CallbackDone
	switch {
	case stops(ctx, err):
		return nil, errors.Join(context.Cause(ctx), err)
	case state == StatusDone:
		done = doneOf(c.Index, output, err)
	case state == StatusNotDone:
		done = events.CallbackDone{Index: c.Index, Outcome: events.OutcomeSkipped}
	case said == "":
		return nil, nil
	default:
		why := workerStopped(c.Capability)
		if c.Done != nil {
			why = c.Done.Text
		}
		done = open(c.Index, l.in.Redactor.Redact(why+"; "+said))
		return &done, nil
	}
	done.Resolved = events.ResolvedStatus
	return &done, nil
}

// inquire asks the service of an interrupted callback what became of it. Who cannot
// be asked, or says anything else, does not know: said is what it did instead, and
// nothing when it cannot be asked. The output is what the service says the callback
// returned, if it says so; one that does not fit is an error. Any other error stops
// the attempt.
func (l *loop) inquire(ctx context.Context, c *boundCapability, made *Callback) (state string, output json.RawMessage, said string, err error) {
	inquirer, asks := l.in.Backend.(Inquirer)
	if c.Status == nil || !asks {
		return StatusUnknown, nil, "", nil
	}
	const asked = "its service was asked what became of it and "
	status, err := inquirer.Status(ctx, made)
	switch {
	case stops(ctx, err):
		return "", nil, "", err
	case err != nil:
		return StatusUnknown, nil, asked + "did not tell: " + whyOf(err), nil
	case status.State == StatusDone && len(status.Result) > 0 && string(status.Result) != "null":
		output, err = c.checked(status.Result, nil)
		return StatusDone, output, "", err
	case status.State == StatusDone, status.State == StatusNotDone:
		return status.State, nil, "", nil
	case status.State == StatusUnknown:
		return StatusUnknown, nil, asked + "does not know", nil
	}
	return StatusUnknown, nil, asked + fmt.Sprintf("answered the state %q, which is none of %s, %s and %s", projector.Cut(status.State), StatusDone, StatusNotDone, StatusUnknown), nil
}

// stops reports whether an error ends the attempt.
func stops(ctx context.Context, err error) bool {
	var fatal FatalToolError
	return err != nil && (ctx.Err() != nil || errors.As(err, &fatal))
}
