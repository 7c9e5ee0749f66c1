package runtime_test

import (
	"testing"

	"github.com/agentruntime/agentruntime/events"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
	"github.com/agentruntime/agentruntime/runtime/schema"
)

func TestTheOutputContractHoldsInsideTheToolThatCompletes(t *testing.T) {
	tree := `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"value":{"$ref":"#/$defs/a~1b"},"kids":{"type":"array","items":{"$ref":"#"}}},"required":["value"],"additionalProperties":false,"$defs":{"a/b":{"type":"integer"}}}`
	for _, c := range []struct{ schema, good, bad string }{
		{`{"type":"string"}`, `"x"`, `1`},
		{`true`, `null`, ``},
		{tree, `{"value":1,"kids":[{"value":2,"kids":[]}]}`, `{"value":1,"kids":[{"value":2,"kids":[{"value":"x"}]}]}`},
		{`{"properties":{"a":{"type":"integer"},"b":{"$ref":"#/properties/a"}}}`, `{"b":1}`, `{"b":"x"}`},
		{`{"const":{"$ref":"#/x","$schema":"y"}}`, `{"$ref":"#/x","$schema":"y"}`, `{"$ref":"#/$defs/output/x"}`},
		{`{"enum":[{"$ref":"#"},{"properties":{"$ref":"#"}}]}`, `{"properties":{"$ref":"#"}}`, `{"$ref":"#/$defs/output"}`},
		{`{"properties":{"$ref":{"type":"string"},"$schema":{"type":"string"}},"required":["$ref","$schema"]}`, `{"$ref":"#","$schema":"s"}`, `{"$ref":"#"}`},
		{`{"allOf":[{"$ref":"#/$defs/n"}],"not":{"$ref":"#/$defs/zero"},"additionalProperties":{"$ref":"#/$defs/n"},"$defs":{"n":{"type":["integer","object"]},"zero":{"const":{"z":0}}}}`, `{"z":1}`, `{"z":0}`},
		{`{"definitions":{"n":{"minimum":12345678901234567890}},"oneOf":[{"$ref":"#/definitions/n"},{"type":"string"}]}`, `12345678901234567890`, `12345678901234567889`},
	} {
		if c.bad != "" {
			h := newHost(rt.Complete(c.bad), rt.Complete(c.good))
			h.Input.Definition.Output = rawJSON(c.schema)
			result := finish(t, h)
			wantResult(t, h, "call_0_0", events.OutcomeError, "do not fit the tool's schema")
			if string(result.Reply.Output) != c.good {
				t.Errorf("%s: the reply is %s", c.schema, result.Reply.Output)
			}
			continue
		}
		h := newHost(rt.Complete(c.good))
		h.Input.Definition.Output = rawJSON(c.schema)
		if result := finish(t, h); string(result.Reply.Output) != c.good {
			t.Errorf("%s: the reply is %s", c.schema, result.Reply.Output)
		}
	}
}

func TestTheSchemaOfCompletionIsOneThatWeAccept(t *testing.T) {
	h := newHost(rt.Complete(`1`))
	_, schemas := toolsOf(t, h)
	for name, document := range schemas {
		if _, err := schema.Compile(name, []byte(document)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestACompletionThatTheHostRefusesLeavesTheTailToRun(t *testing.T) {
	h := newHost(rt.Calls(rt.ToolCall(spawn, help), rt.ToolCall("complete", `{"kind":"output","output":1}`), rt.ToolCall("cancel_calls", `{"calls":["call_0_0"]}`), rt.ToolCall("complete", `{"kind":"output","output":2}`)))
	if result := finish(t, h); string(result.Reply.Output) != "2" {
		t.Errorf("the reply is %s", result.Reply.Output)
	}
	wantResult(t, h, "call_0_1", events.OutcomeError, "have not ended")
	wantResult(t, h, "call_0_2", events.OutcomeOK)
	wantResult(t, h, "call_0_3", events.OutcomeOK)
}
