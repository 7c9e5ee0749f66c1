package gemini_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/gemini"
)

// echo is an endpoint that answers with a stream and keeps what it is sent.
type echo struct {
	response string
	request  struct {
		Contents []wireContent `json:"contents"`
	}
}

type wireContent struct {
	Role  string            `json:"role"`
	Parts []json.RawMessage `json:"parts"`
}

func (e *echo) RoundTrip(r *http.Request) (*http.Response, error) {
	e.request.Contents = nil
	if err := json.NewDecoder(r.Body).Decode(&e.request); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(e.response)), Request: r}, nil
}

func (e *echo) model(t interface{ Fatal(...any) }) *gemini.Model {
	m, err := gemini.New(gemini.Config{Name: "m", APIKey: key, HTTPClient: &http.Client{Transport: e}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// decoded is a JSON text as values, numbers as they are written.
func decoded(data []byte) any {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return err
	}
	return v
}

var arguments = rapid.OneOf(
	rapid.SampledFrom([]string{"", `{}`, `{"n":12345678901234567890.10,"m":-0.0,"e":1E400}`, `{ "a" : [ "<&>\u00e9" ] }`,
		`{"a":1,"a":2}`, `{"a":"\ud800"}`, `{"a":"\ud83d\ude00","b":{"c":[null,true,1e-7]}}`, `{"text":"{\"a\":1}"}`}),
	rapid.Map(rapid.MapOf(rapid.String(), rapid.Int()), func(m map[string]int) string {
		data, _ := json.Marshal(m)
		return string(data)
	}),
)

// wirePart draws a part as the API may send it.
func wirePart(rt *rapid.T) string {
	var members []string
	maybe := func(member string) {
		if rapid.Bool().Draw(rt, "with "+member) {
			members = append(members, member)
		}
	}
	quoted := func(s string) string {
		data, err := json.Marshal(s)
		if err != nil {
			rt.Fatal(err)
		}
		return string(data)
	}
	switch rapid.SampledFrom([]string{"text", "plain", "call", "other"}).Draw(rt, "kind") {
	case "text":
		members = append(members, `"text":`+quoted(rapid.StringN(0, 8, -1).Draw(rt, "text")))
		maybe(`"thought":true`)
	case "plain":
		return `{"text":` + quoted(rapid.StringN(0, 8, -1).Draw(rt, "text")) + `}`
	case "call":
		fields := []string{`"name":` + quoted(rapid.StringMatching(`[a-z_]{1,12}`).Draw(rt, "name"))}
		if id := rapid.SampledFrom([]string{"", "fc_1", "fc_2"}).Draw(rt, "id"); id != "" {
			fields = append(fields, `"id":`+quoted(id))
		}
		if a := arguments.Draw(rt, "arguments"); a != "" {
			fields = append(fields, `"args":`+a)
		}
		members = append(members, `"functionCall":{`+strings.Join(fields, ",")+`}`)
	case "other":
		members = append(members, rapid.SampledFrom([]string{
			`"inlineData":{"mimeType":"image/png","data":"AAAA"}`, `"executableCode":{"language":"PYTHON","code":"1<2"}`,
			`"codeExecutionResult":{"outcome":"OUTCOME_OK"}`, `"thoughtSignature":"only+/=="`,
		}).Draw(rt, "other"))
	}
	if !strings.Contains(members[0], "thoughtSignature") {
		maybe(`"thoughtSignature":"c2lnbmF0dXJl+/=="`)
	}
	maybe(`"partMetadata":{"n":12345678901234567890.10}`)
	return "{" + strings.Join(members, ",") + "}"
}

// joined are the parts of the chunks with the pieces of plain text put together:
// the first part of a chunk goes on with the last one of the chunk before.
func joined(chunks [][]string) []any {
	var parts []any
	plain := func(v any) bool {
		p, _ := v.(map[string]any)
		_, isText := p["text"]
		_, isThought := p["thought"]
		return isText && (len(p) == 1 || len(p) == 2 && isThought)
	}
	for _, chunk := range chunks {
		for i, data := range chunk {
			v := decoded([]byte(data))
			if plain(v) {
				p := v.(map[string]any)
				if p["text"] == "" {
					continue
				}
				if n := len(parts) - 1; i == 0 && n >= 0 && plain(parts[n]) && parts[n].(map[string]any)["thought"] == p["thought"] {
					last := parts[n].(map[string]any)
					last["text"] = last["text"].(string) + p["text"].(string)
					continue
				}
			}
			parts = append(parts, v)
		}
	}
	return parts
}

// stored returns a part as the loop keeps it: with an id of its own if it has
// none or one that is taken, missing arguments as an empty object, and
// unacceptable ones in a JSON string.
func stored(rt *rapid.T, p events.Part, taken map[string]bool) events.Part {
	if p.Call != nil {
		c := *p.Call
		if c.ID == "" || taken[c.ID] {
			c.ID = fmt.Sprintf("minted-%d", len(taken))
		}
		taken[c.ID] = true
		switch {
		case len(c.Arguments) == 0:
			c.Arguments = json.RawMessage(`{}`)
		case events.CheckJSON(c.Arguments, events.JSONLimits{}) != nil:
			c.Arguments, _ = events.Marshal(string(c.Arguments))
		}
		p.Call = &c
	}
	data, err := events.Marshal(p)
	if err == nil {
		err = events.CheckJSON(data, events.JSONLimits{})
	}
	var out events.Part
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		rt.Fatal(err)
	}
	return out
}

// TestModelToStoredToModelIsTheIdentity lets a model write parts, stores them,
// and compares what the model is sent next with what it wrote.
func TestModelToStoredToModelIsTheIdentity(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var endpoint echo
		var chunks [][]string
		for range rapid.IntRange(1, 4).Draw(rt, "chunks") {
			var parts []string
			for range rapid.IntRange(0, 3).Draw(rt, "parts") {
				parts = append(parts, wirePart(rt))
			}
			chunks = append(chunks, parts)
			endpoint.response += `data: {"candidates":[{"content":{"parts":[` + strings.Join(parts, ",") + `],"role":"model"}}]}` + "\n\n"
		}
		endpoint.response += `data: {"candidates":[{"finishReason":"STOP"}]}` + "\n\n"
		m := endpoint.model(rt)
		response, err := m.Generate(t.Context(), &runtime.Request{})
		if err != nil {
			rt.Fatal(err)
		}
		window := []events.Message{events.Text("m0", events.RoleUser, "task"), {ID: "m1", Role: events.RoleAssistant}}
		taken := map[string]bool{}
		for _, p := range response.Parts {
			window[1].Parts = append(window[1].Parts, stored(rt, p, taken))
		}
		for _, c := range window[1].Calls() {
			window = append(window, events.Message{ID: "r" + c.ID, Role: events.RoleTool, Parts: []events.Part{result(c.ID, events.OutcomeOK)}})
		}
		if _, err := m.Generate(t.Context(), &runtime.Request{Messages: window}); err != nil {
			rt.Fatal(err)
		}
		var got []any
		if contents := endpoint.request.Contents; len(contents) > 1 {
			for _, p := range contents[1].Parts {
				got = append(got, decoded(p))
			}
			if err := strict(contents); err != nil {
				rt.Error(err)
			}
		}
		if diff := cmp.Diff(joined(chunks), got); diff != "" {
			rt.Errorf("parts (-said +sent):\n%s", diff)
		}
	})
}

