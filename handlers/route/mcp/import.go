package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/runtime/schema"
)

// LeftOut reports a tool that cannot be a capability.
type LeftOut struct {
	Server, Tool string
	Capability   string // that it would have been; "" when it has no name
	Schema       string // input or output, when one of them is the reason
	Pointer      string // into the schema
	Reason       string
}

func (e *LeftOut) Error() string {
	where := ""
	if e.Schema != "" {
		where = fmt.Sprintf(" its %s schema at %q:", e.Schema, e.Pointer)
	}
	return fmt.Sprintf("tool %s of MCP server %s is left out:%s %s", e.Tool, e.Server, where, e.Reason)
}

// The bounds of what a server may offer.
const (
	maxTools       = 1000
	maxPages       = 100
	maxDescription = 2 << 10 // bytes of one description
)

// offered is a tool as a server lists it.
type offered struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Input       json.RawMessage `json:"inputSchema"`
	Output      json.RawMessage `json:"outputSchema"`
	Annotations struct {
		ReadOnly   bool `json:"readOnlyHint"`
		Idempotent bool `json:"idempotentHint"`
	} `json:"annotations"`
}

// Import lists the tools of a server as capabilities mcp.<server>.<tool>, in the
// server's order, and those that cannot be one.
func (p *Pool) Import(ctx context.Context, name string) (kept []events.Capability, left []*LeftOut, err error) {
	s, err := p.server(name)
	if err != nil {
		return nil, nil, err
	}
	session, err := s.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	tools, err := session.list(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list the tools of MCP server %s: %w", name, err)
	}
	times := make(map[string]int, len(tools))
	for _, t := range tools {
		times[capabilityName(name, t.Name)]++
	}
	for i := range tools {
		c, out := tools[i].capability(name)
		if out == nil && times[c.Name] > 1 {
			out = &LeftOut{Reason: "several tools of the server would have the name " + c.Name + ": describe the one that is meant in a capability file with an mcp route"}
		}
		if out != nil {
			out.Server, out.Tool, out.Capability = name, tools[i].Name, c.Name
			left = append(left, out)
			continue
		}
		kept = append(kept, c)
	}
	return kept, left, nil
}

// list reads every page of the server's tools.
func (s *session) list(ctx context.Context) ([]offered, error) {
	var all []offered
	cursor := ""
	for range maxPages {
		x := &exchange{method: "tools/list"}
		page, err := s.client.ListTools(context.WithValue(ctx, exchangeKey{}, x), &sdk.ListToolsParams{Cursor: cursor})
		s.tap.forget(x)
		if err != nil {
			return nil, err
		}
		var text struct {
			Tools []offered `json:"tools"`
		}
		listed, _ := x.answered()
		if err := json.Unmarshal(listed, &text); err != nil {
			return nil, fmt.Errorf("the list cannot be read: %w", err)
		}
		if all = append(all, text.Tools...); len(all) > maxTools {
			return nil, fmt.Errorf("there are more than %d", maxTools)
		}
		if cursor = page.NextCursor; cursor == "" {
			return all, nil
		}
	}
	return nil, fmt.Errorf("the list has more than %d pages", maxPages)
}

// capabilityName makes the name that a tool has as a capability: what JavaScript
// does not take in a name becomes _.
func capabilityName(server, tool string) string {
	word := []byte(tool)
	for i, c := range word {
		if c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			word[i] = '_'
		}
	}
	if len(word) > 0 && word[0] >= '0' && word[0] <= '9' {
		word = append([]byte{'_'}, word...)
	}
	return "mcp." + server + "." + string(word)
}

// contentSchema is the output of a tool that has no output schema: its content
// blocks.
var contentSchema = json.RawMessage(`{"type":"object","properties":{"content":{"type":"array","items":{"type":"object","properties":{"type":{"type":"string"},"text":{"type":"string"}},"required":["type"]}}},"required":["content"]}`)

