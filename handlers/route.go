package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/agentruntime/agentruntime/events"
)

// Carrier takes the requests of one kind of route to where they are served.
type Carrier interface {
	// Carry sends one request, at most once, and returns the answer, a JSON
	// value or nothing. Every error says what is known of the effect: ErrNoService
	// that the request was not made, a *ServiceError that it was answered with an
	// error, whose description is not shortened, since it is redacted first; a
	// *DeclinedError that it was answered with what this worker does not take;
	// ErrTooLarge that it was carried out; any other error, that of an
	// ended context included, leaves open whether it took effect. A request that
	// ended so is never sent again by the carrier.
	Carry(ctx context.Context, r *Request) ([]byte, error)
}

// Request is one request to a capability. A carrier changes nothing of it.
type Request struct {
	Capability *events.Capability
	Header     map[string]string // HeaderNamespace and the others
	Input      json.RawMessage   // fits the input schema

	// Permit is asked before each redirect of the request is followed, and says why
	// it may not be. Nil permits all.
	Permit func(to *url.URL) error
}

// Carriers are the carriers of the routes that are not NATS. Without one, a
// request of its kind is not made.
type Carriers struct {
	MCP  Carrier
	HTTP Carrier
}

// NotMadeError reports a request that was not made. It is ErrNoService.
type NotMadeError struct {
	Where  string // such as "MCP server files"
	Reason string // and what to do
	Err    error  // optional

	// Own says that nobody was asked: all words are the worker's. Without it, they
	// count as words of whoever serves the capability.
	Own bool
}

func (e *NotMadeError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", e.Where, e.Reason, e.Err)
	}
	return e.Where + ": " + e.Reason
}

// Is reports that nobody served the request.
func (e *NotMadeError) Is(target error) bool { return target == ErrNoService }

func (e *NotMadeError) Unwrap() error { return e.Err }

// DeclinedError reports a request that was answered, with something that this worker
// does not follow: a redirect to where it may not go. There is no other answer.
type DeclinedError struct {
	Where  string
	Reason string
}

func (e *DeclinedError) Error() string { return e.Where + " " + e.Reason }

// isOwn reports whether an error of a carrier holds no word of anybody else.
func isOwn(err error) bool {
	var made *NotMadeError
	if errors.As(err, &made) {
		return made.Own
	}
	return errors.Is(err, ErrNoService)
}

// HeaderStaleEpoch is the header of an HTTP endpoint's 412 that says that the request
// comes from a stale worker: the endpoint has seen a higher HeaderEpoch of the run.
// Many services answer 412 to a condition of their own, so the status alone is an
// error like others.
const HeaderStaleEpoch = "Agent-Stale-Epoch"

// OrdinaryCode returns the code of an error of a protocol whose numbers are its own,
// so that none of them is read as CodeStaleEpoch.
func OrdinaryCode(code string) string {
	if code == CodeStaleEpoch {
		return "error " + code
	}
	return code
}

// ErrTooLarge means that a request was carried out and that its answer is larger
// than MaxAnswer.
var ErrTooLarge = errors.New("the answer is too large")

// carry sends a request along the route of its capability.
func (b *backend) carry(ctx context.Context, r *Request) ([]byte, error) {
	carrier, kind := b.carriers.HTTP, "HTTP endpoints"
	switch route := &r.Capability.Route; {
	case route.NATS != nil:
		return b.services.Request(ctx, route.NATS.Subject, r.Header, r.Input)
	case route.MCP != nil:
		carrier, kind = b.carriers.MCP, "MCP servers"
	case route.HTTP == nil:
		return nil, &NotMadeError{Where: "capability " + r.Capability.Name, Reason: "it has no route: apply a definition that has one", Own: true}
	}
	r.Permit = func(to *url.URL) error { return b.host.policy().Address(b.namespace, r.Capability.Name, to) }
	if carrier == nil {
		return nil, &NotMadeError{Where: kind, Reason: "this worker reaches none", Own: true}
	}
	return carrier.Carry(ctx, r)
}

// maskedError is an error of a carrier as a script may read it.
type maskedError struct {
	text string
	err  error
}

func (e *maskedError) Error() string { return e.text }
func (e *maskedError) Unwrap() error { return e.err }

func (b *backend) masked(err error) error {
	return &maskedError{bounded(b.host.Redactor.Redact(err.Error()), maxCarrierError), err}
}

// maxCarrierError bounds what is said of a request that went wrong, in bytes.
const maxCarrierError = 1 << 10
