package openairesponses_test

import (
	"flag"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wiretest"
	"github.com/agentruntime/agentruntime/runtime/model/openai/responses"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// adapter is this adapter, with what is special to it set by change.
func adapter(change func(*openairesponses.Config)) wiretest.Adapter {
	return wiretest.Adapter{
		Provider: openairesponses.Provider,
		New: func(c wiretest.Config) (runtime.Model, error) {
			config := openairesponses.Config{Name: c.Name, APIKey: c.APIKey, BaseURL: c.BaseURL, HTTPClient: c.HTTPClient, HeaderTimeout: c.HeaderTimeout, StallTimeout: c.StallTimeout}
			if change != nil {
				change(&config)
			}
			return openairesponses.New(config)
		},
		Begun: `event: response.created
data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","output":[],"usage":null}}

event: response.output_item.added
data: {"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"fc_1","type":"function_call","status":"in_progress","arguments":"","call_id":"call_1","name":"run_js"}}

event: response.function_call_arguments.delta
data: {"type":"response.function_call_arguments.delta","sequence_number":2,"item_id":"fc_1","output_index":0,"delta":"{\"code\":\"ret"}

`,
		Rest: `event: response.output_item.done
data: {"type":"response.output_item.done","sequence_number":3,"output_index":0,"item":{"id":"fc_1","type":"function_call","status":"completed","arguments":"{\"code\":\"return 1\"}","call_id":"call_1","name":"run_js"}}

event: response.completed
data: {"type":"response.completed","sequence_number":4,"response":{"id":"resp_1","object":"response","status":"completed","output":[],"usage":{"input_tokens":12,"output_tokens":15}}}

`,
		Path:  "/responses",
		Keyed: http.Header{"Authorization": {"Bearer " + wiretest.Key}, "Openai-Organization": nil, "Openai-Project": nil},
		Environment: map[string]string{
			"OPENAI_API_KEY": "sk-environment", "OPENAI_ADMIN_KEY": "sk-admin-environment", "OPENAI_ORG_ID": "org-environment",
			"OPENAI_PROJECT_ID": "proj-environment", "OPENAI_BASE_URL": "http://environment.invalid", "OPENAI_CUSTOM_HEADERS": "X-Environment: yes",
		},
	}
}

func TestSuite(t *testing.T) { wiretest.Run(t, adapter(nil)) }

func provided(p events.Part, kept string) events.Part {
	return wiretest.Provided(openairesponses.Provider, p, kept)
}

// text is a part as the adapter makes it of a content of a message item.
func text(s, item string) events.Part {
	return provided(wiretest.Text(s), `{"content":{"annotations":[],"logprobs":[],"type":"output_text"},"item":`+item+`}`)
}

func refusal(s, item string) events.Part {
	return provided(wiretest.Text(s), `{"content":{"type":"refusal"},"item":`+item+`}`)
}

func call(id, name, arguments, item string) events.Part {
	return provided(wiretest.Call(id, name, arguments), item)
}

const itemA = `{"id":"msg_a","role":"assistant","status":"completed"}`

func TestResponses(t *testing.T) {
	usage := events.Usage{Input: 19, Output: 10}
	for _, tt := range []struct {
		name, file string
		want       runtime.Response
	}{
		{"a message keeps its id", "text.sse", runtime.Response{
			Parts: []events.Part{text("Hello, wörld <&>!", itemA)}, Finish: runtime.FinishStop, Usage: usage}},
		{"reasoning and parallel calls keep their order and what the API wants back", "calls.sse", runtime.Response{
			Parts: []events.Part{
				provided(events.Part{Type: events.PartReasoning, Text: "Let me look.\n\nAt both."},
					`{"encrypted_content":"gAAAAABqX1a78BDqk","id":"rs_a","summary":[{"type":"summary_text","text":"Let me look."},{"type":"summary_text","text":"At both."}],"type":"reasoning"}`),
				text("On it.", `{"id":"msg_a","phase":"commentary","role":"assistant","status":"completed"}`),
				call("call_a", "run_js", `{"code":"return 1"}`, `{"id":"fc_a","status":"completed"}`),
				call("call_b", "complete", `{"n":12345678901234567890.10}`, `{"id":"fc_b","status":"completed"}`),
				call("call_c", "nothing", "", `{"id":"fc_c","status":"completed"}`),
			},
			Finish: runtime.FinishCalls, Usage: events.Usage{Input: 2006, Cached: 1920, Output: 300, Reasoning: 128}}},
		{"each content of a message is a part", "contents.sse", runtime.Response{
			Parts: []events.Part{text("One.", itemA), text("Two.", itemA), refusal("I can't do that.", itemA),
				text("Three.", `{"id":"msg_b","phase":"final_answer","role":"assistant","status":"completed"}`)},
			Finish: runtime.FinishStop, Usage: usage}},
		{"a refusal is text that remembers being one", "refusal.sse", runtime.Response{
			Parts: []events.Part{refusal("I can't do that.", itemA)}, Finish: runtime.FinishStop, Usage: usage}},
		{"a response cut by length keeps what was written", "max_output_tokens.sse", runtime.Response{
			Parts: []events.Part{
				provided(events.Part{Type: events.PartReasoning}, `{"encrypted_content":"gAAAA","id":"rs_a","summary":[],"type":"reasoning"}`),
				call("call_a", "run_js", `{"code":"ret`, `{"id":"fc_a","status":"incomplete"}`)},
			Finish: runtime.FinishLength, Usage: usage}},
		{"a filtered response says so", "content_filter.sse", runtime.Response{
			Parts: []events.Part{text("Well", `{"id":"msg_a","role":"assistant","status":"incomplete"}`)}, Finish: runtime.FinishFilter, Usage: usage}},
		{"an item of an unknown type is kept", "unknown_item.sse", runtime.Response{
			Parts:  []events.Part{provided(events.Part{Type: events.PartReasoning}, `{"encrypted_content":"gAAAAB","id":"cmp_a","type":"compaction"}`), text("ok", itemA)},
			Finish: runtime.FinishStop, Usage: usage}},
		{"items that were done need no list at the end", "no_output.sse", runtime.Response{
			Parts: []events.Part{text("ok", itemA)}, Finish: runtime.FinishStop, Usage: usage}},
		{"a list at the end needs no items before", "only_output.sse", runtime.Response{
			Parts: []events.Part{text("ok", itemA)}, Finish: runtime.FinishStop, Usage: usage}},
		{"events of unknown types are passed over", "unknown_events.sse", runtime.Response{
			Parts: []events.Part{text("ok", itemA)}, Finish: runtime.FinishStop, Usage: usage}},
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
	got, err := a.Serve(t, wiretest.Stream(strings.Replace(a.Begun+a.Rest, "return 1", "\xff\xfe", 1)), nil).Generate(t.Context(), &runtime.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if arguments := string(got.Parts[0].Call.Arguments); arguments != "{\"code\":\"\uFFFD\"}" {
		t.Errorf("arguments %q", arguments)
	}
}

func TestUnusableResponses(t *testing.T) {
	spent := events.Usage{Input: 19, Output: 10}
	for _, tt := range []struct {
		name, file string
		class      runtime.ErrorClass
		status     int
		text       string
		usage      events.Usage
	}{
		{"a stream cut in the middle of a call", "truncated_call.sse", runtime.ClassRetry, 0, "ended before", events.Usage{}},
		{"a stream without its final event", "no_final_event.sse", runtime.ClassRetry, 0, "ended before", events.Usage{}},
		{"an unknown reason to be incomplete", "unknown_incomplete.sse", runtime.ClassInvalid, 0, `"steered"`, spent},
		{"an unknown content of a message", "unknown_content.sse", runtime.ClassInvalid, 0, `"output_audio"`, spent},
		{"malformed JSON", "malformed.sse", runtime.ClassInvalid, 0, "JSON", events.Usage{}},
		{"a response that failed", "failed.sse", runtime.ClassRetry, 0, "[server_error]", events.Usage{Input: 19, Output: 3}},
		{"a rate limit", "failed_rate.sse", runtime.ClassLimited, 0, "[rate_limit_exceeded]", events.Usage{}},
		{"an invalid prompt", "failed_prompt.sse", runtime.ClassInvalid, 0, "[invalid_prompt]", events.Usage{}},
		{"overloaded before the response", "overloaded_first.sse", runtime.ClassRetry, 0, "[server_is_overloaded]", events.Usage{}},
		{"overloaded in the middle of a call", "error_overloaded.sse", runtime.ClassRetry, 0, "[server_is_overloaded]", events.Usage{}},
		{"a context that is too long", "error_context.sse", runtime.ClassOverflow, 0, "[context_length_exceeded]", events.Usage{}},
		{"an error without the name of its event", "error_unnamed.sse", runtime.ClassInvalid, 404, "no such model", events.Usage{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := adapter(nil)
			response, err := a.Serve(t, wiretest.File(t, tt.file), nil).Generate(t.Context(), &runtime.Request{})
			failed := a.ModelError(t, err)
			if failed.Class != tt.class || failed.Status != tt.status || failed.Usage != tt.usage || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %+v", failed)
			}
			wiretest.HoldsUsage(t, response, tt.usage)
		})
	}
}
