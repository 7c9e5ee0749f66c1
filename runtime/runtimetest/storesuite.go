package runtimetest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// TestStore runs every promise of the runtime.Store port against an
// implementation. Open returns the store of a fresh run in an empty conversation,
// and a function that returns the same run's store to a new attempt, which takes
// the run over from whoever had it.
func TestStore(t *testing.T, open func(t *testing.T) (runtime.Store, func() runtime.Store)) {
	for _, c := range []struct {
		promise string
		check   func(*storeBench)
	}{
		{"a run without commits has no checkpoint and no window", (*storeBench).fresh},
		{"every field of a checkpoint and every message comes back", (*storeBench).roundTrip},
		{"an identical commit again succeeds and appends once", (*storeBench).identical},
		{"another commit of a committed revision is refused", (*storeBench).conflicting},
		{"a revision that is passed or too far ahead is refused", (*storeBench).outOfOrder},
		{"a store that was taken over refuses to write", (*storeBench).takenOver},
		{"a compaction replaces the window and the run goes on", (*storeBench).compaction},
		{"what was loaded belongs to the caller", (*storeBench).ownership},
		{"a read whose context has ended is an error, not a fresh run", (*storeBench).endedContext},
	} {
		t.Run(c.promise, func(t *testing.T) {
			store, reopen := open(t)
			c.check(&storeBench{t, t.Context(), store, reopen})
		})
	}
}

type storeBench struct {
	*testing.T
	ctx    context.Context
	store  runtime.Store
	reopen func() runtime.Store
}

func (b *storeBench) save(s runtime.Store, c *projector.Checkpoint) {
	b.Helper()
	if err := s.SaveCheckpoint(b.ctx, c); err != nil {
		b.Fatalf("save revision %d: %v", c.Revision, err)
	}
}

func (b *storeBench) refused(what string, err error) {
	b.Helper()
	if err == nil {
		b.Errorf("%s was not refused", what)
	}
}

