package runtime_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
	"github.com/agentruntime/agentruntime/runtime/schema"
)

// wantParts wants a text to contain every part.
func wantParts(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not say %q", text, part)
		}
	}
}

// input returns an input that nothing is wrong with, over a fresh world.
func input() (runtime.Input, *rt.Host) {
	h := newHost(rt.Complete(`1`))
	in := h.Input
	in.Model, in.Store, in.Backend, in.ExecutorFactory = h.Model, h.Store, h.Backend, h.Factory
	in.Controller, in.Sink, in.Redactor, in.Estimator = h.Controller, h.Sink, h.Redactor, h.Estimator
	return in, h
}

func TestAnInputThatCannotBeRunIsRefusedBeforeAnyWork(t *testing.T) {
	for _, c := range []struct {
		field string
		spoil func(*runtime.Input)
	}{
		{"Model", func(in *runtime.Input) { in.Model = nil }},
		{"Store", func(in *runtime.Input) { in.Store = nil }},
		{"Backend", func(in *runtime.Input) { in.Backend = nil }},
		{"ExecutorFactory", func(in *runtime.Input) { in.ExecutorFactory = nil }},
		{"Controller", func(in *runtime.Input) { in.Controller = nil }},
		{"Sink", func(in *runtime.Input) { in.Sink = nil }},
		{"Redactor", func(in *runtime.Input) { in.Redactor = nil }},
		{"Estimator", func(in *runtime.Input) { in.Estimator = nil }},
		{"RunID", func(in *runtime.Input) { in.RunID = "" }},
		{"Definition.Slug", func(in *runtime.Input) { in.Definition.Slug = "" }},
		{"Definition.Limits", func(in *runtime.Input) { in.Definition.Limits.SilentAnswers = -1 }},
		{"Definition.Limits.ScriptTimeout", func(in *runtime.Input) { in.Definition.Limits.ScriptTimeout = "soon" }},
		{"ModelLimits.ContextTokens", func(in *runtime.Input) { in.ModelLimits.ContextTokens = 0 }},
		{"ModelLimits.OutputTokens", func(in *runtime.Input) { in.ModelLimits.OutputTokens = in.ModelLimits.ContextTokens }},
		{"Message", func(in *runtime.Input) { in.Message = events.Message{} }},
		{"Message", func(in *runtime.Input) { in.Message = events.Text("m", events.RoleUser, " \n") }},
		{"Message", func(in *runtime.Input) {
			in.Message.Parts[0].Provider = map[string]rawJSON{"x": rawJSON("{")}
		}},
		{"Subagents", func(in *runtime.Input) { in.Subagents = nil }},
		{"Subagents", func(in *runtime.Input) { in.Definition.Subagents = nil }},
		{"Subagents", func(in *runtime.Input) { in.Subagents = append(in.Subagents, events.AgentDefinition{Slug: "more"}) }},
		{"Subagents", func(in *runtime.Input) {
			in.Definition.Subagents = append(in.Definition.Subagents, "helper")
			in.Subagents = append(in.Subagents, in.Subagents[0])
		}},
		{"Capabilities", func(in *runtime.Input) { in.Capabilities = append(in.Capabilities, in.Capabilities[0]) }},
		{"Capabilities", func(in *runtime.Input) { in.Capabilities = []events.Capability{{Name: ""}} }},
		{"Capabilities", func(in *runtime.Input) { in.Capabilities = []events.Capability{{Name: "complete"}} }},
		{"Capabilities", func(in *runtime.Input) { in.Capabilities = []events.Capability{{Name: "get_calls.all"}} }},
		{"Capabilities", func(in *runtime.Input) { in.Capabilities = []events.Capability{{Name: "capabilities.search"}} }},
		{"Capabilities", func(in *runtime.Input) {
			for i := range 999 {
				in.Capabilities = append(in.Capabilities, events.Capability{Name: fmt.Sprintf("shop%d.sell", i)})
			}
		}},
	} {
		in, h := input()
		c.spoil(&in)
		result, err := runtime.Run(t.Context(), in)
		var refused *runtime.InputError
		if !errors.As(err, &refused) || refused.Field != c.field || result != nil {
			t.Errorf("%s: got %+v, %v", c.field, result, err)
		}
		if len(h.Store.Commits())+len(h.Model.Requests())+h.Controller.Charges() > 0 {
			t.Errorf("%s: something was done", c.field)
		}
	}
}

func TestASchemaThatIsNotSupportedIsRefusedBeforeModelWork(t *testing.T) {
	for name, spoil := range map[string]func(*runtime.Input, rawJSON){
		"capability input":  func(in *runtime.Input, s rawJSON) { in.Capabilities[0].Input = s },
		"capability output": func(in *runtime.Input, s rawJSON) { in.Capabilities[1].Output = s },
		"output":            func(in *runtime.Input, s rawJSON) { in.Definition.Output = s },
		"child input":       func(in *runtime.Input, s rawJSON) { in.Subagents[0].Input = s },
	} {
		for _, document := range []string{`{"if":true}`, `{"$id":"x"}`, `{"$ref":"https://example.com/s"}`, `{"type":"thing"}`, `{`} {
			in, h := input()
			spoil(&in, rawJSON(document))
			_, err := runtime.Run(t.Context(), in)
			var refused *schema.GateError
			if !errors.As(err, &refused) || h.Controller.Charges() > 0 || len(h.Store.Commits()) > 0 {
				t.Errorf("%s %s: %v, %d requests", name, document, err, h.Controller.Charges())
			}
		}
	}
}

func TestTheMessageOfAResumedRunIsIgnored(t *testing.T) {
	h := newHost(rt.RunJS("return 1"), rt.Complete(`1`))
	crashed := false
	h.Plan = func(op rt.Op) rt.Fault {
		if op.Name == rt.OpGenerate && !crashed {
			crashed = true
			return rt.KilledFirst
		}
		return rt.Works
	}
	if _, err := h.Run(t.Context()); !errors.Is(err, rt.ErrKilled) {
		t.Fatal(err)
	}
	h.Input.Message = events.Message{}
	finish(t, h)
	if first := h.Transcript()[0]; first.ID != "task" || h.Transcript()[1].Role != events.RoleAssistant {
		t.Errorf("the transcript begins with\n%s", rt.RenderMessages(h.Transcript()[:2]))
	}
}

func TestATaskWithoutAnIDGetsOneOfTheRun(t *testing.T) {
	ids := make(map[string]bool)
	for _, run := range []string{"run-1", "run-2"} {
		h := newHost(rt.Complete(`1`))
		h.Input.RunID, h.Input.Message.ID, h.Input.Message.Role = run, "", events.RoleAssistant
		finish(t, h)
		task := h.Transcript()[0]
		if task.ID == "" || ids[task.ID] || task.Role != events.RoleUser {
			t.Errorf("the task of %s is %s %q", run, task.Role, task.ID)
		}
		ids[task.ID] = true
	}
}
