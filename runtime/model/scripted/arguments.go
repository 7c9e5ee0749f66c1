package scripted

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// render writes arguments as JSON, in the order of the script.
func render(n *yaml.Node, t transcript) (json.RawMessage, error) {
	if n == nil {
		return json.RawMessage("{}"), nil
	}
	if n.Kind == yaml.ScalarNode {
		value, _ := t.resolve(n.Value) // Parse took nothing else
		return value, nil
	}
	var out bytes.Buffer
	if err := write(&out, n, "arguments", t); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// write fails only for what the script itself holds, never for what it refers
// to: Parse tries it without a transcript.
func write(w io.Writer, n *yaml.Node, path string, t transcript) error {
	switch n.Kind {
	case yaml.MappingNode:
		return writeObject(w, n, path, t)
	case yaml.SequenceNode:
		put(w, "[")
		for i, item := range n.Content {
			if i > 0 {
				put(w, ",")
			}
			if err := write(w, item, path+"["+strconv.Itoa(i)+"]", t); err != nil {
				return err
			}
		}
		put(w, "]")
		return nil
	case yaml.ScalarNode:
		return writeScalar(w, n, path, t)
	}
	return bad(n, path, "aliases are not supported: write the value again")
}

func writeObject(w io.Writer, n *yaml.Node, path string, t transcript) error {
	put(w, "{")
	first := true
	err := pairs(n, path, func(key, value *yaml.Node, path string) error {
		if !first {
			put(w, ",")
		}
		first = false
		put(w, string(encode(key.Value))+":")
		return write(w, value, path, t)
	})
	put(w, "}")
	return err
}

func writeScalar(w io.Writer, n *yaml.Node, path string, t transcript) error {
	switch n.ShortTag() {
	case "!!null":
		put(w, "null")
	case "!!bool":
		value := strings.ToLower(n.Value)
		if value != "true" && value != "false" {
			return bad(n, path, "a boolean is true or false")
		}
		put(w, value)
	case "!!int", "!!float":
		if !json.Valid([]byte(n.Value)) {
			return bad(n, path, "write the number "+n.Value+" as JSON does, or quote it")
		}
		put(w, n.Value)
	case "!!str", "!!timestamp":
		value, ok := t.resolve(n.Value)
		switch {
		case ok:
			put(w, string(value))
		case n.Style == 0 && json.Valid([]byte(n.Value)): // a number too large for YAML's types
			put(w, n.Value)
		default:
			put(w, string(encode(t.embed(n.Value))))
		}
	default:
		return bad(n, path, "values of type "+n.Tag+" are not supported")
	}
	return nil
}

// put writes to a buffer or to nothing; neither fails.
func put(w io.Writer, s string) { _, _ = io.WriteString(w, s) }
