package runtime_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// toolsOf returns the tools of the first request of a run.
func toolsOf(t *testing.T, h *rt.Host) (names []string, schemas map[string]string) {
	t.Helper()
	finish(t, h)
	schemas = make(map[string]string)
	for _, tool := range h.Model.Requests()[0].Tools {
		names = append(names, tool.Name)
		schemas[tool.Name] = string(tool.InputSchema)
	}
	return names, schemas
}

// childless turns a world into that of an agent without children.
func childless(h *rt.Host) *rt.Host {
	h.Input.Definition.Subagents, h.Input.Subagents = nil, nil
	return h
}

func TestAnAgentWithoutChildrenHasNoToolsForThem(t *testing.T) {
	names, _ := toolsOf(t, childless(newHost(rt.Complete(`1`))))
	if !slices.Equal(names, []string{"run_js", "complete"}) {
		t.Errorf("the tools are %v", names)
	}
}

func TestAnAgentWithChildrenHasOneSpawnToolEach(t *testing.T) {
	h := newHost(rt.Complete(`1`))
	exact := rawJSON(`{"type":"object", "properties":{"n":{"type":"integer"}},"required":["n"]}`)
	h.Input.Subagents[0].Input = exact
	names, schemas := toolsOf(t, h)
	if !slices.Equal(names, []string{spawn, "run_js", "continue_agent", "get_calls", "wait_calls", "cancel_calls", "complete"}) {
		t.Errorf("the tools are %v", names)
	}
	if schemas[spawn] != string(exact) {
		t.Errorf("the model sees the child's input schema as %s", schemas[spawn])
	}
}

func TestSpawnNamesDependOnTheSlugsAlone(t *testing.T) {
	long := strings.Repeat("x", 80)
	slugs := []string{"a_b", "a-b", "a.b", "a-b_2", long + "1", long + "2", "é"}
	want := []string{"spawn_a_b", "spawn_a_b_2", "spawn_a_b_3", "spawn_a_b_4", "spawn_" + long[:58], "spawn_" + long[:56] + "_2", "spawn__"}
	for range 2 {
		slices.Reverse(slugs)
		h := newHost(rt.Complete(`1`))
		h.Input.Definition.Subagents, h.Input.Subagents = slugs, nil
		for _, slug := range slugs {
			h.Input.Subagents = append(h.Input.Subagents, events.AgentDefinition{Slug: slug})
		}
		names, _ := toolsOf(t, h)
		got := slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, "spawn_") })
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("the tools are\n%q, want\n%q", got, want)
		}
	}
}

func TestTheNameOfAControlIsNoBindingOfAScript(t *testing.T) {
	h := newHost(rt.RunJS("complete {}\nreturn"), rt.Complete(`1`))
	finish(t, h)
	wantResult(t, h, "call_0_0", events.OutcomeError, "complete is not defined")
}

func TestIdsOfCallsAreUniqueInTheConversation(t *testing.T) {
	call := func(id string) events.ToolCall {
		return events.ToolCall{ID: id, Name: "run_js", Arguments: rawJSON(`{"code":"return"}`)}
	}
	same := func(n int) rt.Step {
		return func(step int, r *runtime.Request) (*runtime.Response, error) {
			parts := []events.Part{}
			for _, id := range []string{"x", "", "x", "", "y"} {
				c := call(id)
				parts = append(parts, events.Part{Type: events.PartToolCall, Call: &c})
			}
			return &runtime.Response{Parts: parts[:n], Finish: runtime.FinishCalls}, nil
		}
	}
	first := newHost(same(5), same(4), rt.Complete(`1`))
	finish(t, first)
	second := newHost(first.Model.Respond, first.Model.Respond, first.Model.Respond, same(5), rt.Complete(`2`))
	second.Store, second.Input.RunID = first.Store.NextRun(), "run-2"
	second.Input.Message.ID = "task-2"
	finish(t, second)
	if err := rt.CheckTranscript(second.Store.Transcript()); err != nil {
		t.Error(err)
	}
}

func TestACallThatDoesNotFitIsRefusedAndNotMade(t *testing.T) {
	for _, c := range []struct{ tool, arguments, says string }{
		{"run_js", `{"code":`, "not valid JSON"},
		{"run_js", `{"code":"a","code":"b"}`, "not valid JSON"},
		{"run_js", `{"code":""}`, "do not fit"},
		{"run_js", `{"code":"x","more":1}`, "do not fit"},
		{"run_js", "\xff", "not valid JSON"},
		{"run_js", ``, "do not fit"},
		{"no_such_tool", `{}`, "There is no tool"},
		{spawn, `{}`, "do not fit"},
		{"wait_calls", `{"mode":"some"}`, "do not fit"},
		{"wait_calls", `{"timeout":"0s"}`, "not a positive duration"},
		{"complete", `{"kind":"output"}`, "do not fit"},
		{"complete", `{"kind":"needs_input","question":""}`, "do not fit"},
		{"complete", `{"kind":"needs_input","question":"?","output":1}`, "do not fit"},
		{"complete", `{"kind":"else","output":1}`, "do not fit"},
	} {
		h := newHost(rt.Call(c.tool, c.arguments), rt.Complete(`1`))
		finish(t, h)
		wantResult(t, h, "call_0_0", events.OutcomeError, c.says)
		if h.Factory.Started() > 0 || len(h.Controller.Children()) > 0 {
			t.Errorf("%s %s was made", c.tool, c.arguments)
		}
	}
}

