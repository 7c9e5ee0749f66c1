package handlerstest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
)

// Keys is a handlers.SessionKeys in memory. The zero value has none.
type Keys struct {
	mu      sync.Mutex
	wrapped map[events.Key][]byte
	erased  map[events.Key]bool
	Looks   int // how often a key was asked for
}

// Get implements handlers.SessionKeys.
func (k *Keys) Get(_ context.Context, key events.Key) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.Looks++
	switch {
	case k.erased[key]:
		return nil, fmt.Errorf("session %s: %w", key, events.ErrErased)
	case k.wrapped[key] == nil:
		return nil, events.ErrNotFound
	}
	return bytes.Clone(k.wrapped[key]), nil
}

// Create implements handlers.SessionKeys.
func (k *Keys) Create(_ context.Context, key events.Key, wrapped []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.erased[key] || k.wrapped[key] != nil {
		return events.ErrConflict
	}
	if k.wrapped == nil {
		k.wrapped = make(map[events.Key][]byte)
	}
	k.wrapped[key] = bytes.Clone(wrapped)
	return nil
}

// Erase implements handlers.SessionKeys.
func (k *Keys) Erase(_ context.Context, key events.Key) error {
	if err := key.Check(); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.erased == nil {
		k.erased = make(map[events.Key]bool)
	}
	k.erased[key] = true
	delete(k.wrapped, key)
	return nil
}

// Lose drops the keys of every session, as a lost bucket would.
func (k *Keys) Lose() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.wrapped)
}

// vault returns what a process of the world opens facts with.
func (w *World) vault() *handlers.Vault {
	return &handlers.Vault{Keys: &w.SessionKeys, Wrapping: slices.Clone(w.Wrapping), Random: rand.Reader, Now: time.Now}
}

// EachObject calls f with every object that is stored.
func (w *World) EachObject(f func(data []byte)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, data := range w.objects {
		f(data)
	}
}
