package handlers

import (
	"context"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// controller is runtime.Controller for one run under one claim. Whatever it is
// asked about children counts only within the session of the run.
type controller struct {
	host   *Host
	hold   *hold
	store  *store
	limits TreeLimits
	meter  *meter
}

var _ runtime.Controller = (*controller)(nil)

// MaxReply is the largest reply that a run may end with, in bytes: it is told in
// one public event.
const MaxReply = 512 << 10

func (c *controller) key() events.Key     { return c.store.session.Key }
func (c *controller) run() *projector.Run { return c.store.session.Run(c.store.run) }

// BeforeModel implements runtime.Controller. A request may be made while the
// lease is alive, and when the policy of the moment and every budget above the run allows it.
func (c *controller) BeforeModel(ctx context.Context) error {
	if err := c.mayAct(); err != nil {
		return err
	}
	if err := c.host.denied(c.host.policy().Model(c.key().Namespace, c.run().Model())); err != nil {
		return err
	}
	return c.meter.reserve(ctx)
}
