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
		p.Provider = redactProvider(r, p.Provider)
		if p.Call != nil {
			call := *p.Call
			call.Name = redactName(r, call.Name)
			call.Arguments = RedactJSON(r, call.Arguments)
			p.Call = &call
		}
		if p.Result != nil {
			result := *p.Result
			result.Name = redactName(r, result.Name)
			result.Parts = redactParts(r, result.Parts)
			p.Result = &result
		}
		if p.File != nil {
			file := *p.File
			file.Name, file.MediaType = r.Redact(file.Name), redactMediaType(r, file.MediaType)
			p.File = &file
		}
	}
	if whole, ok := r.(PartsRedactor); ok {
		out = whole.RedactParts(out)
	}
	for i := range out {
		// What a provider keeps of its reasoning repeats the text.
		if p := &out[i]; p.Type == events.PartReasoning && p.Text != parts[i].Text {
			p.Provider = nil
		}
	}
	return out
}

// redactProvider leaves out what a provider keeps on a part if a secret stands
// in it: a signature does not survive a change of what it signs. Adapters send
// such a part as they send one of another provider.
func redactProvider(r Redactor, kept map[string]json.RawMessage) map[string]json.RawMessage {
	var clean map[string]json.RawMessage
	for provider, data := range kept {
		if bytes.Equal(RedactJSON(r, data), data) {
			if clean == nil {
				clean = make(map[string]json.RawMessage, len(kept))
			}
			clean[provider] = data
		}
	}
	return clean
}

// redactName redacts the name of a tool, which a model may have made up. What is
// left is a name that every provider takes.
func redactName(r Redactor, name string) string {
	redacted := r.Redact(name)
	if redacted == name {
		return name
	}
	redacted = strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' {
			return c
		}
		return '_'
	}, redacted)
	return redacted[:min(len(redacted), maxToolName)]
}

// redactMediaType returns the media type of a file, or that of no known one
// where a secret stood in it.
func redactMediaType(r Redactor, mediaType string) string {
	if r.Redact(mediaType) != mediaType {
		return unknownType
	}
	return mediaType
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
