package runtime

import (
	"context"
	"encoding/json"

	"github.com/agentruntime/agentruntime/events"
)

// Backend carries out capability calls. The host authorizes each one, and
// redacts results before it returns them.
type Backend interface {
	// Call makes one callback of a script. Its error becomes an exception in
	// the script, unless it is a FatalToolError. The loop has validated the
	// input and validates the result.
	Call(ctx context.Context, c *Callback) (json.RawMessage, error)
}

// Callback is one call of a capability from a script. The run, CallID and Index
// together are its idempotency key.
type Callback struct {
	CallID     string // of the run_js call
	Index      int    // counts the script's callbacks from 0
	Capability *events.Capability
	Input      json.RawMessage
}

// Sink is told what the model says, for people who watch. It is no journal:
// what it is told may be told twice or not at all.
type Sink interface {
	// Text is called after the commit of a response with its whole redacted
	// text.
	Text(ctx context.Context, revision uint64, text string)
}

// Redactor removes secrets from text.
type Redactor interface {
	Redact(text string) string
}

// PartsRedactor is a Redactor that also finds what is split over the texts of
// adjacent parts, which a model reads as one. It returns the parts changed, and
// leaves those it is given.
type PartsRedactor interface {
	Redactor
	RedactParts(parts []events.Part) []events.Part
}
