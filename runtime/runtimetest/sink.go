package runtimetest

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/agentruntime/agentruntime/runtime"
)

// Said is one text a Sink was told.
type Said struct {
	Revision uint64
	Text     string
}

// Sink is a runtime.Sink that remembers.
type Sink struct {
	mu   sync.Mutex
	said []Said
}

var _ runtime.Sink = (*Sink)(nil)

// Text implements runtime.Sink.
func (s *Sink) Text(_ context.Context, revision uint64, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, Said{revision, text})
}

// Said returns everything that was told, in order.
func (s *Sink) Said() []Said {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.said)
}

// Redactor is a runtime.Redactor with a list of secrets.
type Redactor struct {
	Secrets []string
}

var _ runtime.Redactor = (*Redactor)(nil)

// Redacted stands where a secret was.
const Redacted = "[redacted]"

// Redact implements runtime.Redactor.
func (r *Redactor) Redact(text string) string {
	for _, secret := range r.Secrets {
		text = strings.ReplaceAll(text, secret, Redacted)
	}
	return text
}

// FatalError is a FatalToolError.
type FatalError struct {
	Err error
}

var _ runtime.FatalToolError = (*FatalError)(nil)

func (e *FatalError) Error() string { return "fatal: " + e.Err.Error() }

func (e *FatalError) Unwrap() error { return e.Err }

// FatalToolError implements runtime.FatalToolError.
func (e *FatalError) FatalToolError() {}
