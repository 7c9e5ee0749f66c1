// Package retry repeats the requests of a model that failed in a way that may
// pass. It is the one owner of retries: an adapter makes exactly one request,
// and the loop makes none again within an attempt.
//
// What is repeated is decided by the class of a [runtime.ModelError] alone. Any
// other error, a cancelled context above all, is returned as it came.
package retry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/agentruntime/agentruntime/runtime"
)

// The defaults of a Model.
const (
	DefaultAttempts = 5
	DefaultBase     = 500 * time.Millisecond
	DefaultMax      = 30 * time.Second
)

// Model repeats failed requests of Next. The zero values of all other fields
// are useful; it may be used concurrently if Next may.
type Model struct {
	Next runtime.Model

	Attempts int           // requests in all; 0: DefaultAttempts
	Base     time.Duration // the first pause, doubled for each further one; 0: DefaultBase
	Max      time.Duration // the longest pause; 0: DefaultMax

	// Pause waits, and returns the context's error if that ends first. Nil: a
	// timer.
	Pause func(ctx context.Context, d time.Duration) error

	// Jitter returns a number in [0, 1). Nil: the random source of the process.
	Jitter func() float64
}

var _ runtime.Model = (*Model)(nil)

// Generate makes the request until it succeeds, fails for good, or has been
// made Attempts times. A provider that asks for more patience than Max ends it at
// once with a [runtime.LaterError]: waiting longer is for whoever needs no worker
// for it. Every request is told to the context's [runtime.Recorder].
func (m *Model) Generate(ctx context.Context, r *runtime.Request) (*runtime.Response, error) {
	attempts := orDefault(m.Attempts, DefaultAttempts)
	for attempt := 1; ; attempt++ {
		response, err := m.Next.Generate(ctx, r)
		runtime.Record(ctx, response, err)
		if err == nil {
			return response, nil
		}
		var failed *runtime.ModelError
		if !errors.As(err, &failed) || !failed.Retryable() {
			return nil, err
		}
		if failed.RetryAfter > m.max() {
			return nil, &runtime.LaterError{After: failed.RetryAfter, Err: err}
		}
		if attempt >= attempts {
			return nil, fmt.Errorf("after %d requests: %w", attempt, err)
		}
		if paused := m.pause(ctx, m.delay(attempt, failed.RetryAfter)); paused != nil {
			return nil, fmt.Errorf("wait to repeat a request (it failed: %v): %w", err, paused)
		}
	}
}

// delay grows exponentially, up to Max. Half of it is jitter; what the provider
// asked for is never shortened, only spread.
func (m *Model) delay(attempt int, asked time.Duration) time.Duration {
	base, limit, jitter := orDefault(m.Base, DefaultBase), m.max(), m.jitter()
	backoff := limit
	if shift := attempt - 1; shift < 32 && base <= limit>>shift {
		backoff = base << shift
	}
	backoff = backoff/2 + time.Duration(jitter*float64(backoff/2))
	if asked > 0 {
		asked += time.Duration(jitter * float64(base))
	}
	return min(limit, max(backoff, asked))
}

func (m *Model) max() time.Duration { return orDefault(m.Max, DefaultMax) }

func (m *Model) jitter() float64 {
	if m.Jitter != nil {
		return m.Jitter()
	}
	return rand.Float64()
}

func (m *Model) pause(ctx context.Context, d time.Duration) error {
	if m.Pause != nil {
		return m.Pause(ctx, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return ctx.Err()
	}
}

func orDefault[T int | time.Duration](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}
