package catalogue

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	maxDeclaration = 16 << 10 // bytes of one capability's declaration, about
	maxNesting     = 10       // of types in one another, before one is unknown
	maxValues      = 64       // of an enum that are listed
	maxNote        = 200      // bytes of a description
)

// writer writes the types of one capability.
type writer struct {
	prefix string // of the names of types, such as DeskBook
	left   int    // bytes it may still write

	root    any
	part    string            // Input or Output
	names   map[string]string // of referred schemas, by part and reference
	used    map[string]bool
	pending []pending
	types   []string // finished declarations of types
}

// pending is a named type that is not written yet.
type pending struct {
	name   string
	schema any
}

func newWriter(binding string) *writer {
	return &writer{prefix: typeName(binding), left: maxDeclaration, names: make(map[string]string), used: make(map[string]bool)}
}

// typeName joins the words of a name, each with a capital letter.
func typeName(text string) string {
	var b strings.Builder
	upper := true
	for _, r := range text {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		switch {
		case !letter && (r < '0' || r > '9'):
			upper = true
			continue
		case upper && r >= 'a' && r <= 'z':
			r -= 'a' - 'A'
		}
		upper = false
		b.WriteRune(r)
	}
	name := b.String()
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "T" + name
	}
	return name[:min(len(name), 60)]
}

// whole writes the type of a whole document, and of all it refers to.
func (w *writer) whole(part string, doc []byte) string {
	if len(doc) == 0 {
		return "unknown"
	}
	w.root, w.part = parse(doc), part
	text := w.schema(w.root, 0)
	for len(w.pending) > 0 {
		next := w.pending[0]
		w.pending = w.pending[1:]
		w.types = append(w.types, "type "+next.name+" = "+w.schema(next.schema, 0)+";")
	}
	return text
}

// spend counts text against the bound.
func (w *writer) spend(text string) string {
	w.left -= len(text)
	return text
}

