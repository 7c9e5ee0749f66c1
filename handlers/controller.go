package handlers

import (
	"context"
	"encoding/json"
	"errors"

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

// Complete implements runtime.Controller. Nothing can stand in the way of a
// run without children.
func (c *controller) Complete(context.Context, *events.Reply) error { return c.hold.alive() }

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
