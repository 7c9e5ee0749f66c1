package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/respjson"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wire"
)

// answer is a response as far as it has been read.
type answer struct {
	reasoning, text, refusal strings.Builder
	details                  []json.RawMessage // reasoning_details, in order
	calls                    []*toolCall
	finish                   string
	usage                    events.Usage
}

type toolCall struct {
	index     int64
	id, name  string
	arguments strings.Builder
	extra     json.RawMessage // extra_content
}

// kept is what a part carries for this adapter, under Part.Provider.
type kept struct {
	Refusal          bool              `json:"refusal,omitempty"`
	ReasoningDetails []json.RawMessage `json:"reasoning_details,omitempty"`
	ExtraContent     json.RawMessage   `json:"extra_content,omitempty"`
}

func (k kept) provider() map[string]json.RawMessage {
	data, err := json.Marshal(k)
	if err != nil {
		panic(err) // every field was read from valid JSON
	}
	return map[string]json.RawMessage{Provider: data}
}

// Read reads a stream, or a whole completion from an endpoint that does not
// stream.
func (a *answer) Read(r *http.Response) error {
	contentType := r.Header.Get("Content-Type")
	media, _, _ := mime.ParseMediaType(contentType)
	switch {
	case media == "text/event-stream" || contentType == "":
		return a.readStream(r)
	case media == "application/json" || strings.HasSuffix(media, "+json"):
		return a.readCompletion(r.Body)
	}
	return wire.Invalid(fmt.Errorf("the response is %q, neither an event stream nor JSON: check the base URL", contentType))
}

func (a *answer) readStream(r *http.Response) error {
	stream := ssestream.NewDecoder(r)
	for stream.Next() {
		event := stream.Event()
		data := wire.Valid(bytes.TrimSpace(event.Data))
		if bytes.Equal(data, []byte("[DONE]")) {
			break
		}
		if err := errorIn(data, event.Type == "error"); err != nil {
			return err
		}
		var chunk sdk.ChatCompletionChunk
		if err := json.Unmarshal(data, &chunk); err != nil {
			return wire.Invalid(fmt.Errorf("an event of the stream is no chunk: %w", err))
		}
		a.addChunk(&chunk)
	}
	if err := stream.Err(); err != nil {
		return fmt.Errorf("read the stream: %w", err)
	}
	if a.finish == "" {
		return errors.New("the stream ended before the response did")
	}
	return nil
}

func (a *answer) readCompletion(body io.Reader) error {
	data, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	data = wire.Valid(data)
	if err := errorIn(data, false); err != nil {
		return err
	}
	var completion sdk.ChatCompletion
	if err := json.Unmarshal(data, &completion); err != nil {
		return wire.Invalid(fmt.Errorf("the response is no completion: %w", err))
	}
	if completion.JSON.Usage.Valid() {
		a.usage = usageOf(completion.Usage)
	}
	if len(completion.Choices) == 0 {
		return wire.Invalid(errors.New("the response has no choices"))
	}
	choice := completion.Choices[0]
	a.text.WriteString(choice.Message.Content)
	a.refusal.WriteString(choice.Message.Refusal)
	a.addReasoning(choice.Message.JSON.ExtraFields)
	for i, c := range choice.Message.ToolCalls {
		call := a.call(int64(i), c.ID, c.Function.Name)
		call.arguments.WriteString(c.Function.Arguments)
		call.extra = extraContent(c.RawJSON())
	}
	a.finish = choice.FinishReason
	return nil
}

// errorIn returns the error that a message of a successful response holds, or
// is if it is declared one. A field "error" that is null is none.
func errorIn(data []byte, declared bool) error {
	if declared {
		return wire.ResponseError(data)
	}
	var probe struct {
		Error  json.RawMessage `json:"error"`
		Object string          `json:"object"`
	}
	if err := json.Unmarshal(data, &probe); err != nil {
		return wire.Invalid(fmt.Errorf("the response is not the JSON of a completion: %w", err))
	}
	if wire.Present(probe.Error) || probe.Object == "error" {
		return wire.ResponseError(data)
	}
	return nil
}

func (a *answer) addChunk(c *sdk.ChatCompletionChunk) {
	if c.JSON.Usage.Valid() {
		a.usage = usageOf(c.Usage) // the last one counts: some endpoints report running totals
	}
	for i := range c.Choices {
		choice := &c.Choices[i]
		if choice.Index != 0 {
			continue // only one was asked for
		}
		a.text.WriteString(choice.Delta.Content)
		a.refusal.WriteString(choice.Delta.Refusal)
		a.addReasoning(choice.Delta.JSON.ExtraFields)
		for j := range choice.Delta.ToolCalls {
			delta := &choice.Delta.ToolCalls[j]
			call := a.call(delta.Index, delta.ID, delta.Function.Name)
			call.arguments.WriteString(delta.Function.Arguments)
			if extra := extraContent(delta.RawJSON()); extra != nil {
				call.extra = extra
			}
		}
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
	}
}

