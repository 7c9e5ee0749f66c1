package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// Files is a runtime.Files in memory. Its zero value is empty.
type Files struct {
	mu     sync.Mutex
	stored map[string][]byte
	opened int
}

var _ runtime.Files = (*Files)(nil)

// Put implements runtime.Files.
func (s *Files) Put(ctx context.Context, data []byte) (string, error) {
	if err := context.Cause(ctx); err != nil {
		return "", err
	}
	ref := events.Derive(52, "file", string(data))
	s.Set(ref, slices.Clone(data))
	return ref, nil
}

// Open implements runtime.Files.
func (s *Files) Open(ctx context.Context, f *events.File) ([]byte, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	data, ok := s.stored[f.Ref]
	switch {
	case !ok:
		return nil, fmt.Errorf("file %s: %w", f.Ref, runtime.ErrFileGone)
	case events.Derive(52, "file", string(data)) != f.Ref:
		return nil, &runtime.FileDamagedError{File: *f, Err: errors.New("its bytes are others")}
	}
	return slices.Clone(data), nil
}

// Set keeps bytes under a reference, whatever it names; nil removes them.
func (s *Files) Set(ref string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stored == nil {
		s.stored = make(map[string][]byte)
	}
	if s.stored[ref] = data; data == nil {
		delete(s.stored, ref)
	}
}

// Get returns what is kept under a reference.
func (s *Files) Get(ref string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored[ref]
}

// Opened counts how often a file was opened.
func (s *Files) Opened() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}
