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
		if err := l.resolve(ctx, journal, &callbacks{loop: l, call: call.ID}, list); err != nil {
			return err
		}
		o.text = l.in.Redactor.Redact(tellInterrupted(list))
	}
	return l.settle(ctx, k, o)
}

// tellInterrupted is what the model is told of an interrupted script.
func tellInterrupted(list []projector.Callback) string {
	text := "Unknown outcome. The worker that ran this script stopped before the script's result was stored. What the script returned is not known."
	open := false
	for i := range list {
		open = open || list[i].Open()
	}
	switch {
	case len(list) == 0:
		return text + " It made no callback, reads possibly apart: nothing took effect, and you may run it again."
	case open:
		text += " Do not repeat the whole script: what finished has taken effect. What is not known may have taken effect: first find out, by reading, what is there."
	default:
		text += " Nothing that it did is unknown. Do not repeat the whole script: what finished has taken effect. Go on from there."
	}
	return text + " Callbacks it made:" + projector.TellCallbacks(list) + "\nWhat is not listed was not made, reads possibly apart."
}

// resolve finds out what became of the callbacks of an interrupted script, as far
// as that can be without the script: what is idempotent is sent again with the
// same key, and the service of a write that can be asked is asked. What was found
// out is recorded before it is told. What comes with files gives them to the
// result of the call.
func (l *loop) resolve(ctx context.Context, journal Journal, host *callbacks, list []projector.Callback) error {
	callID := host.call
	var (
		wait   sync.WaitGroup
		failed = make([]error, len(list))
		found  = make([]*events.CallbackDone, len(list))
	)
	for i := range list {
		if c := &list[i]; c.Open() {
			wait.Go(func() { found[i], failed[i] = l.findOut(ctx, host, c) })
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
	// Before the record: whoever finds an outcome in it asks for no files again.
	if err := l.keepFiles(ctx, host); err != nil {
		return err
	}
	if err := journal.RecordCallbacks(ctx, &record); err != nil {
		return fmt.Errorf("record the callbacks of call %s: %w", callID, err)
	}
	return nil
}

// callAgain makes a callback that an earlier attempt dispatched once more. When it
// is not sent now, what the first one did stays unknown, unless it could do
// nothing.
func (l *loop) callAgain(ctx context.Context, c *Callback) (json.RawMessage, error) {
	output, err := l.in.Backend.Call(ctx, c)
	if notSent(err) && c.Capability.Effect != events.EffectRead {
		err = &CallbackError{events.OutcomeUnknown, errors.New("Known: the worker that was to call " + c.Capability.Name + " stopped before its answer was stored, and the call was not made again (" + err.Error() + "). Not known: whether the first one was made, and what it did. Do not simply repeat it: first find out, by reading, what is there.")}
	}
	return output, err
}

// findOut returns what became of a callback, or nil when that stays unknown. An
// error stops the attempt.
func (l *loop) findOut(ctx context.Context, host *callbacks, c *projector.Callback) (*events.CallbackDone, error) {
	capability, ok := l.box.capabilities[c.Capability]
	if !ok {
		return nil, nil
	}
	callback := &Callback{CallID: host.call, Index: c.Index, Capability: capability.Capability, Input: c.Input, Again: true, Attach: host.attach, MayHaveRead: l.untrusted}
	var output json.RawMessage
	var err error
	done := events.CallbackDone{Index: c.Index, Outcome: events.OutcomeOK}
	inquirer, asks := l.in.Backend.(Inquirer)
	switch {
	case c.Effect == events.EffectIdempotent && len(c.Input) > 0:
		output, err = capability.checked(l.callAgain(ctx, callback))
		done.Resolved = events.ResolvedAgain
	case capability.Status != nil && asks:
		var status *CallbackStatus
		if status, err = inquirer.Status(ctx, callback); err == nil {
			switch done.Resolved = events.ResolvedStatus; status.State {
			case StatusDone:
				if output = status.Result; len(output) > 0 {
					output, err = capability.checked(output, nil)
				}
			case StatusNotDone:
				done.Outcome = events.OutcomeSkipped
				return &done, nil
			default:
				return nil, nil
			}
		}
	default:
		return nil, nil
	}
	var fatal FatalToolError
	if err != nil && (ctx.Err() != nil || errors.As(err, &fatal)) {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	if done.Resolved == "" {
		return nil, nil // the service could not be asked
	}
	told := doneOf(c.Index, output, err)
	told.Resolved = done.Resolved
	if told.Outcome == events.OutcomeUnknown {
		return nil, nil // the first one may have taken effect
	}
	return &told, nil
}
