package handlers

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// DefaultFallback is how long a model may be unavailable before the run asks its
// next one.
const DefaultFallback = time.Minute

// fallback says why the run is to ask its next model, or nothing: it has none, or
// the failure is none that another model mends, or it may still pass.
func (a *attempt) fallback(v verdict, err error) string {
	if v != again && v != failed && v != delayed || a.current().NextModel() == "" {
		return ""
	}
	if deniesModel(err) {
		return events.SwitchDenied
	}
	var model *runtime.ModelError
	if !errors.As(err, &model) {
		return ""
	}
	switch {
	case model.Class == runtime.ClassDenied:
		return events.SwitchDenied
	case model.Status == http.StatusNotFound:
		return events.SwitchNotFound
	case !model.Retryable():
		return ""
	}
	var later *runtime.LaterError
	if away := a.away(); away >= a.d.Fallback || errors.As(err, &later) && later.After > a.d.Fallback-away {
		return events.SwitchUnavailable
	}
	return ""
}

// away tells for how long the model has been failing since the run last advanced,
// parks for its provider included.
func (a *attempt) away() time.Duration {
	now := a.d.Now()
	if a.down.IsZero() {
		a.down = now
	}
	return now.Sub(a.down)
}

// next makes the run ask its next model, for the rest of it.
func (a *attempt) next(ctx context.Context, reason string, cause error) error {
	note := bounded(a.d.Redactor.Redact(cause.Error()), maxNote)
	_, err := a.store.commit(ctx, func() (*events.Event, error) {
		run := a.current()
		if run.Cancel != nil {
			return nil, errCancelled
		}
		return a.d.fact(a.store.session.Key, a.run, events.ModelSwitched{From: run.Model(), To: run.NextModel(), Reason: reason, Note: note})
	})
	if err != nil {
		return err
	}
	a.down = time.Time{}
	a.d.Logger.Warn("a run asks its next model", "run", a.run, "model", a.current().Model(), "reason", reason, "error", note)
	return nil
}
