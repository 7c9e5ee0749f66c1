package wire

import (
	"encoding/json"
	"slices"
)

// The most that a strict schema may hold at OpenAI, the tighter of the two.
const (
	strictProperties = 5000
	strictDepth      = 10
)

// strictKeywords are those that every provider's strict mode takes.
var strictKeywords = []string{"type", "description", "properties", "required", "additionalProperties", "items", "enum", "anyOf"}

// Strict reports whether a tool's schema conforms to strict mode as it stands:
// every object closed and with all of its properties required, and no keyword
// that strict mode does not know. A schema is never changed to conform, since
// the model would be held to another one than the tool is.
func Strict(schema json.RawMessage) bool {
	properties := 0
	var top struct {
		Type  json.RawMessage `json:"type"`
		AnyOf json.RawMessage `json:"anyOf"`
	}
	return json.Unmarshal(schema, &top) == nil && string(top.Type) == `"object"` && top.AnyOf == nil &&
		strict(schema, 0, &properties)
}

func strict(schema json.RawMessage, depth int, properties *int) bool {
	var keywords map[string]json.RawMessage
	if depth > strictDepth || json.Unmarshal(schema, &keywords) != nil {
		return false
	}
	var known struct {
		Type       json.RawMessage            `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
		Closed     json.RawMessage            `json:"additionalProperties"`
		Items      json.RawMessage            `json:"items"`
		Enum       []json.RawMessage          `json:"enum"`
		AnyOf      []json.RawMessage          `json:"anyOf"`
	}
	if json.Unmarshal(schema, &known) != nil || known.Type == nil && known.AnyOf == nil {
		return false
	}
	for keyword := range keywords {
		if !slices.Contains(strictKeywords, keyword) {
			return false
		}
	}
	for _, value := range known.Enum {
		if len(value) > 0 && (value[0] == '{' || value[0] == '[') {
			return false
		}
	}
	types, ok := typesOf(known.Type)
	if !ok {
		return false
	}
	if slices.Contains(types, "array") && known.Items == nil {
		return false
	}
	if slices.Contains(types, "object") && string(known.Closed) != "false" {
		return false
	}
	if *properties += len(known.Properties); *properties > strictProperties || len(known.Required) != len(known.Properties) {
		return false
	}
	for name, property := range known.Properties {
		if !slices.Contains(known.Required, name) || !strict(property, depth+1, properties) {
			return false
		}
	}
	if known.Items != nil && !strict(known.Items, depth+1, properties) {
		return false
	}
	return !slices.ContainsFunc(known.AnyOf, func(s json.RawMessage) bool { return !strict(s, depth+1, properties) })
}

// typesOf reads a type: a name, a list of names, or none.
func typesOf(value json.RawMessage) ([]string, bool) {
	var name string
	var names []string
	switch {
	case value == nil:
		return nil, true
	case json.Unmarshal(value, &name) == nil:
		return []string{name}, true
	}
	return names, json.Unmarshal(value, &names) == nil && len(names) > 0
}
