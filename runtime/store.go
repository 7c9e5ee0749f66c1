package runtime

import (
	"context"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// SessionStore holds the conversation of one session.
type SessionStore interface {
	// Load returns the current context window. The caller owns the result.
	Load(ctx context.Context) ([]events.Message, error)

	// Compact replaces the context window atomically, keeps what was there
	// as history, and enforces the same lease as SaveCheckpoint. It is
	// called at model boundaries only and does not advance the revision.
	Compact(ctx context.Context, window []events.Message) error
}

// Store is the durable state of one run and its conversation. The host scopes
// it. Every implementation passes runtimetest.TestStore.
type Store interface {
	SessionStore

	// LoadCheckpoint returns the run's newest checkpoint, and nil only for
	// a run that has none. A failed read is an error, never nil. What
	// SaveCheckpoint was given as Append may come back in it.
	LoadCheckpoint(ctx context.Context) (*projector.Checkpoint, error)

	// SaveCheckpoint atomically appends c.Append to the transcript and
	// replaces the checkpoint. It fails when the lease is no longer held or
	// c.Revision is not the stored revision plus one. Saving the identical
	// committed revision again succeeds and appends nothing; another one
	// of the same revision fails. After an error the commit may or may not
	// stand: only loading tells. The store may keep c.
	SaveCheckpoint(ctx context.Context, c *projector.Checkpoint) error
}
