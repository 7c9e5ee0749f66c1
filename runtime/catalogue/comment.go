package catalogue

import (
	"encoding/json"
	"strings"
)

// assertions are the keywords that no type says, in the order of their telling.
var assertions = []string{
	"format", "pattern", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf",
	"minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "default",
}

// comment writes what the type of a property does not say, on a line of its own.
func comment(v any, indent string) string {
	s, ok := v.(object)
	if !ok {
		return ""
	}
	text := note(s)
	if text == "" {
		return ""
	}
	return indent + "/** " + text + " */\n"
}

// note is what a schema says in words, and what it asserts beside its type.
func note(s object) string {
	var parts []string
	if v, ok := s.get("deprecated"); ok && v == true {
		parts = append(parts, "Deprecated.")
	}
	text := s.text("description")
	if text == "" {
		text = s.text("title")
	}
	if text != "" {
		parts = append(parts, words(text, maxNote))
	}
	var asserted []string
	if kinds := kindsOf(s); len(kinds) == 1 && kinds[0] == "integer" {
		asserted = append(asserted, "integer")
	}
	for _, keyword := range assertions {
		v, ok := s.get(keyword)
		if !ok {
			continue
		}
		var said string
		switch v := v.(type) {
		case json.Number:
			said = v.String()
		case string:
			said = quoted(v)
		case bool, nil:
			said = literal(v, 0)
		default:
			continue
		}
		asserted = append(asserted, keyword+" "+words(said, maxNote))
	}
	if values := s.list("enum"); len(values) > maxValues {
		asserted = append(asserted, "one of many values")
	}
	if _, ok := s.get("not"); ok {
		asserted = append(asserted, "not everything of this type")
	}
	if len(asserted) > 0 {
		parts = append(parts, "("+strings.Join(asserted, ", ")+")")
	}
	return strings.Join(parts, " ")
}

// words makes one line of a text that no comment ends in.
func words(text string, limit int) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.ReplaceAll(cut(text, limit), "*/", "*\\/")
}

// firstLine is the beginning of a description.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return words(line, 120)
}
