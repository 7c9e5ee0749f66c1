package files

import (
	_ "embed" // the schemas
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime/schema"
)

//go:embed agent.schema.json
var agentSchema string

//go:embed capability.schema.json
var capabilitySchema string

// AgentSchema returns the JSON Schema of agent files.
func AgentSchema() json.RawMessage { return json.RawMessage(agentSchema) }

// CapabilitySchema returns the JSON Schema of capability files.
func CapabilitySchema() json.RawMessage { return json.RawMessage(capabilitySchema) }

var (
	agentShape      = sync.OnceValue(func() *shape { return newShape("agent", AgentSchema()) })
	capabilityShape = sync.OnceValue(func() *shape { return newShape("capability", CapabilitySchema()) })
)

// shape is the schema of one field, and of the fields in it.
type shape struct {
	schema   *schema.Schema
	integer  bool
	fields   map[string]*shape
	names    []string // of the fields, sorted
	required []string

	each     *shape // of every item of a list, or else member of a mapping, in settings
	list     bool
	duration bool
}

// newShape panics for a schema that is not accepted: both are part of the
// program.
func newShape(name string, doc json.RawMessage) *shape {
	compiled, err := schema.Compile(name, doc)
	if err != nil {
		panic(err)
	}
	var parts struct {
		Type       any                        `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if err := json.Unmarshal(doc, &parts); err != nil {
		panic(err)
	}
	s := &shape{schema: compiled, integer: parts.Type == "integer", fields: make(map[string]*shape), required: parts.Required}
	for field, doc := range parts.Properties {
		s.add(field, newShape(name+" "+field, doc))
	}
	return s
}

func (s *shape) add(name string, field *shape) {
	s.fields[name] = field
	s.names = append(s.names, name)
	slices.Sort(s.names)
}

// check reports what of a value does not fit, and returns the rest: nil when
// nothing of it can be used.
func (d *document) check(s *shape, n *node) json.RawMessage {
	switch {
	case s.duration:
		return d.checkDuration(n)
	case s.each != nil && (n.kind == array && s.list || n.kind == object && !s.list):
		for _, c := range n.children {
			d.check(s.each, c)
		}
		return n.json()
	case len(s.fields) == 0 || n.kind != object:
		return d.checkValue(s, n)
	}
	kept := []byte{'{'}
	for _, c := range n.children {
		field := s.fields[c.key]
		if field == nil {
			d.unknown(s, c)
			continue
		}
		value := d.check(field, c)
		if value == nil {
			continue
		}
		if len(kept) > 1 {
			kept = append(kept, ',')
		}
		kept = append(append(kept, quoteJSON(c.key)+":"...), value...)
	}
	for _, name := range s.required {
		if c := n.member(name); !n.has(name) && !c.refused {
			d.refuse(c, "is missing")
		}
	}
	return append(kept, '}')
}

// unknown reports a field that does not exist. Of the one that was probably
// meant nothing else is reported: it is not missing, it is misspelt.
func (d *document) unknown(s *shape, n *node) {
	near := nearest(n.key, s.names)
	if near == "" {
		d.refuse(n, "is not a field; the fields are %s", strings.Join(s.names, ", "))
		return
	}
	d.refuse(n, "is not a field; did you mean %s?", near)
	if !n.parent.has(near) {
		n.parent.member(near).refused = true
	}
}

// checkValue judges a value whose fields, if it has any, are not ours.
func (d *document) checkValue(s *shape, n *node) json.RawMessage {
	text := n.json()
	var invalid *schema.ValidationError
	if err := s.schema.Validate(text); errors.As(err, &invalid) {
		before := n.settled()
		for _, v := range invalid.Violations {
			at := n.find(v.InstancePath)
			if v.Keyword == "uniqueItems" {
				at = at.repeated()
			}
			if !before || !at.settled() {
				d.refuse(at, "%s", v.Message)
			}
		}
		if invalid.More {
			d.refuse(n, "there is more that does not fit: correct the other errors first")
		}
	}
	if n.faulty {
		return nil
	}
	if s.integer {
		// 1.0 and 1e3 are integers, and Go reads them only as 1 and 1000.
		if text, err := events.Canonical(text); err == nil {
			return text
		}
	}
	return text
}

// checkSchema puts a schema of a field through the gate.
func (d *document) checkSchema(field string) {
	if !d.root.has(field) || d.root.member(field).faulty {
		return
	}
	n := d.root.member(field)
	_, err := schema.Compile(field, n.json())
	var gate *schema.GateError
	if errors.As(err, &gate) {
		d.refuse(n.find(gate.Pointer), "%s", gate.Reason)
	} else if err != nil {
		d.refuse(n, "%v", err)
	}
}

// decodeInto reads what was kept of a file.
func (d *document) decodeInto(kept json.RawMessage, into any) error {
	if err := json.Unmarshal(kept, into); err != nil {
		return fmt.Errorf("read %s: %w", d.file, err)
	}
	return nil
}
