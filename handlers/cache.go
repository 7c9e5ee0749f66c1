package handlers

import (
	"sync"

	"github.com/agentruntime/agentruntime/events"
)

// cache keeps folds that are advanced again and again, the most recently used
// ones. Each is used by one at a time.
type cache[T any] struct {
	mu      sync.Mutex
	entries map[events.Key]*entry[T]
	uses    uint64
}

type entry[T any] struct {
	mu   sync.Mutex
	fold *T
	used uint64 // guarded by the cache's lock
}

// maxFolds is how many folds a cache keeps.
const maxFolds = 256

// with calls f with the fold of a key, alone. A fold whose f fails is dropped:
// it may be anywhere.
func (c *cache[T]) with(key events.Key, f func(*T) error) error {
	e := c.entry(key)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fold == nil {
		e.fold = new(T)
	}
	err := f(e.fold)
	if err != nil {
		e.fold = nil
	}
	return err
}

func (c *cache[T]) entry(key events.Key) *entry[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = make(map[events.Key]*entry[T])
	}
	e := c.entries[key]
	if e == nil {
		if len(c.entries) >= maxFolds {
			c.evict()
		}
		e = &entry[T]{}
		c.entries[key] = e
	}
	c.uses++
	e.used = c.uses
	return e
}

// evict forgets the half of the entries that was not used for longest.
func (c *cache[T]) evict() {
	for key, e := range c.entries {
		if e.used < c.uses-maxFolds/2 {
			delete(c.entries, key)
		}
	}
}
