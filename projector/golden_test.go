package projector_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

var update = flag.Bool("update", false, "record histories and folds that are not there yet")

// recorded is one line of a recorded history.
type recorded struct {
	Sequence uint64          `json:"sequence"`
	Event    json.RawMessage `json:"event"` // in the JSON format of CloudEvents
}

// TestRecordedHistoriesFoldAsTheyDid folds the history that each release has
// recorded, hashes included, and compares it with the fold of this FoldVersion,
// which its file names. When the fold has changed, FoldVersion must too, and
// -update records the new fold beside the old one; nothing recorded is ever
// overwritten.
func TestRecordedHistoriesFoldAsTheyDid(t *testing.T) {
	if *update {
		record(t, "testdata/release-1.jsonl")
	}
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no history is recorded: %v", err)
	}
	for _, file := range files {
		s := &projector.Session{}
		for i, r := range readHistory(t, file) {
			if err := s.Fold(&r); err != nil {
				t.Fatalf("%s: fact %d: %v", file, i+1, err)
			}
		}
		compact, err := events.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := json.Indent(&got, compact, "", "\t"); err != nil {
			t.Fatal(err)
		}
		golden := fmt.Sprintf("%s.fold-%d.json", strings.TrimSuffix(file, ".jsonl"), projector.FoldVersion)
		if *update {
			writeOnce(t, golden, got.Bytes())
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatalf("the fold of version %d is not recorded (run with -update): %v", projector.FoldVersion, err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("the fold of %s has changed and FoldVersion has not (-golden +got):\n%s", file, diff)
		}
	}
}

// writeOnce writes a file that is not there.
func writeOnce(t *testing.T, name string, data []byte) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if os.IsExist(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func readHistory(t *testing.T, file string) []events.Record {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var records []events.Record
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		var line recorded
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		e, err := events.Decode(map[string][]string{"content-type": {"application/cloudevents+json"}}, line.Event)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, events.Record{Event: e, Sequence: line.Sequence})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return records
}

// record writes the whole history.
func record(t *testing.T, file string) {
	t.Helper()
	var out bytes.Buffer
	for _, r := range wholeHistory(t).records {
		event, err := r.Structured()
		if err != nil {
			t.Fatal(err)
		}
		line, err := events.Marshal(recorded{r.Sequence, event})
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(line, '\n'))
	}
	writeOnce(t, file, out.Bytes())
}

