package wiretest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// seen counts what the requests of conversations held, so that a test can tell
// whether it has seen everything.
type seen struct {
	Requests, Compactions, Summaries, Parallel int
	Outcomes                                   map[events.Outcome]int
}

// missing says what was not seen.
func (s *seen) missing() error {
	if s.Compactions == 0 || s.Summaries == 0 || s.Parallel == 0 {
		return fmt.Errorf("not everything was seen: %+v", *s)
	}
	for _, o := range []events.Outcome{events.OutcomeOK, events.OutcomeError, events.OutcomeDenied, events.OutcomeSkipped, events.OutcomeUnknown} {
		if s.Outcomes[o] == 0 {
			return fmt.Errorf("no result was %s: %+v", o, *s)
		}
	}
	return nil
}

func (s *seen) count(h *rt.Host) {
	s.Compactions += h.Store.Compactions()
	if s.Outcomes == nil {
		s.Outcomes = make(map[events.Outcome]int)
	}
	for _, r := range h.Model.Requests() {
		s.Requests++
		if runtime.IsSummaryRequest(r) {
			s.Summaries++
		}
		for _, m := range r.Messages {
			if len(m.Calls()) > 1 {
				s.Parallel++
			}
			for _, p := range m.Parts {
				if p.Result != nil {
					s.Outcomes[p.Result.Outcome]++
				}
			}
		}
	}
}

// CheckConversations holds that an adapter sends every request of the loop as its
// API takes it: send returns what is wrong with one that it sent.
func CheckConversations(t *testing.T, said func(*rapid.T) []events.Part, send func(*rapid.T, *runtime.Request) error) {
	// Each check is two runs with dozens of requests.
	if os.Getenv("AGENTRUNTIME_SLOW") == "" {
		few(t)
	}
	var met seen
	rapid.Check(t, func(r *rapid.T) {
		for _, q := range conversation(r, said, &met) {
			if err := send(r, q); err != nil {
				r.Fatalf("%v, in\n%s", err, rt.Render(q))
			}
		}
	})
	if err := met.missing(); err != nil {
		t.Error(err)
	}
}

// few makes rapid check less in this test.
func few(t *testing.T) {
	checks := flag.Lookup("rapid.checks")
	before := checks.Value.String()
	t.Cleanup(func() { _ = checks.Value.Set(before) })
	if err := checks.Value.Set("20"); err != nil {
		t.Fatal(err)
	}
}

// conversation lets the loop itself carry two runs of one session to their ends,
// in a context that does not hold them, with attempts that are killed, and
// returns every request that it made. Said draws the parts of a response; its
// calls, and those that are drawn here, have ids of every kind, and end in every
// way that a call can.
func conversation(t *rapid.T, said func(*rapid.T) []events.Part, seen *seen) []*runtime.Request {
	var requests []*runtime.Request
	store := new(rt.Store)
	for run := range 2 {
		h := conversationHost(t, said, run)
		h.Store = store
		for range 8 {
			_, err := h.Run(context.Background())
			if !errors.Is(err, rt.ErrKilled) {
				checkEnd(t, err)
				break
			}
		}
		if err := h.Check(); err != nil {
			t.Fatal(err)
		}
		seen.count(h)
		requests = append(requests, h.Model.Requests()...)
		store = store.NextRun()
	}
	return requests
}

// checkEnd takes a run that completed, or that could not: a guard, or a window
// of which nothing more can be left out.
func checkEnd(t *rapid.T, err error) {
	var large *runtime.OverflowError
	var guard *runtime.GuardError
	var model *runtime.ModelError // there was no room without a summary that was no good
	if err != nil && !errors.As(err, &large) && !errors.As(err, &guard) && !(errors.As(err, &model) && strings.Contains(err.Error(), "is not shorter")) {
		t.Fatalf("the run ended with %v", err)
	}
}

func conversationHost(t *rapid.T, said func(*rapid.T) []events.Part, run int) *rt.Host {
	h := rt.NewHost(events.AgentDefinition{
		Slug: "planner", Instructions: "Plan.", Model: "scripted/one", Subagents: []string{"helper"},
		Limits: events.Limits{SilentAnswers: 50, RepeatedCalls: 50},
	})
	h.Input.Subagents = []events.AgentDefinition{{Slug: "helper", Instructions: "Help.", Model: "scripted/one"}}
	h.Input.Capabilities = []events.Capability{{Name: "desk.list"}}
	h.Input.RunID = fmt.Sprintf("run-%d", run)
	h.Input.Message = events.Text(fmt.Sprintf("task-%d", run), events.RoleUser, "Do the task.")
	h.Input.ModelLimits = runtime.ModelLimits{ContextTokens: rapid.Int64Range(2500, 9000).Draw(t, "context")}
	h.Controller.Intercept = func(method string) error {
		if method == "Spawn" {
			return &runtime.DeniedError{Reason: "no"}
		}
		return nil
	}
	h.Backend.Answer = func(context.Context, *runtime.Callback) (json.RawMessage, error) {
		return json.RawMessage(`"` + strings.Repeat("b", 900) + `"`), nil
	}
	calls := rapid.SampledFrom([]events.ToolCall{
		rt.RunJSCall("desk.list {}\nreturn"), rt.RunJSCall("throw no"), rt.RunJSCall("log " + strings.Repeat("l", 900)),
		rt.ToolCall("spawn_helper", `{"message":"help"}`), rt.ToolCall("nothing", `{}`), rt.ToolCall("run_js", `{"code":`), rt.ToolCall("complete", `{"kind":"output"}`),
	})
	ids := rapid.SampledFrom([]string{"", "one", "two", "three"})
	steps := make([][]events.Part, rapid.IntRange(0, 9).Draw(t, "steps"))
	for i := range steps {
		steps[i] = slices.Clone(said(t))
		for _, c := range rapid.SliceOfN(calls, 0, 4).Draw(t, "calls") {
			at := rapid.IntRange(0, len(steps[i])).Draw(t, "at")
			steps[i] = slices.Insert(steps[i], at, events.Part{Type: events.PartToolCall, Call: &c})
		}
		for k, p := range steps[i] {
			if p.Call != nil {
				call := *p.Call
				call.ID = ids.Draw(t, "id")
				steps[i][k].Call = &call
			}
		}
	}
	finish := rapid.SampledFrom([]runtime.FinishReason{runtime.FinishCalls, runtime.FinishCalls, runtime.FinishLength, runtime.FinishFilter})
	reasons := rapid.SliceOfN(finish, len(steps), len(steps)).Draw(t, "finish")
	began := -1 // responses of the run before
	h.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
		if began < 0 {
			began = step
		}
		if n := step - began; n < len(steps) {
			return &runtime.Response{Parts: steps[n], Finish: reasons[n], Usage: events.Usage{Input: 1, Output: 1}}, nil
		}
		return rt.Calls(rt.ToolCall("complete", `{"kind":"output","output":"done"}`), rt.RunJSCall("return 1"), rt.ToolCall("spawn_helper", `{"message":"x"}`))(step, r)
	}
	op := rapid.SampledFrom([]string{"", rt.OpExecute, rt.OpExecute, rt.OpCompact, rt.OpGenerate, rt.OpSave}).Draw(t, "killed at")
	nth := rapid.IntRange(1, 4).Draw(t, "nth")
	h.Plan = func(o rt.Op) rt.Fault {
		if o.Name == op {
			if nth--; nth == 0 {
				return rt.KilledAfter
			}
		}
		return rt.Works
	}
	return h
}
