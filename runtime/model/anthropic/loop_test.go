package anthropic_test

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/anthropic"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wiretest"
)

func TestAnyCutOfAnyBatchIsSentAsTheAPITakesIt(t *testing.T) {
	seen := map[string]bool{}
	wiretest.CheckConversations(t, said, func(rt *rapid.T, r *runtime.Request) error {
		body := sent(rt, r, thinks)
		seen[thinkingOf(body)] = true
		if err := valid(body); err != nil {
			return err
		}
		return valid(sent(rt, r, nil))
	})
	if !seen["enabled"] || !seen[""] {
		t.Errorf("the kinds of thinking that were asked for are %v", seen)
	}
}

// thinks configures thinking with a budget.
func thinks(c *anthropic.Config) { c.ThinkingTokens = 2048 }

// thinkingOf returns the kind of thinking that a request asks for.
func thinkingOf(body []byte) string {
	var r struct{ Thinking struct{ Type string } }
	_ = json.Unmarshal(body, &r)
	return r.Thinking.Type
}

func TestAModelThatThinksGoesOnAsTheTurnBegan(t *testing.T) {
	call := wiretest.Call("c1", "run_js", `{"code":"1"}`)
	results := events.Message{ID: "m3", Role: events.RoleTool, Parts: []events.Part{wiretest.Result("c1", events.OutcomeOK, wiretest.Text("1"))}}
	redacted := provided(events.Part{Type: events.PartReasoning}, `{"type":"redacted_thinking","data":"ZGF0YQ"}`)
	foreign := events.Part{Type: events.PartReasoning, Text: "Of another provider."}
	for promise, c := range map[string]struct {
		began []events.Part
		then  []events.Message
		want  string
	}{
		"its own thinking":                  {[]events.Part{thinking("Hm.", "c2ln"), call}, []events.Message{results}, "enabled"},
		"its own thinking, which is hidden": {[]events.Part{redacted, call}, []events.Message{results}, "enabled"},
		"the thinking of another model":     {[]events.Part{foreign, call}, []events.Message{results}, ""},
		"no thinking":                       {[]events.Part{call}, []events.Message{results}, ""},
		"thinking that lost its signature":  {[]events.Part{{Type: events.PartReasoning, Text: "Hm."}, call}, []events.Message{results}, ""},
		"thinking that comes late":          {[]events.Part{wiretest.Text("Well."), thinking("Hm.", "c2ln"), call}, []events.Message{results}, ""},
		"no thinking, and a message since":  {[]events.Part{call}, []events.Message{results, events.Text("m4", events.RoleUser, "Stop.")}, ""},
		"no thinking and no calls":          {[]events.Part{wiretest.Text("Well.")}, []events.Message{events.Text("m3", events.RoleUser, "Go on.")}, "enabled"},
		"no thinking, in an earlier turn": {[]events.Part{call}, []events.Message{results,
			{ID: "m4", Role: events.RoleAssistant, Parts: []events.Part{wiretest.Text("Well.")}}, events.Text("m5", events.RoleUser, "Go on.")}, "enabled"},
	} {
		messages := append([]events.Message{events.Text("m1", events.RoleUser, "Hi"), {ID: "m2", Role: events.RoleAssistant, Parts: c.began}}, c.then...)
		body := sent(t, &runtime.Request{Messages: messages}, thinks)
		if got := thinkingOf(body); got != c.want {
			t.Errorf("%s: thinking is %q", promise, got)
		}
		if err := valid(body); err != nil {
			t.Errorf("%s: the API would refuse it: %v", promise, err)
		}
	}
}
