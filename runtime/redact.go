package runtime

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// redactMessages returns copies with every text redacted.
func redactMessages(r Redactor, messages []events.Message) []events.Message {
	out := make([]events.Message, len(messages))
	for i, m := range messages {
		m.Parts = redactParts(r, m.Parts)
		out[i] = m
	}
	return out
}

func redactParts(r Redactor, parts []events.Part) []events.Part {
	out := slices.Clone(parts)
	for i := range out {
		p := &out[i]
		p.Text = redactText(r, p.Text)
		if p.Call != nil {
			call := *p.Call
			call.Arguments = RedactJSON(r, call.Arguments)
			p.Call = &call
		}
		if p.Result != nil {
			result := *p.Result
			result.Parts = redactParts(r, result.Parts)
			p.Result = &result
		}
		if p.File != nil {
			file := *p.File
			file.Name = r.Redact(file.Name)
			p.File = &file
		}
	}
	if whole, ok := r.(PartsRedactor); ok {
		return whole.RedactParts(out)
	}
	return out
}

func redactTools(r Redactor, tools []Tool) []Tool {
	for i := range tools {
		tools[i].Description = r.Redact(tools[i].Description)
		tools[i].InputSchema = RedactJSON(r, tools[i].InputSchema)
	}
	return tools
}

// redactText redacts text, which may itself be JSON, as the results of tools
// are.
func redactText(r Redactor, text string) string {
	if text != "" && strings.IndexByte(`{["`, text[0]) >= 0 && json.Valid([]byte(text)) {
		return string(RedactJSON(r, json.RawMessage(text)))
	}
	return r.Redact(text)
}

// RedactJSON redacts JSON text: each string as what it says, since a secret
// with a quote or a line break is written differently in JSON, and then the
// whole, for what is no string. A redaction of the whole that leaves no valid
// JSON replaces it.
func RedactJSON(r Redactor, data json.RawMessage) json.RawMessage {
	data = redactStrings(r, data)
	redacted := r.Redact(string(data))
	if redacted == string(data) {
		return data
	}
	if json.Valid([]byte(redacted)) {
		return json.RawMessage(redacted)
	}
	text, _ := events.Marshal(strings.ToValidUTF8(redacted, "\uFFFD"))
	return text
}

// redactStrings redacts every string of a JSON text, keys included, and leaves
// all else byte for byte.
func redactStrings(r Redactor, data json.RawMessage) json.RawMessage {
	var out []byte
	done := 0 // of data, copied to out
	for start := bytes.IndexByte(data, '"'); start >= 0; {
		end := endOfString(data, start)
		var said string
		if json.Unmarshal(data[start:end], &said) != nil {
			return data // not JSON
		}
		if redacted := r.Redact(said); redacted != said {
			text, _ := events.Marshal(strings.ToValidUTF8(redacted, "\uFFFD"))
			out = append(append(out, data[done:start]...), text...)
			done = end
		}
		next := bytes.IndexByte(data[end:], '"')
		if next < 0 {
			break
		}
		start = end + next
	}
	if done == 0 {
		return data
	}
	return append(out, data[done:]...)
}

// endOfString returns the index after the string that begins at start.
func endOfString(data []byte, start int) int {
	for i := start + 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
}
