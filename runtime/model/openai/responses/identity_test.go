package openairesponses_test

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

func drawItem(rt *rapid.T) map[string]any {
	token := rapid.StringMatching(`[A-Za-z0-9+/=]{1,20}`)
	status := rapid.SampledFrom([]string{"completed", "incomplete"}).Draw(rt, "status")
	switch rapid.IntRange(0, 3).Draw(rt, "kind") {
	case 0:
		summary := []any{}
		for _, text := range rapid.SliceOfN(rapid.String(), 0, 2).Draw(rt, "summary") {
			summary = append(summary, map[string]any{"type": "summary_text", "text": text})
		}
		return map[string]any{"type": "reasoning", "summary": summary, "encrypted_content": token.Draw(rt, "encrypted")}
	case 1:
		return map[string]any{"type": "future_item", "data": rapid.String().Draw(rt, "data"), "n": json.Number("12345678901234567890.10")}
	case 2:
		contents := []any{}
		for _, text := range rapid.SliceOfN(rapid.String(), 1, 3).Draw(rt, "texts") {
			if rapid.Bool().Draw(rt, "refusal") {
				contents = append(contents, map[string]any{"type": "refusal", "refusal": text})
			} else {
				contents = append(contents, map[string]any{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": []any{}})
			}
		}
		message := map[string]any{"type": "message", "role": "assistant", "status": status, "content": contents}
		if rapid.Bool().Draw(rt, "phased") {
			message["phase"] = "commentary"
		}
		return message
	}
	arguments := rapid.OneOf(wiretest.Objects(), rapid.SampledFrom([]string{`{"a":1,"a":2}`, `{"cut":"sho`, `not JSON`, `"{\"double\":true}"`, `null`, `[1]`})).Draw(rt, "arguments")
	return map[string]any{"type": "function_call", "status": status, "name": rapid.StringMatching(`[a-zA-Z0-9_-]{1,12}`).Draw(rt, "name"), "arguments": arguments}
}

// streamOf writes the items as a stream, with the list at its end or without.
func streamOf(rt *rapid.T, items []map[string]any) string {
	var out strings.Builder
	event := func(kind string, fields map[string]any) {
		fields["type"] = kind
		data, err := json.Marshal(fields)
		if err != nil {
			rt.Fatal(err)
		}
		fmt.Fprintf(&out, "event: %s\ndata: %s\n\n", kind, data)
	}
	done, listed := rapid.Bool().Draw(rt, "done"), []map[string]any{}
	if !done || rapid.Bool().Draw(rt, "listed") {
		listed = items
	}
	for i, item := range items {
		event("response.output_item.added", map[string]any{"output_index": i, "item": map[string]any{"type": item["type"]}})
		if done {
			event("response.output_item.done", map[string]any{"output_index": i, "item": item})
		}
	}
	event("response.completed", map[string]any{"response": map[string]any{"status": "completed", "output": listed}})
	return out.String()
}

// TestModelToStoredToModelIsTheIdentity lets a model write items, stores the
// parts made of them, and compares what the model is sent next with what it
// wrote. Only the blanks between the tokens of arguments are not kept.
func TestModelToStoredToModelIsTheIdentity(t *testing.T) {
	a := adapter(nil)
	rapid.Check(t, func(rt *rapid.T) {
		items := rapid.SliceOfN(rapid.Custom(drawItem), 0, 6).Draw(rt, "items")
		items = append(items, map[string]any{"type": "message", "role": "assistant", "status": "completed",
			"content": []any{map[string]any{"type": "output_text", "text": "Reasoning is never last.", "annotations": []any{}}}})
		want := make([]any, len(items))
		for i, item := range items {
			item["id"] = fmt.Sprintf("item_%d", i)
			if item["type"] == "function_call" {
				item["call_id"] = fmt.Sprintf("call_%d", i)
			}
			want[i] = item
		}
		echo := &wiretest.Echo{Answer: streamOf(rt, items)}
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
		var got struct{ Input []any }
		if err := wiretest.Decode(echo.Sent, &got); err != nil {
			rt.Fatal(err)
		}
		for _, list := range [][]any{want, got.Input} {
			for _, item := range list {
				if call, ok := item.(map[string]any); ok && call["type"] == "function_call" {
					call["arguments"] = wiretest.Compact(call["arguments"].(string))
				}
			}
		}
		if diff := cmp.Diff(want, got.Input); diff != "" {
			rt.Errorf("items (-written +sent):\n%s", diff)
		}
	})
}
