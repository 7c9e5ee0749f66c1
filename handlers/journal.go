package handlers

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

var _ runtime.Journal = (*store)(nil)

// RecordCallbacks implements runtime.Journal: one fact of the claim. Nothing is
// announced for a run that was asked to stop; what happened is told all the same,
// and then the error says that the run is to stop.
func (s *store) RecordCallbacks(ctx context.Context, r *events.CallbacksRecorded) error {
	if ctx.Done() == nil {
		// Neither the drain nor the loss of the lease takes back what happened.
		// Whether it may still be told, the fence decides.
		bounded, cancel := context.WithTimeout(ctx, finalizeWithin)
		defer cancel()
		ctx = bounded
	} else if whole, err := s.whole(ctx); err == nil {
		ctx = whole
	} else {
		return err
	}
	all := *r
	all.Made = slices.Clone(r.Made)
	for i := range all.Made {
		made := &all.Made[i]
		made.Key = idempotencyKey(s.session.Key.Namespace, s.run, r.CallID, made.Index)
	}
	reads := runtime.Reads(&all)
	var stops error
	_, err := s.commit(ctx, func() (*events.Event, error) {
		record := &all
		if stops = nil; len(reads.Made) < len(all.Made) && s.session.Run(s.run).Cancel != nil {
			if record, stops = reads, errCancelled; len(reads.Made)+len(reads.Done) == 0 {
				return nil, errCancelled
			}
		}
		return s.host.fact(s.session.Key, s.run, *record)
	})
	if err = cmp.Or(err, stops); err != nil {
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
