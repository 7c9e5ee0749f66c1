package catalogue

import (
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// declare writes one capability. The names of its types are taken from those of
// the catalogue.
func declare(binding string, c *events.Capability, taken typeNames) declaration {
	w := newWriter(binding, taken)
	about := w.spend(aboutOf(c))
	level := strings.Count(binding, ".")
	w.left -= len(binding) + level*2*len(indentation(level)+": {\n};\n") // the objects around it
	in := parse(c.Input)
	input := w.whole("Input", in, level)
	output := w.whole("Output", parse(c.Output), level)
	name := "input: "
	if optional(in) {
		name = "input?: "
	}
	return declaration{types: w.types, comment: about, signature: "(" + name + input + ") => Promise<" + output + ">"}
}

// aboutOf is what a capability's own comment says.
func aboutOf(c *events.Capability) string {
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
	return strings.Join(parts, " ")
}

// optional reports whether a capability may be called without an argument,
// which is then an empty object.
func optional(schema any) bool {
	s, ok := schema.(*object)
	if !ok {
		return schema == nil
	}
	for _, m := range s.members {
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
	indent := indentation(depth)
	if l.entry != nil {
		b.WriteString(l.entry.declaration.signature) // written for this depth
		return
	}
	b.WriteString("{\n")
	for _, c := range l.children {
		if c.entry != nil {
			writeComment(b, c.entry, indentation(depth+1))
		}
		b.WriteString(indentation(depth+1) + c.name + ": ")
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
