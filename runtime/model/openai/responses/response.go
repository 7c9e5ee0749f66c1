package openairesponses

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3/packages/ssestream"
	sdk "github.com/openai/openai-go/v3/responses"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wire"
)

// answer is a response as far as it has been read.
type answer struct {
	items  []item // those that are done, until the response itself tells
	status sdk.ResponseStatus
	reason string // why it is incomplete
	usage  events.Usage
}

type item struct {
	index  int64
	fields wire.Fields
}

// Usage returns what has been reported, which is nothing before the last event.
func (a *answer) Usage() events.Usage { return a.usage }

// Read reads a stream to its last event.
func (a *answer) Read(r *http.Response) error {
	contentType := r.Header.Get("Content-Type")
	if media, _, _ := mime.ParseMediaType(contentType); media != "text/event-stream" && contentType != "" {
		return wire.Invalid(fmt.Errorf("the response is %q and no event stream: check the base URL", contentType))
	}
	stream := ssestream.NewDecoder(r)
	for stream.Next() {
		data := wire.Valid(bytes.TrimSpace(stream.Event().Data))
		if stream.Event().Type == "error" {
			return wire.ResponseError(data)
		}
		if len(data) == 0 {
			continue
		}
		done, err := a.add(data)
		if done || err != nil {
			return err
		}
	}
	if err := stream.Err(); err != nil {
		return fmt.Errorf("read the stream: %w", err)
	}
	return errors.New("the stream ended before the response did")
}

// add takes one event over and reports whether it was the last one. The deltas
// need not be read: an item that is done holds them all. Types that are not
// known are passed over, since more of them may come.
func (a *answer) add(data []byte) (done bool, err error) {
	var kind struct {
		Type  string          `json:"type"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(data, &kind); err != nil {
		return false, wire.Invalid(fmt.Errorf("an event of the stream is not the JSON of one: %w", err))
	}
	if kind.Type == "error" || kind.Type == "" && wire.Present(kind.Error) {
		return false, wire.ResponseError(data)
	}
	switch kind.Type {
	case "response.output_item.done":
		var event sdk.ResponseOutputItemDoneEvent
		if err := json.Unmarshal(data, &event); err != nil {
			return false, wire.Invalid(fmt.Errorf("an event of the stream is not the JSON of one: %w", err))
		}
		return false, a.addItem(event.OutputIndex, event.Item.RawJSON())
	case "response.completed", "response.incomplete", "response.failed":
		var event struct {
			Response sdk.Response `json:"response"`
		}
		if err := json.Unmarshal(data, &event); err != nil {
			return false, wire.Invalid(fmt.Errorf("an event of the stream is not the JSON of one: %w", err))
		}
		return true, a.end(kind.Type, &event.Response)
	}
	return false, nil
}

func (a *answer) addItem(index int64, raw string) error {
	i := item{index: index}
	if err := json.Unmarshal([]byte(raw), &i.fields); err != nil || i.fields.String("type") == "" {
		return wire.Invalid(errors.New("an item of the response has no type"))
	}
	a.items = append(a.items, i)
	return nil
}

// end takes the response over as it was when it ended. The items that were done
// before are the ones to be handed back, says the API; its own list counts where
// it holds more.
func (a *answer) end(kind string, r *sdk.Response) error {
	if r.JSON.Usage.Valid() {
		u := r.Usage
		a.usage = events.Usage{Input: u.InputTokens, Cached: u.InputTokensDetails.CachedTokens, Output: u.OutputTokens, Reasoning: u.OutputTokensDetails.ReasoningTokens}
	}
	a.reason = r.IncompleteDetails.Reason
	a.status = cmp.Or(r.Status, sdk.ResponseStatus(strings.TrimPrefix(kind, "response.")))
	if a.status == sdk.ResponseStatusFailed {
		return wire.ResponseError([]byte(r.Error.RawJSON()))
	}
	if len(r.Output) <= len(a.items) {
		return nil
	}
	a.items = nil
	for i, output := range r.Output {
		if err := a.addItem(int64(i), output.RawJSON()); err != nil {
			return err
		}
	}
	return nil
}

// Response returns the whole answer.
func (a *answer) Response() (*runtime.Response, error) {
	r := &runtime.Response{Usage: a.usage}
	slices.SortStableFunc(a.items, func(i, j item) int { return cmp.Compare(i.index, j.index) })
	calls := false
	for _, i := range a.items {
		parts, err := i.parts()
		if err != nil {
			return nil, wire.Invalid(err)
		}
		r.Parts = append(r.Parts, parts...)
		calls = calls || i.fields.String("type") == "function_call"
	}
	switch {
	case a.status == sdk.ResponseStatusCompleted && calls:
		r.Finish = runtime.FinishCalls
	case a.status == sdk.ResponseStatusCompleted:
		r.Finish = runtime.FinishStop
	case a.status == sdk.ResponseStatusIncomplete && a.reason == "max_output_tokens":
		r.Finish = runtime.FinishLength
	case a.status == sdk.ResponseStatusIncomplete && a.reason == "content_filter":
		r.Finish = runtime.FinishFilter
	default:
		return nil, wire.Invalid(fmt.Errorf("the response is %q for the unknown reason %q", a.status, a.reason))
	}
	return r, nil
}

// parts returns an item as parts: each content of a message is one. An item of
// a type that is not known is carried like reasoning that cannot be read.
func (i item) parts() ([]events.Part, error) {
	f := i.fields
	switch f.String("type") {
	case "message":
		return contents(f)
	case "function_call":
		call := &events.ToolCall{ID: f.String("call_id"), Name: f.String("name")}
		if arguments := f.String("arguments"); arguments != "" {
			call.Arguments = json.RawMessage(arguments)
		}
		return []events.Part{{Type: events.PartToolCall, Call: call, Provider: f.Keep(Provider, "type", "call_id", "name", "arguments")}}, nil
	case "reasoning":
		return []events.Part{{Type: events.PartReasoning, Text: summary(f), Provider: f.Keep(Provider)}}, nil
	}
	return []events.Part{{Type: events.PartReasoning, Provider: f.Keep(Provider)}}, nil
}

// contents returns the parts of a message item. Each carries the item it was
// in, with nothing in place of its contents, and what else is known of itself.
func contents(f wire.Fields) ([]events.Part, error) {
	var list []wire.Fields
	if err := json.Unmarshal(f["content"], &list); err != nil {
		return nil, fmt.Errorf("the content of a message item: %w", err)
	}
	parts := make([]events.Part, len(list))
	for i, c := range list {
		field, ok := textField[c.String("type")]
		if !ok {
			return nil, fmt.Errorf("unknown content %q of a message item", c.String("type"))
		}
		kept := wire.Fields{"item": f.Keep(Provider, "type", "content")[Provider], "content": c.Keep(Provider, field)[Provider]}
		parts[i] = events.Part{Type: events.PartText, Text: c.String(field), Provider: kept.Keep(Provider)}
	}
	return parts, nil
}

// textField is where a content of a message item holds its text.
var textField = map[string]string{"output_text": "text", "refusal": "refusal"}

// summary returns what a person may read of a reasoning item.
func summary(f wire.Fields) string {
	var texts []string
	for _, field := range []string{"summary", "content"} {
		var list []struct{ Text string }
		if json.Unmarshal(f[field], &list) != nil {
			continue
		}
		for _, c := range list {
			texts = append(texts, c.Text)
		}
	}
	return strings.Join(texts, "\n\n")
}