// strict checks contents as the API does, and more: roles alternate from the
// user on, no content and no part is empty, and the calls of a content have
// their responses, in their order, at the beginning of the next one.
func strict(contents []wireContent) error {
	type function struct {
		ID       string            `json:"id"`
		Name     string            `json:"name"`
		Args     json.RawMessage   `json:"args"`
		Response map[string]string `json:"response"`
	}
	var open []function
	for i, c := range contents {
		if want := []string{"user", "model"}[i%2]; c.Role != want {
			return fmt.Errorf("content %d is of role %q", i, c.Role)
		}
		if len(c.Parts) == 0 {
			return fmt.Errorf("content %d is empty", i)
		}
		var calls []function
		for j, data := range c.Parts {
			var p struct {
				Text      *string         `json:"text"`
				Call      *function       `json:"functionCall"`
				Response  *function       `json:"functionResponse"`
				Signature string          `json:"thoughtSignature"`
				Inline    json.RawMessage `json:"inlineData"`
				Code      json.RawMessage `json:"executableCode"`
				Result    json.RawMessage `json:"codeExecutionResult"`
				Metadata  json.RawMessage `json:"partMetadata"`
			}
			if err := json.Unmarshal(data, &p); err != nil {
				return err
			}
			switch {
			case j < len(open):
				if p.Response == nil || p.Response.ID != open[j].ID || p.Response.Name != open[j].Name {
					return fmt.Errorf("part %d of content %d is no response to %v: %s", j, i, open[j], data)
				}
				_, ok := p.Response.Response["output"]
				_, failed := p.Response.Response["error"]
				if len(p.Response.Response) != 1 || ok == failed {
					return fmt.Errorf("part %d of content %d responds oddly: %s", j, i, data)
				}
			case p.Response != nil:
				return fmt.Errorf("part %d of content %d responds to nothing: %s", j, i, data)
			case p.Call != nil:
				if c.Role != "model" || p.Call.Name == "" || len(p.Call.Args) > 0 && p.Call.Args[0] != '{' {
					return fmt.Errorf("part %d of content %d is no call: %s", j, i, data)
				}
				calls = append(calls, *p.Call)
			case p.Text != nil && *p.Text != "", p.Signature != "", p.Inline != nil, p.Code != nil, p.Result != nil, p.Metadata != nil:
			default:
				return fmt.Errorf("part %d of content %d is empty: %s", j, i, data)
			}
		}
		if len(c.Parts) < len(open) {
			return fmt.Errorf("content %d has too few responses", i)
		}
		open = calls
	}
	if len(open) > 0 {
		return errors.New("the newest calls have no responses")
	}
	return nil
}

