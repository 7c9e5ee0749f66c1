package handlers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers/limit"
	"github.com/agentruntime/agentruntime/handlers/policy"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// Policies tells which policy is in force at the moment. It is asked before every
// operation of a run, concurrently, and does not block.
type Policies interface {
	Policy() *policy.Policy
}

// policy returns the policy of the moment; nil allows everything.
func (h *Host) policy() *policy.Policy {
	if h.Policies == nil {
		return nil
	}
	return h.Policies.Policy()
}

// forbidden is a denial of the policy, as the loop knows denials.
type forbidden struct {
	*runtime.DeniedError
	cause error
}

func (e *forbidden) Unwrap() []error { return []error{e.DeniedError, e.cause} }

// denied makes what a policy denies an outcome of the call, or the end of the run
// when it is no call.
func (h *Host) denied(err error) error {
	if err == nil {
		return nil
	}
	return &forbidden{&runtime.DeniedError{Reason: oneLine(err)}, err}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func isDenied(err error) bool {
	var denied *runtime.DeniedError
	return errors.As(err, &denied)
}

// deniesModel reports whether it is the model alone that is denied: the run may
// have another.
func deniesModel(err error) bool {
	var denial *policy.Denial
	return errors.As(err, &denial) && denial.What == "model"
}

// follow prepares a run that goes on with a conversation. What was forbidden in
// it stays so, whatever the newest definition says.
func (a *admission) follow(ctx context.Context, key events.Key, last *projector.Run, data events.StartRun) (*events.RunAdmitted, error) {
	admitted, err := a.prepare(ctx, key, data)
	if err == nil {
		admitted.NoEgress = admitted.NoEgress || last.Admitted.NoEgress
	}
	return admitted, err
}

// mayAct refuses what a run asks for when its claim is over, or when its agent is
// not allowed any more.
func (c *controller) mayAct() error {
	if err := c.hold.alive(); err != nil {
		return err
	}
	run := c.run()
	return c.host.denied(c.host.policy().Agent(c.key().Namespace, run.Admitted.Agent, run.Parent != ""))
}

// authority is what a run's scripts have read under a claim.
type authority struct {
	store *store
	read  atomic.Bool // a capability was asked that answers what is not trusted
}

// reads notes that a capability was asked and how that ended: unless nobody was
// there, the script is told something of it, whether it has answered or not.
func (a *authority) reads(c *events.Capability, err error) {
	if c.Untrusted && !isOwn(err) {
		a.read.Store(true)
	}
}

// untrusted reports whether the run, or its script that is under way, has read
// what is not trusted. What was committed is in the fold.
func (a *authority) untrusted() bool { return a.read.Load() || a.store.untrusted.Load() }

// left returns for how long the caller of a callback goes on, at most: until the
// end of its script, where the context knows it.
func (b *backend) left(ctx context.Context) time.Duration {
	if end, known := runtime.ScriptEnd(ctx); known {
		return time.Until(end)
	}
	return b.script
}

// scriptTimeout is how long a script of an agent may take.
func scriptTimeout(d *events.AgentDefinition) time.Duration {
	timeout, err := time.ParseDuration(d.Limits.ScriptTimeout)
	if err != nil {
		return defaultScriptTimeout // absent: a definition is checked before it is stored
	}
	return timeout
}

// defaultScriptTimeout bounds how long a call waits for its turn that is made by no
// script, when its agent does not bound its scripts either.
const defaultScriptTimeout = 30 * time.Second

var _ runtime.Admitter = (*backend)(nil)

// Admit implements runtime.Admitter.
func (b *backend) Admit(ctx context.Context, c *runtime.Callback) (func(), error) {
	permit, err := b.pass(ctx, c)
	if err != nil {
		b.host.Meter.CallMade(c.Capability.Name, outcomeOf(err), 0)
		return nil, err
	}
	return func() { permit.Release(limit.Outcome{}) }, nil
}

// pass lets a callback through: granted, allowed, and within the limits of the
// capability.
// It waits for at most nine tenths of what its script has left, so that the script
// can still be told.
func (b *backend) pass(ctx context.Context, c *runtime.Callback) (*limit.Permit, error) {
	name := c.Capability.Name
	if !slices.Contains(b.run.Admitted.Capabilities, name) {
		return nil, &runtime.DeniedError{Reason: "the run was not granted " + name}
	}
	if c.MayHaveRead {
		b.authority.read.Store(true)
	}
	if err := b.authorize(c.Capability); err != nil {
		return nil, err
	}
	limits := b.host.policy().Limits(b.namespace, c.Capability)
	left := b.left(ctx)
	permit, err := b.host.Limits.Acquire(ctx, limit.Request{Key: limit.Key("capability", b.namespace, name), Name: "capability " + name, Limits: limits,
		Namespace: b.run.ID, Patience: left - left/10})
	if err != nil {
		return nil, notCalled(name, err)
	}
	// It may have waited, and the policy is that of the moment.
	if err := b.authorize(c.Capability); err != nil {
		permit.Release(limit.Outcome{NotMade: true})
		return nil, err
	}
	return permit, nil
}

// notCalled is the error of a callback that was not sent.
func notCalled(name string, err error) error {
	return &runtime.CallbackError{Outcome: events.OutcomeSkipped, Err: fmt.Errorf("%s was not called: %w", name, err), Own: true}
}

// authorize refuses what the policy of the moment, or the definition of the run or
// of one above it, does not allow.
func (b *backend) authorize(c *events.Capability) error {
	p, untrusted := b.host.policy(), b.authority.untrusted()
	if err := p.Agent(b.namespace, b.run.Admitted.Agent, b.run.Parent != ""); err != nil {
		return b.host.denied(err)
	}
	if err := p.Capability(b.namespace, c, untrusted); err != nil {
		return b.host.denied(err)
	}
	if c.Egress && untrusted && b.run.Admitted.NoEgress {
		return &runtime.DeniedError{Reason: c.Name + " lets data out, and this conversation has read what is not trusted"}
	}
	return nil
}

// outcomeOf names for metrics why a callback was not made.
func outcomeOf(err error) string {
	var limited *limit.Error
	switch {
	case isDenied(err):
		return "denied"
	case errors.As(err, &limited):
		return "limited"
	}
	return "ended"
}

// CodeStaleEpoch is the code of the error with which a capability service refuses
// a request whose epoch is lower than one it has seen of the same run: that of
// HTTP for a precondition that fails. A worker that is told so looks who has the
// run: it stops at once when that is another one, as when its own append is
// refused. Otherwise it is an error of the service like any other.
const CodeStaleEpoch = "412"

// StaleEpochError is a service's refusal of a worker that is not the newest one of
// its run. It ends the attempt without a word: somebody else is at work.
type StaleEpochError struct {
	Capability string
	Epoch      uint64 // of the worker that was refused
}

func (e *StaleEpochError) Error() string {
	return fmt.Sprintf("%s refused epoch %d as older than one it has seen: another worker has the run", e.Capability, e.Epoch)
}

// FatalToolError implements runtime.FatalToolError.
func (*StaleEpochError) FatalToolError() {}

// Unwrap makes it a fence.
func (*StaleEpochError) Unwrap() error { return events.ErrFenced }

// fenced makes a refusal of the epoch a fence when the log knows of a newer claim
// than that of this worker. The claim is looked up as the log's leader knows it.
func (b *backend) fenced(ctx context.Context, name string, err error) error {
	var refused *ServiceError
	if !errors.As(err, &refused) || refused.Code != CodeStaleEpoch || ctx.Err() != nil {
		return err
	}
	latest, failed := b.host.Latest(ctx, b.store.session.Key)
	switch {
	case failed != nil && ctx.Err() != nil:
		return err
	case failed != nil:
		return &infrastructure{fmt.Errorf("%s refused epoch %d; look for a newer claim: %w", name, b.epoch, failed)}
	case latest.At.Claim.ID != b.store.claim.ID:
		return &StaleEpochError{name, b.epoch}
	}
	return err
}