// capability makes a capability of the tool, or says why it cannot be one.
func (t *offered) capability(server string) (c events.Capability, out *LeftOut) {
	c = events.Capability{Name: capabilityName(server, t.Name), Description: cut(t.Description, maxDescription), Effect: events.EffectWrite,
		Route: events.Route{MCP: &events.MCPRoute{Server: server, Tool: t.Name, Structured: len(t.Output) > 0 && string(t.Output) != "null"}}}
	switch {
	case t.Annotations.ReadOnly:
		c.Effect = events.EffectRead
	case t.Annotations.Idempotent:
		c.Effect = events.EffectIdempotent
	}
	if c.Input, out = admit("input", t.Input); out != nil {
		return c, out
	}
	c.Output = contentSchema
	if c.Route.MCP.Structured {
		if c.Output, out = admit("output", t.Output); out != nil {
			return c, out
		}
	}
	var field *handlers.FieldError
	if err := handlers.CheckCapability(&c); errors.As(err, &field) {
		return c, &LeftOut{Reason: field.Field + ": " + field.Reason}
	}
	return c, nil
}

// admit passes a schema through the gate.
func admit(name string, doc json.RawMessage) (json.RawMessage, *LeftOut) {
	plain, err := withoutAnnotations(doc)
	if err == nil {
		_, err = schema.Compile(name, plain)
	}
	var refused *schema.GateError
	switch {
	case errors.As(err, &refused):
		return nil, &LeftOut{Schema: name, Pointer: refused.Pointer, Reason: refused.Reason}
	case err != nil:
		return nil, &LeftOut{Schema: name, Reason: err.Error()}
	}
	return plain, nil
}

// olderDialects are those whose name is taken out. Their keywords that draft 2020-12
// has not, or has with other values, do not pass the gate.
var olderDialects = []string{"http://json-schema.org/draft-07/schema", "http://json-schema.org/draft-06/schema", "https://json-schema.org/draft/2019-09/schema"}

// withoutAnnotations returns a schema without what asserts nothing and the gate does
// not know.
func withoutAnnotations(doc json.RawMessage) (json.RawMessage, error) {
	if err := events.CheckJSON(doc, events.JSONLimits{}); err != nil {
		return nil, err
	}
	var root map[string]json.RawMessage
	if json.Unmarshal(doc, &root) == nil && root != nil {
		var dialect string
		_ = json.Unmarshal(root["$schema"], &dialect) // the gate judges what it is
		for _, older := range olderDialects {
			if strings.TrimSuffix(dialect, "#") == older {
				delete(root, "$schema")
			}
		}
		var err error
		if doc, err = events.Marshal(root); err != nil {
			return nil, err
		}
	}
	return strip(doc)
}

// strip walks a schema and the schemas in it, and nothing else: a property may have
// the name of an annotation.
func strip(doc json.RawMessage) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(doc, &members) != nil || members == nil {
		return doc, nil // no object: the gate judges it
	}
	for key, value := range members {
		var err error
		switch key {
		case "contentEncoding", "contentMediaType", "contentSchema":
			delete(members, key)
		case "items", "additionalProperties", "not":
			members[key], err = strip(value)
		case "properties", "$defs", "definitions":
			members[key], err = stripEach(value, map[string]json.RawMessage{})
		case "allOf", "anyOf", "oneOf":
			members[key], err = stripEach(value, []json.RawMessage{})
		default:
			if strings.HasPrefix(key, "x-") {
				delete(members, key)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return events.Marshal(members)
}

// stripEach is strip for each schema of a list or of an object.
func stripEach[T map[string]json.RawMessage | []json.RawMessage](doc json.RawMessage, into T) (json.RawMessage, error) {
	if json.Unmarshal(doc, &into) != nil || into == nil {
		return doc, nil // of another shape: the gate judges it
	}
	var err error
	switch schemas := any(into).(type) {
	case map[string]json.RawMessage:
		for name, s := range schemas {
			if schemas[name], err = strip(s); err != nil {
				return nil, err
			}
		}
	case []json.RawMessage:
		for i, s := range schemas {
			if schemas[i], err = strip(s); err != nil {
				return nil, err
			}
		}
	}
	return events.Marshal(into)
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
