package projector_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
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

// record writes a history that has every type of fact and two runs.
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

// wholeHistory is a conversation of two runs: the first parks, is taken over,
// compacts and completes; the second is cancelled in the middle of a response.
func wholeHistory(t *testing.T) *history {
	h := begun(t)
	s := samples()
	h.append(t, "", s["command.accepted"])
	h.append(t, run1, s["child.settled"])
	h.append(t, run1, s["run.parked"])
	h.append(t, run1, s["timer.fired"])
	h.append(t, run1, s["run.claimed"])
	h.append(t, run1, s["run.claimed"])
	call1, call2 := events.ToolCall{ID: "call_1", Name: "run_js"}, events.ToolCall{ID: "call_2", Name: "run_js"}
	h.commit(t, events.CheckpointDelta{Revision: 4, Append: []events.Message{projector.ResultMessage(&call1, events.OutcomeUnknown, "not known")},
		Settle: []events.CallChange{{Index: 1, State: events.CallSettled, Outcome: events.OutcomeUnknown}, {Index: 2, ID: "call_2", Name: "run_js", State: events.CallDispatched}}})
	h.append(t, run1, s["budget.raised"])
	h.commit(t, events.CheckpointDelta{Revision: 5, Phase: string(projector.PhaseModel), Append: []events.Message{projector.ResultMessage(&call2, events.OutcomeDenied, "not you")},
		Settle: []events.CallChange{{Index: 2, State: events.CallSettled, Outcome: events.OutcomeDenied}}})
	h.append(t, run1, s["window.compacted"])
	h.append(t, run1, s["message.received"])
	h.append(t, run1, s["run.released"])
	h.append(t, run1, s["run.claimed"])
	h.commit(t, events.CheckpointDelta{Revision: 6, Steps: 1, Calls: &[]events.Call{}, Guard: &events.Guard{Silent: 1},
		Append: []events.Message{events.Text("m6", events.RoleAssistant, "Well <&>\u2028")}})
	h.append(t, run1, events.RunCompleted{Delta: events.CheckpointDelta{Revision: 7, Steps: 1, Phase: string(projector.PhaseCompleted),
		Reply: &events.Reply{Kind: events.ReplyOutput, Output: raw(`{"n":12345678901234567890}`)}}})
	h.append(t, run2, events.CancelRequested{Reason: "before it was admitted"})
	h.append(t, run2, events.RunAdmitted{Agent: "planner", Labels: map[string]string{"team": "a"}, Cause: events.Cause{Source: "/cli", ID: "2"}, Message: events.Text("task2", events.RoleUser, "More.")})
	h.append(t, run2, events.RunClaimed{Worker: "w3"})
	end := events.ToolCall{ID: "call_x", Name: "complete", Arguments: raw(`{"kind":"output","output":1}`)}
	h.commit(t, events.CheckpointDelta{Version: 1, Contract: "contract", Revision: 1, Phase: string(projector.PhaseCalls), UsedIDs: []string{"call_x"},
		Append: []events.Message{events.Text("task2", events.RoleUser, "More."), {ID: "m9", Role: events.RoleAssistant, Parts: []events.Part{{Type: events.PartToolCall, Call: &end}}}},
		Calls:  &[]events.Call{{ToolCall: events.ToolCall{ID: "call_x", Name: "complete"}, State: events.CallDispatched}}})
	h.append(t, run2, events.CancelRequested{Reason: "asked twice"})
	h.append(t, run2, s["run.cancelled"])
	h.append(t, "s1-cccccccc", events.RunAdmitted{Agent: "planner"})
	h.append(t, "s1-cccccccc", events.RunClaimed{Worker: "w1"})
	h.append(t, "s1-cccccccc", s["run.failed"])
	return h
}

func TestASummaryTellsWhereARunStands(t *testing.T) {
	s := wholeHistory(t).fold(t)
	var got []string
	for i := range s.Runs {
		sum := s.Runs[i].Summary()
		got = append(got, fmt.Sprintf("%s %s %s %s %d steps %d tokens, ended %t", sum.Run, sum.Session, sum.State, sum.Reason, sum.Steps, sum.Usage.Input, sum.Ended != nil))
	}
	want := []string{
		"s1-aaaaaaaa s1 completed  3 steps 100 tokens, ended true",
		"s1-bbbbbbbb s1 cancelled asked 0 steps 0 tokens, ended true",
		"s1-cccccccc s1 failed aborted 0 steps 0 tokens, ended true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if d := s.Runs[0].EndedAt.Sub(s.Runs[0].AdmittedAt); d <= 0 || d > time.Minute {
		t.Errorf("the first run took %s", d)
	}
}
