package mcp

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentruntime/agentruntime/events"
)

// members are those of a JSON object, by their exact names. The decoder of a struct would
// take ISERROR for isError, and the last of the two would count.
type members map[string]json.RawMessage

// object reads the members of an object. None of them stands there twice.
func object(text []byte) (members, error) {
	if err := events.CheckJSON(text, events.JSONLimits{}); err != nil {
		return nil, err
	}
	var m members
	if err := json.Unmarshal(text, &m); err != nil || m == nil {
		return nil, errors.New("it is no object")
	}
	return m, nil
}

// read reads a member into a value, which stays as it is when there is none.
func (m members) read(name string, into any) error {
	text, there := m[name]
	if !there {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("its %s is of the wrong type", name)
	}
	return nil
}