// expect compares what a store holds. The checkpoint may come back with what
// was appended.
func (b *storeBench) expect(s runtime.Store, want *projector.Checkpoint, window []events.Message) {
	b.Helper()
	got, err := s.LoadCheckpoint(b.ctx)
	if err != nil {
		b.Fatalf("load the checkpoint: %v", err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(projector.Checkpoint{}, "Append")); diff != "" {
		b.Fatalf("the checkpoint (-want +got):\n%s", diff)
	}
	messages, err := s.Load(b.ctx)
	if err != nil {
		b.Fatalf("load the window: %v", err)
	}
	if diff := cmp.Diff(window, messages, cmpopts.EquateEmpty()); diff != "" {
		b.Fatalf("the window (-want +got):\n%s", diff)
	}
}

func (b *storeBench) fresh() {
	b.expect(b.store, nil, nil)
	b.expect(b.reopen(), nil, nil)
}

func (b *storeBench) roundTrip() {
	var window []events.Message
	for _, c := range storedRun() {
		b.save(b.store, c)
		window = append(window, c.Append...)
		b.expect(b.store, c, window)
	}
	last := storedRun()
	b.expect(b.reopen(), last[len(last)-1], window)
}

func (b *storeBench) identical() {
	run := storedRun()
	b.save(b.store, run[0])
	b.save(b.store, storedRun()[0])
	b.save(b.store, run[1])
	b.save(b.store, storedRun()[1])
	window := append(run[0].Append, run[1].Append...)
	b.expect(b.store, run[1], window)
	next := b.reopen()
	b.save(next, storedRun()[1])
	b.expect(next, run[1], window)
	b.save(next, run[2])
	b.expect(next, run[2], append(window, run[2].Append...))
}

func (b *storeBench) conflicting() {
	run := storedRun()
	b.save(b.store, run[0])
	b.save(b.store, run[1])
	window := append(run[0].Append, run[1].Append...)
	other := storedRun()[1]
	other.Steps++
	b.refused("another checkpoint of the same revision", b.store.SaveCheckpoint(b.ctx, other))
	other = storedRun()[1]
	other.Append[0].Parts[0].Text = "something else"
	next := b.reopen()
	b.refused("another message in the same revision", next.SaveCheckpoint(b.ctx, other))
	b.expect(next, run[1], window)
}

func (b *storeBench) outOfOrder() {
	run := storedRun()
	b.refused("revision 2 of a fresh run", b.store.SaveCheckpoint(b.ctx, run[1]))
	store := b.reopen()
	b.expect(store, nil, nil)
	for _, c := range run[:3] {
		b.save(store, c)
	}
	window := append(append(run[0].Append, run[1].Append...), run[2].Append...)
	b.refused("a passed revision", store.SaveCheckpoint(b.ctx, storedRun()[1]))
	store = b.reopen()
	b.refused("a revision ahead", store.SaveCheckpoint(b.ctx, storedRun()[4]))
	b.expect(b.reopen(), run[2], window)
}

func (b *storeBench) takenOver() {
	run := storedRun()
	b.save(b.store, run[0])
	next := b.reopen()
	b.expect(next, run[0], run[0].Append)
	b.refused("a save under a lease that was taken over", b.store.SaveCheckpoint(b.ctx, run[1]))
	b.refused("a compaction under a lease that was taken over", b.store.Compact(b.ctx, []events.Message{events.Text("s", events.RoleUser, "short")}))
	b.expect(next, run[0], run[0].Append)
	b.save(next, run[1])
	b.refused("the same save under the old lease", b.store.SaveCheckpoint(b.ctx, run[2]))
	b.expect(next, run[1], append(run[0].Append, run[1].Append...))
}

func (b *storeBench) compaction() {
	run := storedRun()
	for _, c := range run[:4] {
		b.save(b.store, c)
	}
	window := []events.Message{run[0].Append[0], events.Text("summary-1", events.RoleUser, "What was.")}
	if err := b.store.Compact(b.ctx, window); err != nil {
		b.Fatalf("compact: %v", err)
	}
	b.expect(b.store, run[3], window)
	next := b.reopen()
	b.expect(next, run[3], window)
	b.save(next, run[4])
	b.expect(next, run[4], append(window, run[4].Append...))
}

func (b *storeBench) ownership() {
	run := storedRun()
	for _, c := range run[:2] {
		b.save(b.store, c)
	}
	window, err := b.store.Load(b.ctx)
	if err != nil || len(window) == 0 {
		b.Fatalf("load the window: %d messages, %v", len(window), err)
	}
	clear(window)
	b.expect(b.store, run[1], append(run[0].Append, run[1].Append...))
}

func (b *storeBench) endedContext() {
	b.save(b.store, storedRun()[0])
	ended, cancel := context.WithCancel(b.ctx)
	cancel()
	for _, store := range []runtime.Store{b.store, b.reopen()} {
		if c, err := store.LoadCheckpoint(ended); err == nil && c == nil {
			b.Error("a read whose context has ended says that the run is fresh")
		}
	}
}

// storedRun returns the checkpoints of one run. Each call makes them anew.
func storedRun() []*projector.Checkpoint {
	calls := []events.ToolCall{
		{ID: "call_a", Name: "run_js", Arguments: json.RawMessage(`{"code":"return \"<&>\u2028\"","n":[12345678901234567890,1e400,1.0,-0]}`)},
		{ID: "call_b", Name: "get_calls", Arguments: json.RawMessage(`{}`)},
		{ID: "call_c", Name: "nothing", Arguments: json.RawMessage(`"{\"code\":"`)},
	}
	journal := func(states ...events.Call) []events.Call {
		for i := range states {
			states[i].ToolCall = calls[i]
		}
		states[2].Refusal = "There is no tool \"nothing\"."
		return states
	}
	provider := map[string]json.RawMessage{"scripted": json.RawMessage(`{"signature":"aGk=","order":18446744073709551616,"deep":[{"x":1e-7}]}`)}
	file := events.Part{Type: events.PartFile, File: &events.File{Ref: "object/sha256-1", MediaType: "image/png", Name: "a b.png", Size: 1 << 40}}
	response := events.Message{ID: "m2", Role: events.RoleAssistant, Parts: []events.Part{
		{Type: events.PartReasoning, Text: "hm", Provider: provider},
		{Type: events.PartText, Text: "Let me see. ✓"},
		{Type: events.PartToolCall, Call: &calls[0], Provider: provider}, {Type: events.PartToolCall, Call: &calls[1]}, {Type: events.PartToolCall, Call: &calls[2]}}}
	task := events.Message{ID: "m1", Role: events.RoleUser, Parts: []events.Part{{Type: events.PartText, Text: "Do <it> & \u2028 more."}, file}}
	resultA := projector.ResultMessage(&calls[0], events.OutcomeOK, `{"value":1.0}`)
	resultA.Parts[0].Result.Parts = append(resultA.Parts[0].Result.Parts, file)
	end := events.ToolCall{ID: "call_d", Name: "complete", Arguments: json.RawMessage(`{"kind":"output","output":{"n":1.10}}`)}
	ended := events.Call{ToolCall: end, State: events.CallSettled, Outcome: events.OutcomeOK}

	run := []*projector.Checkpoint{
		{Phase: projector.PhaseModel, Append: []events.Message{task}},
		{Phase: projector.PhaseCalls, Steps: 1, Append: []events.Message{response},
			Calls: journal(events.Call{State: events.CallDispatched}, events.Call{State: events.CallPending}, events.Call{State: events.CallPending})},
		{Phase: projector.PhaseCalls, Steps: 1, Append: []events.Message{resultA},
			Calls: journal(events.Call{State: events.CallSettled, Outcome: events.OutcomeOK}, events.Call{State: events.CallDispatched}, events.Call{State: events.CallPending})},
		{Phase: projector.PhaseModel, Steps: 1,
			Append: []events.Message{projector.ResultMessage(&calls[1], events.OutcomeUnknown, "?"), projector.ResultMessage(&calls[2], events.OutcomeError, "There is no tool.")},
			Calls:  journal(events.Call{State: events.CallSettled, Outcome: events.OutcomeOK}, events.Call{State: events.CallSettled, Outcome: events.OutcomeUnknown}, events.Call{State: events.CallSettled, Outcome: events.OutcomeError})},
		{Phase: projector.PhaseModel, Steps: 2, Append: []events.Message{events.Text("m5", events.RoleAssistant, "Well."), events.Text("n5", events.RoleUser, "Go on.")}},
		{Phase: projector.PhaseCalls, Steps: 3, Append: []events.Message{{ID: "m6", Role: events.RoleAssistant, Parts: []events.Part{{Type: events.PartToolCall, Call: &end}}}},
			Calls: []events.Call{{ToolCall: end, State: events.CallDispatched}}},
		{Phase: projector.PhaseCompleted, Steps: 3, Append: []events.Message{projector.ResultMessage(&end, events.OutcomeOK, "The run is complete.")},
			Calls: []events.Call{ended}, Reply: &events.Reply{Kind: events.ReplyOutput, Output: json.RawMessage(`{"n":1.10}`)}},
	}
	for i, c := range run {
		c.Version, c.ContractHash, c.Revision, c.Task = projector.CheckpointVersion, "contract", uint64(i+1), "m1"
		steps := int64(c.Steps)
		c.Usage = events.Usage{Input: 1000 * steps, Cached: 500 * steps, Output: 7 * steps, Reasoning: 3 * steps}
		if c.Steps > 0 {
			c.UsedCallIDs = []string{"call_a", "call_b", "call_c"}
			c.Guard = events.Guard{LastCall: fmt.Sprint("hash ", c.Steps), Repeats: 1, Silent: c.Steps % 2, Rejected: c.Steps}
			c.Scale = 100 + steps
		}
		if c.Steps == 3 {
			c.UsedCallIDs = append(c.UsedCallIDs, "call_d")
		}
	}
	return run
}
