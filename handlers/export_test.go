package handlers

import (
	"context"
	"encoding/json"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// OpenStore claims a session's run and returns the store that its attempt has.
func (d *Dispatcher) OpenStore(ctx context.Context, key events.Key) (runtime.Store, error) {
	a, err := d.openAttempt(ctx, key)
	if err != nil {
		return nil, err
	}
	return a.store, nil
}

func (d *Dispatcher) openAttempt(ctx context.Context, key events.Key) (*attempt, error) {
	s, err := d.Latest(ctx, key)
	if err != nil {
		return nil, err
	}
	run := s.Current()
	v, err := d.admitted(ctx, key.Namespace, run.ID, &run.Admitted)
	if err != nil {
		return nil, err
	}
	return d.claim(ctx, s, run.ID, v)
}

// OpenController claims a session's run and returns the controller that its
// attempt has. What starts a child is dispatched first, as the loop does.
func (d *Dispatcher) OpenController(ctx context.Context, key events.Key) (runtime.Controller, error) {
	a, err := d.openAttempt(ctx, key)
	if err != nil {
		return nil, err
	}
	return &dispatching{&controller{d.Host, a.hold, a.store, d.Tree, a.meter}}, nil
}

// dispatching is a controller whose calls have their predispatch.
type dispatching struct{ *controller }

func (c *dispatching) dispatch(ctx context.Context, callID string, call events.ToolCall) error {
	run := c.run()
	call.ID = callID
	if run.Child(callID) != nil {
		return nil
	}
	next := &projector.Checkpoint{Version: projector.CheckpointVersion, ContractHash: run.Admitted.Contract, Revision: 1, Phase: projector.PhaseCalls}
	if run.Checkpoint != nil {
		next.Revision += run.Checkpoint.Revision
	}
	next.Calls = []events.Call{{ToolCall: call, State: events.CallDispatched}}
	return c.store.SaveCheckpoint(ctx, next)
}

func (c *dispatching) Spawn(ctx context.Context, callID, slug string, input json.RawMessage) (*runtime.AgentRunInfo, error) {
	if err := c.dispatch(ctx, callID, events.ToolCall{Name: events.SpawnPrefix + slug, Arguments: input}); err != nil {
		return nil, err
	}
	return c.controller.Spawn(ctx, callID, slug, input)
}

func (c *dispatching) Continue(ctx context.Context, callID, session, prompt string) (*runtime.AgentRunInfo, error) {
	arguments, err := events.Marshal(map[string]string{"session": session, "prompt": prompt})
	if err != nil {
		return nil, err
	}
	if err := c.dispatch(ctx, callID, events.ToolCall{Name: events.ToolContinue, Arguments: arguments}); err != nil {
		return nil, err
	}
	return c.controller.Continue(ctx, callID, session, prompt)
}
