package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// Step answers one request. The step counts the assistant messages that the
// request already has: a model's position comes from the transcript alone, so
// a recovered attempt continues where the transcript stands.
type Step func(step int, r *runtime.Request) (*runtime.Response, error)

// Model is a scripted runtime.Model.
type Model struct {
	Respond Step

	// Summarize, when set, answers requests for a summary. Otherwise the
	// summary says how long what it stands for was.
	Summarize Step

	mu       sync.Mutex
	requests []*runtime.Request
}

var _ runtime.Model = (*Model)(nil)

// Generate implements runtime.Model.
func (m *Model) Generate(ctx context.Context, r *runtime.Request) (*runtime.Response, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.requests = append(m.requests, r)
	m.mu.Unlock()
	if runtime.IsSummaryRequest(r) {
		if m.Summarize != nil {
			return m.Summarize(0, r)
		}
		return respond(runtime.FinishStop, events.Part{Type: events.PartText, Text: fmt.Sprintf("There were %d bytes.", len(textOf(r.Messages[0].Parts)))}), nil
	}
	if m.Respond == nil {
		return nil, errors.New("the scripted model has no Respond")
	}
	return m.Respond(Position(r), r)
}

// Requests returns every request that was made, in order.
func (m *Model) Requests() []*runtime.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// Position returns how many responses a request's transcript holds, those that a
// summary stands for included.
func Position(r *runtime.Request) int {
	n := 0
	for i := range r.Messages {
		earlier, _ := runtime.Summarized(&r.Messages[i])
		n += earlier
		if r.Messages[i].Role == events.RoleAssistant {
			n++
		}
	}
	return n
}

// Script plays steps by position. A request beyond the last step is an error.
func Script(steps ...Step) Step {
	return func(step int, r *runtime.Request) (*runtime.Response, error) {
		if step >= len(steps) {
			return nil, fmt.Errorf("the scripted model has %d steps and is asked for step %d", len(steps), step)
		}
		return steps[step](step, r)
	}
}

// Text answers with text and no call.
func Text(text string) Step {
	return func(int, *runtime.Request) (*runtime.Response, error) {
		return respond(runtime.FinishStop, events.Part{Type: events.PartText, Text: text}), nil
	}
}

// Call makes one call. The arguments are the text the model writes, JSON or
// not.
func Call(name, arguments string) Step { return Calls(ToolCall(name, arguments)) }

// ToolCall is one call for Calls. Its id is the step's to set.
func ToolCall(name, arguments string) events.ToolCall {
	return events.ToolCall{Name: name, Arguments: json.RawMessage(arguments)}
}

// Calls makes several calls in one response. Calls without an id get one that
// derives from their position.
func Calls(calls ...events.ToolCall) Step { return Cut(runtime.FinishCalls, calls...) }

// Cut makes calls in a response that ends for the given reason.
func Cut(finish runtime.FinishReason, calls ...events.ToolCall) Step {
	return func(step int, _ *runtime.Request) (*runtime.Response, error) {
		parts := make([]events.Part, len(calls))
		for i, c := range calls {
			if c.ID == "" {
				c.ID = CallID(step, i)
			}
			parts[i] = events.Part{Type: events.PartToolCall, Call: &c}
		}
		return respond(finish, parts...), nil
	}
}

// CallID is the id that Calls gives to call i of a step.
func CallID(step, i int) string { return fmt.Sprintf("call_%d_%d", step, i) }

// RunJS makes one run_js call with that code.
func RunJS(code string) Step { return Calls(RunJSCall(code)) }

// RunJSCall is a run_js call for Calls.
func RunJSCall(code string) events.ToolCall {
	return ToolCall("run_js", object("code", code))
}

// Complete completes with an output, which is JSON.
func Complete(output string) Step {
	return Call("complete", object("kind", "output", "output", json.RawMessage(output)))
}

// Ask completes with a question.
func Ask(question string) Step {
	return Call("complete", object("kind", "needs_input", "question", question))
}

// CompleteQuoting completes with every result that the request holds, so that
// a result that was lost, repeated or moved shows in the reply.
func CompleteQuoting() Step {
	return func(step int, r *runtime.Request) (*runtime.Response, error) {
		return Complete(string(Quote(r)))(step, r)
	}
}

// Fails answers with an error.
func Fails(err error) Step {
	return func(int, *runtime.Request) (*runtime.Response, error) { return nil, err }
}

func respond(finish runtime.FinishReason, parts ...events.Part) *runtime.Response {
	return &runtime.Response{Parts: parts, Finish: finish, Usage: events.Usage{Input: 100, Output: 10}}
}

// object writes a JSON object from keys and values.
func object(pairs ...any) string {
	members := make(map[string]any, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		members[pairs[i].(string)] = pairs[i+1]
	}
	data, err := events.Marshal(members)
	if err != nil {
		panic(fmt.Sprintf("runtimetest: %v", err))
	}
	return string(data)
}

// quotedResult is one element of what Quote returns.
type quotedResult struct {
	CallID  string         `json:"call_id"`
	Name    string         `json:"name"`
	Outcome events.Outcome `json:"outcome"`
	Text    string         `json:"text"`
}

// Quote returns every result that a request holds, in order, as JSON.
func Quote(r *runtime.Request) json.RawMessage {
	quoted := []quotedResult{}
	for _, m := range r.Messages {
		for _, p := range m.Parts {
			if p.Result != nil {
				quoted = append(quoted, quotedResult{p.Result.CallID, p.Result.Name, p.Result.Outcome, textOf(p.Result.Parts)})
			}
		}
	}
	data, err := events.Marshal(quoted)
	if err != nil {
		panic(fmt.Sprintf("runtimetest: %v", err))
	}
	return data
}

func textOf(parts []events.Part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}
