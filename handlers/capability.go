package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// Services makes requests to capability services.
type Services interface {
	// Request sends one request to a NATS subject and returns the answer.
	// ErrNoService means that nobody was there to take it; an error of the
	// service itself is a *ServiceError; any other error leaves open whether
	// the request took effect.
	Request(ctx context.Context, subject string, header map[string]string, data []byte) ([]byte, error)
}

// ErrNoService means that nobody serves a subject: the request was not made.
var ErrNoService = errors.New("nobody serves the subject")

// ServiceError is a service's own refusal or failure.
type ServiceError struct {
	Code        string
	Description string
}

func (e *ServiceError) Error() string {
	return fmt.Sprintf("the service answered with an error (code %s): %s", e.Code, e.Description)
}

// The headers of a capability request. Namespace, run, call and index together
// are the idempotency key. A service that remembers the highest epoch it has
// seen of a run can refuse a stale worker, with the code CodeStaleEpoch.
const (
	HeaderNamespace  = "Agent-Namespace"
	HeaderRun        = "Agent-Run"
	HeaderCall       = "Agent-Call"
	HeaderIndex      = "Agent-Index"
	HeaderKey        = "Agent-Idempotency-Key"
	HeaderEpoch      = "Agent-Epoch"
	HeaderCapability = "Agent-Capability"
	HeaderAuthType   = "Agent-Auth-Type" // on whose behalf, from the starting event
	HeaderAuthID     = "Agent-Auth-Id"

	// HeaderSettle is the token with which the service may settle this call, and
	// no other, by call.settle. Only requests of deferred capabilities have it.
	HeaderSettle = "Agent-Settle-Token"
)

// DefaultCallTimeout bounds one capability call unless its definition does.
const DefaultCallTimeout = 30 * time.Second

// MaxAnswer is the largest answer of a capability, in bytes.
const MaxAnswer = 1 << 20

// backend is runtime.Backend for one run under one claim.
type backend struct {
	host      *Host
	services  Services
	carriers  Carriers
	hold      *hold
	run       *projector.Run // as it was admitted: the fold's own moves while callbacks are made
	key       events.Key
	namespace string
	epoch     uint64
	store     *store
	meter     *meter
	script    time.Duration // that a script may take
	authority authority
}

var _ runtime.Backend = (*backend)(nil)

// Call implements runtime.Backend. The lease is checked right before the
// request leaves.
func (b *backend) Call(ctx context.Context, c *runtime.Callback) (json.RawMessage, error) {
	return b.send(ctx, c, b.header(c))
}