func TestAResponseWithTooManyCallsLosesTheLastOnes(t *testing.T) {
	h := newHost(rt.Calls(rt.RunJSCall("return 1"), rt.RunJSCall("return 2"), rt.RunJSCall("return 3")), rt.Complete(`1`))
	h.Input.Definition.Limits.CallsPerAnswer = 2
	finish(t, h)
	wantResult(t, h, "call_0_1", events.OutcomeOK)
	wantResult(t, h, "call_0_2", events.OutcomeError, "at most 2 calls")
}

func TestACapabilityIsCalledOnlyWithWhatFitsItsSchema(t *testing.T) {
	h := newHost(rt.RunJS("try desk.book {\"seat\":\"four\"}\ntry desk.book {\"seat\":4}\nreturn"), rt.Complete(`1`))
	h.Input.Capabilities[0].Input = rawJSON(`{"type":"object","properties":{"seat":{"type":"integer"}}}`)
	h.Backend.Answer = reply(`"booked"`)
	finish(t, h)
	wantResult(t, h, "call_0_0", events.OutcomeOK, "was not called: its input does not fit", `"booked"`)
	if ledger := h.Backend.Ledger(); len(ledger) != 1 || ledger[0].Index != 0 || string(ledger[0].Input) != `{"seat":4}` {
		t.Errorf("the ledger is %+v", ledger)
	}
}

func TestAnAnswerThatDoesNotFitItsSchemaIsNotPassedOn(t *testing.T) {
	for _, answer := range []string{`{"secret":1}`, ``, `{`} {
		h := newHost(rt.RunJS("try desk.book {}\nreturn"), rt.Complete(`1`))
		h.Input.Capabilities[0].Output = rawJSON(`{"type":"string"}`)
		h.Backend.Answer = reply(answer)
		finish(t, h)
		wantResult(t, h, "call_0_0", events.OutcomeOK, "was carried out, but its answer does not fit")
		if _, text := h.Result("call_0_0"); strings.Contains(text, `"secret":1`) {
			t.Errorf("the script got %s", text)
		}
	}
}

func TestACapabilityThatIsNotGrantedIsNotThere(t *testing.T) {
	h := newHost(rt.RunJS("granted?"), rt.Complete(`1`))
	var err error
	h.Factory.Scripts = map[string]rt.ScriptFunc{"granted?": func(_ context.Context, call rt.Callback) (any, error) {
		_, err = call("desk.burn", rawJSON(`{}`))
		return nil, nil
	}}
	finish(t, h)
	if err == nil || len(h.Backend.Ledger()) > 0 {
		t.Errorf("got %v, %+v", err, h.Backend.Ledger())
	}
}

func TestCallbacksMadeAtOnceAreEachDispatchedUnderAnIndexOfTheirOwn(t *testing.T) {
	h := newHost(rt.RunJS("all"), rt.Complete(`1`))
	h.Factory.Scripts = map[string]rt.ScriptFunc{"all": func(_ context.Context, call rt.Callback) (any, error) {
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() { _, _ = call("desk.book", nil) })
		}
		group.Wait()
		return "done", nil
	}}
	finish(t, h)
	if n := len(h.Backend.Ledger()); n != 50 {
		t.Errorf("%d callbacks were dispatched", n)
	}
}

func TestAnUnknownOutcomeIsCommittedEvenIfNothingWasDispatched(t *testing.T) {
	for _, step := range []rt.Step{rt.RunJS(booking), controls["Get"], controls["Cancel"]} {
		h := newHost(step, rt.CompleteQuoting())
		h.Plan = func(op rt.Op) rt.Fault {
			if op.Name == rt.OpSave && op.Call == "2" {
				return rt.KilledAfter
			}
			return rt.Works
		}
		if _, err := h.Run(t.Context()); !errors.Is(err, rt.ErrKilled) {
			t.Fatal(err)
		}
		finish(t, h)
		wantResult(t, h, "call_0_0", events.OutcomeUnknown, "Unknown outcome", "before its result was stored")
		if len(h.Backend.Ledger())+h.Factory.Started() > 0 {
			t.Error("the call was made after the crash")
		}
	}
}

func TestASuccessfulCompletionSkipsTheCallsAfterIt(t *testing.T) {
	h := newHost(rt.Calls(rt.RunJSCall("return 1"), rt.ToolCall("complete", `{"kind":"needs_input","question":"Which?"}`), rt.RunJSCall(booking), rt.ToolCall("nothing", `{}`)))
	result := finish(t, h)
	if result.Reply.Kind != events.ReplyNeedsInput || result.Reply.Question != "Which?" {
		t.Errorf("the reply is %+v", result.Reply)
	}
	wantResult(t, h, "call_0_0", events.OutcomeOK)
	wantResult(t, h, "call_0_2", events.OutcomeSkipped)
	wantResult(t, h, "call_0_3", events.OutcomeSkipped)
	last := h.Store.Commits()[len(h.Store.Commits())-1].Checkpoint
	if last.Phase != projector.PhaseCompleted || last.Reply == nil || len(last.Append) != 3 {
		t.Errorf("the completion's commit is %+v", last)
	}
}
