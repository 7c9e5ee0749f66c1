package handlerstest

import (
	"context"

	"github.com/agentruntime/agentruntime/events"
)

// Check demands what must hold of any world, whatever happened in it: intact
// chains, valid transcripts, no capability called twice under one key, no
// executor left open.
func (w *World) Check(ctx context.Context) error {
	_, err := outcome(ctx, w)
	return err
}

// CheckTranscript demands that each message stands once, and that each call has
// exactly one result, right after the message that made it.
func CheckTranscript(messages []events.Message) error { return validTranscript(messages) }
