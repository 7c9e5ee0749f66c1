package scripted

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/agentruntime/agentruntime/runtime"
)

// response is one entry of a script.
type response struct {
	text          string
	calls         []call
	finish        runtime.FinishReason
	input, output *int64
}

type call struct {
	name      string
	arguments *yaml.Node // a mapping, a reference, or nil
}

// Parse reads a script. The name is that of errors. Unknown fields are refused.
func Parse(name string, data []byte) (*Model, error) {
	root, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", name, err)
	}
	m := &Model{name: name}
	turn := func(n *yaml.Node, path string) error {
		var list []response
		err := each(n, path, func(n *yaml.Node, path string) error {
			r, err := parseResponse(n, path)
			list = append(list, r)
			return err
		})
		if err == nil && len(list) == 0 {
			err = bad(n, path, "needs at least one response")
		}
		m.turns = append(m.turns, list)
		return err
	}
	alone := func(read field) field {
		return func(n *yaml.Node, path string) error {
			if m.turns != nil {
				return bad(n, path, "a script has either responses or turns")
			}
			return read(n, path)
		}
	}
	err = fields(root, "", map[string]field{
		"responses": alone(turn),
		"turns":     alone(func(n *yaml.Node, path string) error { return each(n, path, turn) }),
	})
	if err == nil && len(m.turns) == 0 {
		err = bad(root, "responses", "needs at least one response")
	}
	var at *fieldError
	if errors.As(err, &at) {
		return nil, fmt.Errorf("script %s:%d: %w", name, at.line, err)
	}
	return m, err
}

func decode(data []byte) (*yaml.Node, error) {
	if json.Valid(data) {
		data = yamlOf(data)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, more yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, errors.New("line 1: responses: required, the script is empty")
	} else if err != nil {
		return nil, err
	}
	if err := decoder.Decode(&more); err == nil {
		return nil, fmt.Errorf("line %d: a second document: a script is one", more.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return document.Content[0], nil
}

var escapes = regexp.MustCompile(`(?i)\\u[d][89ab][0-9a-f]{2}\\u[d][c-f][0-9a-f]{2}|\\u[d][89a-f][0-9a-f]{2}|\\.`)

// yamlOf makes valid JSON valid YAML, line by line: YAML knows no surrogate
// escapes and no escaped slash, and no tabs in some places.
func yamlOf(data []byte) []byte {
	data = bytes.ReplaceAll(data, []byte("\t"), []byte(" ")) // a string of JSON has none
	return escapes.ReplaceAllFunc(data, func(escape []byte) []byte {
		if len(escape) == 2 && escape[1] != '/' {
			return escape
		}
		var text string
		if err := json.Unmarshal([]byte(`"`+string(escape)+`"`), &text); err != nil {
			return escape
		}
		return []byte(text)
	})
}

func parseResponse(n *yaml.Node, path string) (response, error) {
	r := response{}
	err := fields(n, path, map[string]field{
		"text": func(n *yaml.Node, path string) error { return str(n, path, &r.text) },
		"calls": func(n *yaml.Node, path string) error {
			return each(n, path, func(n *yaml.Node, path string) error {
				c, err := parseCall(n, path)
				r.calls = append(r.calls, c)
				return err
			})
		},
		"finish": func(n *yaml.Node, path string) error {
			if err := str(n, path, (*string)(&r.finish)); err != nil {
				return err
			}
			switch r.finish {
			case runtime.FinishStop, runtime.FinishCalls, runtime.FinishLength, runtime.FinishFilter:
				return nil
			}
			return bad(n, path, fmt.Sprintf("unknown finish reason %q: use stop, tool_calls, length or content_filter", r.finish))
		},
		"usage": func(n *yaml.Node, path string) error {
			return fields(n, path, map[string]field{
				"input":  func(n *yaml.Node, path string) error { return count(n, path, &r.input) },
				"output": func(n *yaml.Node, path string) error { return count(n, path, &r.output) },
			})
		},
	})
	if r.finish == "" {
		r.finish = runtime.FinishStop
		if len(r.calls) > 0 {
			r.finish = runtime.FinishCalls
		}
	}
	return r, err
}

func parseCall(n *yaml.Node, path string) (call, error) {
	c := call{}
	err := fields(n, path, map[string]field{
		"name": func(n *yaml.Node, path string) error { return str(n, path, &c.name) },
		"arguments": func(n *yaml.Node, path string) error {
			if _, reference := (transcript{}).resolve(n.Value); reference && n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
				c.arguments = n
				return nil
			}
			if n.Kind != yaml.MappingNode {
				return bad(n, path, "must be a mapping")
			}
			c.arguments = n
			return write(io.Discard, n, path, transcript{})
		},
	})
	if err == nil && c.name == "" {
		err = bad(n, join(path, "name"), "required")
	}
	return c, err
}

// fieldError is a mistake at one place of a script.
type fieldError struct {
	line   int
	path   string
	reason string
}

func (e *fieldError) Error() string { return e.path + ": " + e.reason }

func bad(n *yaml.Node, path, reason string) error {
	if path == "" {
		path = "script"
	}
	return &fieldError{n.Line, path, reason}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

type field func(n *yaml.Node, path string) error

// fields gives each entry of a mapping to its reader.
func fields(n *yaml.Node, path string, readers map[string]field) error {
	return pairs(n, path, func(key, value *yaml.Node, path string) error {
		reader, ok := readers[key.Value]
		if !ok {
			return bad(key, path, "unknown field")
		}
		return reader(value, path)
	})
}

// pairs visits the entries of a mapping in their order.
func pairs(n *yaml.Node, path string, visit func(key, value *yaml.Node, path string) error) error {
	if n.Kind != yaml.MappingNode {
		return bad(n, path, "must be a mapping")
	}
	seen := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		switch {
		case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge":
			return bad(key, path, "keys must be plain: no merges, no aliases")
		case seen[key.Value]:
			return bad(key, at, "given twice")
		}
		seen[key.Value] = true
		if err := visit(key, value, at); err != nil {
			return err
		}
	}
	return nil
}

func each(n *yaml.Node, path string, visit field) error {
	if n.Kind != yaml.SequenceNode {
		return bad(n, path, "must be a list")
	}
	for i, item := range n.Content {
		if err := visit(item, path+"["+strconv.Itoa(i)+"]"); err != nil {
			return err
		}
	}
	return nil
}

func str(n *yaml.Node, path string, into *string) error {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		return bad(n, path, "must be a string")
	}
	*into = n.Value
	return nil
}

func count(n *yaml.Node, path string, into **int64) error {
	v, err := strconv.ParseInt(n.Value, 10, 64)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || v < 0 {
		return bad(n, path, "must be a whole number, 0 or more")
	}
	*into = &v
	return nil
}