// wholeHistory is a conversation that has every type of fact: the first run
// starts children, waits, is taken over, hears, runs out of budget, waits for its
// provider, compacts and completes; the second is cancelled in the middle of a response; the third
// fails before it begins and is retried; the last is admitted as cancelled.
func wholeHistory(t *testing.T) *history {
	const run3, run4, run5 = "s1-cccccccc", "s1-dddddddd", "s1-eeeeeeee"
	s := samples()
	claim := func(h *history, run, worker string) { h.append(t, run, events.RunClaimed{Worker: worker}) }
	message := func(id string) events.MessageReceived {
		return events.MessageReceived{Message: events.Text(id, events.RoleUser, "This is "+id+".")}
	}
	h := begun(t)
	h.append(t, "", s["command.accepted"])
	h.append(t, run1, s["child.settled"])
	h.append(t, run1, s["callbacks.recorded"])
	h.append(t, run1, s["call.resolved"])
	h.commit(t, settle(4, 1, events.OutcomeOK, "started", 2))
	h.append(t, run1, s["run.parked"])
	h.append(t, run1, events.TimerFired{CallID: "call_2", Deadline: ofWait})
	claim(h, run1, "w2")
	claim(h, run1, "w3")
	h.append(t, run1, s["run.parked"])
	h.append(t, run1, events.ChildSettled{CallID: "call_1", Child: right, Outcome: "failed", Error: "aborted: it broke"})
	h.append(t, run1, settled(right))
	claim(h, run1, "w3")
	h.commit(t, settle(5, 2, events.OutcomeOK, "one of two", 3))
	h.append(t, run1, s["message.received"])
	h.append(t, run1, message("after hello"))

	refused := events.ToolCall{ID: "call_3", Name: "continue_agent", Arguments: raw(`{"session":"s2"}`)}
	script := events.ToolCall{ID: "call_4", Name: "run_js", Arguments: raw(`{"code":"return 1"}`)}
	h.commit(t, events.CheckpointDelta{Revision: 6, Steps: 1, Phase: string(projector.PhaseCalls), UsedIDs: []string{"call_3", "call_4"}, Usage: events.Usage{Input: 200, Cached: 100, Output: 20},
		Append: []events.Message{s["message.received"].(events.MessageReceived).Message, {ID: "m6", Role: events.RoleAssistant, Parts: []events.Part{{Type: events.PartToolCall, Call: &refused}, {Type: events.PartToolCall, Call: &script}}}},
		Calls:  &[]events.Call{{ToolCall: events.ToolCall{ID: "call_3", Name: "continue_agent"}, State: events.CallDispatched}, {ToolCall: events.ToolCall{ID: "call_4", Name: "run_js"}, State: events.CallPending}}},
		events.ChildCall{CallID: "call_3", Session: "s2", Run: "s2-ffffffff"})
	h.commit(t, events.CheckpointDelta{Revision: 7, Append: []events.Message{projector.ResultMessage(&refused, events.OutcomeDenied, "not you")},
		Settle: []events.CallChange{{Index: 0, State: events.CallSettled, Outcome: events.OutcomeDenied}, {Index: 1, ID: "call_4", Name: "run_js", State: events.CallDispatched}}})
	h.append(t, run1, events.RunParked{CallID: "call_4", Reason: events.ParkCall, Capability: "desk.approve", Deadline: &ofWait})
	h.append(t, run1, events.CallAnswered{ID: "answer-1", CallID: "call_4", Output: raw(`{"approved":true}`), By: "/desk"})
	claim(h, run1, "w2")
	h.commit(t, events.CheckpointDelta{Revision: 8, Phase: string(projector.PhaseModel), Append: []events.Message{projector.ResultMessage(&script, events.OutcomeUnknown, "not known")},
		Settle: []events.CallChange{{Index: 1, State: events.CallSettled, Outcome: events.OutcomeUnknown}}})
	h.append(t, run1, events.RunParked{Reason: events.ParkBudget})
	h.append(t, run1, s["budget.raised"])
	claim(h, run1, "w1")
	h.append(t, run1, events.RunParked{CallID: "provider-c", Reason: events.ParkProvider, Deadline: &ofWait, Note: "slow down", Failed: 2})
	h.append(t, run1, events.TimerFired{CallID: "provider-c", Deadline: ofWait})
	h.append(t, run1, events.RunClaimed{Worker: "w1", Resumes: events.ParkProvider})
	h.append(t, run1, s["message.received"])
	h.append(t, run1, s["window.compacted"])
	h.append(t, run1, s["run.released"])
	claim(h, run1, "w1")
	h.commit(t, events.CheckpointDelta{Revision: 9, Steps: 1, Calls: &[]events.Call{}, Guard: &events.Guard{Silent: 1},
		Append: []events.Message{message("after hello").Message, events.Text("m9", events.RoleAssistant, "Well <&>\u2028")}})
	h.append(t, run1, message("too late"))
	h.append(t, run1, events.TimerFired{Deadline: ofRun})
	h.append(t, run1, events.RunCompleted{Delta: events.CheckpointDelta{Revision: 10, Steps: 1, Phase: string(projector.PhaseCompleted),
		Reply: &events.Reply{Kind: events.ReplyOutput, Output: raw(`{"n":12345678901234567890}`)}}})

	h.append(t, run2, events.CancelRequested{Reason: "before it was admitted"})
	task2 := events.Text("task2", events.RoleUser, "More.")
	h.append(t, run2, events.RunAdmitted{Agent: "planner", Labels: map[string]string{"team": "a"}, Cause: events.Cause{Source: "/cli", ID: "2"}, Message: task2,
		Subagents: map[string]string{"worker": "d2"}, Budget: &events.Budget{Steps: 3}, Metered: true, Hold: true})
	claim(h, run2, "w3")
	spawn := events.ToolCall{ID: "call_x", Name: "spawn_worker", Arguments: raw(`{"message":"Help."}`)}
	h.commit(t, events.CheckpointDelta{Version: 1, Contract: "contract", Revision: 1, Phase: string(projector.PhaseCalls), UsedIDs: []string{"call_x"},
		Append: []events.Message{task2, {ID: "m11", Role: events.RoleAssistant, Parts: []events.Part{{Type: events.PartToolCall, Call: &spawn}}}},
		Calls:  &[]events.Call{{ToolCall: events.ToolCall{ID: "call_x", Name: "spawn_worker"}, State: events.CallDispatched}}}, child("call_x", "s4-aaaaaaaa"))
	h.append(t, run2, message("unheard"))
	h.append(t, run2, events.CancelRequested{Reason: "asked twice"})
	h.append(t, run2, s["run.cancelled"])

	h.append(t, run3, events.RunAdmitted{Agent: "planner", Message: events.Text("task3", events.RoleUser, "Yet more.")})
	claim(h, run3, "w1")
	h.append(t, run3, s["run.failed"])
	again := events.Text("task4", events.RoleUser, "Go on.")
	h.append(t, run4, events.RunAdmitted{Agent: "planner", Models: []string{"a/x", "b/y"}, Retries: run3, Message: again})
	claim(h, run4, "w1")
	h.commit(t, events.CheckpointDelta{Version: 1, Contract: "contract", Revision: 1, Phase: string(projector.PhaseModel), Append: []events.Message{again}})
	h.append(t, run4, s["model.switched"])
	h.append(t, run4, events.RunCompleted{Delta: events.CheckpointDelta{Revision: 2, Steps: 1, Usage: events.Usage{Input: 40, Cached: 5, Output: 6, Reasoning: 1}, Phase: string(projector.PhaseCompleted), Reply: &events.Reply{Kind: events.ReplyNeedsInput, Question: "Which?"}}})

	h.append(t, run5, events.CancelRequested{Reason: "too early"})
	h.append(t, run5, events.RunAdmitted{Agent: "planner", Message: events.Text("task5", events.RoleUser, "That one."), Cancelled: &events.CancelRequested{Reason: "too early"}})
	return h
}

