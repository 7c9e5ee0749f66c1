package handlers_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// lengthy are steps whose scripts have about so many bytes.
func lengthy(steps, bytes int) []runtimetest.Step {
	var list []runtimetest.Step
	for i := range steps {
		list = append(list, runtimetest.RunJS(fmt.Sprintf("log %d%s\nreturn %d", i, strings.Repeat("x", bytes), i)))
	}
	return append(list, runtimetest.Complete(`"done"`))
}

// compactions returns the facts that replaced the window of the world's one
// session.
func compactions(t *testing.T, w *handlerstest.World) (list []events.WindowCompacted, stored []events.Record) {
	t.Helper()
	_, records, err := w.Session(t.Context(), w.Keys()[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		payload, err := records[i].Payload()
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := payload.(events.WindowCompacted); ok {
			list, stored = append(list, c), append(stored, records[i])
		}
	}
	return list, stored
}

func TestARunOverACompactedSessionGoesOn(t *testing.T) {
	w, worker := started(t, within(agent(), 4500), lengthy(13, 900)...)
	worker.Settle()
	if r := only(t, w); r.State != projector.StateCompleted || r.Checkpoint.Steps != 14 {
		t.Fatalf("the run is %s after %d steps: %+v", r.State, r.Checkpoint.Steps, r.Failed)
	}
	list, _ := compactions(t, w)
	if len(list) < 2 {
		t.Fatalf("%d compactions", len(list))
	}
	w.Send(handlerstest.Continue("2", w.Keys()[0].Session, "More."))
	w.Model.Respond = runtimetest.Complete(`"more"`)
	worker.Settle()
	all := runs(t, w)
	if len(all) != 2 || all[1].State != projector.StateCompleted {
		t.Fatalf("the runs are %+v", all)
	}
	if err := w.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestALargeCompactedWindowIsOffloaded(t *testing.T) {
	// What makes the compacted window large is its newest step.
	w, worker := started(t, within(agent(), 140_000),
		append(lengthy(9, 30_000)[:9], runtimetest.RunJS("log "+strings.Repeat("y", 250_000)), runtimetest.Complete(`"done"`))...)
	worker.Settle()
	list, stored := compactions(t, w)
	if r := only(t, w); r.State != projector.StateCompleted || len(list) == 0 {
		t.Fatalf("the run is %s, with %d compactions: %+v", r.State, len(list), r.Failed)
	}
	last := stored[len(stored)-1]
	if last.DataRef == "" || len(last.Body) <= handlers.InlineLimit {
		t.Errorf("a window of %d bytes is inline", len(last.Body)+len(last.Data))
	}
	if err := w.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestASummaryIsChargedAndItsTokensAreTheRunsOthers(t *testing.T) {
	v := within(agent(), 4500)
	v.Agent.Budget = &events.Budget{Steps: 100}
	w, worker := started(t, v, lengthy(13, 900)...)
	w.Model.Summarize = func(int, *runtime.Request) (*runtime.Response, error) {
		return &runtime.Response{Parts: []events.Part{{Type: events.PartText, Text: "So far."}}, Finish: runtime.FinishStop, Usage: events.Usage{Input: 1000, Output: 7}}, nil
	}
	worker.Settle()
	r := only(t, w)
	list, _ := compactions(t, w)
	n := int64(len(list))
	if r.State != projector.StateCompleted || n == 0 {
		t.Fatalf("the run is %s, with %d compactions", r.State, n)
	}
	b, err := worker.Dispatcher.ShowBudget(t.Context(), "ns", r.ID)
	if err != nil {
		t.Fatal(err)
	}
	a := b.Accounts[0]
	if want := (events.Usage{Input: 14*100 + n*1000, Output: 14*10 + n*7}); a.Steps != 14+n || a.Tokens != want || a.Committed != r.Checkpoint.Usage || r.Checkpoint.Usage.Input != 1400 {
		t.Errorf("%d summaries: the account is %+v, the run has %+v", n, a, r.Checkpoint.Usage)
	}
}

func TestABudgetThatIsSpentBeforeASummaryEndsTheRun(t *testing.T) {
	v := within(agent(), 4500)
	v.Agent.Budget = &events.Budget{Steps: 7}
	w, worker := started(t, v, lengthy(13, 900)...)
	worker.Settle()
	if r := only(t, w); r.Reason != events.FailureBudget {
		t.Errorf("the run is %s: %+v", r.State, r.Failed)
	}
	if list, _ := compactions(t, w); len(list) != 0 {
		t.Error("the window was compacted for nothing")
	}
}

func TestAConversationThatCannotFitFailsTheRunWithAReason(t *testing.T) {
	w, worker := started(t, within(agent(), 600), lengthy(13, 4000)...)
	worker.Settle()
	if r := only(t, w); r.State != projector.StateFailed || r.Reason != events.FailureAborted || !strings.Contains(r.Failed.Error, "give the agent a model with a larger context") {
		t.Errorf("the run is %s: %+v", r.State, r.Failed)
	}
}

func TestASummaryThatIsNeverUsableFailsTheRun(t *testing.T) {
	synctest.Test(t, neverUsable)
}

func neverUsable(t *testing.T) {
	w, worker := started(t, within(agent(), 4500), lengthy(13, 900)...)
	asked := 0
	w.Model.Summarize = func(int, *runtime.Request) (*runtime.Response, error) {
		if asked++; asked == 1 {
			return nil, &runtime.ModelError{Class: runtime.ClassRetry, Err: errors.New("away")}
		}
		return &runtime.Response{Finish: runtime.FinishStop}, nil
	}
	worker.Settle()
	if r := only(t, w); r.State != projector.StateFailed || asked < 1+handlers.MaxInvalid || asked > 1+2*handlers.MaxInvalid || !strings.Contains(r.Failed.Error, "the summary is empty") {
		t.Errorf("after %d requests the run is %s: %+v", asked, r.State, r.Failed)
	}
}
