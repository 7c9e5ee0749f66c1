package runtimetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// ErrStale is what a lease of a Store returns once a newer one was taken.
var ErrStale = errors.New("the lease was taken over by a newer attempt")

// ErrRevision is what a Store returns for a revision that cannot be committed.
var ErrRevision = errors.New("the revision cannot be committed")

// ErrInjected is the error of every injected fault.
var ErrInjected = errors.New("injected fault")

// SaveFault is what happens to one save.
type SaveFault int

// The faults a save can meet.
const (
	SaveWorks      SaveFault = iota
	SaveLost                 // an error; nothing is stored
	SaveAnswerLost           // an error; everything is stored
)

// Commit is one checkpoint that a Store holds.
type Commit struct {
	Checkpoint *projector.Checkpoint
	Data       json.RawMessage // as it is stored
}

// Store is a runtime.Store in memory for one run and its conversation. What
// goes in and out makes a round trip through JSON. Its own methods always hold
// the newest lease; Take hands out leases that fence each other.
type Store struct {
	// SaveFault, when set, chooses what happens to save n, counted from 1.
	SaveFault func(n int) SaveFault

	// ReadFault, when set, may fail read n, counted from 1 over
	// LoadCheckpoint and Load.
	ReadFault func(n int) error

	mu         sync.Mutex
	lease      int
	saves      int
	reads      int
	commits    []Commit
	window     []json.RawMessage
	transcript []json.RawMessage
	compacted  int
	script     projector.Script // of a Journaled store
}

var _ runtime.Store = (*Store)(nil)

// lease is one attempt's hold on a Store.
type lease struct {
	*Store
	number int
}

// Take returns the store under a new lease. From now on every write under an
// earlier one is refused with ErrStale.
func (s *Store) Take() runtime.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease++
	return &lease{s, s.lease}
}

// SaveCheckpoint implements runtime.Store.
func (l *lease) SaveCheckpoint(ctx context.Context, c *projector.Checkpoint) error {
	return l.save(ctx, l.number, c)
}

// Compact implements runtime.SessionStore.
func (l *lease) Compact(ctx context.Context, window []events.Message) error {
	return l.compact(ctx, l.number, window)
}

// SaveCheckpoint implements runtime.Store.
func (s *Store) SaveCheckpoint(ctx context.Context, c *projector.Checkpoint) error {
	return s.save(ctx, 0, c)
}

// Compact implements runtime.SessionStore.
func (s *Store) Compact(ctx context.Context, window []events.Message) error {
	return s.compact(ctx, 0, window)
}

// held refuses a lease that was taken over. Lease 0 is the newest.
func (s *Store) held(ctx context.Context, lease int) error {
	if lease != 0 && lease != s.lease {
		return ErrStale
	}
	return context.Cause(ctx)
}

func (s *Store) save(ctx context.Context, lease int, c *projector.Checkpoint) error {
	data, err := events.Marshal(c)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.held(ctx, lease); err != nil {
		return err
	}
	s.saves++
	fault := SaveWorks
	if s.SaveFault != nil {
		fault = s.SaveFault(s.saves)
	}
	if fault == SaveLost {
		return fmt.Errorf("save %d: %w", s.saves, ErrInjected)
	}
	if err := s.commit(data, c.Revision); err != nil {
		return err
	}
	if fault == SaveAnswerLost {
		return fmt.Errorf("save %d: %w", s.saves, ErrInjected)
	}
	return nil
}

// commit stores a checkpoint, unless it is the newest one repeated.
func (s *Store) commit(data []byte, revision uint64) error {
	stored := uint64(len(s.commits))
	switch {
	case revision == stored && stored > 0:
		if bytes.Equal(data, s.commits[stored-1].Data) {
			return nil
		}
		return fmt.Errorf("revision %d is committed with other content: %w", revision, ErrRevision)
	case revision != stored+1:
		return fmt.Errorf("revision %d cannot follow %d: %w", revision, stored, ErrRevision)
	}
	var c projector.Checkpoint
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	for _, m := range c.Append {
		message, err := events.Marshal(m)
		if err != nil {
			return err
		}
		s.window = append(s.window, message)
		s.transcript = append(s.transcript, message)
	}
	s.commits = append(s.commits, Commit{&c, data})
	return nil
}

func (s *Store) compact(ctx context.Context, lease int, window []events.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.held(ctx, lease); err != nil {
		return err
	}
	stored := make([]json.RawMessage, len(window))
	for i, m := range window {
		data, err := events.Marshal(m)
		if err != nil {
			return err
		}
		stored[i] = data
	}
	s.window = stored
	s.compacted++
	return nil
}

// read counts one read and fails it when it shall fail.
func (s *Store) read(ctx context.Context) error {
	s.reads++
	if s.ReadFault != nil {
		if err := s.ReadFault(s.reads); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// LoadCheckpoint implements runtime.Store. What was given as Append comes back
// in it, as it may.
func (s *Store) LoadCheckpoint(ctx context.Context) (*projector.Checkpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.read(ctx); err != nil || len(s.commits) == 0 {
		return nil, err
	}
	var c projector.Checkpoint
	return &c, json.Unmarshal(s.commits[len(s.commits)-1].Data, &c)
}

// Load implements runtime.SessionStore.
func (s *Store) Load(ctx context.Context) ([]events.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.read(ctx); err != nil {
		return nil, err
	}
	return decodeMessages(s.window), nil
}

// Saves returns how many saves were tried.
func (s *Store) Saves() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saves
}

// Compactions returns how often the window was replaced.
func (s *Store) Compactions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.compacted
}

// Commits returns every checkpoint committed, in order.
func (s *Store) Commits() []Commit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.commits)
}

// Transcript returns every message ever appended, compacted away or not.
func (s *Store) Transcript() []events.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return decodeMessages(s.transcript)
}

// NextRun returns a Store for the next run of the same conversation: its window
// and transcript go on, its checkpoint is fresh.
func (s *Store) NextRun() *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Store{window: slices.Clone(s.window), transcript: slices.Clone(s.transcript)}
}

func decodeMessages(stored []json.RawMessage) []events.Message {
	messages := make([]events.Message, len(stored))
	for i, data := range stored {
		if err := json.Unmarshal(data, &messages[i]); err != nil {
			panic(fmt.Sprintf("runtimetest: a stored message does not decode: %v", err))
		}
	}
	return messages
}
