package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// controller is runtime.Controller for one run under one claim. Admission
// refuses definitions with subagents or a budget, so a run has no children and
// no limit to reserve from.
type controller struct {
	hold *hold
}

var _ runtime.Controller = (*controller)(nil)

// errNoChildren is the answer to every call about children. The loop offers
// such calls only to agents with subagents, which are not admitted.
var errNoChildren = errors.New("this run has no children")

// BeforeModel implements runtime.Controller: budgets are unlimited, and a
// request may be made while the lease is alive.
func (c *controller) BeforeModel(context.Context) error { return c.hold.alive() }

// MaxReply is the largest reply that a run may end with, in bytes: it is told in
// one public event.
const MaxReply = 512 << 10

// Complete implements runtime.Controller. Only a reply too large to be told
// stands in the way of a run without children.
func (c *controller) Complete(_ context.Context, reply *events.Reply) error {
	if n := len(reply.Output) + len(reply.Question); n > MaxReply {
		return fmt.Errorf("the reply has %d bytes, more than %d; return less", n, MaxReply)
	}
	return c.hold.alive()
}

// Spawn implements runtime.Controller.
func (c *controller) Spawn(context.Context, string, string, json.RawMessage) (*runtime.AgentRunInfo, error) {
	return nil, errNoChildren
}

// Continue implements runtime.Controller.
func (c *controller) Continue(context.Context, string, string, string) (*runtime.AgentRunInfo, error) {
	return nil, errNoChildren
}

// Get implements runtime.Controller.
func (c *controller) Get(context.Context, []string) ([]runtime.AgentRunInfo, error) {
	return nil, errNoChildren
}

// Cancel implements runtime.Controller.
func (c *controller) Cancel(context.Context, []string) ([]runtime.AgentRunInfo, error) {
	return nil, errNoChildren
}

// Wait implements runtime.Controller.
func (c *controller) Wait(context.Context, string, runtime.WaitRequest) (*runtime.WaitResult, error) {
	return nil, errNoChildren
}
