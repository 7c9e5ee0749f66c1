package anthropic_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wiretest"
)

// drawn is a block that a model wrote, and its arguments as it wrote them.
type drawn struct {
	block     map[string]any
	arguments string
}

func drawBlock(rt *rapid.T) drawn {
	token := rapid.StringMatching(`[A-Za-z0-9+/=]{1,20}`)
	switch rapid.IntRange(0, 4).Draw(rt, "kind") {
	case 0:
		return drawn{block: map[string]any{"type": "thinking", "thinking": rapid.String().Draw(rt, "thinking"), "signature": token.Draw(rt, "signature")}}
	case 1:
		return drawn{block: map[string]any{"type": "redacted_thinking", "data": token.Draw(rt, "data")}}
	case 2:
		return drawn{block: map[string]any{"type": "future_block", "data": rapid.String().Draw(rt, "data"), "n": json.Number("12345678901234567890.10")}}
	case 3:
		return drawn{block: map[string]any{"type": "text", "text": wiretest.Lines().Draw(rt, "text")}}
	}
	d := drawn{block: map[string]any{"type": "tool_use", "name": rapid.StringMatching(`[a-zA-Z0-9_-]{1,12}`).Draw(rt, "name")}, arguments: wiretest.Objects().Draw(rt, "arguments")}
	if rapid.Bool().Draw(rt, "caller") {
		d.block["caller"] = map[string]any{"type": "direct"}
	}
	return d
}

// streamOf writes the blocks as a stream, what grows in pieces.
func streamOf(rt *rapid.T, blocks []drawn) string {
	var out strings.Builder
	event := func(kind string, fields map[string]any) {
		fields["type"] = kind
		data, err := json.Marshal(fields)
		if err != nil {
			rt.Fatal(err)
		}
		fmt.Fprintf(&out, "event: %s\ndata: %s\n\n", kind, data)
	}
	event("message_start", map[string]any{"message": map[string]any{"usage": map[string]any{"input_tokens": 1}}})
	for i, d := range blocks {
		begun := map[string]any{}
		for field, value := range d.block {
			begun[field] = value
		}
		grows := map[string]string{}
		for _, field := range []string{"text", "thinking", "signature"} {
			if text, ok := d.block[field].(string); ok {
				grows[field], begun[field] = text, ""
			}
		}
		if d.block["type"] == "tool_use" {
			begun["input"] = map[string]any{}
		}
		event("content_block_start", map[string]any{"index": i, "content_block": begun})
		delta := func(kind, field, text string) {
			for _, piece := range wiretest.Pieces(rt, text) {
				event("content_block_delta", map[string]any{"index": i, "delta": map[string]any{"type": kind, field: piece}})
			}
		}
		delta("input_json_delta", "partial_json", d.arguments)
		for _, field := range []string{"text", "thinking", "signature"} {
			delta(field+"_delta", field, grows[field])
		}
		event("content_block_stop", map[string]any{"index": i})
	}
	event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": "end_turn"}})
	event("message_stop", map[string]any{})
	return out.String()
}

// TestModelToStoredToModelIsTheIdentity lets a model write blocks, stores the
// parts made of them, and compares what the model is sent next with what it
// wrote.
func TestModelToStoredToModelIsTheIdentity(t *testing.T) {
	a := adapter(nil)
	rapid.Check(t, func(rt *rapid.T) {
		blocks := rapid.SliceOfN(rapid.Custom(drawBlock), 0, 6).Draw(rt, "blocks")
		blocks = append(blocks, drawn{block: map[string]any{"type": "text", "text": "Thinking is never last."}})
		want := make([]any, len(blocks))
		for i, d := range blocks {
			if d.block["type"] == "tool_use" {
				d.block["id"] = fmt.Sprintf("toolu_%d", i)
			}
		}
		echo := &wiretest.Echo{Answer: streamOf(rt, blocks)}
		m, err := a.New(wiretest.Config{Name: "m", HTTPClient: &http.Client{Transport: echo}})
		if err != nil {
			rt.Fatal(err)
		}
		response, err := m.Generate(t.Context(), &runtime.Request{})
		if err != nil {
			rt.Fatal(err)
		}
		parts, err := wiretest.Stored(response.Parts)
		if err != nil {
			rt.Fatal(err)
		}
		if _, err := m.Generate(t.Context(), &runtime.Request{Messages: []events.Message{{ID: "m1", Role: events.RoleAssistant, Parts: parts}}}); err != nil {
			rt.Fatal(err)
		}
		for i, d := range blocks {
			if d.arguments != "" {
				var input any
				if err := wiretest.Decode([]byte(d.arguments), &input); err != nil {
					rt.Fatal(err)
				}
				d.block["input"] = input
			}
			want[i] = d.block
		}
		var got struct{ Messages []struct{ Content []any } }
		if err := wiretest.Decode(echo.Sent, &got); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Messages[0].Content); diff != "" {
			rt.Errorf("blocks (-written +sent):\n%s", diff)
		}
	})
}
