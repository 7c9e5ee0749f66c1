package handlers

import (
	"bytes"
	"encoding/json"
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
	return json.NewDecoder(bytes.NewReader(data)).Decode(into)
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