// send makes one request for a callback.
func (b *backend) send(ctx context.Context, c *runtime.Callback, header map[string]string) (json.RawMessage, error) {
	name := c.Capability.Name
	timeout := DefaultCallTimeout
	if c.Capability.Timeout != "" {
		var err error
		if timeout, err = time.ParseDuration(c.Capability.Timeout); err != nil || timeout <= 0 {
			return nil, notCalled(name, fmt.Errorf("its timeout %q is not a positive duration", c.Capability.Timeout))
		}
	}
	if !c.Admitted {
		release, err := b.Admit(ctx, c)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	if err := b.hold.alive(); err != nil {
		return nil, err
	}
	began := b.host.Now()
	call, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request := &Request{Capability: c.Capability, Header: header, Input: c.Input}
	answer, err := b.carry(call, request)
	for c.Again && errors.Is(err, ErrNoService) && b.host.Pause(call, againPause) == nil {
		answer, err = b.carry(call, request)
	}
	b.authority.reads(c.Capability, err)
	err = b.fenced(ctx, name, err)
	var stop runtime.FatalToolError
	if errors.As(err, &stop) {
		b.host.Meter.CallMade(name, "stale", b.host.Now().Sub(began))
		return nil, err
	}
	accepts := c.Direct && c.Capability.Deferred && isAcceptance(answer)
	answer, attached, bad := ReadAnswer(answer)
	out, outcome, err := b.read(c.Capability, timeout, answer, err)
	if err == nil {
		if err = errors.Join(bad, b.attach(call, c, attached)); err != nil {
			out, outcome, err = nil, "malformed", carriedOut("%s was carried out, but its files cannot be taken: %s", name, b.host.Redactor.Redact(err.Error()))
		}
	}
	accepted := err == nil && accepts
	if accepted {
		outcome = "accepted"
	}
	b.host.Meter.CallMade(name, outcome, b.host.Now().Sub(began))
	if accepted {
		return b.await(ctx, c)
	}
	return out, err
}

func (b *backend) header(c *runtime.Callback) map[string]string {
	index := strconv.Itoa(c.Index)
	h := map[string]string{
		HeaderNamespace:  b.namespace,
		HeaderRun:        b.run.ID,
		HeaderCall:       c.CallID,
		HeaderIndex:      index,
		HeaderKey:        idempotencyKey(b.namespace, b.run.ID, c.CallID, c.Index),
		HeaderEpoch:      strconv.FormatUint(b.epoch, 10),
		HeaderCapability: c.Capability.Name,
	}
	if b.run.AuthID != "" {
		h[HeaderAuthType], h[HeaderAuthID] = b.run.AuthType, b.run.AuthID
	}
	if c.Direct && c.Capability.Deferred {
		h[HeaderSettle] = settleToken(b.run, c.CallID)
	}
	return h
}

// carriedOut is the error of a callback that took effect and has no result.
func carriedOut(format string, args ...any) error {
	return &runtime.CallbackError{Outcome: events.OutcomeError, Err: fmt.Errorf(format, args...)}
}

// doubt says of a call that has no answer what is known of its effect.
func doubt(c *events.Capability) string {
	if c.Effect == events.EffectRead {
		return "it changes nothing and may be made again"
	}
	return "whether it took effect is not known"
}

// read turns an answer into the script's value, redacted, or into an error that
// says what is known of the effect.
func (b *backend) read(c *events.Capability, timeout time.Duration, answer []byte, err error) (json.RawMessage, string, error) {
	var refused *ServiceError
	name := c.Name
	var declined *DeclinedError
	switch {
	case errors.Is(err, ErrNoService):
		return nil, "no_service", &runtime.CallbackError{Outcome: events.OutcomeSkipped, Err: fmt.Errorf("%s was not called: %w", name, b.masked(err)), Own: isOwn(err)}
	case errors.As(err, &refused):
		return nil, "error", fmt.Errorf("%s failed: %s", name, bounded(b.host.Redactor.Redact(refused.Error()), maxErrorText))
	case errors.As(err, &declined):
		return nil, "declined", fmt.Errorf("%s gave no answer: %w", name, b.masked(err))
	case errors.Is(err, ErrTooLarge):
		return nil, "too_large", carriedOut("%s was carried out, but its answer has more than %d bytes", name, MaxAnswer)
	case errors.Is(err, context.DeadlineExceeded):
		why := fmt.Sprintf("%s did not answer within %s", name, timeout)
		return nil, "timeout", &runtime.CallbackError{Outcome: events.OutcomeUnknown, Why: why, Err: errors.New(why + "; " + doubt(c))}
	case err != nil:
		return nil, "lost", &runtime.CallbackError{Outcome: events.OutcomeUnknown, Why: fmt.Sprintf("the answer of %s was lost: %v", name, b.masked(err)),
			Err: fmt.Errorf("the answer of %s was lost; %s: %w", name, doubt(c), b.masked(err))}
	case len(answer) > MaxAnswer:
		return nil, "too_large", carriedOut("%s was carried out, but its answer has %d bytes, more than %d", name, len(answer), MaxAnswer)
	case len(answer) == 0:
		return json.RawMessage(`null`), "ok", nil
	}
	if err := events.CheckJSON(answer, events.JSONLimits{}); err != nil {
		return nil, "malformed", carriedOut("%s was carried out, but its answer is not JSON: %w", name, err)
	}
	return runtime.RedactJSON(b.host.Redactor, answer), "ok", nil
}
