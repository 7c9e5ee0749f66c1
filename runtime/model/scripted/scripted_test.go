package scripted_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/scripted"
)

func load(t *testing.T) *scripted.Model {
	t.Helper()
	m, err := scripted.Load(filepath.Join("testdata", "demo.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func generate(t *testing.T, m *scripted.Model, messages ...events.Message) *runtime.Response {
	t.Helper()
	r, err := m.Generate(t.Context(), &runtime.Request{Messages: messages})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func results(id string, texts ...string) events.Message {
	m := events.Message{ID: id, Role: events.RoleTool}
	for _, text := range texts {
		m.Parts = append(m.Parts, events.Part{Type: events.PartToolResult, Result: &events.ToolResult{
			Outcome: events.OutcomeOK, Parts: []events.Part{{Type: events.PartText, Text: text}}}})
	}
	return m
}

func called(name, arguments string) events.Part {
	return events.Part{Type: events.PartToolCall, Call: &events.ToolCall{Name: name, Arguments: json.RawMessage(arguments)}}
}

var question = events.Text("m1", events.RoleUser, "What is \"it\"?")

const firstResult = `{"value":[0,{"n": 0.10000000000000000001}],"a/b":{"~":"x"},"":[ ],"logs":[]}`

func TestArgumentsKeepTheirOrderAndNumbers(t *testing.T) {
	got := generate(t, load(t), question)
	want := &runtime.Response{
		Parts: []events.Part{
			{Type: events.PartText, Text: "Let me compute.\n"},
			called("run_js", `{"code":"return 6 * 7 > 41 && 'ä'","big":12345678901234567890.10,"e":1E400,"day":"2024-01-01","list":[true,null,-0.0,"5","$50"]}`),
			called("run_js", `{}`),
		},
		Finish: runtime.FinishCalls,
		Usage:  events.Usage{Input: 120, Output: 40},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
}

func TestArgumentsReferToTheTranscript(t *testing.T) {
	said := events.Text("m2", events.RoleAssistant, "Let me compute.")
	for _, tt := range []struct {
		name     string
		messages []events.Message
		want     string
	}{
		{"with results", []events.Message{question, said, results("m3", "oops", firstResult)},
			`{"question":"What is \"it\"?","all":["oops",` + encoded(firstResult) + `],` +
				`"whole":{"value":[0,{"n":0.10000000000000000001}],"a/b":{"~":"x"},"":[],"logs":[]},"value":0.10000000000000000001,` +
				`"escaped":"x","empty":[],"nothing":[null,null,null,null,null],"literal":["$messages","$result ","$resultx"]}`},
		{"with a result that is no JSON", []events.Message{question, said, results("m3", "not <JSON>")},
			`{"question":"What is \"it\"?","all":["not <JSON>"],"whole":"not <JSON>","value":null,"escaped":null,"empty":null,` +
				`"nothing":[null,null,null,null,null],"literal":["$messages","$result ","$resultx"]}`},
		{"with results of an earlier message only", []events.Message{results("m0", firstResult), question, said},
			`{"question":"What is \"it\"?","all":[],"whole":null,"value":null,"escaped":null,"empty":null,` +
				`"nothing":[null,null,null,null,null],"literal":["$messages","$result ","$resultx"]}`},
		{"without a message", []events.Message{said},
			`{"question":null,"all":[],"whole":null,"value":null,"escaped":null,"empty":null,` +
				`"nothing":[null,null,null,null,null],"literal":["$messages","$result ","$resultx"]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := generate(t, load(t), tt.messages...)
			want := &runtime.Response{Parts: []events.Part{called("complete", tt.want)}, Finish: runtime.FinishCalls, Usage: events.Usage{Input: 7, Output: 9}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAllResultsOfTheTranscriptHaveNumbers(t *testing.T) {
	m, err := scripted.Parse("s", []byte(`responses: [{calls: [{name: f, arguments: {all: [$all/0/value/1/n, $all/0, $all/1, $all/1/x, $all/2/a, $all/02/a, $all/3, $all/-1, $all/, $all, $result/a]}}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	said := events.Text("m2", events.RoleAssistant, "x")
	got := generate(t, m, question, said, results("r1", firstResult, "oops"), events.Text("m3", events.RoleUser, "and?"), results("r2", `{"a": 1.0}`))
	want := `{"all":[0.10000000000000000001,{"value":[0,{"n":0.10000000000000000001}],"a/b":{"~":"x"},"":[],"logs":[]},"oops",null,1.0,null,null,null,null,"$all",1.0]}`
	if diff := cmp.Diff(want, string(got.Parts[0].Call.Arguments)); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

func TestAllArgumentsTogetherCanBeAReference(t *testing.T) {
	m, err := scripted.Parse("s", []byte(`responses: [{calls: [{name: f, arguments: $result/value}, {name: f, arguments: "$all/0/value"}, {name: f, arguments: $message}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	got := generate(t, m, question, results("r", `{"value": {"b": 1, "a": 2}}`)).Parts
	want := []events.Part{called("f", `{"b":1,"a":2}`), called("f", `{"b":1,"a":2}`), called("f", `"What is \"it\"?"`)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	if got := string(generate(t, m).Parts[0].Call.Arguments); got != "null" {
		t.Errorf("without a result: %s", got)
	}
}

func TestAConversationHasATurnForEachMessage(t *testing.T) {
	m, err := scripted.Parse("s", []byte("turns: [[{text: a}, {text: b}], [{text: c}]]"))
	if err != nil {
		t.Fatal(err)
	}
	user := func(id string) events.Message { return events.Text(id, events.RoleUser, "x") }
	model := events.Text("a", events.RoleAssistant, "x")
	for _, tt := range []struct {
		name     string
		messages []events.Message
		want     string
	}{
		{"an empty transcript", nil, "a"},
		{"the first message", []events.Message{user("m1")}, "a"},
		{"an answer", []events.Message{user("m1"), model}, "b"},
		{"a notice is no message", []events.Message{user("m1"), user("notice-1"), model}, "b"},
		{"the second message", []events.Message{user("m1"), model, model, user("m2")}, "c"},
		{"the last turn stands for those after it", []events.Message{user("m1"), user("m2"), model, user("m3")}, "c"},
	} {
		if got := generate(t, m, tt.messages...); got.Parts[0].Text != tt.want {
			t.Errorf("%s: response %q, want %q", tt.name, got.Parts[0].Text, tt.want)
		}
	}
	_, err = m.Generate(t.Context(), &runtime.Request{Messages: []events.Message{user("m1"), user("m2"), model}})
	var end *scripted.EndError
	if !errors.As(err, &end) || end.Responses != 1 || end.Position != 1 {
		t.Errorf("error %v", err)
	}
}

func TestAMessageInAStringIsQuotedForCode(t *testing.T) {
	m, err := scripted.Parse("s", []byte(`responses: [{calls: [{name: f, arguments: {"${message}": "f(${message}, ${message}, ${messages})"}}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		message, quoted string
	}{
		{"It is down", `"It is down"`},
		{"\"});\n`${message}`\u2028</script>\\", `"\"});\n` + "`${message}`" + `\u2028</script>\\"`},
	} {
		call := generate(t, m, events.Text("m", events.RoleUser, tt.message)).Parts[0].Call
		var got map[string]string
		if err := json.Unmarshal(call.Arguments, &got); err != nil {
			t.Fatalf("%s: %v", call.Arguments, err)
		}
		want := map[string]string{"${message}": "f(" + tt.quoted + ", " + tt.quoted + ", ${messages})"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("arguments (-want +got):\n%s", diff)
		}
	}
	if got := string(generate(t, m).Parts[0].Call.Arguments); got != `{"${message}":"f(null, null, ${messages})"}` {
		t.Errorf("without a message: %s", got)
	}
}

func encoded(s string) string {
	data, _ := json.Marshal(s)
	return string(data)
}

func TestThePositionComesFromTheTranscript(t *testing.T) {
	m, err := scripted.Parse("s", []byte("responses: [{text: a}, {text: b}]"))
	if err != nil {
		t.Fatal(err)
	}
	user := func(id string) events.Message { return events.Text(id, events.RoleUser, "x") }
	model := events.Text("a", events.RoleAssistant, "x")
	for _, tt := range []struct {
		name     string
		messages []events.Message
		want     string
	}{
		{"an empty transcript begins the script", nil, "a"},
		{"a message begins the script", []events.Message{user("m1")}, "a"},
		{"an answer moves on", []events.Message{user("m1"), model}, "b"},
		{"a tool result does not", []events.Message{user("m1"), model, results("r", "x")}, "b"},
		{"a notice does not begin it again", []events.Message{user("m1"), model, user("notice-1")}, "b"},
		{"a new message does", []events.Message{user("m1"), model, model, user("m2")}, "a"},
		{"of two messages in a row the newer counts", []events.Message{user("m1"), user("m2"), model}, "b"},
	} {
		if got := generate(t, m, tt.messages...); got.Parts[0].Text != tt.want {
			t.Errorf("%s: response %q, want %q", tt.name, got.Parts[0].Text, tt.want)
		}
	}
}

func TestTheEndOfTheScriptIsATypedError(t *testing.T) {
	said := events.Text("a", events.RoleAssistant, "x")
	_, err := load(t).Generate(t.Context(), &runtime.Request{Messages: []events.Message{question, said, said, said}})
	var end *scripted.EndError
	var failed *runtime.ModelError
	if !errors.As(err, &end) || end.Responses != 3 || end.Position != 3 || !errors.As(err, &failed) || failed.Retryable() {
		t.Errorf("error %v", err)
	}
}

func TestACancelledRequestIsNotAnswered(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := load(t).Generate(ctx, &runtime.Request{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestUsageIsEstimatedFromContentAlone(t *testing.T) {
	m := load(t)
	request := func(prefix string) *runtime.Request {
		said := events.Message{ID: prefix + "a", Role: events.RoleAssistant, Parts: []events.Part{called("run_js", `{"a":1}`)}} // 13
		said.Parts[0].Call.ID = prefix
		file := events.Part{Type: events.PartFile, File: &events.File{Ref: prefix, Name: "f", MediaType: "a/b"}} // 4
		return &runtime.Request{
			System: "12345",                                                                              // 5
			Tools:  []runtime.Tool{{Name: "12", Description: "345", InputSchema: json.RawMessage(`{}`)}}, // 7
			Messages: []events.Message{{ID: prefix + "m", Role: events.RoleUser, Parts: []events.Part{{Type: events.PartText, Text: "123"}, file}}, // 3
				said, results(prefix+"r", "1234567"), said}, // 7, 13
		}
	}
	for _, prefix := range []string{"x", "longer"} {
		got, err := m.Generate(t.Context(), request(prefix))
		if err != nil {
			t.Fatal(err)
		}
		want := &runtime.Response{Finish: runtime.FinishLength, Usage: events.Usage{Input: 13}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("response (-want +got):\n%s", diff)
		}
	}
}

func TestEveryJSONIsUnderstood(t *testing.T) {
	m, err := scripted.Parse("s.json", []byte("{\n\t\"responses\": [\n\t\t{\"text\": \"\\/\\ud83d\\ude00\\\\ud83d\\t\\ud83d.\",\n\t\t\"calls\": [{\"name\": \"f\", \"arguments\": {\"e\": 1e5, \"s\": \"1e5\", \"u\": \"\\u00e9\\\"\"}}]}\n\t]\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []events.Part{{Type: events.PartText, Text: "/😀\\ud83d\t\ufffd."}, called("f", `{"e":1e5,"s":"1e5","u":"é\""}`)}
	if diff := cmp.Diff(want, generate(t, m).Parts); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}

func TestFinishFollowsTheCallsUnlessItIsGiven(t *testing.T) {
	m, err := scripted.Parse("s", []byte("responses: [{text: a}, {calls: [{name: f}]}, {calls: [{name: f}], finish: content_filter}]"))
	if err != nil {
		t.Fatal(err)
	}
	var messages []events.Message
	for _, want := range []runtime.FinishReason{runtime.FinishStop, runtime.FinishCalls, runtime.FinishFilter} {
		if got := generate(t, m, messages...).Finish; got != want {
			t.Errorf("finish %q, want %q", got, want)
		}
		messages = append(messages, events.Text("a", events.RoleAssistant, "x"))
	}
}

func TestMistakesAreNamedByFileLineAndField(t *testing.T) {
	for script, want := range map[string]string{
		"":                                        "script s.yaml: line 1: responses: required, the script is empty",
		"responses: [":                            "script s.yaml: yaml: line 1: did not find expected node content",
		"[]":                                      "script s.yaml:1: script: must be a mapping",
		"{}":                                      "script s.yaml:1: responses: needs at least one response",
		"responses: []":                           "script s.yaml:1: responses: needs at least one response",
		"turns: []":                               "script s.yaml:1: responses: needs at least one response",
		"turns:\n- [{}]\n- []":                    "script s.yaml:3: turns[1]: needs at least one response",
		"turns:\n- [{}]\n- [{text: 1}]":           "script s.yaml:3: turns[1][0].text: must be a string",
		"turns: [[{}]]\nresponses: [{}]":          "script s.yaml:2: responses: a script has either responses or turns",
		"responses: [{}]\nturns: [[{}]]":          "script s.yaml:2: turns: a script has either responses or turns",
		"responses: [{}]\n---\n{}":                "script s.yaml: line 2: a second document: a script is one",
		"responses:\n- {}\n-":                     "script s.yaml:3: responses[1]: must be a mapping",
		"responses:\n- txt: a":                    "script s.yaml:2: responses[0].txt: unknown field",
		"responses:\n- text: 1":                   "script s.yaml:2: responses[0].text: must be a string",
		"responses:\n- text: a\n  text: b":        "script s.yaml:3: responses[0].text: given twice",
		"responses:\n- finish: stopped":           `script s.yaml:2: responses[0].finish: unknown finish reason "stopped": use stop, tool_calls, length or content_filter`,
		"responses:\n- finish: 1":                 "script s.yaml:2: responses[0].finish: must be a string",
		"responses:\n- usage:\n    input: -1":     "script s.yaml:3: responses[0].usage.input: must be a whole number, 0 or more",
		"responses:\n- usage: {output: 1.5}":      "script s.yaml:2: responses[0].usage.output: must be a whole number, 0 or more",
		"responses:\n- calls: {}":                 "script s.yaml:2: responses[0].calls: must be a list",
		"responses:\n- calls:\n  - arguments: {}": "script s.yaml:3: responses[0].calls[0].name: required",
		"responses:\n- calls:\n  - name: f\n    arguments: $results1":          "script s.yaml:4: responses[0].calls[0].arguments: must be a mapping",
		"responses:\n- calls:\n  - name: f\n    arguments: [1]":                "script s.yaml:4: responses[0].calls[0].arguments: must be a mapping",
		"responses:\n- calls:\n  - name: f\n    arguments:\n      a: [0x1f]":   "script s.yaml:5: responses[0].calls[0].arguments.a[0]: write the number 0x1f as JSON does, or quote it",
		"responses:\n- calls:\n  - name: f\n    arguments: {a: .inf}":          "script s.yaml:4: responses[0].calls[0].arguments.a: write the number .inf as JSON does, or quote it",
		"responses:\n- calls:\n  - name: f\n    arguments: {a: !!bool x}":      "script s.yaml:4: responses[0].calls[0].arguments.a: a boolean is true or false",
		"responses:\n- calls:\n  - name: f\n    arguments: {a: !x y}":          "script s.yaml:4: responses[0].calls[0].arguments.a: values of type !x are not supported",
		"responses:\n- calls:\n  - name: f\n    arguments: {a: &x 1, b: *x}":   "script s.yaml:4: responses[0].calls[0].arguments.b: aliases are not supported: write the value again",
		"responses:\n- calls:\n  - name: f\n    arguments: {a: 1, a: 2}":       "script s.yaml:4: responses[0].calls[0].arguments.a: given twice",
		"responses:\n- calls:\n  - name: f\n    arguments: {<<: {a: 1}, b: 2}": "script s.yaml:4: responses[0].calls[0].arguments: keys must be plain: no merges, no aliases",
	} {
		m, err := scripted.Parse("s.yaml", []byte(script))
		if m != nil || err == nil || err.Error() != want {
			t.Errorf("%s\ngives %v\nwant  %s", script, err, want)
		}
	}
}

func TestAMissingFileIsAnError(t *testing.T) {
	_, err := scripted.Load(filepath.Join(t.TempDir(), "none.yaml"))
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("error %v", err)
	}
}
