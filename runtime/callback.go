package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// CallbackError is a backend's error that tells what is known of the effect.
// Outcome is error when the callback was carried out and gave no result, skipped
// when it was not sent, and unknown when it may or may not have taken effect. An
// error of an ended context is one of the last kind. Another error is a refusal of
// the service: of a callback that was sent before, it leaves open what became of
// the first one.
type CallbackError struct {
	Outcome events.Outcome
	Err     error

	// Why says, of an unknown outcome, why nobody knows: in a few words for the
	// people who are to find out, without the advice that Err has for the model.
	// Err says it when it is empty.
	Why string

	// Own says that all words of Err are the backend's: whoever serves the
	// capability was not reached, and said nothing.
	Own bool
}

func (e *CallbackError) Error() string { return e.Err.Error() }

func (e *CallbackError) Unwrap() error { return e.Err }

// callbacks serves the callbacks of one script and remembers what became of
// them.
type callbacks struct {
	loop    *loop
	call    string
	stop    context.CancelCauseFunc // ends the script
	journal *recording              // nil where the store keeps none

	mu    sync.Mutex
	kept  projector.Script // what is told of the callbacks: no inputs, and bounded results
	stage []stage          // of each
	ended bool
	fatal error

	attached []taken

	untrusted bool     // it was answered what is not to be trusted
	denials   []string // what it was told of what it may not
}

// callbacks returns what serves the callbacks of a script.
func (l *loop) callbacks(attempt context.Context, call string, stop context.CancelCauseFunc) *callbacks {
	h := &callbacks{loop: l, call: call, stop: stop}
	if port, ok := l.in.Store.(Journal); ok {
		h.journal = newRecording(attempt, port, call, h.abort)
	}
	return h
}

// serve carries out one callback: granted, valid, admitted, recorded, dispatched,
// valid again. What the catalogue answers itself is no callback.
func (h *callbacks) serve(ctx context.Context, binding string, input json.RawMessage) (json.RawMessage, error) {
	if answer, served, err := h.loop.box.catalogue.Serve(binding, input); served {
		return answer, err
	}
	granted := h.loop.box.catalogue.Capability(binding)
	if granted == nil {
		return nil, fmt.Errorf("there is no capability %q", binding)
	}
	name := granted.Name
	capability := h.loop.box.capabilities[name]
	if len(input) == 0 {
		input = json.RawMessage(`null`)
	}
	if capability.input != nil {
		if err := capability.input.Validate(input); err != nil {
			return nil, fmt.Errorf("%s was not called: its input does not fit the schema: %w", name, err)
		}
	}
	made, err := made(capability.Capability, input)
	if err == nil {
		err = h.count(&made)
	}
	if err != nil {
		return nil, fmt.Errorf("%s was not called: %w", name, err)
	}
	callback := &Callback{CallID: h.call, Index: made.Index, Capability: capability.Capability, Input: input, Attach: h.attacher(made.Index)}
	release, err := h.admit(ctx, callback)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := h.begin(ctx, &made); err != nil {
		return nil, fmt.Errorf("%s was not called: %w", name, err)
	}
	output, err := h.loop.in.Backend.Call(ctx, callback)
	output, err = capability.checked(output, err)
	h.noteAnswer(capability.Capability, err)
	h.end(ctx, made.Index, output, err)
	return output, err
}

// checked validates what a backend answered.
func (c *boundCapability) checked(output json.RawMessage, err error) (json.RawMessage, error) {
	if len(output) == 0 {
		output = json.RawMessage(`null`)
	}
	if err == nil && c.output != nil {
		if invalid := c.output.Validate(output); invalid != nil {
			err = &CallbackError{Outcome: events.OutcomeError, Err: fmt.Errorf("%s was carried out, but its answer does not fit its output schema: %w", c.Name, invalid)}
		}
	}
	return output, err
}

// maxJournaledInput is the largest input that the journal keeps whole, in bytes.
// That of an idempotent callback is always kept: it may have to be sent again.
const maxJournaledInput = 4 << 10

// made is a callback as the journal has it.
func made(c *events.Capability, input json.RawMessage) (projector.Callback, error) {
	made := projector.Callback{CallbackMade: events.CallbackMade{Capability: c.Name, Effect: c.Effect, Input: input, Untrusted: c.Untrusted}}
	if c.Effect != events.EffectIdempotent && len(input) > maxJournaledInput {
		hash, err := events.HashJSON(input)
		if err != nil {
			return made, err
		}
		made.Input, made.InputHash = nil, hash
	}
	return made, nil
}

// begin records a callback that may leave. After a fatal error, and after the end
// of the script, none is sent.
func (h *callbacks) begin(ctx context.Context, made *projector.Callback) error {
	if err := h.step(made.Index, announced); err != nil {
		return err
	}
	if h.journal != nil {
		if err := h.journal.predispatch(ctx, made.CallbackMade, made.Changes()); err != nil {
			return err
		}
	}
	return h.step(made.Index, sent)
}

// over says why nothing more is sent, or nothing.
func (h *callbacks) over() error {
	switch {
	case h.fatal != nil:
		return errors.New("the run is being stopped")
	case h.ended:
		return errEnded
	}
	return nil
}

