package handlers

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers/limit"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// DefaultRequests is how many requests one run may make to models. It stops what
// no budget stops; a run that does useful work stays far below.
const DefaultRequests = 10_000

// RequestsError is a model request that was not made because the run has made as
// many as a run may.
type RequestsError struct {
	Made int
}

func (e *RequestsError) Error() string {
	return fmt.Sprintf("the run has made %d requests to models, as many as a run may; a worker's requests.per_run allows more", e.Made)
}

func steps(r *projector.Run) int {
	if r.Checkpoint == nil {
		return 0
	}
	return r.Checkpoint.Steps
}

// metered is a model whose requests a meter knows of, the failed ones included.
type metered struct {
	runtime.Model
	name  string // as the definition has it
	meter *meter
}

// Generate implements runtime.Model.
func (m metered) Generate(ctx context.Context, r *runtime.Request) (*runtime.Response, error) {
	told := false
	ctx = limit.For(ctx, m.meter.namespace)
	response, err := m.Model.Generate(runtime.WithRecorder(ctx, func(usage events.Usage, err error) {
		told = true
		m.record(usage, err)
	}), r)
	if !told {
		m.record(runtime.Spent(response, err), err)
	}
	if err == nil {
		m.meter.reserved, m.meter.answer = false, response.Usage
	}
	return response, err
}

// record counts one request.
func (m metered) record(usage events.Usage, err error) {
	m.meter.host.Meter.TokensUsed(m.name, usage)
	if err != nil {
		m.meter.failed(usage, err)
	}
}

// failed counts a request that led to no response. One that the provider refused
// or did not answer cost nothing and counts for nothing, so that an outage fails
// no run; one of which it counted tokens is over, and the next is a new one.
func (m *meter) failed(usage events.Usage, err error) {
	if usage != (events.Usage{}) {
		m.other, m.reserved = m.other.Add(usage), false
	}
	if usage != (events.Usage{}) || isInvalid(err) {
		m.store.failed++
	}
}

// maxDelay is the longest that a provider is waited for before it is asked again,
// whatever it asked for.
const maxDelay = 24 * time.Hour

// delay parks a run until its provider may be asked again, or reports false when
// there is nothing to wait for any more.
func (a *attempt) delay(ctx context.Context, cause error) (bool, error) {
	var later *runtime.LaterError
	if !errors.As(cause, &later) {
		return false, cause
	}
	// What our own limits kept back was not sent, and says nothing of the provider.
	var own *limit.Error
	a.meter.unmade = errors.As(cause, &own)
	err := a.meter.settle(ctx)
	a.meter.unmade = false
	if err != nil {
		return false, err
	}
	after := min(later.After, maxDelay)
	claim := a.store.claim.ID
	at := a.d.Now().Add(after + spread(claim, after)).UTC()
	var since *time.Time
	if own == nil {
		at := a.d.Now().Add(-a.away()).UTC()
		since = &at
	}
	note := bounded(a.d.Redactor.Redact(later.Error()), maxNote)
	err = a.store.park(ctx, func() (*events.RunParked, error) {
		// The claim makes the wait one of its own: a timer of an earlier one says
		// nothing about it.
		return &events.RunParked{CallID: "provider-" + claim, Reason: events.ParkProvider, Deadline: &at, Note: note, Since: since}, nil
	})
	switch {
	case errors.Is(err, runtime.ErrWaiting):
		a.d.Meter.RunParked(events.ParkProvider)
		return true, nil
	case errors.Is(err, errCancelled):
		return true, a.stop(ctx)
	}
	return false, err
}

// maxNote bounds what a park says for people, in bytes.
const maxNote = 512

// spread is up to a tenth more, and at most a minute, so that those who were told
// the same do not come at the same time.
func spread(claim string, d time.Duration) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(claim))
	return min(d/10, time.Minute) * time.Duration(h.Sum32()%1000) / 1000
}
