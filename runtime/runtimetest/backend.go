package runtimetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/agentruntime/agentruntime/runtime"
)

// Dispatch is one entry of a Backend's ledger.
type Dispatch struct {
	CallID     string
	Index      int
	Capability string
	Input      json.RawMessage
}

// Backend is a runtime.Backend that writes down what it is asked to do before it
// does it.
type Backend struct {
	// Answer, when set, answers callbacks. Otherwise each is answered with
	// its call and index, so that no two answers are equal.
	Answer func(ctx context.Context, c *runtime.Callback) (json.RawMessage, error)

	mu     sync.Mutex
	ledger []Dispatch
}

var _ runtime.Backend = (*Backend)(nil)

// Call implements runtime.Backend.
func (b *Backend) Call(ctx context.Context, c *runtime.Callback) (json.RawMessage, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.ledger = append(b.ledger, Dispatch{c.CallID, c.Index, c.Capability.Name, slices.Clone(c.Input)})
	b.mu.Unlock()
	if b.Answer != nil {
		return b.Answer(ctx, c)
	}
	return json.RawMessage(fmt.Sprintf(`{"%s":"%s/%d"}`, c.Capability.Name, c.CallID, c.Index)), nil
}

// Ledger returns every dispatch, in order.
func (b *Backend) Ledger() []Dispatch {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.ledger)
}
