package wiretest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// Text returns a part of text.
func Text(s string) events.Part { return events.Part{Type: events.PartText, Text: s} }

// Call returns a call; its arguments are missing if they are empty.
func Call(id, name, arguments string) events.Part {
	c := &events.ToolCall{ID: id, Name: name}
	if arguments != "" {
		c.Arguments = json.RawMessage(arguments)
	}
	return events.Part{Type: events.PartToolCall, Call: c}
}

// Result returns the result of a call.
func Result(callID string, outcome events.Outcome, parts ...events.Part) events.Part {
	return events.Part{Type: events.PartToolResult, Result: &events.ToolResult{CallID: callID, Name: "run_js", Outcome: outcome, Parts: parts}}
}

// Provided returns the part with what an adapter keeps on it.
func Provided(provider string, p events.Part, kept string) events.Part {
	p.Provider = map[string]json.RawMessage{provider: json.RawMessage(kept)}
	return p
}

// Stored returns parts as the loop keeps them: arguments that are not acceptable
// JSON are wrapped in a JSON string, missing ones are an empty object.
func Stored(parts []events.Part) ([]events.Part, error) {
	for i, p := range parts {
		if p.Call == nil {
			continue
		}
		call := *p.Call
		switch {
		case len(call.Arguments) == 0:
			call.Arguments = json.RawMessage(`{}`)
		case events.CheckJSON(call.Arguments, events.JSONLimits{}) != nil:
			call.Arguments, _ = events.Marshal(string(call.Arguments))
		}
		parts[i].Call = &call
	}
	data, err := events.Marshal(parts)
	if err != nil {
		return nil, err
	}
	var out []events.Part
	return out, json.Unmarshal(data, &out)
}

// Echo is a transport that answers with a stream and keeps what it is sent.
type Echo struct {
	Answer string
	Sent   []byte
}

func (e *Echo) RoundTrip(r *http.Request) (*http.Response, error) {
	sent, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	e.Sent = sent
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(e.Answer)), Request: r}, nil
}

// Decode reads JSON without losing a digit.
func Decode(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(into)
}

// Pieces cuts a text anywhere between two characters, at least once.
func Pieces(rt *rapid.T, text string) (pieces []string) {
	for rest := []rune(text); len(rest) > 0; {
		n := rapid.IntRange(1, len(rest)).Draw(rt, "piece")
		pieces = append(pieces, string(rest[:n]))
		rest = rest[n:]
	}
	return pieces
}

// Objects are arguments as a model writes them, among them numbers that no
// float64 holds.
func Objects() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{`{}`, `{"n":12345678901234567890.10,"m":-0.0,"e":1E400}`, `{ "a" : [ "<&>\u00e9" ] }`, `{"a":"\ud83d\ude00"}`, `{"type":"x","id":null}`}),
		rapid.Map(rapid.MapOf(rapid.String(), rapid.String()), func(m map[string]string) string {
			data, _ := json.Marshal(m)
			return string(data)
		}),
	)
}

// Lines are texts that hold more than white space.
func Lines() *rapid.Generator[string] {
	return rapid.Map(rapid.String(), func(s string) string { return "»" + s })
}

// Window draws a window as the loop makes them: a task, a summary if it was
// compacted, then responses, each
// followed by the results of its calls or by a notice. Said draws a response;
// its calls get ids here.
func Window(rt *rapid.T, said func(*rapid.T) []events.Part) *runtime.Request {
	anyText := rapid.SampledFrom([]string{"", " \n", "ok", `{"value":12345678901234567890.10}`, "a\xffb"})
	outcome := rapid.SampledFrom([]events.Outcome{events.OutcomeOK, events.OutcomeError, events.OutcomeDenied, events.OutcomeSkipped, events.OutcomeUnknown})
	file := rapid.SampledFrom([]events.Part{
		FilePart("", "text/plain", "sha256:ab", 1), FilePart("t", "text/plain", "sha256:cd", 2), FilePart("b", "text/plain", "sha256:blank", 2),
		FilePart("c.png", "image/png", "sha256:ef", 3), FilePart("r.pdf", "application/pdf", "sha256:01", 4), FilePart("x", "audio/ogg", "sha256:02", 5),
	})
	words := rapid.SliceOfN(rapid.OneOf(rapid.Map(anyText, Text), file), 0, 3)
	r := &runtime.Request{Files: map[string][]byte{"sha256:cd": []byte("a\xff"), "sha256:blank": []byte(" \n"), "sha256:ef": []byte("\x89PN"), "sha256:01": []byte("%PDF")},
		System: anyText.Draw(rt, "system"), Tools: []runtime.Tool{{Name: "run_js", InputSchema: json.RawMessage(`{"type":"object"}`)}}}
	add := func(role events.Role, parts ...events.Part) {
		r.Messages = append(r.Messages, events.Message{ID: fmt.Sprintf("m%d", len(r.Messages)), Role: role, Parts: parts})
	}
	add(events.RoleUser, words.Draw(rt, "task")...)
	if rapid.Bool().Draw(rt, "compacted") {
		add(events.RoleUser, Text("[Summary of the conversation so far]"))
	}
	for step := range rapid.IntRange(0, 5).Draw(rt, "steps") {
		parts := said(rt)
		var results []events.Part
		for i := range parts {
			if parts[i].Call != nil {
				parts[i].Call.ID = fmt.Sprintf("call_%d_%d", step, i)
				results = append(results, Result(parts[i].Call.ID, outcome.Draw(rt, "outcome"), words.Draw(rt, "result")...))
			}
		}
		add(events.RoleAssistant, parts...)
		noticed := len(results) == 0 || rapid.Bool().Draw(rt, "noticed")
		if rapid.Bool().Draw(rt, "one message") && len(results) > 0 {
			add(events.RoleTool, results...)
			results = nil
		}
		for _, result := range results {
			add(events.RoleTool, result)
		}
		if noticed {
			add(events.RoleUser, words.Draw(rt, "notice")...)
		}
	}
	return r
}

// Compact drops the blanks of acceptable JSON.
func Compact(s string) string {
	var out bytes.Buffer
	if events.CheckJSON([]byte(s), events.JSONLimits{}) != nil || json.Compact(&out, []byte(s)) != nil {
		return s
	}
	return out.String()
}
