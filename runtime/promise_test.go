package runtime_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/retry"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

func TestEachRejectedCompletionChargesAStepAndTheLastOneFailsTheRun(t *testing.T) {
	h := newHost()
	h.Model.Respond = rt.Call("complete", `{"kind":"output"}`)
	var guard *runtime.GuardError
	if err := stop(t, h); !errors.As(err, &guard) || guard.Guard != runtime.GuardRejectedCompletions || guard.Limit != 5 {
		t.Fatalf("the run ended with %v", err)
	}
	commits := h.Store.Commits()
	if steps := commits[len(commits)-1].Checkpoint.Steps; steps != 5 || h.Controller.Charges() != 5 {
		t.Errorf("%d steps and %d charges for five completions", steps, h.Controller.Charges())
	}
}

func TestACallWithAnUnknownOutcomeStillCompacts(t *testing.T) {
	h := longHost(16, 0)
	killed := false
	h.Plan = func(op rt.Op) rt.Fault {
		if op.Name == rt.OpExecute && !killed {
			killed = true
			return rt.KilledAfter
		}
		return rt.Works
	}
	if err := stop(t, h); !errors.Is(err, rt.ErrKilled) {
		t.Fatalf("the attempt ended with %v", err)
	}
	finish(t, h)
	wantResult(t, h, rt.CallID(0, 0), events.OutcomeUnknown)
	summaries, steps := asked(h)
	if h.Store.Compactions() == 0 || len(summaries) == 0 || !strings.Contains(rt.Render(summaries[0]), "unknown") {
		t.Errorf("%d compactions; the summary was asked for with\n%s", h.Store.Compactions(), rt.Render(summaries[0]))
	}
	for _, r := range steps {
		if err := rt.CheckTranscript(r.Messages); err != nil {
			t.Error(err)
		}
	}
}

// The summary says nothing of the task, which stands all the same.
func TestASummaryThatDropsTheTaskDropsNothingThatIsPinned(t *testing.T) {
	h := longHost(16, 0)
	h.Input.Message = events.Text("task", events.RoleUser, "Count the desks.")
	h.Model.Summarize = func(int, *runtime.Request) (*runtime.Response, error) {
		return &runtime.Response{Parts: []events.Part{{Type: events.PartText, Text: "Nothing to do."}}, Finish: runtime.FinishStop}, nil
	}
	finish(t, h)
	_, steps := asked(h)
	for i, r := range steps {
		if m := r.Messages[0]; m.ID != "task" || m.Parts[0].Text != "Count the desks." {
			t.Errorf("request %d begins with %+v", i, m)
		}
	}
	if h.Store.Compactions() == 0 {
		t.Error("nothing was compacted")
	}
}

func TestAnErrorOfASummaryNamesTheModelThatWasAskedFirst(t *testing.T) {
	h := longHost(16, 0)
	h.Input.Definition.Model, h.Input.Definition.Models = "", []string{"scripted/one", "scripted/two"}
	h.Model.Summarize = rt.Text(" ")
	var failed *runtime.ModelError
	if err := stop(t, h); !errors.As(err, &failed) || failed.Provider != "scripted/one" {
		t.Errorf("the attempt ended with %v", err)
	}
}

// There is one owner of retries: what the loop asks for once is asked for as
// often as the owner allows, and what was committed before stays.
func TestAProviderThatIsAwayIsAskedByOneOwnerAndProgressIsKept(t *testing.T) {
	for _, c := range []struct {
		status int
		class  runtime.ErrorClass
		after  time.Duration
	}{
		{429, runtime.ClassLimited, 0}, {429, runtime.ClassLimited, 7 * time.Second},
		{503, runtime.ClassRetry, 0}, {503, runtime.ClassRetry, 7 * time.Second},
		{529, runtime.ClassRetry, 0}, {529, runtime.ClassRetry, 7 * time.Second},
	} {
		h := newHost(rt.RunJS("return 1"), rt.CompleteQuoting())
		script, away, requests := h.Model.Respond, 0, 0
		h.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
			requests++
			if step == 1 && away > 0 {
				away--
				return nil, &runtime.ModelError{Class: c.class, Status: c.status, RetryAfter: c.after, Err: errors.New("away")}
			}
			return script(step, r)
		}
		var shortest time.Duration
		h.Ports = func(in *runtime.Input) {
			in.Model = &retry.Model{Next: in.Model, Attempts: 3, Pause: func(_ context.Context, d time.Duration) error {
				if shortest == 0 || d < shortest {
					shortest = d
				}
				return nil
			}}
		}
		away = 4
		var failed *runtime.ModelError
		if err := stop(t, h); !errors.As(err, &failed) || failed.Status != c.status || requests != 1+3 {
			t.Fatalf("%d: the attempt ended with %v after %d requests", c.status, err, requests)
		}
		// The script is not run again, and the reply holds its result.
		finish(t, h)
		if requests != 1+3+2 || h.Factory.Started() != 1 || h.Controller.Charges() != 3 {
			t.Errorf("%d: %d requests, %d scripts, %d charges", c.status, requests, h.Factory.Started(), h.Controller.Charges())
		}
		if shortest < c.after {
			t.Errorf("%d: asked again after %v, the provider wanted %v", c.status, shortest, c.after)
		}
	}
}
