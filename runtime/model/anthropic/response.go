package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wire"
)

// answer is a response as far as it has been read.
type answer struct {
	blocks []*block
	stop   sdk.StopReason
	usage  usage
}

// usage is the newest count of each kind; those of a stream are running totals.
type usage struct{ input, read, written, output, thinking int64 }

// block is one content block as far as it has been read.
type block struct {
	index     int64
	begun     wire.Fields                 // as it began
	texts     map[string]*strings.Builder // the string fields that grew
	input     strings.Builder
	citations []json.RawMessage
	ended     bool
}

// Usage returns what has been reported. The API counts cached input beside the
// other.
func (a *answer) Usage() events.Usage {
	u := a.usage
	return events.Usage{Input: u.input + u.read + u.written, Cached: u.read, Output: u.output, Reasoning: u.thinking}
}

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
		var event sdk.MessageStreamEventUnion
		if err := json.Unmarshal(data, &event); err != nil {
			return wire.Invalid(fmt.Errorf("an event of the stream is not the JSON of one: %w", err))
		}
		switch event.Type {
		case "":
			return wire.Invalid(errors.New("an event of the stream has no type"))
		case "error":
			return wire.ResponseError(data)
		case "message_stop":
			return a.ended()
		}
		if err := a.add(&event); err != nil {
			return wire.Invalid(err)
		}
	}
	if err := stream.Err(); err != nil {
		return fmt.Errorf("read the stream: %w", err)
	}
	return errors.New("the stream ended before the response did")
}

// ended returns an error unless everything that began has ended.
func (a *answer) ended() error {
	if a.stop == "" || slices.ContainsFunc(a.blocks, func(b *block) bool { return !b.ended }) {
		return errors.New("the stream ended before the response did")
	}
	return nil
}

// add takes one event over. Types that are not known say nothing that a
// response is made of, and more of them may come.
func (a *answer) add(event *sdk.MessageStreamEventUnion) error {
	switch event.Type {
	case "message_start":
		u := event.Message.Usage
		a.usage = usage{u.InputTokens, u.CacheReadInputTokens, u.CacheCreationInputTokens, u.OutputTokens, u.OutputTokensDetails.ThinkingTokens}
	case "message_delta":
		if event.Delta.StopReason != "" {
			a.stop = event.Delta.StopReason
		}
		u := event.Usage
		a.usage = usage{
			newer(a.usage.input, u.JSON.InputTokens.Valid(), u.InputTokens),
			newer(a.usage.read, u.JSON.CacheReadInputTokens.Valid(), u.CacheReadInputTokens),
			newer(a.usage.written, u.JSON.CacheCreationInputTokens.Valid(), u.CacheCreationInputTokens),
			newer(a.usage.output, u.JSON.OutputTokens.Valid(), u.OutputTokens),
			newer(a.usage.thinking, u.OutputTokensDetails.JSON.ThinkingTokens.Valid(), u.OutputTokensDetails.ThinkingTokens),
		}
	case "content_block_start":
		b := &block{index: event.Index, texts: map[string]*strings.Builder{}}
		if err := json.Unmarshal([]byte(event.ContentBlock.RawJSON()), &b.begun); err != nil || b.begun.String("type") == "" {
			return errors.New("a content block begins without a type")
		}
		a.blocks = append(a.blocks, b)
	case "content_block_delta", "content_block_stop":
		i := slices.IndexFunc(a.blocks, func(b *block) bool { return b.index == event.Index && !b.ended })
		if i < 0 {
			return fmt.Errorf("%s of a content block that is not open", event.Type)
		}
		if event.Type == "content_block_stop" {
			a.blocks[i].ended = true
			return nil
		}
		return a.blocks[i].grow(&event.Delta)
	}
	return nil
}

func newer(old int64, reported bool, count int64) int64 {
	if reported {
		return count
	}
	return old
}

// grow adds a delta. One that is not known cannot be left out: what the block
// says would be another thing.
func (b *block) grow(d *sdk.MessageStreamEventUnionDelta) error {
	switch d.Type {
	case "text_delta":
		b.text("text").WriteString(d.Text)
	case "thinking_delta":
		b.text("thinking").WriteString(d.Thinking)
	case "signature_delta":
		b.text("signature").WriteString(d.Signature)
	case "input_json_delta":
		b.input.WriteString(d.PartialJSON)
	case "citations_delta":
		b.citations = append(b.citations, json.RawMessage(d.Citation.RawJSON()))
	default:
		return fmt.Errorf("unknown delta %q of a content block", d.Type)
	}
	return nil
}

func (b *block) text(field string) *strings.Builder {
	if b.texts[field] == nil {
		b.texts[field] = new(strings.Builder)
		b.texts[field].WriteString(b.begun.String(field))
	}
	return b.texts[field]
}

// whole returns the block as it would have come without streaming, but for the
// input, which need not be JSON.
func (b *block) whole() wire.Fields {
	f := b.begun
	for field, text := range b.texts {
		f = f.With(field, text.String())
	}
	if len(b.citations) > 0 {
		data, err := events.Marshal(b.citations)
		if err != nil {
			panic(err) // each was read from valid JSON
		}
		f = f.WithJSON("citations", data)
	}
	return f
}

// arguments returns the input as the model wrote it.
func (b *block) arguments() json.RawMessage {
	if b.input.Len() > 0 {
		return json.RawMessage(b.input.String())
	}
	if !wire.Present(b.begun["input"]) {
		return nil
	}
	return b.begun["input"]
}

// part returns the block as a part, or nothing for empty text. A block of a
// type that is not known is carried like thinking that cannot be read.
func (b *block) part() (p events.Part, ok bool) {
	f := b.whole()
	switch f.String("type") {
	case "text":
		return events.Part{Type: events.PartText, Text: f.String("text"), Provider: f.Keep(Provider, "type", "text")}, f.String("text") != ""
	case "tool_use":
		return events.Part{
			Type:     events.PartToolCall,
			Call:     &events.ToolCall{ID: f.String("id"), Name: f.String("name"), Arguments: b.arguments()},
			Provider: f.Keep(Provider, "type", "id", "name", "input"),
		}, true
	}
	if b.input.Len() > 0 && json.Valid([]byte(b.input.String())) {
		f = f.WithJSON("input", json.RawMessage(b.input.String()))
	}
	return events.Part{Type: events.PartReasoning, Text: f.String("thinking"), Provider: f.Keep(Provider)}, true
}

// Response returns the whole answer.
func (a *answer) Response() (*runtime.Response, error) {
	r := &runtime.Response{Usage: a.Usage()}
	slices.SortStableFunc(a.blocks, func(b, c *block) int { return int(b.index - c.index) })
	calls := false
	for _, b := range a.blocks {
		if p, ok := b.part(); ok {
			r.Parts = append(r.Parts, p)
			calls = calls || p.Call != nil
		}
	}
	switch a.stop {
	case sdk.StopReasonEndTurn, sdk.StopReasonStopSequence, sdk.StopReasonToolUse, sdk.StopReasonPauseTurn:
		// A paused turn goes on when it is sent back, like one that ended
		// without a call.
		r.Finish = runtime.FinishStop
		if calls {
			r.Finish = runtime.FinishCalls
		}
	case sdk.StopReasonMaxTokens, sdk.StopReasonModelContextWindowExceeded:
		r.Finish = runtime.FinishLength
	case sdk.StopReasonRefusal:
		r.Finish = runtime.FinishFilter
	default:
		return nil, wire.Invalid(fmt.Errorf("unknown stop reason %q", a.stop))
	}
	return r, nil
}
