package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// Words returns each part in words: a file is described and not sent.
func Words(parts ...events.Part) ([]string, error) {
	var words []string
	for _, p := range parts {
		switch {
		case p.Type == events.PartText:
			words = append(words, p.Text)
		case p.Type == events.PartFile && p.File != nil:
			words = append(words, runtime.Describe(p.File, ""))
		default:
			return nil, fmt.Errorf("a part of type %q cannot stand here", p.Type)
		}
	}
	return words, nil
}

// Result returns the result of a call and its text. The outcome is a prefix
// unless it is ok ("[denied] …"), since no API has more of it than an error.
func Result(p events.Part) (r *events.ToolResult, text string, err error) {
	if p.Type != events.PartToolResult || p.Result == nil {
		return nil, "", fmt.Errorf("a part of type %q cannot stand here", p.Type)
	}
	words, err := Words(p.Result.Parts...)
	if err != nil {
		return nil, "", err
	}
	text = strings.Join(words, "\n")
	if p.Result.Outcome != events.OutcomeOK {
		text = strings.TrimSpace("[" + string(p.Result.Outcome) + "] " + text)
	}
	return p.Result, text, nil
}

// Arguments returns arguments as the model wrote them. Those that were not
// acceptable JSON are stored as a JSON string of what it wrote, and unpacked
// here; a string that holds acceptable JSON was one when the model wrote it.
func Arguments(stored json.RawMessage) string {
	var text string
	if len(stored) == 0 || stored[0] != '"' || json.Unmarshal(stored, &text) != nil || events.CheckJSON([]byte(text), events.JSONLimits{}) == nil {
		return string(stored)
	}
	return text
}

// Valid returns bytes as text: what is no UTF-8 becomes U+FFFD, so that it can
// be stored and sent as JSON.
func Valid(data []byte) []byte { return bytes.ToValidUTF8(data, []byte("\uFFFD")) }

// Fields is a JSON object of a provider, kept to be handed back: what an
// adapter has no field for, with every value as it came.
type Fields map[string]json.RawMessage

// Kept returns what a part carries for the provider, nil if it carries nothing.
func Kept(p events.Part, provider string) (Fields, error) {
	data, ok := p.Provider[provider]
	if !ok {
		return nil, nil
	}
	var f Fields
	if err := json.Unmarshal(Valid(data), &f); err != nil {
		return nil, fmt.Errorf("what the adapter keeps on a part: %w", err)
	}
	return f, nil
}

// Keep returns what a part is to carry for the provider: all fields that are
// there but those the part itself holds. It is nil if nothing is left.
func (f Fields) Keep(provider string, held ...string) map[string]json.RawMessage {
	rest := Fields{}
	for name, value := range f {
		if Present(value) {
			rest[name] = value
		}
	}
	for _, name := range held {
		delete(rest, name)
	}
	if len(rest) == 0 {
		return nil
	}
	return map[string]json.RawMessage{provider: rest.JSON()}
}

// String returns a field that is a string, or nothing.
func (f Fields) String(name string) string {
	var text string
	if json.Unmarshal(f[name], &text) != nil {
		return ""
	}
	return text
}

// With returns a copy with a field set to a string.
func (f Fields) With(name, text string) Fields {
	data, _ := events.Marshal(text) // a string always marshals
	return f.WithJSON(name, data)
}

// WithJSON returns a copy with a field set.
func (f Fields) WithJSON(name string, value json.RawMessage) Fields {
	out := Fields{name: value}
	for n, v := range f {
		if n != name {
			out[n] = v
		}
	}
	return out
}

// JSON returns the object as JSON.
func (f Fields) JSON() json.RawMessage {
	data, err := events.Marshal(f)
	if err != nil {
		panic(err) // every field was read from valid JSON
	}
	return data
}
