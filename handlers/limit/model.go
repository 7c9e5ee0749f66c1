package limit

import (
	"context"
	"errors"
	"time"

	"github.com/agentruntime/agentruntime/runtime"
)

// Model is a model whose requests are held to the limits of its provider's key.
// It stands below whatever repeats requests: each one counts.
type Model struct {
	Next     runtime.Model
	Limiter  *Limiter
	Key      string // see Key
	Name     string // for people and metrics
	Limits   Limits
	Patience time.Duration

	// Estimate tells how many tokens a request has.
	Estimate func(*runtime.Request) int64
}

var _ runtime.Model = (*Model)(nil)

// For tells for which namespace the requests under a context are made.
func For(ctx context.Context, namespace string) context.Context {
	return context.WithValue(ctx, namespaceKey{}, namespace)
}

type namespaceKey struct{}

// Generate implements runtime.Model. A request that would wait for too long is
// not made: its error is a *runtime.LaterError.
func (m *Model) Generate(ctx context.Context, r *runtime.Request) (*runtime.Response, error) {
	namespace, _ := ctx.Value(namespaceKey{}).(string)
	permit, err := m.Limiter.Acquire(ctx, Request{Key: m.Key, Name: m.Name, Limits: m.Limits, Namespace: namespace, Tokens: m.Estimate(r), Patience: m.Patience})
	var later *Error
	switch {
	case errors.As(err, &later):
		return nil, &runtime.LaterError{After: later.After, Err: err}
	case err != nil:
		return nil, err
	}
	response, err := m.Next.Generate(ctx, r)
	used := runtime.Spent(response, err)
	o := Outcome{Tokens: used.Input + used.Output}
	var failed *runtime.ModelError
	if errors.As(err, &failed) && failed.Class == runtime.ClassLimited {
		o.Refused, o.RetryAfter = true, failed.RetryAfter
	}
	permit.Release(o)
	return response, err
}
