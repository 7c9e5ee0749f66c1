package runtimetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// Journaled is a Store that keeps a journal of callbacks as well.
type Journaled struct {
	*Store
}

// Take returns the store under a new lease, like Store.Take.
func (j Journaled) Take() runtime.Store {
	l := j.Store.Take().(*lease)
	return journaledLease{l}
}

type journaledLease struct{ *lease }

var _ runtime.Journal = journaledLease{}

// RecordCallbacks implements runtime.Journal.
func (l journaledLease) RecordCallbacks(ctx context.Context, r *events.CallbacksRecorded) error {
	data, err := events.Marshal(r)
	if err != nil {
		return err
	}
	s := l.Store
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.held(ctx, l.number); err != nil {
		return err
	}
	var record events.CallbacksRecorded
	if err := json.Unmarshal(data, &record); err != nil {
		return err
	}
	if s.script.CallID != r.CallID {
		s.script = projector.Script{CallID: r.CallID}
	}
	s.script.Record(&record)
	return nil
}

// Callbacks implements runtime.Journal.
func (l journaledLease) Callbacks(ctx context.Context, callID string) ([]projector.Callback, error) {
	s := l.Store
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.read(ctx); err != nil || s.script.CallID != callID {
		return nil, err
	}
	return slices.Clone(s.script.Callbacks), nil
}

// TestJournal runs every promise of the runtime.Journal port against a store that
// has one. Open is that of TestStore; the store must be a runtime.Journal.
func TestJournal(t *testing.T, open func(t *testing.T) (runtime.Store, func() runtime.Store)) {
	begin := func(t *testing.T) (*storeBench, runtime.Journal) {
		store, reopen := open(t)
		b := &storeBench{t, t.Context(), store, reopen}
		journal, ok := store.(runtime.Journal)
		if !ok {
			t.Fatalf("%T is no runtime.Journal", store)
		}
		run := storedRun()
		b.save(store, run[0])
		b.save(store, run[1]) // dispatches call_a
		return b, journal
	}
	expect := func(b *storeBench, j any, want []projector.Callback) {
		b.Helper()
		got, err := j.(runtime.Journal).Callbacks(b.ctx, "call_a")
		if err != nil {
			b.Fatal(err)
		}
		for i := range got {
			got[i].Key = "" // a store may name it
			if got[i].Done != nil {
				got[i].Input = nil // nobody sends it again
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			b.Fatalf("the journal (-want +got):\n%s", diff)
		}
	}
	made := func(index int) events.CallbackMade {
		return events.CallbackMade{Index: index, Capability: fmt.Sprint("c.", index), Effect: events.EffectWrite, Input: json.RawMessage(`{"n":[12345678901234567890,1.0]}`)}
	}
	done := events.CallbackDone{Index: 0, Outcome: events.OutcomeOK, Result: json.RawMessage(`"<&>"`)}
	record := func(b *storeBench, j runtime.Journal, r events.CallbacksRecorded) {
		b.Helper()
		r.CallID = "call_a"
		if err := j.RecordCallbacks(b.ctx, &r); err != nil {
			b.Fatal(err)
		}
	}
	t.Run("what was recorded comes back to the next attempt, in the order of the index", func(t *testing.T) {
		b, j := begin(t)
		expect(b, j, nil)
		record(b, j, events.CallbacksRecorded{Made: []events.CallbackMade{made(1)}})
		record(b, j, events.CallbacksRecorded{Made: []events.CallbackMade{made(0)}, Done: []events.CallbackDone{done}})
		want := []projector.Callback{{CallbackMade: made(0), Done: &done}, {CallbackMade: made(1)}}
		want[0].Input = nil
		expect(b, j, want)
		expect(b, b.reopen(), want)
	})
	t.Run("a record does not advance the revision", func(t *testing.T) {
		b, j := begin(t)
		record(b, j, events.CallbacksRecorded{Made: []events.CallbackMade{made(0)}})
		run := storedRun()
		b.expect(b.store, run[1], append(run[0].Append, run[1].Append...))
		b.save(b.store, run[2])
	})
	t.Run("a store that was taken over refuses to record", func(t *testing.T) {
		b, j := begin(t)
		next := b.reopen()
		b.expect(next, storedRun()[1], append(storedRun()[0].Append, storedRun()[1].Append...))
		r := events.CallbacksRecorded{CallID: "call_a", Made: []events.CallbackMade{made(0)}}
		b.refused("a record under a lease that was taken over", j.RecordCallbacks(b.ctx, &r))
		expect(b, next, nil)
	})
	t.Run("the journal of another call is not that of this one", func(t *testing.T) {
		b, j := begin(t)
		if list, err := j.Callbacks(b.ctx, "call_z"); err != nil || len(list) != 0 {
			t.Errorf("got %v, %v", list, err)
		}
	})
}
