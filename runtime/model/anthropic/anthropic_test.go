package anthropic_test

import (
	"flag"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/anthropic"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wiretest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// adapter is this adapter, with what is special to it set by change.
func adapter(change func(*anthropic.Config)) wiretest.Adapter {
	return wiretest.Adapter{
		Provider: anthropic.Provider,
		New: func(c wiretest.Config) (runtime.Model, error) {
			config := anthropic.Config{Name: c.Name, APIKey: c.APIKey, BaseURL: c.BaseURL, HTTPClient: c.HTTPClient, HeaderTimeout: c.HeaderTimeout, StallTimeout: c.StallTimeout}
			if change != nil {
				change(&config)
			}
			return anthropic.New(config)
		},
		Begun: `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m","stop_reason":null,"usage":{"input_tokens":7,"cache_read_input_tokens":5,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"run_js","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"code\":\"ret"}}

`,
		Spent: events.Usage{Input: 12, Cached: 5, Output: 1},
		Rest: `event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"urn 1\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":15}}

event: message_stop
data: {"type":"message_stop"}

`,
		Path:  "/v1/messages",
		Keyed: http.Header{"X-Api-Key": {wiretest.Key}, "Authorization": nil},
		Environment: map[string]string{
			"ANTHROPIC_API_KEY": "sk-environment", "ANTHROPIC_AUTH_TOKEN": "environment", "ANTHROPIC_BASE_URL": "http://environment.invalid",
			"ANTHROPIC_PROFILE": "environment", "ANTHROPIC_CONFIG_DIR": "/environment", "ANTHROPIC_CUSTOM_HEADERS": "X-Environment: yes",
		},
	}
}

func TestSuite(t *testing.T) { wiretest.Run(t, adapter(nil)) }

func TestThinkingIsChecked(t *testing.T) {
	for name, c := range map[string]anthropic.Config{
		"an unknown kind":          {Name: "m", Thinking: "enabled"},
		"a kind beside its budget": {Name: "m", Thinking: "adaptive", ThinkingTokens: 2048},
	} {
		if _, err := anthropic.New(c); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

const signature = "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds"

func provided(p events.Part, kept string) events.Part {
	return wiretest.Provided(anthropic.Provider, p, kept)
}

// thinking is a part as the adapter makes it of a thinking block.
func thinking(text, signature string) events.Part {
	return provided(events.Part{Type: events.PartReasoning, Text: text}, `{"signature":"`+signature+`","thinking":"`+text+`","type":"thinking"}`)
}

func TestResponses(t *testing.T) {
	usage := events.Usage{Input: 2125, Cached: 2000, Output: 15}
	for _, tt := range []struct {
		name, file string
		want       runtime.Response
	}{
		{"text is joined from its deltas, and running totals replace each other", "text.sse", runtime.Response{
			Parts: []events.Part{wiretest.Text("Hello, wörld <&>!")}, Finish: runtime.FinishStop, Usage: events.Usage{Input: 2126, Cached: 2000, Output: 15}}},
		{"thinking and parallel calls keep their order and what the API wants back", "calls.sse", runtime.Response{
			Parts: []events.Part{
				thinking("Let me look at both.", signature),
				provided(events.Part{Type: events.PartReasoning}, `{"data":"EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rAFBa8cr3qpPkNRj2YfWXGmKDxH4mPnZ5sQ7vB9","type":"redacted_thinking"}`),
				wiretest.Text("On it."),
				wiretest.Call("toolu_01T1x1fJ34qAmk2tNTrN7Up6", "run_js", `{"code":"return 1"}`),
				provided(wiretest.Call("toolu_01A09q90qw90lq917835lq9", "complete", `{"n":12345678901234567890.10}`), `{"caller":{"type":"direct"}}`),
				wiretest.Call("toolu_01EmptyInput", "nothing", `{}`),
			},
			Finish: runtime.FinishCalls, Usage: events.Usage{Input: 2125, Cached: 2000, Output: 300, Reasoning: 128}}},
		{"a response cut by length keeps what was written", "max_tokens.sse", runtime.Response{
			Parts: []events.Part{wiretest.Text("On it."), wiretest.Call("toolu_a", "run_js", `{"code":"ret`)}, Finish: runtime.FinishLength, Usage: usage}},
		{"thinking may be cut before its signature", "thinking_cut.sse", runtime.Response{
			Parts: []events.Part{thinking("Hm", "")}, Finish: runtime.FinishLength, Usage: usage}},
		{"a full context cuts like a limit", "context_window.sse", runtime.Response{
			Parts: []events.Part{wiretest.Text("Let me")}, Finish: runtime.FinishLength, Usage: usage}},
		{"a stop sequence stops", "stop_sequence.sse", runtime.Response{
			Parts: []events.Part{wiretest.Text("ok")}, Finish: runtime.FinishStop, Usage: usage}},
		{"a refusal is the provider's filter", "refusal.sse", runtime.Response{
			Parts: []events.Part{wiretest.Text("Well")}, Finish: runtime.FinishFilter, Usage: usage}},
		{"a paused turn keeps the blocks that it goes on from", "pause_turn.sse", runtime.Response{
			Parts: []events.Part{wiretest.Text("Searching."),
				provided(events.Part{Type: events.PartReasoning}, `{"id":"srvtoolu_1","input":{"query":"x"},"name":"web_search","type":"server_tool_use"}`)},
			Finish: runtime.FinishStop, Usage: usage}},
		{"empty text is left out, thinking without text is not", "empty_text.sse", runtime.Response{
			Parts: []events.Part{thinking("", signature), wiretest.Text("ok")}, Finish: runtime.FinishStop, Usage: usage}},
		{"citations are kept", "citations.sse", runtime.Response{
			Parts: []events.Part{provided(wiretest.Text("Grass is green."),
				`{"citations":[{"type":"char_location","cited_text":"Green.","document_index":0,"document_title":null,"start_char_index":0,"end_char_index":6}]}`)},
			Finish: runtime.FinishStop, Usage: usage}},
		{"events of unknown types are passed over", "unknown_events.sse", runtime.Response{
			Parts: []events.Part{wiretest.Text("ok")}, Finish: runtime.FinishStop, Usage: usage}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := adapter(nil).Serve(t, wiretest.File(t, tt.file), nil).Generate(t.Context(), &runtime.Request{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInvalidUTF8OfAResponseIsReplaced(t *testing.T) {
	a := adapter(nil)
	got, err := a.Serve(t, wiretest.Stream(strings.Replace(a.Begun+a.Rest, "urn 1", "\xff\xfe", 1)), nil).Generate(t.Context(), &runtime.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if arguments := string(got.Parts[0].Call.Arguments); arguments != "{\"code\":\"ret\uFFFD\"}" {
		t.Errorf("arguments %q", arguments)
	}
}

func TestUnusableResponses(t *testing.T) {
	begun := events.Usage{Input: 2125, Cached: 2000, Output: 1}
	ended := events.Usage{Input: 2125, Cached: 2000, Output: 15}
	for _, tt := range []struct {
		name, file string
		class      runtime.ErrorClass
		text       string
		usage      events.Usage
	}{
		{"a stream cut in the middle of a call", "truncated_call.sse", runtime.ClassRetry, "ended before", begun},
		{"a stream without its final event", "no_message_stop.sse", runtime.ClassRetry, "ended before", events.Usage{Input: 2125, Cached: 2000, Output: 7}},
		{"a stream that stops with an open block", "stop_in_block.sse", runtime.ClassRetry, "ended before", ended},
		{"a stream without a stop reason", "no_stop_reason.sse", runtime.ClassRetry, "ended before", begun},
		{"an unknown stop reason", "unknown_stop.sse", runtime.ClassInvalid, `"compaction"`, ended},
		{"an unknown delta", "unknown_delta.sse", runtime.ClassInvalid, `"audio_delta"`, begun},
		{"a delta of no block", "stray_delta.sse", runtime.ClassInvalid, "not open", begun},
		{"malformed JSON", "malformed.sse", runtime.ClassInvalid, "JSON", begun},
		{"overloaded before the response", "overloaded_first.sse", runtime.ClassRetry, "Overloaded [overloaded_error]", events.Usage{}},
		{"overloaded in the middle of a call", "overloaded.sse", runtime.ClassRetry, "Overloaded [overloaded_error]", begun},
		{"a server error in the stream", "error_api.sse", runtime.ClassRetry, "[api_error]", begun},
		{"a rate limit in the stream", "error_rate.sse", runtime.ClassLimited, "[rate_limit_error]", begun},
		{"an invalid request in the stream", "error_invalid.sse", runtime.ClassInvalid, "non-empty", begun},
		{"a request that is too large, in the stream", "error_overflow.sse", runtime.ClassOverflow, "too long", begun},
		{"a missing permission in the stream", "error_permission.sse", runtime.ClassDenied, "not allowed", begun},
		{"an error without the name of its event", "error_unnamed.sse", runtime.ClassRetry, "Overloaded", begun},
		{"an error without JSON", "error_bare.sse", runtime.ClassRetry, "error in the response", begun},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := adapter(nil)
			response, err := a.Serve(t, wiretest.File(t, tt.file), nil).Generate(t.Context(), &runtime.Request{})
			failed := a.ModelError(t, err)
			if failed.Class != tt.class || failed.Status != 0 || failed.Usage != tt.usage || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %+v", failed)
			}
			wiretest.HoldsUsage(t, response, tt.usage)
		})
	}
}
