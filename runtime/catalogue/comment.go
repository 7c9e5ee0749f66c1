package catalogue

import (
	"encoding/json"
	"slices"
	"strings"
)

const (
	maxText = 200 // bytes of a description, and of one thing that is asserted
	maxNote = 800 // bytes of all that is said of one schema, before the rest is left out
)

// assertions are the keywords that no type says, in the order of their telling.
var assertions = []string{
	"format", "pattern", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf",
	"minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "default",
}

// note is what a schema says in words, and what it asserts beside its type.
func note(v any) string {
	s, ok := v.(*object)
	if !ok {
		return ""
	}
	var parts []string
	if v, ok := s.get("deprecated"); ok && v == true {
		parts = append(parts, "Deprecated.")
	}
	text := s.text("description")
	if text == "" {
		text = s.text("title")
	}
	if text = words(text, maxText); text != "" {
		parts = append(parts, text)
	}
	if asserted := asserts(s); len(asserted) > 0 {
		parts = append(parts, "("+strings.Join(asserted, ", ")+")")
	}
	return strings.Join(parts, " ")
}

// asserts lists what a schema asserts beside its type.
func asserts(s *object) (list []string) {
	length := 0
	add := func(text string) {
		switch length += len(text); {
		case length <= maxNote:
			list = append(list, text)
		case list[len(list)-1] != "…": // no single one is as long as that
			list = append(list, "…")
		}
	}
	if kinds := kindsOf(s); slices.Contains(kinds, "integer") && !slices.Contains(kinds, "number") {
		add("integer")
	}
	for _, keyword := range assertions {
		v, ok := s.get(keyword)
		if !ok {
			continue
		}
		switch v := v.(type) {
		case json.Number:
			add(keyword + " " + cut(v.String(), maxText))
		case string:
			add(keyword + " " + uncommented(cut(quoted(cut(v, maxText)), maxText)))
		case bool, nil:
			add(keyword + " " + literal(v))
		}
	}
	if values := s.list("enum"); len(values) > maxValues {
		add("one of many values")
	}
	if _, ok := s.get("not"); ok {
		add("not everything of this type")
	}
	return list
}

// words makes one line of a text that no comment ends in.
func words(text string, limit int) string {
	return uncommented(cut(strings.Join(strings.Fields(text), " "), limit))
}

// uncommented takes the ends of comments out of a text.
func uncommented(text string) string { return strings.ReplaceAll(text, "*/", "*\\/") }

// firstLine is the beginning of a description.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return words(line, 120)
}
