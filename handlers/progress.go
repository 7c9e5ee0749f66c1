package handlers

import (
	"context"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// addProgress tells people that a run begins to wait, goes on, or asks another model. It says what the
// fact says, and nothing of how the run stands by now: a repetition is the same
// event. A claim that resumes nothing is not told.
func (h *Host) addProgress(ctx context.Context, key events.Key, run *projector.Run, at events.Position, add func(any) error) error {
	record, err := h.read(ctx, key, at.Sequence)
	if err != nil {
		return err
	}
	payload, err := record.Payload()
	if err != nil {
		return err
	}
	data := events.RunProgressData{Run: run.ID, Session: key.Session}
	switch p := payload.(type) {
	case events.RunParked:
		data.Phase, data.Reason, data.Until, data.Note = events.PhaseWaiting, p.Reason, waitsUntil(run, p.Deadline), h.Redactor.Redact(p.Note)
	case events.ModelSwitched:
		data.Phase, data.Reason, data.Model, data.Note = events.PhaseSwitched, p.Reason, p.To, h.Redactor.Redact(p.Note)
	case events.RunClaimed:
		if data.Phase, data.Reason = events.PhaseResumed, p.Resumes; p.Resumes == "" {
			return nil
		}
		if p.Resumes == events.ParkProvider {
			data.Phase = events.PhaseRetrying
		}
	}
	return add(data)
}

// waitsUntil returns when a wait ends at the latest: at its own deadline or at
// that of its run, whichever comes first.
func waitsUntil(run *projector.Run, own *time.Time) *time.Time {
	if end := run.Admitted.Deadline; own == nil || end != nil && end.Before(*own) {
		return end
	}
	return own
}
