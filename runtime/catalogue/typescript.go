package catalogue

import (
	"slices"
	"strconv"
	"strings"
)

const (
	maxDeclaration = 16 << 10 // bytes of one capability's declaration
	reserve        = 3 << 10  // of them for what ends what has begun
	maxNesting     = 10       // of types in one another, before one is unknown
	maxValues      = 64       // of an enum that are listed
	maxTypeName    = 60       // bytes of one part of a type's name
	maxIndent      = 12       // levels that are told apart by the beginning of a line
)

// operator is what joins the parts of a written type.
type operator string

const (
	alone        operator = ""     // nothing: it is a name, or in brackets of its own
	union        operator = " | "  // binds looser than the next
	intersection operator = " & "  //
	commented    operator = "/**/" // one part with a comment before it
	listed       operator = "[]"   // behind the type
)

// written is a type as text, with what joins its parts. The text has comments
// and literals in it and is never read again.
type written struct {
	text string
	by   operator
}

// in returns the text as a part of a type that is joined so.
func (t written) in(by operator) string {
	if t.by == alone || t.by == by || t.by == commented && by != listed {
		return t.text
	}
	return "(" + t.text + ")"
}

// joined collects the parts of a type, each once.
type joined struct {
	by    operator
	parts []written
	seen  map[string]bool
}

func (j *joined) add(t written) {
	if j.seen[t.text] {
		return
	}
	if j.seen == nil {
		j.seen = make(map[string]bool)
	}
	j.seen[t.text] = true
	j.parts = append(j.parts, t)
}

// whole returns the parts as one type, and none when there is no part.
func (j *joined) whole(none string) written {
	switch len(j.parts) {
	case 0:
		return written{text: none}
	case 1:
		return j.parts[0]
	}
	texts := make([]string, len(j.parts))
	for i, t := range j.parts {
		texts[i] = t.in(j.by)
	}
	return written{strings.Join(texts, string(j.by)), j.by}
}

// typeNames are the names of a catalogue's types, each with the last number that
// was put behind it.
type typeNames map[string]int

// take returns a name that no other type has.
func (n typeNames) take(base string) string {
	if n[base] == 0 {
		n[base] = 1
		return base
	}
	for {
		n[base]++
		if name := base + strconv.Itoa(n[base]); n[name] == 0 {
			n[name] = 1
			return name
		}
	}
}

// writer writes the types of one capability. It takes time in proportion to the
// schemas: it goes over no member of a schema more often than that is written, or
// for each of them, and writes nothing once the bound is reached.
type writer struct {
	prefix string // of the names of types, such as DeskBook
	taken  typeNames
	left   int // bytes it may still write
	indent int // levels, of the line that is written

	root    any
	part    string            // Input or Output
	names   map[string]string // of referred schemas, by part and pointer
	pending []pending
	types   []string // finished declarations of types
}

// pending is a named type that is not written yet.
type pending struct {
	name   string
	schema any
}

func newWriter(binding string, taken typeNames) *writer {
	return &writer{prefix: typeName(binding), taken: taken, left: maxDeclaration - reserve, names: make(map[string]string)}
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
		case b.Len() == maxTypeName:
			return b.String()
		case !letter && b.Len() == 0:
			b.WriteByte('T')
		case upper && r >= 'a' && r <= 'z':
			r -= 'a' - 'A'
		}
		upper = false
		b.WriteRune(r)
	}
	if b.Len() == 0 {
		return "T"
	}
	return b.String()
}

// whole writes the type of a whole document at a level, and of all it refers to.
func (w *writer) whole(part string, root any, level int) string {
	w.root, w.part, w.indent = root, part, level
	text := w.told(w.root, 0, nil).text
	w.indent = 0
	for len(w.pending) > 0 {
		next := w.pending[0]
		w.pending = w.pending[1:]
		about := w.comment(next.schema)
		w.types = append(w.types, about+"type "+next.name+" = "+w.schema(next.schema, 0, nil).text+";")
	}
	return text
}

// spend counts text against the bound.
func (w *writer) spend(text string) string {
	w.left -= len(text)
	return text
}

// indentation is the beginning of a line at a level.
func indentation(level int) string { return strings.Repeat("  ", min(level, maxIndent)) }

// line begins a line.
func (w *writer) line() string { return w.spend(indentation(w.indent)) }

// join adds one part to a type that has several, in brackets perhaps.
func (w *writer) join(to *joined, t written) {
	w.left -= len(to.by) + len("()")
	to.add(t)
}

// word writes a type that is one word.
func (w *writer) word(text string) written { return written{text: w.spend(text)} }

// comment writes what a type does not say, on a line of its own, or nothing.
func (w *writer) comment(v any) string {
	text := note(v)
	if text == "" || w.left <= 0 {
		return ""
	}
	return w.line() + w.spend("/** "+text+" */\n")
}

// told writes the type of a schema that has no line of its own, with what the
// type does not say before it. The kinds are those of the schema it is a branch of.
func (w *writer) told(v any, depth int, kinds []string) written {
	text := note(v)
	if text == "" || w.left <= 0 {
		return w.schema(v, depth, kinds)
	}
	about := w.spend("/** " + text + " */ ")
	return written{about + w.schema(v, depth, kinds).in(commented), commented}
}

