package limit

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

// Store keeps one small value for each key, for all workers. Keys are made by
// Key. What it loses is made anew.
type Store interface {
	// Load returns the value of a key and its revision. Of a key without a
	// value it returns nil and the revision to expect.
	Load(ctx context.Context, key string) (data []byte, revision uint64, err error)

	// Swap puts a value in the place of the one at a revision, and returns its
	// revision. The value may be forgotten when it was not swapped for ttl.
	// events.ErrConflict means that another one stands there; after any other
	// error the value may be stored or not.
	Swap(ctx context.Context, key string, data []byte, revision uint64, ttl time.Duration) (uint64, error)
}

// Key is what a limited thing is called in a Store: a hash of what names it. No
// secret is part of that.
func Key(kind string, names ...string) string {
	return kind + "-" + events.Derive(26, append([]string{"limit", kind}, names...)...)
}

// Memory is a Store for the workers of one process. The zero value is ready.
type Memory struct {
	mu     sync.Mutex
	values map[string]value
	last   uint64
}

type value struct {
	data     []byte
	revision uint64
	until    time.Time
}

var _ Store = (*Memory)(nil)

// Load implements Store.
func (m *Memory) Load(_ context.Context, key string) ([]byte, uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.current(key)
	return slices.Clone(v.data), v.revision, nil
}

// current forgets a value whose time is over.
func (m *Memory) current(key string) value {
	v, ok := m.values[key]
	if ok && !v.until.After(time.Now()) {
		delete(m.values, key)
		return value{}
	}
	return v
}

// Swap implements Store.
func (m *Memory) Swap(_ context.Context, key string, data []byte, revision uint64, ttl time.Duration) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v := m.current(key); v.revision != revision {
		return 0, fmt.Errorf("swap %s: revision %d stands there, not %d: %w", key, v.revision, revision, events.ErrConflict)
	}
	if m.values == nil {
		m.values = make(map[string]value)
	}
	m.last++
	m.values[key] = value{slices.Clone(data), m.last, time.Now().Add(ttl)}
	return m.last, nil
}
