// Package scripted is a model that reads its responses from a file, for
// demonstrations and tests that need no provider and no key.
//
// A script is YAML, or JSON:
//
//	responses:
//	  - text: Let me look.
//	    calls:
//	      - name: run_js
//	        arguments: {code: "return 6 * 7"}
//	  - calls:
//	      - name: complete
//	        arguments: {answer: $result/value, question: $message}
//	    usage: {input: 120, output: 8}
//
// The model keeps no state. Its position in the script is the number of
// assistant messages after the newest user message that is not one of the
// loop's own notices (whose ids begin with "notice-"), so a resumed run goes on
// where it was, and a new message begins the script again. A conversation has
// turns in place of responses: the responses to the first message of a user, to
// the second one, and so on. The last turn stands for all that come after it.
//
//	turns:
//	  - - calls: [{name: complete, arguments: {kind: needs_input, question: "When?"}}]
//	  - - calls: [{name: complete, arguments: {kind: output, output: $message}}]
//
// A string in arguments that is exactly one of these refers to the transcript
// from that user message on:
//
//   - $message: the text of the user message;
//   - $result: the text of the newest tool result, as JSON if it is JSON;
//   - $result/a/0: the value in it at the JSON pointer /a/0;
//   - $results: the texts of all tool results, oldest first;
//   - $all/3/a/0: the value at /a/0 in the text of the tool result number 3,
//     counted from 0 and from the beginning of the transcript.
//
// All arguments together may be one of these as well:
//
//	calls: [{name: complete, arguments: $result/value}]
//
// In a longer string, ${message} stands for the text of the user message as
// JSON, with its quotes, which is what code needs:
//
//	arguments: {code: "return await desk.find({text: ${message}})"}
//
// A window that was compacted keeps the position of a script, and not the results
// that its summary stands for; a script of turns is not kept in its place.
//
// What resolves to nothing is null. Numbers are copied digit by digit.
//
// Usage that a response does not give is estimated from the number of bytes.
package scripted

import (
	"context"
	"fmt"
	"os"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// Model answers from a script. It may be used concurrently.
type Model struct {
	name  string
	turns [][]response // by the messages of a user; never empty
}

var _ runtime.Model = (*Model)(nil)

// EndError reports a request beyond the last response of a script.
type EndError struct {
	Script    string
	Responses int // in the script, or in its turn
	Position  int // asked for, from 0
}

func (e *EndError) Error() string {
	return fmt.Sprintf("script %s has %d responses and was asked for number %d: add one, or end the run earlier",
		e.Script, e.Responses, e.Position+1)
}

// Load reads a script from a file. Its errors name file, line and field.
func Load(file string) (*Model, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	return Parse(file, data)
}

// Generate returns the response at the transcript's position. Its calls have no
// ids. Beyond the last response it fails with an EndError, in a ModelError of
// class invalid.
func (m *Model) Generate(ctx context.Context, r *runtime.Request) (*runtime.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if runtime.IsSummaryRequest(r) {
		return (&response{text: "What was said follows from the script.", finish: runtime.FinishStop}).render(r, transcript{})
	}
	t := read(r.Messages)
	responses := m.turns[min(t.turn, len(m.turns)-1)]
	if t.position >= len(responses) {
		return nil, &runtime.ModelError{Provider: "scripted", Class: runtime.ClassInvalid,
			Err: &EndError{Script: m.name, Responses: len(responses), Position: t.position}}
	}
	return responses[t.position].render(r, t)
}

func (s *response) render(r *runtime.Request, t transcript) (*runtime.Response, error) {
	out := &runtime.Response{Finish: s.finish, Usage: events.Usage{Input: tokens(requestBytes(r))}}
	written := len(s.text)
	if s.text != "" {
		out.Parts = append(out.Parts, events.Part{Type: events.PartText, Text: s.text})
	}
	for _, c := range s.calls {
		arguments, err := render(c.arguments, t)
		if err != nil {
			return nil, err
		}
		written += len(c.name) + len(arguments)
		out.Parts = append(out.Parts, events.Part{Type: events.PartToolCall, Call: &events.ToolCall{Name: c.name, Arguments: arguments}})
	}
	out.Usage.Output = tokens(written)
	if s.input != nil {
		out.Usage.Input = *s.input
	}
	if s.output != nil {
		out.Usage.Output = *s.output
	}
	return out, nil
}

// tokens is a common rule of thumb.
func tokens(bytes int) int64 { return int64(bytes+3) / 4 }

// requestBytes counts what the model would read. Ids are left out: they differ
// from run to run.
func requestBytes(r *runtime.Request) int {
	n := len(r.System)
	for _, t := range r.Tools {
		n += len(t.Name) + len(t.Description) + len(t.InputSchema)
	}
	for _, m := range r.Messages {
		n += partBytes(m.Parts)
	}
	return n
}

func partBytes(parts []events.Part) int {
	n := 0
	for _, p := range parts {
		n += len(p.Text)
		if p.Call != nil {
			n += len(p.Call.Name) + len(p.Call.Arguments)
		}
		if p.Result != nil {
			n += partBytes(p.Result.Parts)
		}
		if p.File != nil {
			n += len(p.File.Name) + len(p.File.MediaType)
		}
	}
	return n
}
