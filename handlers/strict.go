package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// readStrict reads a JSON object into a struct and refuses what the struct does
// not have. Members are matched exactly: the decoder alone would take AGENT for
// agent, and the last of the two would count.
func readStrict(data []byte, into any) error {
	if err := events.CheckJSON(data, events.JSONLimits{}); err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil || members == nil {
		return fmt.Errorf("it is no JSON object")
	}
	known := memberNames(reflect.TypeOf(into).Elem())
	for name := range members {
		if !slices.Contains(known, name) {
			return fmt.Errorf("unknown member %q; known are %s", name, strings.Join(known, ", "))
		}
	}
	err := json.NewDecoder(bytes.NewReader(data)).Decode(into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("member %q takes %s, not %s", wrong.Field, jsonKind(wrong.Type), wrong.Value)
	}
	return err
}

// jsonKind is what JSON calls the values of a Go type.
func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return jsonKind(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number"
}

// memberNames returns the JSON names of a struct's fields.
func memberNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// given reports whether an object has a member that is not null.
func given(data []byte, name string) bool {
	var members map[string]json.RawMessage
	return json.Unmarshal(data, &members) == nil && members[name] != nil && string(members[name]) != "null"
}

// missingMember returns the first member that a struct requires and an object does
// not have, or nothing. Required is what its schema requires too: what is not left
// out when it is empty. An absent one and null are no zero.
func missingMember(data []byte, into any) string {
	t := reflect.TypeOf(into).Elem()
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if options == "" && !given(data, name) {
			return name
		}
	}
	return ""
}
