package projector_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

var texts = rapid.SampledFrom([]string{"", "a", "<&>\u2028", "two\nlines", "ü✓", `{"x":1}`})

// drawMessage draws a message with a unique id.
func drawMessage(t *rapid.T, id string) events.Message {
	m := events.Message{ID: id, Role: rapid.SampledFrom([]events.Role{events.RoleUser, events.RoleAssistant}).Draw(t, "role")}
	for range rapid.IntRange(0, 3).Draw(t, "parts") {
		p := events.Part{Type: events.PartText, Text: texts.Draw(t, "text")}
		if rapid.Bool().Draw(t, "provider") {
			p.Provider = map[string]raw{"p": raw(`{"n":1e400}`)}
		}
		m.Parts = append(m.Parts, p)
	}
	return m
}

type raw = json.RawMessage

// drawNext draws a successor of a checkpoint as the loop makes them.
func drawNext(t *rapid.T, old *projector.Checkpoint) *projector.Checkpoint {
	next := &projector.Checkpoint{Version: projector.CheckpointVersion, ContractHash: "contract", Phase: projector.PhaseModel}
	if old != nil {
		*next = *old
	}
	next.Revision++
	next.Append = nil
	next.Calls = slices.Clone(next.Calls)
	if rapid.Bool().Draw(t, "appends") {
		next.Append = []events.Message{drawMessage(t, fmt.Sprint("m", next.Revision))}
	}
	switch rapid.SampledFrom([]string{"response", "response", "silence", "result", "result", "completion"}).Draw(t, "kind") {
	case "response":
		drawResponse(t, next)
	case "silence":
		next.Calls, next.Phase = nil, projector.PhaseModel
		next.Steps++
		next.Guard.Silent++
	case "result":
		for i := range next.Calls {
			if rapid.Bool().Draw(t, "settled") {
				next.Calls[i].State, next.Calls[i].Outcome = events.CallSettled, events.OutcomeOK
			} else if rapid.Bool().Draw(t, "dispatched") {
				next.Calls[i].State = events.CallDispatched
			}
		}
	case "completion":
		if rapid.IntRange(0, 4).Draw(t, "ends") == 0 {
			next.Phase, next.Reply = projector.PhaseCompleted, &events.Reply{Kind: events.ReplyOutput, Output: raw(`{"n":1.0}`)}
		}
	}
	return next
}

func drawResponse(t *rapid.T, c *projector.Checkpoint) {
	c.Calls, c.Phase = nil, projector.PhaseCalls
	c.Steps++
	c.Usage = c.Usage.Add(events.Usage{Input: rapid.Int64Range(0, 1e6).Draw(t, "input"), Cached: 1, Output: 2, Reasoning: 3})
	c.Guard = events.Guard{LastCall: texts.Draw(t, "last"), Repeats: rapid.IntRange(0, 3).Draw(t, "repeats"), Rejected: rapid.IntRange(0, 3).Draw(t, "rejected")}
	c.Task, c.Scale = "task", rapid.Int64Range(100, 102).Draw(t, "scale")
	m := events.Message{ID: fmt.Sprint("r", c.Revision), Role: events.RoleAssistant}
	for i := range rapid.IntRange(0, 4).Draw(t, "calls") {
		call := events.ToolCall{ID: fmt.Sprintf("c%d-%d", c.Revision, i), Name: "run_js", Arguments: raw(`{"n":12345678901234567890}`)}
		c.UsedCallIDs = append(c.UsedCallIDs, call.ID)
		inMessage := call
		if rapid.Bool().Draw(t, "differs") {
			inMessage.Arguments = raw(`{"other":true}`)
		}
		if rapid.Bool().Draw(t, "in the message") {
			m.Parts = append(m.Parts, events.Part{Type: events.PartToolCall, Call: &inMessage})
		}
		state := rapid.SampledFrom([]events.CallState{events.CallPending, events.CallDispatched}).Draw(t, "state")
		c.Calls = append(c.Calls, events.Call{ToolCall: call, State: state, Refusal: texts.Draw(t, "refusal")})
	}
	c.Append = append(c.Append, m)
}

// The law that a log of deltas stands on, for live and for stored deltas.
func TestApplyIsTheInverseOfDiff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var live, fromDelta, fromStored *projector.Checkpoint
		for range rapid.IntRange(1, 12).Draw(t, "commits") {
			next := drawNext(t, live)
			d, err := projector.Diff(live, next)
			if err != nil {
				t.Fatalf("revision %d: %v", next.Revision, err)
			}
			e, err := events.New(events.CheckpointCommitted{Delta: d})
			if err != nil {
				t.Fatal(err)
			}
			back, err := events.PayloadOf[events.CheckpointCommitted](&e)
			if err != nil {
				t.Fatal(err)
			}
			fromDelta, fromStored = projector.Apply(fromDelta, &d), projector.Apply(fromStored, &back.Delta)
			for what, got := range map[string]*projector.Checkpoint{"the delta": fromDelta, "the stored delta": fromStored} {
				if diff := cmp.Diff(next, got, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("%s of revision %d (-next +applied):\n%s\n%s", what, next.Revision, diff, e.Data)
				}
			}
			if live = next; live.Reply != nil {
				return
			}
		}
	})
}

