package handlers

import (
	"context"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// OpenStore claims a session's run and returns the store that its attempt has.
func (d *Dispatcher) OpenStore(ctx context.Context, key events.Key) (runtime.Store, error) {
	s, err := d.Latest(ctx, key)
	if err != nil {
		return nil, err
	}
	run := s.Current()
	v, err := d.admitted(ctx, key.Namespace, run.ID, &run.Admitted)
	if err != nil {
		return nil, err
	}
	a, err := d.claim(ctx, s, run.ID, v)
	if err != nil {
		return nil, err
	}
	return a.store, nil
}
