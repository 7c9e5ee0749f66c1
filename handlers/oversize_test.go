package handlers_test

import (
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

func TestAnOversizeResultIsOffloadedOnce(t *testing.T) {
	large := `"` + strings.Repeat("x", 2*handlers.InlineLimit) + `"`
	w, worker := started(t, within(agent(), 2_000_000), runtimetest.RunJS("return "+large), runtimetest.Complete(`"done"`))
	worker.Settle()
	if r := only(t, w); r.State != projector.StateCompleted {
		t.Fatalf("the run is %s: %+v", r.State, r.Failed)
	}
	_, stored, err := w.Session(t.Context(), w.Keys()[0])
	if err != nil {
		t.Fatal(err)
	}
	offloaded := 0
	for _, r := range stored {
		if r.DataRef != "" && strings.Contains(string(r.Body), large[1:1000]) {
			offloaded++
			if len(r.Body) <= handlers.InlineLimit {
				t.Errorf("%d bytes were offloaded", len(r.Body))
			}
		}
	}
	// One with the result, one with the call that asked for it.
	if offloaded == 0 || offloaded > 2 || w.Executors.Started() != 1 {
		t.Errorf("%d facts were offloaded, and the script ran %d times", offloaded, w.Executors.Started())
	}
	if err := w.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAnOversizeAnswerIsOneToolError(t *testing.T) {
	w, worker := started(t, agent("desk.book"), runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.CompleteQuoting())
	w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
		return []byte(`"` + strings.Repeat("x", handlers.MaxAnswer) + `"`), nil
	}
	worker.Settle()
	r := only(t, w)
	if r.State != projector.StateCompleted || len(w.Services.Ledger) != 1 || w.Executors.Started() != 1 {
		t.Fatalf("the run is %s after %d requests and %d scripts: %+v", r.State, len(w.Services.Ledger), w.Executors.Started(), r.Failed)
	}
	if reply := string(r.Checkpoint.Reply.Output); !strings.Contains(reply, "was carried out, but its answer has") {
		t.Errorf("the model was told %.500s", reply)
	}
	if err := w.Check(t.Context()); err != nil {
		t.Error(err)
	}
}
