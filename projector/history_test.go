package projector_test

import (
	"encoding/json"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// epoch is when every history of these tests begins.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// history is the log of one session, written as its writers write it.
type history struct {
	tip     events.Tip
	records []events.Record
	epoch   uint64
}

// append adds a fact about a run, sealed as the next one.
func (h *history) append(t rapid.TB, run string, payload any) *events.Record {
	t.Helper()
	e, err := events.New(payload)
	if err != nil {
		t.Fatal(err)
	}
	n := len(h.records) + 1
	e.ID, e.Source, e.Namespace, e.Session, e.Run, e.RootRun = fmt.Sprint("fact-", n), "/test", "ns", "s1", run, run
	e.Time = epoch.Add(time.Duration(n) * time.Second)
	switch kind := events.TypeOf(e.Type).Kind; {
	case isClaim(payload):
		h.epoch++
		e.ClaimID, e.Epoch, e.CommitID = fmt.Sprint("claim-", h.epoch), h.epoch, e.ID
	case kind == events.Owner:
		e.ClaimID, e.Epoch, e.CommitID = h.tip.Claim.ID, h.tip.Claim.Epoch, e.ID
	case kind == events.Opening:
		e.CommitID = e.ID
	}
	return h.seal(t, e)
}

func isClaim(payload any) bool {
	_, ok := payload.(events.RunClaimed)
	return ok
}

// seal adds an event as it is, with the hashes of the next fact.
func (h *history) seal(t rapid.TB, e events.Event) *events.Record {
	t.Helper()
	h.tip.Seal(&e)
	r := events.Record{Event: e, Sequence: h.tip.Sequence + 3} // a shard has gaps
	if err := h.tip.Advance(&r); err != nil {
		t.Fatal(err)
	}
	h.records = append(h.records, r)
	return &h.records[len(h.records)-1]
}

// fold folds every record.
func (h *history) fold(t rapid.TB) *projector.Session {
	t.Helper()
	s := &projector.Session{}
	for i := range h.records {
		if err := s.Fold(&h.records[i]); err != nil {
			t.Fatalf("fact %d: %v", i+1, err)
		}
	}
	return s
}

// snapshot returns a session after it was stored as JSON.
func snapshot(t rapid.TB, s *projector.Session) *projector.Session {
	t.Helper()
	data, err := events.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	back := &projector.Session{}
	if err := json.Unmarshal(data, back); err != nil {
		t.Fatal(err)
	}
	return back
}

const run1, run2 = "s1-aaaaaaaa", "s1-bbbbbbbb"

// begun is a history of a run whose response made three calls: one has its
// result, one is dispatched, one is pending.
func begun(t rapid.TB) *history {
	t.Helper()
	h := &history{}
	deadline := epoch.Add(time.Hour)
	task := events.Text("task", events.RoleUser, "Do the task.")
	h.append(t, run1, events.RunAdmitted{Agent: "planner", Definition: "d1", Contract: "contract", Cause: events.Cause{Source: "/cli", ID: "1"}, Message: task, Deadline: &deadline})
	h.append(t, run1, events.RunClaimed{Worker: "w1"})
	h.commit(t, events.CheckpointDelta{Version: 1, Contract: "contract", Revision: 1, Phase: string(projector.PhaseModel), Append: []events.Message{task}})
	var calls []events.Call
	response := events.Message{ID: "m2", Role: events.RoleAssistant}
	for i, state := range []events.CallState{events.CallDispatched, events.CallPending, events.CallPending} {
		call := events.ToolCall{ID: fmt.Sprint("call_", i), Name: "run_js", Arguments: raw(`{"code":"return 1"}`)}
		response.Parts = append(response.Parts, events.Part{Type: events.PartToolCall, Call: &call})
		calls = append(calls, events.Call{ToolCall: events.ToolCall{ID: call.ID, Name: call.Name}, State: state})
	}
	h.commit(t, events.CheckpointDelta{Revision: 2, Steps: 1, Phase: string(projector.PhaseCalls), Append: []events.Message{response}, Calls: &calls,
		UsedIDs: []string{"call_0", "call_1", "call_2"}, Usage: events.Usage{Input: 100, Output: 10}, Guard: &events.Guard{LastCall: "x", Repeats: 3}})
	first := events.ToolCall{ID: "call_0", Name: "run_js"}
	h.commit(t, events.CheckpointDelta{Revision: 3, Append: []events.Message{projector.ResultMessage(&first, events.OutcomeOK, "1")},
		Settle: []events.CallChange{{Index: 0, State: events.CallSettled, Outcome: events.OutcomeOK}, {Index: 1, ID: "call_1", Name: "run_js", State: events.CallDispatched}}})
	return h
}

func (h *history) commit(t rapid.TB, d events.CheckpointDelta) *events.Record {
	t.Helper()
	return h.append(t, h.tip.Claim.Run, events.CheckpointCommitted{Delta: d})
}

// samples holds, for every type of fact, one that changes the session that begun
// returns, or that follows a fact which makes it change it.
func samples() map[string]any {
	deadline := epoch.Add(time.Minute)
	return map[string]any{
		"run.admitted":         events.RunAdmitted{Agent: "planner"},
		"run.claimed":          events.RunClaimed{Worker: "w2"},
		"command.accepted":     events.CommandAccepted{Command: "dev.agentruntime.run.continue", Session: "s1", Run: run1},
		"checkpoint.committed": events.CheckpointCommitted{Delta: events.CheckpointDelta{Revision: 4, Steps: 1}},
		"window.compacted":     events.WindowCompacted{Window: []events.Message{events.Text("summary", events.RoleUser, "What was.")}},
		"run.parked":           events.RunParked{CallID: "call_1", Dependencies: []string{"s2-cccccccc", "s3-dddddddd"}, Deadline: &deadline, Reason: "children"},
		"run.released":         events.RunReleased{Reason: "drain"},
		"run.completed":        events.RunCompleted{Delta: events.CheckpointDelta{Revision: 4, Phase: string(projector.PhaseCompleted), Reply: &events.Reply{Kind: events.ReplyOutput, Output: raw(`1`)}}},
		"run.failed":           events.RunFailed{Reason: events.FailureAborted, Error: "it broke"},
		"run.cancelled":        events.RunCancelled{Reason: "asked"},
		"child.settled":        events.ChildSettled{CallID: "call_1", Child: "s2-cccccccc", Outcome: "completed"},
		"cancel.requested":     events.CancelRequested{Reason: "enough"},
		"timer.fired":          events.TimerFired{CallID: "call_1", Deadline: deadline},
		"budget.raised":        events.BudgetRaised{Ledger: 7},
		"message.received":     events.MessageReceived{Message: events.Text("hello", events.RoleUser, "Hello?")},
	}
}
