// Package eventstest holds what tests of the log protocol need: a log in
// memory, a log with faults, and the suites that every implementation of
// events.Log, and the appender over it, must pass.
package eventstest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/agentruntime/agentruntime/events"
)

// Memory is an events.Log in memory. The zero value is an empty log. Sessions
// share one sequence, as those of a shard do.
type Memory struct {
	mu       sync.Mutex
	sequence uint64
	sessions map[events.Key][]events.Record
}

var _ events.Log = (*Memory)(nil)

// Append implements events.Log.
func (m *Memory) Append(ctx context.Context, key events.Key, e *events.Event, expected uint64) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("%w: %w", events.ErrUnanswered, err)
	}
	if err := key.Check(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var last uint64
	if s := m.sessions[key]; len(s) > 0 {
		last = s[len(s)-1].Sequence
	}
	if last != expected {
		return 0, events.ErrConflict
	}
	return m.store(key, e)
}

// AppendUnfenced implements events.Log.
func (m *Memory) AppendUnfenced(ctx context.Context, key events.Key, e *events.Event) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("%w: %w", events.ErrUnanswered, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.store(key, e)
}

// store keeps what would come back from a server: the event after a round trip
// through the codec.
func (m *Memory) store(key events.Key, e *events.Event) (uint64, error) {
	if err := key.Check(); err != nil {
		return 0, err
	}
	stored, err := events.Decode(e.Header(), slices.Clone(e.Data))
	if err != nil {
		return 0, err
	}
	m.sequence++
	if m.sessions == nil {
		m.sessions = make(map[events.Key][]events.Record)
	}
	m.sessions[key] = append(m.sessions[key], events.Record{Event: stored, Sequence: m.sequence})
	return m.sequence, nil
}

// Read implements events.Log.
func (m *Memory) Read(ctx context.Context, key events.Key, after uint64, limit int) ([]events.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := key.Check(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[key]
	i, _ := slices.BinarySearchFunc(s, after+1, func(r events.Record, n uint64) int { return int(int64(r.Sequence) - int64(n)) })
	n := min(len(s)-i, limit, events.MaxRead)
	return slices.Clone(s[i : i+n]), nil
}

// Last implements events.Log.
func (m *Memory) Last(ctx context.Context, key events.Key) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if err := key.Check(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[key]; len(s) > 0 {
		return s[len(s)-1].Sequence, nil
	}
	return 0, nil
}

// Keys returns the sessions that have facts, in no order.
func (m *Memory) Keys() []events.Key {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := make([]events.Key, 0, len(m.sessions))
	for k := range m.sessions {
		keys = append(keys, k)
	}
	return keys
}

// Drop removes a fact, as damage would.
func (m *Memory) Drop(key events.Key, sequence uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions[key] = slices.DeleteFunc(m.sessions[key], func(r events.Record) bool { return r.Sequence == sequence })
}

// Flip changes one byte of a fact's data, as damage would.
func (m *Memory) Flip(key events.Key, sequence uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, r := range m.sessions[key] {
		if r.Sequence == sequence && len(r.Data) > 0 {
			data := slices.Clone(r.Data)
			data[len(data)/2] ^= 1
			m.sessions[key][i].Data = data
		}
	}
}

// All returns every fact of a session of any log, read in prefixes.
func All(ctx context.Context, log events.Log, key events.Key) ([]events.Record, error) {
	last, err := log.Last(ctx, key)
	if err != nil {
		return nil, err
	}
	var all []events.Record
	for after := uint64(0); after < last; {
		records, err := log.Read(ctx, key, after, events.MaxRead)
		if err != nil {
			return nil, err
		}
		if len(records) > 0 {
			all = append(all, records...)
			after = records[len(records)-1].Sequence
		}
	}
	return all, nil
}