func TestApplyDoesNotChangeWhatItAppliesTo(t *testing.T) {
	old := &projector.Checkpoint{Version: 1, Revision: 4, Phase: projector.PhaseCalls, UsedCallIDs: []string{"c"},
		Calls: []events.Call{{ToolCall: events.ToolCall{ID: "c", Name: "run_js", Arguments: raw(`{}`)}, State: events.CallDispatched}}}
	before := *old
	before.Calls = slices.Clone(old.Calls)
	projector.Apply(old, &events.CheckpointDelta{Revision: 5, Settle: []events.CallChange{{State: events.CallSettled}}, UsedIDs: []string{"d"}})
	if diff := cmp.Diff(&before, old); diff != "" {
		t.Errorf("the old checkpoint changed:\n%s", diff)
	}
}

func TestADeltaOfAnotherJournalDoesNotPanic(t *testing.T) {
	for _, index := range []int{-1, 1, 1 << 40} {
		projector.Apply(&projector.Checkpoint{Calls: make([]events.Call, 1)}, &events.CheckpointDelta{Settle: []events.CallChange{{Index: index}}})
	}
}

func TestADeltaIsAsLargeAsTheChange(t *testing.T) {
	old := longCheckpoint(1000)
	d, err := projector.Diff(old, successor(old))
	if err != nil {
		t.Fatal(err)
	}
	data, err := events.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 1024 {
		t.Errorf("after 1000 calls one call's delta has %d bytes: %s", len(data), data)
	}
}

// longCheckpoint has used many call ids.
func longCheckpoint(ids int) *projector.Checkpoint {
	c := &projector.Checkpoint{Version: projector.CheckpointVersion, ContractHash: "contract", Revision: uint64(ids), Phase: projector.PhaseModel, Steps: ids}
	for i := range ids {
		c.UsedCallIDs = append(c.UsedCallIDs, fmt.Sprintf("call_%020d", i))
	}
	return c
}

// successor is one response with one call.
func successor(old *projector.Checkpoint) *projector.Checkpoint {
	next := *old
	call := events.ToolCall{ID: fmt.Sprint("next", old.Revision), Name: "run_js", Arguments: raw(`{"code":"return 1"}`)}
	next.Revision++
	next.Steps++
	next.Phase = projector.PhaseCalls
	next.Calls = []events.Call{{ToolCall: call, State: events.CallDispatched}}
	next.UsedCallIDs = append(next.UsedCallIDs, call.ID)
	next.Append = []events.Message{{ID: fmt.Sprint("m", next.Revision), Role: events.RoleAssistant, Parts: []events.Part{{Type: events.PartToolCall, Call: &call}}}}
	return &next
}

func TestWhatIsNoSuccessorIsRefused(t *testing.T) {
	for promise, spoil := range map[string]func(old, next *projector.Checkpoint){
		"the same revision":       func(_, next *projector.Checkpoint) { next.Revision-- },
		"a revision too far":      func(_, next *projector.Checkpoint) { next.Revision++ },
		"a used id given up":      func(_, next *projector.Checkpoint) { next.UsedCallIDs = next.UsedCallIDs[2:] },
		"a used id changed":       func(_, next *projector.Checkpoint) { next.UsedCallIDs = append([]string{"x"}, next.UsedCallIDs[1:]...) },
		"fewer used ids":          func(old, next *projector.Checkpoint) { next.UsedCallIDs = old.UsedCallIDs[:1] },
		"a run that has a reply":  func(old, _ *projector.Checkpoint) { old.Reply = &events.Reply{} },
		"a version given up":      func(_, next *projector.Checkpoint) { next.Version = 0 },
		"a contract given up":     func(_, next *projector.Checkpoint) { next.ContractHash = "" },
		"a phase that is no more": func(_, next *projector.Checkpoint) { next.Phase = "" },
	} {
		old := longCheckpoint(3)
		next := successor(old)
		spoil(old, next)
		_, err := projector.Diff(old, next)
		var refused *projector.SuccessionError
		if !errors.As(err, &refused) || refused.From != old.Revision || refused.To != next.Revision {
			t.Errorf("%s: %v", promise, err)
		}
	}
	var refused *projector.SuccessionError
	if _, err := projector.Diff(nil, longCheckpoint(2)); !errors.As(err, &refused) || refused.From != 0 {
		t.Errorf("a first checkpoint of revision 2: %v", err)
	}
}

func BenchmarkDiff(b *testing.B) {
	for _, ids := range []int{10, 10_000} {
		b.Run(fmt.Sprint(ids), func(b *testing.B) {
			old := longCheckpoint(ids)
			next := successor(old)
			next.UsedCallIDs = append(old.UsedCallIDs[:len(old.UsedCallIDs):len(old.UsedCallIDs)], "next")
			old.UsedCallIDs = next.UsedCallIDs[:ids] // shared, as those of a loop are
			b.ReportAllocs()
			for b.Loop() {
				if _, err := projector.Diff(old, next); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkApply(b *testing.B) {
	for _, ids := range []int{10, 10_000} {
		b.Run(fmt.Sprint(ids), func(b *testing.B) {
			c := longCheckpoint(ids)
			d, err := projector.Diff(c, successor(c))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				c = projector.Apply(c, &d) // its list of ids grows, as a run's does
			}
		})
	}
}
