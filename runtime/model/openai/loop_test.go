package openai_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wiretest"
	"github.com/agentruntime/agentruntime/runtime/model/openai"
)

// valid holds a request to the rules that the strictest endpoints answer with a
// 400: calls have ids of their own and arguments that are text, and their results
// follow at once, each once; no message is without content, but one with calls.
func valid(body []byte) error {
	type message struct {
		Role      string
		Content   json.RawMessage
		Refusal   string
		ToolCalls []wireCall `json:"tool_calls"`
		CallID    string     `json:"tool_call_id"`
	}
	var r struct {
		Model    string
		Messages []message
	}
	if err := wiretest.Decode(body, &r); err != nil {
		return err
	}
	if r.Model == "" || len(r.Messages) == 0 {
		return errors.New("no model, or no message")
	}
	var open []string
	for n, m := range r.Messages {
		var said string
		worded := json.Unmarshal(m.Content, &said) == nil && len(m.Content) > 0 && string(m.Content) != "null"
		if m.Role != "tool" && len(open) > 0 {
			return fmt.Errorf("message %d: the calls %v have no results", n, open)
		}
		if m.Role != "assistant" && !worded || m.Role != "assistant" && m.ToolCalls != nil || m.Role != "tool" && m.CallID != "" {
			return fmt.Errorf("message %d is %+v", n, m)
		}
		switch m.Role {
		case "system":
			if n > 0 {
				return fmt.Errorf("message %d instructs", n)
			}
		case "user":
		case "tool":
			at := slices.Index(open, m.CallID)
			if at < 0 {
				return fmt.Errorf("message %d: %q is no open call", n, m.CallID)
			}
			open = slices.Delete(open, at, at+1)
		case "assistant":
			if !worded && m.Refusal == "" && len(m.ToolCalls) == 0 {
				return fmt.Errorf("message %d says nothing", n)
			}
			for _, c := range m.ToolCalls {
				if c.ID == "" || c.Type != "function" || c.Function.Name == "" || slices.Contains(open, c.ID) {
					return fmt.Errorf("message %d: call %+v", n, c)
				}
				open = append(open, c.ID)
			}
		default:
			return fmt.Errorf("message %d has the role %q", n, m.Role)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("the calls %v have no results", open)
	}
	return nil
}

// said draws the parts of a response: of this provider and of another.
func said(rt *rapid.T) []events.Part {
	part := rapid.Custom(func(rt *rapid.T) events.Part {
		switch rapid.IntRange(0, 3).Draw(rt, "kind") {
		case 0:
			return events.Part{Type: events.PartReasoning, Text: "Of another provider."}
		case 1:
			return wiretest.Text(rapid.SampledFrom([]string{"", " ", "Well."}).Draw(rt, "text"))
		case 2:
			return wiretest.Provided(openai.Provider, wiretest.Text("No."), `{"refusal":true}`)
		}
		return wiretest.Call("", "run_js", rapid.OneOf(wiretest.Objects(), rapid.SampledFrom([]string{"", `"{ not JSON"`, `null`, `[1]`, `7`})).Draw(rt, "arguments"))
	})
	return rapid.SliceOfN(part, 0, 6).Draw(rt, "parts")
}

func TestAnyCutOfAnyBatchIsSentAsTheAPITakesIt(t *testing.T) {
	echo := &wiretest.Echo{Answer: streamOfText}
	m, err := openai.New(openai.Config{Name: "m", HTTPClient: &http.Client{Transport: echo}})
	if err != nil {
		t.Fatal(err)
	}
	wiretest.CheckConversations(t, said, func(_ *rapid.T, r *runtime.Request) error {
		if _, err := m.Generate(t.Context(), r); err != nil {
			return err
		}
		return valid(echo.Sent)
	})
}

const streamOfText = `data: {"choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":"stop"}]}

data: [DONE]

`
