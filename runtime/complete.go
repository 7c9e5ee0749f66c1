package runtime

import (
	"encoding/json"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

const completeDescription = "Ends the run: with an output, or with a question when you cannot go on without an answer. Calls after it are not made."

// completeSchema returns the schema of complete's arguments: one branch with
// the definition's exact output contract, one with a question. The output
// schema moves to $defs, and its references with it.
func completeSchema(output json.RawMessage) json.RawMessage {
	if len(output) == 0 {
		output = json.RawMessage(`true`)
	}
	moved := moveReferences(output, "#/$defs/output")
	return json.RawMessage(`{"type":"object","properties":{"kind":{"enum":["output","needs_input"]},"output":{"$ref":"#/$defs/output"},"question":{"type":"string","minLength":1}},` +
		`"required":["kind"],"additionalProperties":false,"oneOf":[` +
		`{"properties":{"kind":{"const":"output"},"question":false},"required":["output"]},` +
		`{"properties":{"kind":{"const":"needs_input"},"output":false},"required":["question"]}],"$defs":{"output":` + string(moved) + `}}`)
}

// The keywords whose values hold schemas, by the shape of the value.
var (
	schemaKeywords     = map[string]bool{"items": true, "additionalProperties": true, "not": true}
	schemaListKeywords = map[string]bool{"allOf": true, "anyOf": true, "oneOf": true}
	schemaMapKeywords  = map[string]bool{"properties": true, "$defs": true, "definitions": true}
)

// moveReferences rewrites a schema that stood at the root of a document so that
// it can stand at the pointer root. Only references are changed: what looks
// like one inside const, enum or an example is data.
func moveReferences(doc json.RawMessage, root string) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(doc, &members) != nil || members == nil {
		return doc
	}
	changed := make(map[string]json.RawMessage, len(members))
	for key, value := range members {
		var list []json.RawMessage
		var named map[string]json.RawMessage
		switch {
		case key == "$schema":
			continue // only a document's root may have it
		case key == "$ref":
			var ref string
			if json.Unmarshal(value, &ref) == nil {
				value, _ = events.Marshal(root + strings.TrimPrefix(ref, "#"))
			}
		case schemaKeywords[key]:
			value = moveReferences(value, root)
		case schemaListKeywords[key] && json.Unmarshal(value, &list) == nil:
			for i := range list {
				list[i] = moveReferences(list[i], root)
			}
			value, _ = events.Marshal(list)
		case schemaMapKeywords[key] && json.Unmarshal(value, &named) == nil:
			for name := range named {
				named[name] = moveReferences(named[name], root)
			}
			value, _ = events.Marshal(named)
		}
		changed[key] = value
	}
	moved, _ := events.Marshal(changed) // every value is JSON that was read before
	return moved
}

// readReply reads the arguments of complete, which satisfy its schema.
func readReply(arguments json.RawMessage) (*events.Reply, error) {
	var r events.Reply
	if err := json.Unmarshal(arguments, &r); err != nil {
		return nil, err
	}
	return &r, nil
}