// drawWindow draws a window as the loop can have it.
func drawWindow(rt *rapid.T) []events.Message {
	window := []events.Message{events.Text("task", events.RoleUser, "task")}
	words := rapid.SampledFrom([]string{"", "word", "two words"})
	add := func(role events.Role, parts ...events.Part) {
		window = append(window, events.Message{ID: fmt.Sprintf("m%d", len(window)), Role: role, Parts: parts})
	}
	outcomes := []events.Outcome{events.OutcomeOK, events.OutcomeError, events.OutcomeDenied, events.OutcomeSkipped, events.OutcomeUnknown}
	if rapid.Bool().Draw(rt, "compacted") {
		add(events.RoleUser, text("[Summary]"))
	}
	n := 0
	for range rapid.IntRange(0, 6).Draw(rt, "turns") {
		var said, results []events.Part
		for range rapid.IntRange(0, 5).Draw(rt, "parts") {
			p := text(words.Draw(rt, "text"))
			switch rapid.IntRange(0, 4).Draw(rt, "part") {
			case 0:
				p = thought(p.Text)
			case 1:
				p = provided(thought(p.Text+"."), `{"part":{"thought":true}}`)
			case 2, 3:
				n++
				p = call(fmt.Sprintf("c%d", n), "run_js", rapid.SampledFrom([]string{`{"a":1}`, `{}`, `"not JSON"`, `null`, ""}).Draw(rt, "arguments"))
				p = rapid.SampledFrom([]events.Part{p, provided(p, `{}`), provided(p, `{"call":{"id":"fc"},"part":{"thoughtSignature":"QUJD"}}`)}).Draw(rt, "call")
				results = append(results, result(p.Call.ID, rapid.SampledFrom(outcomes).Draw(rt, "outcome"), text(words.Draw(rt, "result"))))
			}
			said = append(said, p)
		}
		add(events.RoleAssistant, said...)
		for len(results) > 0 {
			k := rapid.IntRange(1, len(results)).Draw(rt, "results")
			add(events.RoleTool, rapid.Permutation(results[:k]).Draw(rt, "order")...)
			results = results[k:]
		}
		for range rapid.IntRange(0, 2).Draw(rt, "notices") {
			add(events.RoleUser, text(words.Draw(rt, "notice")))
		}
	}
	return window
}

func TestEveryWindowOfTheLoopIsOneTheAPITakes(t *testing.T) {
	endpoint := &echo{response: `data: {"candidates":[{"finishReason":"STOP"}]}` + "\n\n"}
	m := endpoint.model(t)
	rapid.Check(t, func(rt *rapid.T) {
		window := drawWindow(rt)
		if _, err := m.Generate(t.Context(), &runtime.Request{Messages: window}); err != nil {
			rt.Fatal(err)
		}
		if err := strict(endpoint.request.Contents); err != nil {
			rt.Fatal(err)
		}
		sent := fmt.Sprintf("%s", endpoint.request.Contents)
		for _, message := range window {
			for _, p := range message.Parts {
				if p.Result != nil && p.Result.Outcome != events.OutcomeOK && p.Result.Outcome != events.OutcomeError && !strings.Contains(sent, "["+string(p.Result.Outcome)+"]") {
					rt.Errorf("the outcome %s is not told", p.Result.Outcome)
				}
			}
		}
	})
}
