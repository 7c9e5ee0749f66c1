package catalogue

import (
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// declare writes one capability.
func declare(binding string, c *events.Capability) declaration {
	w := newWriter(binding)
	input := w.whole("Input", c.Input)
	output := w.whole("Output", c.Output)
	name := "input: "
	if optional(c.Input) {
		name = "input?: "
	}
	d := declaration{types: w.types, signature: "(" + name + input + ") => Promise<" + output + ">"}
	var parts []string
	if c.Description != "" {
		parts = append(parts, words(c.Description, 1000))
	}
	switch c.Effect {
	case events.EffectRead:
		parts = append(parts, "It only reads.")
	case events.EffectIdempotent:
		parts = append(parts, "To repeat it changes nothing more.")
	case events.EffectWrite:
		parts = append(parts, "Each call counts.")
	}
	d.comment = strings.Join(parts, " ")
	return d
}

// optional reports whether a capability may be called without an argument,
// which is then an empty object.
func optional(doc []byte) bool {
	if len(doc) == 0 {
		return true
	}
	s, ok := parse(doc).(object)
	if !ok {
		return false
	}
	for _, m := range s {
		switch m.key {
		case "type":
			if m.value != "object" {
				return false
			}
		case "required":
			if list, _ := m.value.([]any); len(list) > 0 {
				return false
			}
		case "properties", "additionalProperties", "title", "description", "$schema", "$defs", "definitions", "$comment", "examples":
		default:
			return false
		}
	}
	return true
}

// level is one object that names lead through, or a capability.
type level struct {
	name     string
	entry    *entry
	children []*level
}

// declarations writes entries in the order of their names, each group of names
// as one object.
func declarations(entries []entry) string {
	root := new(level)
	var b strings.Builder
	for i := range entries {
		e := &entries[i]
		for _, t := range e.declaration.types {
			b.WriteString(t + "\n")
		}
		root.add(strings.Split(e.binding, "."), e)
	}
	for _, l := range root.children {
		if l.entry != nil {
			writeComment(&b, l.entry, "")
		}
		b.WriteString("declare const " + l.name + ": ")
		l.write(&b, 0)
		b.WriteString(";\n")
	}
	return b.String()
}

func (l *level) add(path []string, e *entry) {
	if len(path) == 0 {
		l.entry = e
		return
	}
	for _, c := range l.children {
		if c.name == path[0] {
			c.add(path[1:], e)
			return
		}
	}
	c := &level{name: path[0]}
	l.children = append(l.children, c)
	c.add(path[1:], e)
}

func (l *level) write(b *strings.Builder, depth int) {
	indent := strings.Repeat("  ", depth)
	if l.entry != nil {
		b.WriteString(strings.ReplaceAll(l.entry.declaration.signature, "\n", "\n"+indent))
		return
	}
	b.WriteString("{\n")
	for _, c := range l.children {
		if c.entry != nil {
			writeComment(b, c.entry, indent+"  ")
		}
		b.WriteString(indent + "  " + c.name + ": ")
		c.write(b, depth+1)
		b.WriteString(";\n")
	}
	b.WriteString(indent + "}")
}

func writeComment(b *strings.Builder, e *entry, indent string) {
	if e.declaration.comment != "" {
		b.WriteString(indent + "/** " + e.declaration.comment + " */\n")
	}
}
