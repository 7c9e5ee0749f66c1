package handlers

import (
	"context"
	"fmt"
	"slices"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

var _ runtime.Journal = (*store)(nil)

// RecordCallbacks implements runtime.Journal: one fact of the claim. Nothing is
// announced for a run that was asked to stop; what happened is told all the same.
func (s *store) RecordCallbacks(ctx context.Context, r *events.CallbacksRecorded) error {
	ctx, err := s.whole(ctx)
	if err != nil {
		return err
	}
	record := *r
	record.Made = slices.Clone(r.Made)
	announces := false
	for i := range record.Made {
		made := &record.Made[i]
		made.Key = idempotencyKey(s.session.Key.Namespace, s.run, r.CallID, made.Index)
		announces = announces || made.Effect != events.EffectRead
	}
	_, err = s.commit(ctx, func() (*events.Event, error) {
		if announces && s.session.Run(s.run).Cancel != nil {
			return nil, errCancelled
		}
		return s.host.fact(s.session.Key, s.run, record)
	})
	if err != nil {
		return fmt.Errorf("record callbacks of call %s: %w", r.CallID, err)
	}
	return nil
}

// Callbacks implements runtime.Journal.
func (s *store) Callbacks(_ context.Context, callID string) ([]projector.Callback, error) {
	run := s.session.Run(s.run)
	if run.Script == nil || run.Script.CallID != callID {
		return nil, nil
	}
	return slices.Clone(run.Script.Callbacks), nil
}
