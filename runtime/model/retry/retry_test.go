package retry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/retry"
)

// answers is a model that returns its errors one after the other and then
// succeeds. A failed request reports a usage of one token, the last one of two.
type answers struct {
	errs     []error
	requests int
}

func (a *answers) Generate(context.Context, *runtime.Request) (*runtime.Response, error) {
	a.requests++
	if a.requests <= len(a.errs) {
		return &runtime.Response{Usage: events.Usage{Input: 1}}, a.errs[a.requests-1]
	}
	return &runtime.Response{Finish: runtime.FinishStop, Usage: events.Usage{Input: 2}}, nil
}

func status(code int, class runtime.ErrorClass, after time.Duration) error {
	return &runtime.ModelError{Provider: "test", Class: class, Status: code, RetryAfter: after, Err: errors.New("refused")}
}

func repeated(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// fixed returns a model without jitter that notes its pauses instead of
// waiting.
func fixed(next runtime.Model, pauses *[]time.Duration) *retry.Model {
	return &retry.Model{
		Next: next, Base: time.Second, Max: 10 * time.Second,
		Jitter: func() float64 { return 0 },
		Pause: func(_ context.Context, d time.Duration) error {
			*pauses = append(*pauses, d)
			return nil
		},
	}
}

func TestPauses(t *testing.T) {
	limited, failed := runtime.ClassLimited, runtime.ClassRetry
	for _, tt := range []struct {
		name   string
		errs   []error
		jitter float64
		want   []time.Duration
	}{
		{"a request that succeeds is made once", nil, 0, nil},
		{"pauses double up to the longest", repeated(status(503, failed, 0), 4), 0,
			[]time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}},
		{"jitter doubles a pause at most", repeated(status(529, failed, 0), 2), 0.5,
			[]time.Duration{750 * time.Millisecond, 1500 * time.Millisecond}},
		{"Retry-After is waited for", []error{status(429, limited, 7*time.Second)}, 0, []time.Duration{7 * time.Second}},
		{"Retry-After is spread, never shortened", []error{status(429, limited, 7*time.Second)}, 0.5, []time.Duration{7500 * time.Millisecond}},
		{"Retry-After shorter than the back-off does not hurry", []error{status(503, failed, time.Millisecond)}, 0, []time.Duration{500 * time.Millisecond}},
		{"Retry-After as long as the longest pause is waited for", []error{status(503, failed, 10*time.Second)}, 0.9, []time.Duration{10 * time.Second}},
		{"a wrapped error is seen through", []error{fmt.Errorf("model: %w", status(500, failed, 0))}, 0, []time.Duration{500 * time.Millisecond}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var pauses []time.Duration
			next := &answers{errs: tt.errs}
			m := fixed(next, &pauses)
			m.Jitter = func() float64 { return tt.jitter }
			response, err := m.Generate(t.Context(), &runtime.Request{})
			if err != nil || response.Finish != runtime.FinishStop {
				t.Fatalf("response %v, error %v", response, err)
			}
			if diff := cmp.Diff(tt.want, pauses); diff != "" {
				t.Errorf("pauses (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReturnedAtOnce(t *testing.T) {
	for name, err := range map[string]error{
		"a refused request is not repeated":       status(400, runtime.ClassInvalid, 0),
		"a denied request is not repeated":        status(401, runtime.ClassDenied, 0),
		"an error of no provider is not repeated": errors.New("broken"),
		"a cancelled request is not repeated":     fmt.Errorf("chat: %w", context.Canceled),
	} {
		t.Run(name, func(t *testing.T) {
			var pauses []time.Duration
			next := &answers{errs: []error{err}}
			response, got := fixed(next, &pauses).Generate(t.Context(), &runtime.Request{})
			if response != nil || got != err || next.requests != 1 || pauses != nil {
				t.Errorf("response %v, error %v, %d requests, pauses %v", response, got, next.requests, pauses)
			}
		})
	}
}

func TestAProviderThatAsksForTooMuchPatienceIsAskedLater(t *testing.T) {
	for _, class := range []runtime.ErrorClass{runtime.ClassLimited, runtime.ClassRetry} {
		var pauses []time.Duration
		refused := status(429, class, 10*time.Second+1)
		next := &answers{errs: []error{refused}}
		response, err := fixed(next, &pauses).Generate(t.Context(), &runtime.Request{})
		var later *runtime.LaterError
		if response != nil || !errors.As(err, &later) || later.After != 10*time.Second+1 || !errors.Is(err, refused) || next.requests != 1 || pauses != nil {
			t.Errorf("response %v, error %v, %d requests, pauses %v", response, err, next.requests, pauses)
		}
	}
}

func TestRequestsAreBounded(t *testing.T) {
	for attempts, want := range map[int]int{0: retry.DefaultAttempts, 1: 1, 3: 3} {
		var pauses []time.Duration
		next := &answers{errs: repeated(status(500, runtime.ClassRetry, 0), 20)}
		m := fixed(next, &pauses)
		m.Attempts = attempts
		_, err := m.Generate(t.Context(), &runtime.Request{})
		var failed *runtime.ModelError
		if !errors.As(err, &failed) || failed.Status != 500 || next.requests != want || len(pauses) != want-1 {
			t.Errorf("Attempts %d: error %v after %d requests and %d pauses", attempts, err, next.requests, len(pauses))
		}
	}
}

func TestManyAttemptsNeverPauseLongerThanMax(t *testing.T) {
	var pauses []time.Duration
	m := fixed(&answers{errs: repeated(status(500, runtime.ClassRetry, 0), 99)}, &pauses)
	m.Attempts, m.Jitter = 100, func() float64 { return 0.999 }
	if _, err := m.Generate(t.Context(), &runtime.Request{}); err != nil {
		t.Fatal(err)
	}
	for i, d := range pauses {
		if d <= 0 || d > m.Max {
			t.Errorf("pause %d is %v", i, d)
		}
	}
}

// A failed request is told with its usage, which its error may hold alone.
func TestEveryRequestIsRecorded(t *testing.T) {
	type record struct {
		Usage events.Usage
		Err   error
	}
	var got []record
	var pauses []time.Duration
	first, second := status(500, runtime.ClassRetry, 0), error(&runtime.ModelError{Class: runtime.ClassLimited, Usage: events.Usage{Input: 7}, Err: errors.New("cut")})
	next := &answers{errs: []error{first, second}}
	m := fixed(spoken{next}, &pauses)
	ctx := runtime.WithRecorder(t.Context(), func(usage events.Usage, err error) { got = append(got, record{usage, err}) })
	if _, err := m.Generate(ctx, &runtime.Request{}); err != nil {
		t.Fatal(err)
	}
	want := []record{{events.Usage{Input: 1}, first}, {events.Usage{Input: 7}, second}, {events.Usage{Input: 2}, nil}}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b error) bool { return a == b })); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// spoken drops the response of a failed request whose error tells the usage.
type spoken struct{ next *answers }

func (s spoken) Generate(ctx context.Context, r *runtime.Request) (*runtime.Response, error) {
	response, err := s.next.Generate(ctx, r)
	var failed *runtime.ModelError
	if errors.As(err, &failed) && failed.Usage != (events.Usage{}) {
		response = nil
	}
	return response, err
}

func TestThePauseEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		next := &answers{errs: repeated(status(429, runtime.ClassLimited, 30*time.Second), 9)}
		_, err := (&retry.Model{Next: next}).Generate(ctx, &runtime.Request{})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		var failed *runtime.ModelError
		if errors.As(err, &failed) {
			t.Errorf("an attempt that was stopped ends with a provider's error: %v", err)
		}
		if waited := time.Since(began); waited != 3*time.Second || next.requests != 1 {
			t.Errorf("waited %v, %d requests", waited, next.requests)
		}
	})
}

func TestTheDefaultPauseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		next := &answers{errs: []error{status(429, runtime.ClassLimited, 30*time.Second)}}
		if _, err := (&retry.Model{Next: next}).Generate(t.Context(), &runtime.Request{}); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited < 30*time.Second || waited > 31*time.Second {
			t.Errorf("waited %v", waited)
		}
	})
}