// schema writes the type of one schema, without its note. Its own type, or else
// that of the schema it is a branch of, is the type of its branches.
func (w *writer) schema(v any, depth int, kinds []string) written {
	if depth > maxNesting || w.left <= 0 {
		return w.word("unknown")
	}
	s, ok := v.(*object)
	if !ok {
		if v == false {
			return w.word("never")
		}
		return w.word("unknown")
	}
	if own := kindsOf(s); own != nil {
		kinds = own
	}
	all := joined{by: intersection}
	add := func(t written) {
		if t.text != "unknown" {
			w.join(&all, t)
		}
	}
	if t := w.own(s, depth, kinds); t.text != "" {
		add(t)
	}
	if ref := s.text("$ref"); ref != "" {
		add(w.reference(ref))
	}
	for _, c := range s.list("allOf") {
		if w.left <= 0 {
			break
		}
		add(w.told(c, depth+1, kinds))
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if branches := s.list(keyword); len(branches) > 0 {
			add(w.union(branches, depth, kinds))
		}
	}
	return all.whole("unknown")
}

// union writes the alternatives of a value.
func (w *writer) union(branches []any, depth int, kinds []string) written {
	any := joined{by: union}
	for _, b := range branches {
		t := w.told(b, depth+1, kinds)
		if t.text == "unknown" {
			return t // it takes in all others
		}
		if t.text != "never" {
			w.join(&any, t)
		}
	}
	return any.whole("never")
}

// reference returns the name of the type that a reference stands for. Its
// declaration is paid for with its first use.
func (w *writer) reference(ref string) written {
	pointer := pointerOf(ref)
	key := w.part + pointer
	if name, ok := w.names[key]; ok {
		return w.word(name)
	}
	target, ok := at(w.root, pointer)
	if !ok {
		return w.word("unknown")
	}
	base := w.prefix + w.part
	if last := unescape.Replace(pointer[strings.LastIndexByte(pointer, '/')+1:]); last != "" {
		base += typeName(last)
	}
	name := w.taken.take(base)
	w.names[key] = name
	w.pending = append(w.pending, pending{name, target})
	w.spend("type " + name + " = unknown;\n")
	return w.word(name)
}

// own writes what a schema of these kinds says itself, without those it is joined
// with. The text is empty when it says nothing.
func (w *writer) own(s *object, depth int, kinds []string) written {
	any := joined{by: union}
	add := func(t written) { w.join(&any, t) }
	values := s.list("enum")
	if v, ok := s.get("const"); ok {
		add(w.word(literal(v)))
	} else if len(values) > 0 && len(values) <= maxValues {
		for _, v := range values {
			if w.left <= 0 {
				return written{} // a list without its end would say something else
			}
			add(w.word(literal(v)))
		}
	} else if shaped(s) {
		for _, kind := range kinds {
			switch kind {
			case "integer":
				add(w.word("number"))
			case "array":
				items, _ := s.get("items")
				add(written{text: w.told(items, depth+1, nil).in(listed) + w.spend(string(listed))})
			case "object":
				add(w.object(s, depth))
			default:
				add(w.word(kind))
			}
		}
	}
	return any.whole("")
}

// kindsOf returns the types a schema names.
func kindsOf(s *object) []string {
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
	return nil
}

// shapes are the keywords that a type says. Those of objects and arrays say
// nothing of other values: they make a type only of a value whose kind is known.
var shapes = []string{"type", "properties", "required", "additionalProperties", "items"}

func shaped(s *object) bool {
	return slices.ContainsFunc(shapes, func(keyword string) bool { _, ok := s.get(keyword); return ok })
}

// object writes the type of an object. Properties that do not fit, or whose names
// are too long to be told, are others.
func (w *writer) object(s *object, depth int) written {
	properties := s.object("properties")
	required := s.list("required")
	needed := make(map[string]bool, len(required))
	for _, r := range required {
		name, _ := r.(string)
		needed[name] = true
	}
	var b strings.Builder
	more := false
	property := func(name string, v any) {
		text, ok := key(name)
		if !ok {
			more = true
			return
		}
		if !needed[name] {
			text += "?"
		}
		b.WriteString(w.comment(v) + w.line() + w.spend(text+": ") + w.schema(v, depth+1, nil).text + w.spend(";\n"))
	}
	w.indent++
	for _, p := range properties.members {
		if w.left <= 0 {
			more = true
			break
		}
		property(p.key, p.value)
	}
	for _, r := range required {
		if w.left <= 0 {
			more = true
			break
		}
		name, _ := r.(string)
		if _, described := properties.get(name); !described {
			property(name, true)
		}
	}
	additional, open := s.get("additionalProperties")
	empty := b.Len() == 0
	switch {
	case more:
		b.WriteString(w.line() + w.spend("[more: string]: unknown;\n"))
	case empty && additional == false:
		b.WriteString(w.line() + w.spend("[key: string]: never;\n"))
	case empty:
		b.WriteString(w.comment(additional) + w.line() + w.spend("[key: string]: ") + w.schema(additional, depth+1, nil).text + w.spend(";\n"))
	case open && additional != false:
		b.WriteString(w.comment(additional) + w.line() + w.spend("[key: string]: unknown;\n"))
	}
	w.indent--
	return written{text: "{\n" + b.String() + w.line() + w.spend("}")}
}
