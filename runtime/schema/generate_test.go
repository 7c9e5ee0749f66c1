package schema_test

import (
	"encoding/json"

	"pgregory.net/rapid"
)

// Generators of schemas and instances over few names and values, so that they
// meet. All numbers are exact as float64.

var (
	names   = rapid.SampledFrom([]string{"a", "b", "kind", "x/y~"})
	numbers = rapid.SampledFrom([]json.Number{"0", "-0.0", "1", "1.0", "2", "3", "-1", "0.5", "1.5", "10", "1e1", "4", "6"})
	strs    = rapid.SampledFrom([]string{"", "a", "b", "ab", "aab", "é", "日本語", "𝄞", "\n\"\\"})
	scalars = rapid.OneOf(
		rapid.Map(numbers, func(n json.Number) any { return n }),
		rapid.Map(strs, func(s string) any { return s }),
		rapid.SampledFrom([]any{nil, true, false}),
	)
)

func drawInstance(t *rapid.T, depth int) any {
	shape := rapid.IntRange(0, 4).Draw(t, "shape")
	switch {
	case depth == 0 || shape <= 1:
		return scalars.Draw(t, "scalar")
	case shape == 2:
		items := make([]any, rapid.IntRange(0, 3).Draw(t, "items"))
		for i := range items {
			items[i] = drawInstance(t, depth-1)
		}
		return items
	}
	object := make(map[string]any)
	for range rapid.IntRange(0, 3).Draw(t, "members") {
		object[names.Draw(t, "name")] = drawInstance(t, depth-1)
	}
	return object
}

const definitions = 3

// drawDocument draws a schema with definitions. Its references may form cycles
// that the gate refuses.
func drawDocument(t *rapid.T) any {
	root := drawSchema(t, 3)
	object, ok := root.(map[string]any)
	if !ok {
		object = map[string]any{"not": root}
	}
	defs := make(map[string]any)
	for _, name := range []string{"0", "1", "2"}[:definitions] {
		defs[name] = drawSchema(t, 2)
	}
	object["$defs"] = defs
	return object
}

func drawSchema(t *rapid.T, depth int) any {
	if rapid.IntRange(0, 9).Draw(t, "boolean schema") == 0 {
		return rapid.Bool().Draw(t, "schema")
	}
	s := make(map[string]any)
	for range rapid.IntRange(0, 3).Draw(t, "keywords") {
		if depth > 0 && rapid.Bool().Draw(t, "applicator") {
			drawApplicator(t, s, depth-1)
		} else {
			drawAssertion(t, s)
		}
	}
	return s
}

func drawAssertion(t *rapid.T, s map[string]any) {
	sizes := rapid.SampledFrom([]json.Number{"0", "1", "2.0", "3"})
	keyword := rapid.SampledFrom([]string{
		"type", "type", "type", "types", "enum", "const", "required", "uniqueItems", "pattern", "multipleOf", "format",
		"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
		"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
	}).Draw(t, "keyword")
	types := rapid.SampledFrom([]string{"null", "boolean", "integer", "number", "string", "array", "object", "object"})
	switch keyword {
	case "type":
		s["type"] = types.Draw(t, "type")
	case "types":
		s["type"] = rapid.SliceOfNDistinct(types, 1, 3, rapid.ID).Draw(t, "types")
	case "enum":
		values := make([]any, rapid.IntRange(1, 3).Draw(t, "values"))
		for i := range values {
			values[i] = drawInstance(t, 1)
		}
		s["enum"] = values
	case "const":
		s["const"] = drawInstance(t, 2)
	case "required":
		s["required"] = rapid.SliceOfNDistinct(names, 0, 2, rapid.ID).Draw(t, "required")
	case "uniqueItems":
		s["uniqueItems"] = rapid.Bool().Draw(t, "unique")
	case "pattern":
		s["pattern"] = rapid.SampledFrom([]string{"", "a", "^a*$", "b$", "^.$", `\p{Han}`, "^(a|b){2}"}).Draw(t, "pattern")
	case "multipleOf":
		s["multipleOf"] = rapid.SampledFrom([]json.Number{"1", "0.5", "2", "3", "1.5"}).Draw(t, "divisor")
	case "format":
		s["format"] = rapid.SampledFrom([]string{"date", "email", "x"}).Draw(t, "format")
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		s[keyword] = numbers.Draw(t, "bound")
	default:
		s[keyword] = sizes.Draw(t, "size")
	}
}

func drawApplicator(t *rapid.T, s map[string]any, depth int) {
	list := func() []any {
		schemas := make([]any, rapid.IntRange(1, 3).Draw(t, "schemas"))
		for i := range schemas {
			schemas[i] = drawSchema(t, depth)
		}
		return schemas
	}
	keyword := rapid.SampledFrom([]string{
		"properties", "properties", "additionalProperties", "items", "allOf", "anyOf", "oneOf", "not", "$ref", "tagged", "tagged",
	}).Draw(t, "keyword")
	switch keyword {
	case "properties":
		properties := make(map[string]any)
		for range rapid.IntRange(0, 3).Draw(t, "properties") {
			properties[names.Draw(t, "name")] = drawSchema(t, depth)
		}
		s["properties"] = properties
	case "allOf", "anyOf", "oneOf":
		s[keyword] = list()
	case "$ref":
		s["$ref"] = rapid.SampledFrom([]string{"#", "#/$defs/0", "#/$defs/1", "#/$defs/2"}).Draw(t, "ref")
	case "tagged":
		s[rapid.SampledFrom([]string{"anyOf", "oneOf"}).Draw(t, "union")] = drawTagged(t, depth)
	default:
		s[keyword] = drawSchema(t, depth)
	}
}

// drawTagged draws a union whose branches mostly differ in a constant.
func drawTagged(t *rapid.T, depth int) []any {
	var branches []any
	for range rapid.IntRange(1, 3).Draw(t, "branches") {
		kind := map[string]any{"const": scalars.Draw(t, "constant")}
		if rapid.Bool().Draw(t, "enum") {
			kind = map[string]any{"enum": []any{scalars.Draw(t, "value"), scalars.Draw(t, "value")}}
		}
		if rapid.Bool().Draw(t, "kind behind allOf") {
			kind = map[string]any{"allOf": []any{kind}}
		}
		branch := map[string]any{"properties": map[string]any{"kind": kind, "a": drawSchema(t, depth)}}
		if rapid.Bool().Draw(t, "required") {
			branch["required"] = []any{"kind"}
		}
		if rapid.Bool().Draw(t, "typed") {
			branch["type"] = "object"
		}
		if rapid.Bool().Draw(t, "behind allOf") {
			branch = map[string]any{"allOf": []any{drawSchema(t, 0), branch}, "properties": map[string]any{"kind": drawSchema(t, 0)}}
		}
		branches = append(branches, branch)
	}
	if rapid.Bool().Draw(t, "another") {
		branches = append(branches, drawSchema(t, depth))
	}
	return branches
}