func TestTheRecordedHistoryHasEveryTypeOfFact(t *testing.T) {
	recorded := make(map[string]bool)
	for _, r := range readHistory(t, "testdata/release-1.jsonl") {
		recorded[r.Type] = true
	}
	for _, ty := range factTypes() {
		if recorded[ty.Name] == slices.Contains(ignored, ty.Short()) {
			t.Errorf("%s is recorded: %t", ty.Name, recorded[ty.Name])
		}
	}
}

func TestASummaryTellsWhereARunStands(t *testing.T) {
	s := wholeHistory(t).fold(t)
	var got []string
	for i := range s.Runs {
		sum := s.Runs[i].Summary()
		got = append(got, fmt.Sprintf("%s %s %s %s %d steps %d tokens, ended %t", sum.Run, sum.Session, sum.State, sum.Reason, sum.Steps, sum.Usage.Input, sum.Ended != nil))
	}
	want := []string{
		"s1-aaaaaaaa s1 completed  4 steps 300 tokens, ended true",
		"s1-bbbbbbbb s1 cancelled asked 0 steps 0 tokens, ended true",
		"s1-cccccccc s1 failed aborted 0 steps 0 tokens, ended true",
		"s1-dddddddd s1 completed  1 steps 40 tokens, ended true",
		"s1-eeeeeeee s1 cancelled too early 0 steps 0 tokens, ended true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if d := s.Runs[0].EndedAt.Sub(s.Runs[0].AdmittedAt); d <= 0 || d > time.Minute {
		t.Errorf("the first run took %s", d)
	}
}
