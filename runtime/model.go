package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

// Model answers one request. Implementations own the retries of one request
// (see ModelError) and count every token they report.
type Model interface {
	// Generate returns one complete response. It does not run tools. An
	// error stops the attempt; the request may be made again by the next
	// one. The request and everything in it belong to the caller.
	Generate(ctx context.Context, r *Request) (*Response, error)
}

// Request is one model request. Everything in it is redacted.
type Request struct {
	System          string
	Messages        []events.Message
	Tools           []Tool
	MaxOutputTokens int64 // 0: the provider's default

	// Files are the bytes of the files that go with the request, by the
	// reference of their parts. A part whose file is not here, or of an
	// assistant's message, is described in words.
	Files map[string][]byte
}

// Tool is what the model is told of a tool.
type Tool struct {
	Name        string
	Description string
	InputSchema json.RawMessage
}

// FinishReason says why a response ended.
type FinishReason string

// The finish reasons. A response with any other is not accepted.
const (
	FinishStop   FinishReason = "stop"
	FinishCalls  FinishReason = "tool_calls"
	FinishLength FinishReason = "length"         // cut at the output limit
	FinishFilter FinishReason = "content_filter" // cut by the provider
)

// Response is one complete response. Its message's role and ids are the
// loop's to set. Arguments of calls are kept as the model wrote them, valid
// JSON or not; the loop refuses those that do not parse.
type Response struct {
	Parts  []events.Part
	Finish FinishReason
	Usage  events.Usage
}

// ModelLimits are what the model can take, given explicitly.
type ModelLimits struct {
	ContextTokens int64 // the context window: input and output together
	OutputTokens  int64 // of one response; 0: the provider's default
	Files         FileLimits
}

// ErrorClass tells what to do about a provider's error.
type ErrorClass string

// The classes of provider errors.
const (
	ClassRetry    ErrorClass = "retry"    // 408, 409, 5xx, transport: the same request may succeed
	ClassLimited  ErrorClass = "limited"  // 429: later
	ClassDenied   ErrorClass = "denied"   // 401, 403: not with this key
	ClassOverflow ErrorClass = "overflow" // 413, or said in words: the request is larger than the model takes: not with this conversation
	ClassInvalid  ErrorClass = "invalid"  // other 4xx, or a response that is not one: not with this request
)

// ModelError is a provider's refusal or failure, mapped once by its adapter.
type ModelError struct {
	Provider   string
	Class      ErrorClass
	Status     int           // HTTP status, 0 when there was no response
	RetryAfter time.Duration // what the provider asked for, 0 when it did not
	Usage      events.Usage  // what the provider reported before it failed; it is spent all the same
	Err        error
}

func (e *ModelError) Error() string {
	status := ""
	if e.Status != 0 {
		status = fmt.Sprintf(" (status %d)", e.Status)
	}
	return fmt.Sprintf("model provider %s: %s%s: %v", e.Provider, e.Class, status, e.Err)
}

func (e *ModelError) Unwrap() error { return e.Err }

// Retryable reports whether the same request may succeed later.
func (e *ModelError) Retryable() bool { return e.Class == ClassRetry || e.Class == ClassLimited }

// Spent returns what a request has used: what came back of it, or, of one that
// failed, what its error says.
func Spent(response *Response, err error) events.Usage {
	var failed *ModelError
	switch {
	case response != nil && response.Usage != (events.Usage{}):
		return response.Usage
	case errors.As(err, &failed):
		return failed.Usage
	}
	return events.Usage{}
}

// LaterError is a provider that asks for more patience than a worker has: the
// request may be made again, but not now, and nobody should hold a worker until
// then.
type LaterError struct {
	After time.Duration
	Err   error
}

func (e *LaterError) Error() string {
	return fmt.Sprintf("the provider is to be asked again after %s: %v", e.After, e.Err)
}

func (e *LaterError) Unwrap() error { return e.Err }
