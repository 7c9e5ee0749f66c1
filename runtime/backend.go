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

// Recaller is a Backend that can tell what became of a call of the model's that
// an earlier attempt dispatched. Without it such a call is made again when its
// capability's effect allows, and is unknown otherwise.
type Recaller interface {
	Backend
	// Recall returns what Call would have returned, or known as false when it
	// is not known. It makes no call.
	Recall(ctx context.Context, c *Callback) (output json.RawMessage, known bool, err error)
}

// Callback is one call of a capability, from a script or by the model itself.
// The run, CallID and Index together are its idempotency key.
type Callback struct {
	CallID     string // of the run_js call, or of the model's own
	Index      int    // counts the script's callbacks from 0
	Capability *events.Capability
	Input      json.RawMessage

	// Direct is set on a call of the model's own. Its Call may return ErrWaiting
	// when the service settles it later.
	Direct bool
	// Attach adds a file that the answer came with to the result of the call that
	// CallID names. An error says why it is not taken, and takes nothing.
	Attach func(a Attachment) error
	// Again marks a callback that an interrupted attempt may have sent: it is
	// sent once more with the same key, or only asked about.
	Again bool
	// Admitted is set when an Admitter has let the callback through: Call does not
	// judge it again.
	Admitted bool
	// MayHaveRead is set on a callback that is sent again or asked about when its
	// script may have read what is not trusted: nobody knows what it had read.
	MayHaveRead bool
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