// call returns the call a delta belongs to. Some endpoints give every call the
// same index, or none; there a new id with a name begins a new call.
func (a *answer) call(index int64, id, name string) *toolCall {
	for _, c := range slices.Backward(a.calls) {
		if c.index != index {
			continue
		}
		if id != "" && c.id != "" && id != c.id && name != "" {
			break
		}
		c.id, c.name = cmp.Or(c.id, id), cmp.Or(c.name, name)
		return c
	}
	c := &toolCall{index: index, id: id, name: name}
	a.calls = append(a.calls, c)
	return c
}

// addReasoning reads what is not in OpenAI's schema but common: the text under
// one of two names, and details to be handed back.
func (a *answer) addReasoning(fields map[string]respjson.Field) {
	for _, name := range []string{"reasoning_content", "reasoning"} {
		var text string
		if json.Unmarshal([]byte(fields[name].Raw()), &text) == nil && text != "" {
			a.reasoning.WriteString(text)
			break
		}
	}
	var details []json.RawMessage
	if json.Unmarshal([]byte(fields["reasoning_details"].Raw()), &details) == nil {
		a.details = append(a.details, details...)
	}
}

func extraContent(call string) json.RawMessage {
	var fields struct {
		ExtraContent json.RawMessage `json:"extra_content"`
	}
	if json.Unmarshal([]byte(call), &fields) != nil || !wire.Present(fields.ExtraContent) {
		return nil
	}
	return fields.ExtraContent
}

// usageOf normalizes a usage. Some endpoints count reasoning beside the
// completion instead of in it; the total tells.
func usageOf(u sdk.CompletionUsage) events.Usage {
	reasoning := u.CompletionTokensDetails.ReasoningTokens
	output := u.CompletionTokens
	if reasoning > 0 && u.TotalTokens == u.PromptTokens+output+reasoning {
		output += reasoning
	}
	return events.Usage{Input: u.PromptTokens, Cached: u.PromptTokensDetails.CachedTokens, Output: output, Reasoning: reasoning}
}

// Usage returns what has been reported.
func (a *answer) Usage() events.Usage { return a.usage }

// Response returns the whole answer. Chat completions give no order of the
// parts; it is the order in which a model writes them.
func (a *answer) Response() (*runtime.Response, error) {
	finish, err := a.finishReason()
	if err != nil {
		return nil, err
	}
	r := &runtime.Response{Finish: finish, Usage: a.usage}
	if a.reasoning.Len() > 0 || len(a.details) > 0 {
		part := events.Part{Type: events.PartReasoning, Text: a.reasoning.String()}
		if len(a.details) > 0 {
			part.Provider = kept{ReasoningDetails: a.details}.provider()
		}
		r.Parts = append(r.Parts, part)
	}
	if a.text.Len() > 0 {
		r.Parts = append(r.Parts, events.Part{Type: events.PartText, Text: a.text.String()})
	}
	if a.refusal.Len() > 0 {
		r.Parts = append(r.Parts, events.Part{Type: events.PartText, Text: a.refusal.String(), Provider: kept{Refusal: true}.provider()})
	}
	slices.SortStableFunc(a.calls, func(c, d *toolCall) int { return cmp.Compare(c.index, d.index) })
	for _, c := range a.calls {
		part := events.Part{Type: events.PartToolCall, Call: &events.ToolCall{ID: c.id, Name: c.name}}
		if c.arguments.Len() > 0 {
			part.Call.Arguments = json.RawMessage(c.arguments.String())
		}
		if c.extra != nil {
			part.Provider = kept{ExtraContent: c.extra}.provider()
		}
		r.Parts = append(r.Parts, part)
	}
	return r, nil
}

func (a *answer) finishReason() (runtime.FinishReason, error) {
	switch a.finish {
	case "stop":
		if len(a.calls) > 0 { // a forced call, or an endpoint that always says so
			return runtime.FinishCalls, nil
		}
		return runtime.FinishStop, nil
	case "tool_calls":
		return runtime.FinishCalls, nil
	case "length":
		return runtime.FinishLength, nil
	case "content_filter":
		return runtime.FinishFilter, nil
	}
	return "", wire.Invalid(fmt.Errorf("unknown finish reason %q", a.finish))
}
