package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Settings is a file of settings that was read: a configuration or a policy.
type Settings struct{ document *document }

// ReadSettings reads a file of settings into a struct, whose fields and their
// yaml tags say what may stand in it. A string whose tag takes is "number" may be
// written as a number as well. A file without a value is Empty, and leaves the
// struct as it is. The error is everything that is wrong, joined; each is an
// *Error. What is read has passed this: the struct's types can hold it.
func ReadSettings(file string, data []byte, into any) (*Settings, error) {
	d := (&document{file: file}).read(data)
	s := &Settings{d}
	if d.empty {
		return s, nil
	}
	if d.root != nil {
		d.check(newTypeShape("settings", reflect.TypeOf(into), ""), d.root)
	}
	if len(d.errors) > 0 {
		return s, errors.Join(d.sorted()...)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		return s, fmt.Errorf("read %s: %w", file, err)
	}
	return s, nil
}

// Empty reports whether nothing stands in the file.
func (s *Settings) Empty() bool { return s.document.empty }

// Line returns the line of a field, such as worker.slots or keys[1].id, of what
// is around it when it is absent itself, or 0 when that is the whole file.
func (s *Settings) Line(path string) int {
	if s == nil || s.document.root == nil {
		return 0
	}
	if n, _ := s.document.root.locate(path); n.parent != nil {
		return n.line
	}
	return 0
}

// locate follows a path of names and dots as far as it leads, and returns how
// many bytes of it remain. A name may have dots itself; of those that lead as far
// the first is found.
func (n *node) locate(path string) (found *node, remain int) {
	found, remain = n, len(path)
	for _, c := range n.children {
		name := c.key
		if n.kind == array {
			name = "[" + strconv.Itoa(c.index) + "]"
		}
		rest, ok := strings.CutPrefix(path, name)
		if !ok || rest != "" && rest[0] != '.' && rest[0] != '[' {
			continue
		}
		if at, left := c.locate(strings.TrimPrefix(rest, ".")); left < remain {
			found, remain = at, left
		}
	}
	return found, remain
}

// maxNumber bounds whole numbers: more is a mistake, and less than each type
// of ours holds.
const maxNumber = 1_000_000_000_000_000

// newTypeShape is newShape for a Go type. It panics for one that no settings have.
func newTypeShape(name string, t reflect.Type, takes string) *shape {
	simple := func(doc string) *shape { return newShape(name, json.RawMessage(doc)) }
	switch {
	case t.Kind() == reflect.Pointer:
		return newTypeShape(name, t.Elem(), takes)
	case t == reflect.TypeFor[time.Duration]():
		s := simple(`{"type":"string"}`)
		s.duration = true
		return s
	}
	switch t.Kind() {
	case reflect.Struct:
		s := simple(`{"type":"object"}`)
		s.addFields(name, t)
		return s
	case reflect.Map:
		s := simple(`{"type":"object"}`)
		s.each = newTypeShape(name, t.Elem(), takes)
		return s
	case reflect.Slice:
		s := simple(`{"type":"array"}`)
		s.each, s.list = newTypeShape(name, t.Elem(), takes), true
		return s
	case reflect.Bool:
		return simple(`{"type":"boolean"}`)
	case reflect.Int, reflect.Int64:
		return simple(fmt.Sprintf(`{"type":"integer","minimum":-%d,"maximum":%[1]d}`, maxNumber))
	case reflect.Float64:
		return simple(fmt.Sprintf(`{"type":"number","minimum":-%d,"maximum":%[1]d}`, maxNumber))
	case reflect.String:
		if takes == "number" {
			return simple(`{"type":["string","number"]}`)
		}
		return simple(`{"type":"string"}`)
	}
	panic("settings have no " + t.String())
}

// addFields adds the fields of a struct as its yaml tags name them.
func (s *shape) addFields(name string, t reflect.Type) {
	for i := range t.NumField() {
		field := t.Field(i)
		tag, options, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		switch {
		case tag == "-":
		case options == "inline":
			s.addFields(name, field.Type)
		default:
			s.add(tag, newTypeShape(name+" "+tag, field.Type, field.Tag.Get("takes")))
		}
	}
}

// checkDuration judges a value of time.
func (d *document) checkDuration(n *node) json.RawMessage {
	var text string
	if n.settled() {
		return nil
	}
	if n.kind != scalar || json.Unmarshal([]byte(n.text), &text) != nil || !isDuration(text) {
		d.refuse(n, "must be a duration such as 30s or 5m")
		return nil
	}
	return n.json()
}

func isDuration(text string) bool {
	_, err := time.ParseDuration(text)
	return err == nil
}
