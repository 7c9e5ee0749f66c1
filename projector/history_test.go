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

// The children that begun opens, and one that is nobody's.
const left, right, stranger = "s2-cccccccc", "s3-dddddddd", "s9-eeeeeeee"

// The deadlines of the run that begun admits and of the wait that samples holds.
var ofRun, ofWait = epoch.Add(time.Hour), epoch.Add(time.Minute)

// begun is a history of a run whose response made three calls: one started a
// child and has its result, one that starts a child is dispatched, one that is
// to wait for them is pending.
func begun(t rapid.TB) *history {
	t.Helper()
	h := &history{}
	task := events.Text("task", events.RoleUser, "Do the task.")
	h.append(t, run1, events.RunAdmitted{Agent: "planner", Models: []string{"a/x", "b/y", "c/z"}, Definition: "d1", Contract: "contract", Cause: events.Cause{Source: "/cli", ID: "1"}, Message: task, Deadline: &ofRun})
	h.append(t, run1, events.RunClaimed{Worker: "w1"})
	h.commit(t, events.CheckpointDelta{Version: 1, Contract: "contract", Revision: 1, Phase: string(projector.PhaseModel), Append: []events.Message{task}})
	var calls []events.Call
	response := events.Message{ID: "m2", Role: events.RoleAssistant}
	for i, name := range []string{"spawn_worker", "spawn_worker", "wait_calls"} {
		call := events.ToolCall{ID: fmt.Sprint("call_", i), Name: name, Arguments: raw(`{"message":"Help."}`)}
		response.Parts = append(response.Parts, events.Part{Type: events.PartToolCall, Call: &call})
		calls = append(calls, events.Call{ToolCall: events.ToolCall{ID: call.ID, Name: call.Name}, State: events.CallPending})
	}
	calls[0].State = events.CallDispatched
	h.commit(t, events.CheckpointDelta{Revision: 2, Steps: 1, Phase: string(projector.PhaseCalls), Append: []events.Message{response}, Calls: &calls,
		UsedIDs: []string{"call_0", "call_1", "call_2"}, Usage: events.Usage{Input: 100, Output: 10}, Guard: &events.Guard{LastCall: "x", Repeats: 3}}, child("call_0", left))
	h.append(t, run1, events.CallbacksRecorded{CallID: "call_0", Made: []events.CallbackMade{{Index: 0, Capability: "desk.book", Effect: events.EffectWrite, Key: "k", Input: raw(`{"seat":1}`)}},
		Done: []events.CallbackDone{{Index: 0, Outcome: events.OutcomeUnknown, Text: "no answer"}}})
	h.commit(t, settle(3, 0, events.OutcomeOK, "started", 1), child("call_1", right))
	return h
}

// waiting is begun one commit later: both children are started, and the call
// that waits for them is dispatched.
func waiting(t rapid.TB) *history {
	t.Helper()
	h := begun(t)
	h.commit(t, settle(4, 1, events.OutcomeOK, "started", 2))
	return h
}

// settle is the commit that gives a call of begun its result and, unless it is
// the last one, dispatches the next.
func settle(revision uint64, index int, outcome events.Outcome, text string, next int) events.CheckpointDelta {
	names := []string{"spawn_worker", "spawn_worker", "wait_calls"}
	call := events.ToolCall{ID: fmt.Sprint("call_", index), Name: names[index]}
	d := events.CheckpointDelta{Revision: revision, Append: []events.Message{projector.ResultMessage(&call, outcome, text)},
		Settle: []events.CallChange{{Index: index, State: events.CallSettled, Outcome: outcome}}}
	if next < len(names) {
		d.Settle = append(d.Settle, events.CallChange{Index: next, ID: fmt.Sprint("call_", next), Name: names[next], State: events.CallDispatched})
	} else {
		d.Phase = string(projector.PhaseModel)
	}
	return d
}

// child is a call that may start a child run.
func child(call, run string) events.ChildCall {
	session, _ := events.SessionOf(run)
	return events.ChildCall{CallID: call, Agent: "worker", Session: session, Run: run}
}

func (h *history) commit(t rapid.TB, d events.CheckpointDelta, opened ...events.ChildCall) *events.Record {
	t.Helper()
	return h.append(t, h.tip.Claim.Run, events.CheckpointCommitted{Delta: d, Opened: opened})
}

// samples holds, for every type of fact, one that changes the session that begun
// returns, or that the fold of a session does not look at.
func samples() map[string]any {
	key := events.RequestKey{Run: run1, Revision: 3, Epoch: 1}
	return map[string]any{
		"run.admitted":         events.RunAdmitted{Agent: "planner"},
		"run.claimed":          events.RunClaimed{Worker: "w2"},
		"command.accepted":     events.CommandAccepted{Command: "dev.agentruntime.run.continue", Session: "s1", Run: run1},
		"checkpoint.committed": events.CheckpointCommitted{Delta: events.CheckpointDelta{Revision: 4, Steps: 1}},
		"window.compacted":     events.WindowCompacted{Window: []events.Message{events.Text("summary", events.RoleUser, "What was.")}},
		"callbacks.recorded":   events.CallbacksRecorded{CallID: "call_1", Made: []events.CallbackMade{{Index: 0, Capability: "desk.list", Effect: events.EffectRead}}},
		"call.resolved":        events.CallResolved{CallID: "call_0", Index: 0, As: events.ResolvedDone, Result: raw(`{"seat":1}`)},
		"run.parked":           events.RunParked{CallID: "call_2", Dependencies: []string{left, right}, Deadline: &ofWait, Reason: events.ParkChildren},
		"model.switched":       events.ModelSwitched{From: "a/x", To: "b/y", Reason: events.SwitchDenied, Note: "no"},
		"run.released":         events.RunReleased{Reason: "drain", Failed: 1},
		"run.completed":        events.RunCompleted{Delta: events.CheckpointDelta{Revision: 4, Phase: string(projector.PhaseCompleted), Reply: &events.Reply{Kind: events.ReplyOutput, Output: raw(`1`)}}},
		"run.failed":           events.RunFailed{Reason: events.FailureAborted, Error: "it broke"},
		"run.cancelled":        events.RunCancelled{Reason: "asked"},
		"child.settled":        settled(left),
		"cancel.requested":     events.CancelRequested{Reason: "enough"},
		"timer.fired":          events.TimerFired{Deadline: ofRun},
		"budget.raised":        events.BudgetRaised{Raises: 7},
		"call.answered":        events.CallAnswered{ID: "answer-1", CallID: "call_1", Output: raw(`{"approved":true}`), By: "/desk"},
		"message.received":     events.MessageReceived{Message: events.Text("hello", events.RoleUser, "Hello?")},
		"budget.reserved":      events.BudgetReserved{RequestKey: key, Account: &events.BudgetAccount{Limit: &events.Budget{Steps: 1}}},
		"budget.refused":       events.BudgetRefused{RequestKey: key, By: run1, What: "steps"},
		"budget.settled":       events.BudgetSettled{Run: run1, Spent: events.BudgetSpent{Epoch: 1}},
		"budget.topped_up":     events.BudgetToppedUp{Run: run1, Add: events.Budget{Steps: 1}},
	}
}

// settled is a child's happy end.
func settled(run string) events.ChildSettled {
	return events.ChildSettled{CallID: map[string]string{left: "call_0", right: "call_1"}[run], Child: run, Outcome: "completed", Reply: &events.Reply{Kind: events.ReplyOutput, Output: raw(`1`)}}
}