// schema writes the type of one schema.
func (w *writer) schema(v any, depth int) string {
	if depth > maxNesting || w.left <= 0 {
		return w.spend("unknown")
	}
	s, ok := v.(object)
	if !ok {
		if v == false {
			return w.spend("never")
		}
		return w.spend("unknown")
	}
	var all []string
	add := func(text string) {
		if text != "unknown" && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	if own := w.own(s, depth); own != "" {
		add(own)
	}
	if ref := s.text("$ref"); ref != "" {
		add(w.reference(ref))
	}
	for _, c := range s.list("allOf") {
		add(group(w.schema(c, depth+1), " | "))
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if branches := s.list(keyword); len(branches) > 0 {
			add(w.union(branches, depth))
		}
	}
	if len(all) == 0 {
		return w.spend("unknown")
	}
	if len(all) > 1 {
		for i := range all {
			all[i] = group(all[i], " | ")
		}
	}
	return strings.Join(all, " & ")
}

// union writes the alternatives of a value.
func (w *writer) union(branches []any, depth int) string {
	var types []string
	for _, b := range branches {
		t := w.schema(b, depth+1)
		if t == "unknown" {
			return t // it takes in all others
		}
		if t = group(t, " & "); t != "never" && !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	if len(types) == 0 {
		return "never"
	}
	return strings.Join(types, " | ")
}

// group puts a type in parentheses when it is one of several joined so.
func group(t, by string) string {
	depth, quoted := 0, false
	for i := 0; i < len(t); i++ {
		switch c := t[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case strings.IndexByte("{[(<", c) >= 0:
			depth++
		case strings.IndexByte("}])>", c) >= 0:
			depth--
		case depth == 0 && strings.HasPrefix(t[i:], by):
			return "(" + t + ")"
		}
	}
	return t
}

// reference returns the name of the type that a reference stands for.
func (w *writer) reference(ref string) string {
	key := w.part + ref
	if name, ok := w.names[key]; ok {
		return w.spend(name)
	}
	target, ok := at(w.root, ref)
	if !ok {
		return "unknown"
	}
	last := unescape.Replace(ref[strings.LastIndexAny(ref, "/#")+1:])
	base := w.prefix + w.part
	if last != "" {
		base += typeName(last)
	}
	name := base
	for n := 2; w.used[name]; n++ {
		name = fmt.Sprintf("%s%d", base, n)
	}
	w.names[key], w.used[name] = name, true
	w.pending = append(w.pending, pending{name, target})
	return w.spend(name)
}

// own writes what a schema says itself, without those it is joined with, or "".
func (w *writer) own(s object, depth int) string {
	if v, ok := s.get("const"); ok {
		return w.spend(literal(v, depth))
	}
	if values := s.list("enum"); len(values) > 0 && len(values) <= maxValues {
		var types []string
		for _, v := range values {
			if t := literal(v, depth); !slices.Contains(types, t) {
				types = append(types, t)
			}
		}
		return w.spend(strings.Join(types, " | "))
	}
	var types []string
	for _, kind := range kindsOf(s) {
		t := kind
		switch kind {
		case "integer":
			t = "number"
		case "array":
			t = w.array(s, depth)
		case "object":
			t = w.object(s, depth)
		}
		if !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	return w.spend(strings.Join(types, " | "))
}

// kindsOf returns the types a schema names, or the one it speaks of.
func kindsOf(s object) []string {
	v, _ := s.get("type")
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		kinds := make([]string, 0, len(v))
		for _, k := range v {
			if kind, ok := k.(string); ok {
				kinds = append(kinds, kind)
			}
		}
		return kinds
	}
	for _, m := range s {
		switch m.key {
		case "properties", "required", "additionalProperties":
			return []string{"object"}
		case "items":
			return []string{"array"}
		}
	}
	return nil
}

func (w *writer) array(s object, depth int) string {
	items, _ := s.get("items")
	t := group(group(w.schema(items, depth+1), " | "), " & ")
	return t + w.spend("[]")
}

func (w *writer) object(s object, depth int) string {
	required := s.list("required")
	properties := s.members("properties")
	for _, r := range required {
		name, _ := r.(string)
		if _, ok := properties.get(name); !ok {
			properties = append(slices.Clip(properties), member{name, true})
		}
	}
	indent := strings.Repeat("  ", depth+1)
	var b strings.Builder
	for _, p := range properties {
		if w.left <= 0 {
			break
		}
		b.WriteString(w.spend(comment(p.value, indent)))
		b.WriteString(w.spend(indent + key(p.key)))
		if !slices.Contains(required, any(p.key)) {
			b.WriteByte('?')
		}
		b.WriteString(": " + w.schema(p.value, depth+1) + ";\n")
	}
	additional, open := s.get("additionalProperties")
	switch {
	case w.left <= 0:
		b.WriteString(indent + "[more: string]: unknown;\n")
	case additional == false && len(properties) == 0:
		b.WriteString(w.spend(indent + "[key: string]: never;\n"))
	case len(properties) == 0:
		b.WriteString(indent + "[key: string]: " + w.schema(additional, depth+1) + ";\n")
	case open && additional != false:
		b.WriteString(w.spend(indent + "[key: string]: unknown;\n"))
	}
	return "{\n" + b.String() + strings.Repeat("  ", depth) + "}"
}

// key writes the name of a property.
func key(name string) string {
	if identifiers.MatchString(name) && !strings.Contains(name, ".") {
		return name
	}
	return quoted(name)
}

func quoted(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // text always has a JSON form
	return strings.TrimSuffix(b.String(), "\n")
}

// literal writes the type of one value.
func literal(v any, depth int) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case string:
		return quoted(v)
	case json.Number:
		f, err := v.Float64()
		if err != nil || math.Abs(f) >= 1<<53 {
			return "number" // no double is this number alone
		}
		return strconv.FormatFloat(f+0, 'f', -1, 64)
	case []any:
		if depth > maxNesting {
			return "unknown[]"
		}
		items := make([]string, len(v))
		for i := range v {
			items[i] = literal(v[i], depth+1)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case object:
		if depth > maxNesting {
			return "object"
		}
		members := make([]string, len(v))
		for i, m := range v {
			members[i] = key(m.key) + ": " + literal(m.value, depth+1)
		}
		if len(members) == 0 {
			return "Record<string, never>"
		}
		return "{ " + strings.Join(members, "; ") + " }"
	}
	return "unknown"
}