// end notes what became of a callback. One that ended without an answer because its
// script did is as open as one that is under way: nobody was told of it.
func (h *callbacks) end(ctx context.Context, index int, output json.RawMessage, err error) {
	var fatal FatalToolError
	if errors.As(err, &fatal) {
		h.abort(err)
		return
	}
	done := doneOf(index, output, err)
	if ctx.Err() != nil && done.Outcome == events.OutcomeUnknown {
		return
	}
	done.Attached = len(h.came(index))
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return // what became of it was told without it
	}
	h.note(done)
	if h.journal != nil {
		h.journal.outcome(done, h.kept.Callbacks[index].Changes())
	}
}

// note keeps what became of a callback.
func (h *callbacks) note(done events.CallbackDone) {
	h.kept.Record(&events.CallbacksRecorded{Done: []events.CallbackDone{done}})
}

// doneOf is what the journal keeps of an outcome.
func doneOf(index int, output json.RawMessage, err error) events.CallbackDone {
	done := events.CallbackDone{Index: index, Outcome: events.OutcomeOK}
	if err == nil {
		if len(output) <= projector.MaxResult {
			done.Result = output
		} else {
			done.Size, done.Text = len(output), projector.Cut(strings.ToValidUTF8(string(output[:projector.MaxResult+1]), ""))
		}
		return done
	}
	var typed *CallbackError
	var denied *DeniedError
	done.Text = projector.Cut(strings.ToValidUTF8(err.Error(), "\uFFFD"))
	switch {
	case errors.As(err, &typed):
		if done.Outcome = typed.Outcome; done.Outcome == events.OutcomeUnknown {
			done = open(index, whyOf(typed))
		}
	case errors.As(err, &denied):
		done.Outcome = events.OutcomeSkipped
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		done.Outcome = events.OutcomeUnknown
	default:
		done.Outcome = events.OutcomeError
	}
	return done
}

// notSent reports whether an error says that a callback was not sent.
func notSent(err error) bool {
	var typed *CallbackError
	if errors.As(err, &typed) {
		return typed.Outcome == events.OutcomeSkipped
	}
	var denied *DeniedError
	return errors.As(err, &denied)
}

// saysNothing reports whether an error holds no word of whoever serves a capability.
// A callback that was not sent may: of a server that refused to begin, for example.
func saysNothing(err error) bool {
	var typed *CallbackError
	if errors.As(err, &typed) {
		return typed.Own
	}
	var denied *DeniedError
	return errors.As(err, &denied)
}

// noteAnswer remembers whether the script was told what is not to be trusted, and
// what it was denied.
func (h *callbacks) noteAnswer(c *events.Capability, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var denied *DeniedError
	if errors.As(err, &denied) {
		h.denials = append(h.denials, denied.Error())
	} else if c.Untrusted && !saysNothing(err) {
		h.untrusted = true
	}
}

// hasRead reports whether the script was answered what is not to be trusted.
func (h *callbacks) hasRead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.untrusted
}

// outcome is that of a script that failed: denied when it failed of a denial.
func (h *callbacks) outcome(failed *ScriptError) events.Outcome {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.ContainsFunc(h.denials, func(d string) bool { return strings.Contains(failed.Message, d) }) {
		return events.OutcomeDenied
	}
	return events.OutcomeError
}

// abort ends the script and the attempt.
func (h *callbacks) abort(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fatal == nil {
		h.fatal = err
		h.stop(err)
	}
}

func (h *callbacks) stopped() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fatal
}

// finish ends the callbacks with the script: those under way are not waited for.
// When the attempt is aborted as well, what is known is recorded as far as it can
// be; the rest is unknown to whoever goes on.
func (h *callbacks) finish(attempt context.Context, aborted bool) error {
	h.mu.Lock()
	h.ended = true
	var list []events.CallbackDone
	for i := range h.kept.Callbacks {
		c := &h.kept.Callbacks[i]
		switch {
		case c.Done != nil:
			continue
		case h.stage[i] < sent:
			c.Done = &events.CallbackDone{Index: i, Outcome: events.OutcomeSkipped, Text: errEnded.Error()}
			if h.stage[i] < announced {
				continue // the journal has nothing of it
			}
		case aborted || !c.Changes():
			continue
		default:
			c.Done = &events.CallbackDone{Index: i, Outcome: events.OutcomeUnknown, Text: "the script ended before it answered"}
		}
		list = append(list, *c.Done)
	}
	// Files take a while to be stored, in which all of it could be lost.
	all := aborted || len(h.attached) > 0
	h.mu.Unlock()
	if h.journal == nil {
		return nil
	}
	for _, done := range list {
		h.journal.outcome(done, h.kept.Callbacks[done.Index].Changes())
	}
	if aborted {
		attempt = context.WithoutCancel(attempt)
	}
	h.loop.untold = func(ctx context.Context) error { return h.journal.end(ctx, true) }
	return h.journal.end(attempt, all)
}

// explain tells the model of a failed script: what went wrong, what had been
// done before, and what to do. What it tells has about so many bytes at most.
func (h *callbacks) explain(failed *ScriptError) func(most int) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	made, console := slices.Clone(h.kept.Callbacks), strings.Join(failed.Logs, "\n")
	return func(most int) string {
		text := cutMiddle(failed.Error(), most/4)
		if len(made) > 0 {
			text += "\nCallbacks it made:" + projector.TellCallbacks(made, min(most/2, projector.MaxTold)) + "\n" + projector.Advise(made)
		}
		if console != "" {
			text += "\nConsole:\n" + cutMiddle(console, most/4)
		}
		return text
	}
}
