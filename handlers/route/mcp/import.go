package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

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
	return printable(fmt.Sprintf("tool %s of MCP server %s is left out:%s %s", e.Tool, e.Server, where, e.Reason))
}

// The bounds of what a server may offer.
const (
	maxTools       = 1000
	maxPages       = 100
	maxCatalogue   = 2 * maxFrame // bytes of all pages
	maxDescription = 2 << 10      // bytes of one description
	maxTold        = 200          // bytes of a name that is told of
	maxReason      = 1 << 10      // bytes of why a tool is left out
)

// offered is a tool as a server lists it.
type offered struct {
	name, description    string
	input, output        json.RawMessage
	readOnly, idempotent bool
}

// read reads a tool. Its name is there whenever it can be read.
func (t *offered) read(text json.RawMessage) error {
	tool, err := object(text)
	if err != nil {
		return err
	}
	if err := tool.read("name", &t.name); err != nil || t.name == "" {
		return errors.New("it has no name")
	}
	t.input, t.output = tool["inputSchema"], tool["outputSchema"]
	hints := members{}
	return errors.Join(tool.read("description", &t.description), tool.read("annotations", &hints),
		hints.read("readOnlyHint", &t.readOnly), hints.read("idempotentHint", &t.idempotent))
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
	read := make([]offered, len(tools))
	wrong := make([]error, len(tools))
	for i, text := range tools {
		wrong[i] = read[i].read(text)
		times[capabilityName(name, read[i].name)]++
	}
	for i := range read {
		if err := ctx.Err(); err != nil {
			return nil, nil, fmt.Errorf("read the tools of MCP server %s: %w", name, err)
		}
		t := &read[i]
		c, out := t.capability(name, wrong[i])
		if out == nil && times[c.Name] > 1 {
			out = &LeftOut{Reason: "several tools of the server would have the name " + c.Name + ": describe the one that is meant in a capability file with an mcp route"}
		}
		if out == nil {
			kept = append(kept, c)
			continue
		}
		out.Server, out.Tool, out.Capability = name, cut(t.name, maxTold), cut(c.Name, maxTold)
		if t.name == "" {
			out.Tool, out.Capability = fmt.Sprintf("number %d", i+1), ""
		}
		out.Pointer, out.Reason = cut(out.Pointer, maxTold), cut(out.Reason, maxReason)
		left = append(left, out)
	}
	return kept, left, nil
}

// list reads every page of the server's tools. A tool that the SDK cannot read spoils no
// other.
func (s *session) list(ctx context.Context) (all []json.RawMessage, err error) {
	cursor, size := "", 0
	asked := make(map[string]bool)
	for range maxPages {
		if asked[cursor] {
			return nil, fmt.Errorf("the list leads back to a page that it has had, %q", cut(cursor, maxTold))
		}
		asked[cursor] = true
		x := &exchange{method: "tools/list"}
		_, err = s.client.ListTools(context.WithValue(ctx, exchangeKey{}, x), &sdk.ListToolsParams{Cursor: cursor})
		s.tap.forget(x)
		listed, _ := x.answered()
		if err = x.why(err); listed == nil && err == nil {
			err = errors.New("the server was not asked, because it said that its last list could be kept: begin a new session")
		}
		if listed == nil {
			return nil, err
		}
		if size += len(listed); size > maxCatalogue {
			return nil, fmt.Errorf("the list has more than %d bytes", maxCatalogue)
		}
		var tools []json.RawMessage
		var page members // what is wrong inside a tool is of that tool
		err = json.Unmarshal(listed, &page)
		if err == nil {
			cursor = ""
			err = errors.Join(page.read("tools", &tools), page.read("nextCursor", &cursor))
		}
		if err != nil {
			return nil, fmt.Errorf("the list cannot be read: %w", err)
		}
		if all = append(all, tools...); len(all) > maxTools {
			return nil, fmt.Errorf("there are more than %d", maxTools)
		}
		if cursor == "" {
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

// capability makes a capability of the tool, or says why it cannot be one. Wrong is what
// was wrong when it was read.
func (t *offered) capability(server string, wrong error) (c events.Capability, out *LeftOut) {
	c = events.Capability{Name: capabilityName(server, t.name), Description: cut(t.description, maxDescription), Effect: events.EffectWrite,
		Route: events.Route{MCP: &events.MCPRoute{Server: server, Tool: t.name, Structured: isThere(t.output)}}}
	switch {
	case wrong != nil:
		return c, &LeftOut{Reason: wrong.Error()}
	case !isThere(t.input):
		return c, &LeftOut{Reason: "it has no input schema"}
	case t.readOnly:
		c.Effect = events.EffectRead
	case t.idempotent:
		c.Effect = events.EffectIdempotent
	}
	if c.Input, out = admit("input", t.input); out != nil {
		return c, out
	}
	c.Output = contentSchema
	if c.Route.MCP.Structured {
		if c.Output, out = admit("output", t.output); out != nil {
			return c, out
		}
	}
	var field *handlers.FieldError
	if err := handlers.CheckCapability(&c); errors.As(err, &field) {
		return c, &LeftOut{Reason: field.Field + ": " + field.Reason}
	}
	return c, nil
}

// isThere reports whether a member is there and not null.
func isThere(text json.RawMessage) bool { return len(text) > 0 && string(text) != "null" }

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
// not know. One that the gate does not read for its size is returned as it is.
func withoutAnnotations(doc json.RawMessage) (json.RawMessage, error) {
	if len(doc) > schema.MaxBytes {
		return doc, nil
	}
	if err := events.CheckJSON(doc, events.JSONLimits{}); err != nil {
		return nil, err
	}
	var root any
	exact := json.NewDecoder(bytes.NewReader(doc))
	exact.UseNumber() // a number stays the text that it is
	if err := exact.Decode(&root); err != nil {
		return nil, err
	}
	if members, ok := root.(map[string]any); ok {
		dialect, _ := members["$schema"].(string)
		if slices.Contains(olderDialects, strings.TrimSuffix(dialect, "#")) {
			delete(members, "$schema")
		}
	}
	strip(root)
	return events.Marshal(root)
}

// strip walks a schema and the schemas in it, and nothing else: a property may have
// the name of an annotation. What has another shape the gate judges.
func strip(s any) {
	members, _ := s.(map[string]any)
	for key, value := range members {
		switch key {
		case "contentEncoding", "contentMediaType", "contentSchema":
			delete(members, key)
		case "items", "additionalProperties", "not":
			strip(value)
		case "properties", "$defs", "definitions":
			named, _ := value.(map[string]any)
			for _, each := range named {
				strip(each)
			}
		case "allOf", "anyOf", "oneOf":
			listed, _ := value.([]any)
			for _, each := range listed {
				strip(each)
			}
		default:
			if strings.HasPrefix(key, "x-") {
				delete(members, key)
			}
		}
	}
}

// printable returns a text for a terminal: a server's words do not command it.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
