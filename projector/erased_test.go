package projector_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

func TestASessionThatWasErasedHasNoFoldAndStillVerifies(t *testing.T) {
	h := begun(t)
	h.append(t, run1, events.SessionErased{})
	s := &projector.Session{}
	for i := range h.records {
		before := *s
		if err := s.Fold(&h.records[i]); err == nil {
			continue
		} else if i < len(h.records)-1 || !errors.Is(err, events.ErrErased) {
			t.Fatalf("fact %d: %v", i+1, err)
		}
		if diff := cmp.Diff(&before, s); diff != "" {
			t.Errorf("the session has changed:\n%s", diff)
		}
	}
	if s.At.Sequence != h.records[len(h.records)-2].Sequence {
		t.Error("the fact that erases the session was folded")
	}
	if _, err := events.Verify(h.records); err != nil {
		t.Errorf("Verify: %v", err)
	}
}

// An external fact that does not fit says nothing; one that nobody opened may
// say anything.
func TestAFactThatNobodyOpenedIsNeverPassedOver(t *testing.T) {
	for _, payload := range []any{events.MessageReceived{Message: events.Text("m", events.RoleUser, "text")}, events.RunReleased{}} {
		h := begun(t)
		h.append(t, run1, payload)
		last := &h.records[len(h.records)-1]
		last.Body, last.Encryption = nil, "scheme/key"
		s := &projector.Session{}
		for i := range h.records[:len(h.records)-1] {
			if err := s.Fold(&h.records[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Fold(last); !errors.Is(err, events.ErrSealed) {
			t.Errorf("%s: %v", last.Type, err)
		}
	}
}
