// Package limittest holds what every store of shared limits must do.
package limittest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers/limit"
)

// long is a time that no test outlives.
const long = time.Hour

// Store tests a store. Its keys are taken to be unused.
func Store(t *testing.T, s limit.Store) {
	key := func(name string) string { return limit.Key("suite", t.Name(), name) }
	swap := func(t *testing.T, key, data string, revision uint64) uint64 {
		t.Helper()
		next, err := s.Swap(t.Context(), key, []byte(data), revision, long)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	t.Run("a key without a value is empty", func(t *testing.T) {
		data, _, err := s.Load(t.Context(), key("empty"))
		if data != nil || err != nil {
			t.Errorf("%q, %v", data, err)
		}
	})
	t.Run("what was swapped in stands there", func(t *testing.T) {
		k := key("value")
		_, revision, err := s.Load(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		first := swap(t, k, "a", revision)
		second := swap(t, k, "b", first)
		if data, got, err := s.Load(t.Context(), k); string(data) != "b" || got != second || err != nil {
			t.Errorf("%q at %d, %v; want b at %d", data, got, err, second)
		}
		if data, _, err := s.Load(t.Context(), key("another")); data != nil || err != nil {
			t.Errorf("another key has %q, %v", data, err)
		}
	})
	t.Run("a value that was replaced meanwhile is not", func(t *testing.T) {
		k := key("conflict")
		_, revision, err := s.Load(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		stands := swap(t, k, "a", revision)
		for _, stale := range []uint64{revision, stands + 1000} {
			if _, err := s.Swap(t.Context(), k, []byte("b"), stale, long); !errors.Is(err, events.ErrConflict) {
				t.Errorf("swapped at %d: %v", stale, err)
			}
		}
		if data, got, err := s.Load(t.Context(), k); string(data) != "a" || got != stands || err != nil {
			t.Errorf("%q at %d, %v", data, got, err)
		}
	})
	t.Run("of those who swap at the same time one does", func(t *testing.T) {
		k, total := key("race"), 0
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for {
					data, revision, err := s.Load(t.Context(), k)
					n := 0
					if _, scanned := fmt.Sscan(string(data), &n); err == nil && (len(data) == 0 || scanned == nil) {
						_, err = s.Swap(t.Context(), k, fmt.Append(nil, n+1), revision, long)
					}
					if errors.Is(err, events.ErrConflict) {
						continue
					}
					mu.Lock()
					defer mu.Unlock()
					if total++; err != nil {
						t.Error(err)
					}
					return
				}
			})
		}
		all.Wait()
		if data, _, err := s.Load(t.Context(), k); string(data) != "8" || total != 8 || err != nil {
			t.Errorf("%d swaps made %q, %v", total, data, err)
		}
	})
}
