package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// whyOf says why nobody knows what a callback did.
func whyOf(err error) string {
	var typed *CallbackError
	if errors.As(err, &typed) && typed.Why != "" {
		return typed.Why
	}
	return err.Error()
}

// stillUnknown is the error of a callback that was interrupted, with what is known.
func stillUnknown(why string) *CallbackError {
	return &CallbackError{Outcome: events.OutcomeUnknown, Why: why,
		Err: errors.New("Known: " + why + ". Not known: whether the call was made, and what it did. Do not simply repeat it: first find out, by reading, what is there.")}
}

// open is what the journal keeps of a callback of which nobody knows what it did:
// why that is.
func open(index int, why string) events.CallbackDone {
	return events.CallbackDone{Index: index, Outcome: events.OutcomeUnknown, Text: projector.Cut(strings.ToValidUTF8(why, "\uFFFD"))}
}

// recordOpen keeps why nobody knows what a call of a capability by the model itself
// did, where the store has a journal. The call's result is committed after it.
func (l *loop) recordOpen(ctx context.Context, callID string, cause *CallbackError) error {
	journal, ok := l.in.Store.(Journal)
	if !ok {
		return nil
	}
	record := events.CallbacksRecorded{CallID: callID, Done: []events.CallbackDone{open(0, l.in.Redactor.Redact(whyOf(cause)))}}
	if err := journal.RecordCallbacks(ctx, &record); err != nil {
		return fmt.Errorf("record why the outcome of call %s is unknown: %w", callID, err)
	}
	return nil
}

// workerStopped is why nobody knows what a callback did that an earlier attempt
// dispatched.
func workerStopped(capability string) string {
	return "the worker that was to call " + capability + " stopped before its answer was stored"
}
