package tokens_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/tokens"
)

// count returns the tokens of a text alone.
func count(e *tokens.Estimator, text string) int64 {
	empty := events.Text("m", events.RoleUser, "")
	full := events.Text("m", events.RoleUser, text)
	return e.Message(&full) - e.Message(&empty)
}

// The counts are those that OpenAI has published of its tokenizers.
func TestTextIsCountedByTheTokenizerOfTheModel(t *testing.T) {
	for _, tt := range []struct {
		text              string
		o200k, cl100k, by int64
	}{
		{"tiktoken is great!", 6, 6, 5},
		{"antidisestablishmentarianism", 6, 6, 7},
		{"2 + 2 = 4", 7, 7, 3},
		{"お誕生日おめでとう", 8, 9, 7},
		{"", 0, 0, 0},
	} {
		for model, want := range map[string]int64{
			"openai/gpt-5": tt.o200k, "openai/gpt-5.1-codex": tt.o200k, "gpt-4o-mini": tt.o200k, "openai/gpt-4.1": tt.o200k,
			"openai/o3": tt.o200k, "openai/ft:gpt-4o:org": tt.o200k, "openai/chatgpt-4o-latest": tt.o200k,
			"openai/gpt-4": tt.cl100k, "gpt-4-turbo": tt.cl100k, "openai/gpt-3.5-turbo": tt.cl100k,
			"openai/llama3": tt.by, "openai/olmo": tt.by, "gemini/gemini-2.5-flash": tt.by, "gemini/gpt-4": tt.by, "": tt.by,
		} {
			if got := count(tokens.New(model), tt.text); got != want {
				t.Errorf("%s: %q has %d tokens, want %d", model, tt.text, got, want)
			}
		}
	}
}

// window is a transcript of n messages.
func window(n int) []events.Message {
	var messages []events.Message
	for i := range n {
		id := fmt.Sprintf("c%d", i)
		messages = append(messages,
			events.Message{ID: "a" + id, Role: events.RoleAssistant, Parts: []events.Part{
				{Type: events.PartText, Text: "Let me look at desk " + id + "."},
				{Type: events.PartToolCall, Call: &events.ToolCall{ID: id, Name: "run_js", Arguments: json.RawMessage(`{"code":"return await desk.find({floor: 3})"}`)}},
			}},
			events.Message{ID: "r" + id, Role: events.RoleTool, Parts: []events.Part{{Type: events.PartToolResult, Result: &events.ToolResult{
				CallID: id, Parts: []events.Part{{Type: events.PartText, Text: strings.Repeat(`{"desk":"`+id+`","free":true},`, 20)}},
			}}}},
		)
	}
	return messages
}

func request(n int) *runtime.Request {
	return &runtime.Request{
		System: "Book the desk the user asks for.", Messages: window(n),
		Tools: []runtime.Tool{{Name: "run_js", Description: "Runs a script.", InputSchema: json.RawMessage(`{"type":"object","properties":{"code":{"type":"string"}}}`)}},
	}
}

func TestAWindowThatGrowsCostsWhatIsNew(t *testing.T) {
	counted := 0
	e := tokens.Counting("openai/gpt-5", func(text string) { counted += len(text) })
	e.Request(request(50))
	before := counted
	if before == 0 {
		t.Fatal("nothing was counted")
	}
	// Every request is built anew, as the loop does.
	if again := e.Request(request(50)); counted != before || again != tokens.New("openai/gpt-5").Request(request(50)) {
		t.Errorf("the same window cost %d bytes more, estimate %d", counted-before, again)
	}
	e.Request(request(51))
	if cost := counted - before; cost == 0 || cost > 1000 {
		t.Errorf("one more turn cost %d bytes", cost)
	}
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	counted := 0
	e := tokens.Counting("", func(string) { counted++ })
	first := events.Text("m", events.RoleUser, "first")
	e.Message(&first)
	for i := range 2*tokens.MaxCached + 1 {
		m := events.Text("m", events.RoleUser, fmt.Sprint(i))
		e.Message(&m)
	}
	before := counted
	e.Message(&first)
	if counted != before+1 {
		t.Error("what was counted long ago is still remembered")
	}
}

func TestEveryPartCounts(t *testing.T) {
	e := tokens.New("openai/gpt-5")
	long := strings.Repeat("word ", 100)
	kept := map[string]json.RawMessage{"gemini": json.RawMessage(`{"part":{"thought":true}}`)}
	for name, tt := range map[string]struct {
		part events.Part
		want bool
	}{
		"text":                       {events.Part{Type: events.PartText, Text: long}, true},
		"a call":                     {events.Part{Type: events.PartToolCall, Call: &events.ToolCall{Arguments: json.RawMessage(`"` + long + `"`)}}, true},
		"a result":                   {events.Part{Type: events.PartToolResult, Result: &events.ToolResult{Parts: []events.Part{{Type: events.PartText, Text: long}}}}, true},
		"a file's name":              {events.Part{Type: events.PartFile, File: &events.File{Name: long}}, true},
		"a thought that goes back":   {events.Part{Type: events.PartReasoning, Text: long, Provider: kept}, true},
		"what is kept":               {events.Part{Type: events.PartText, Provider: map[string]json.RawMessage{"x": json.RawMessage(`"` + long + `"`)}}, true},
		"a thought that is not sent": {events.Part{Type: events.PartReasoning, Text: long}, false},
	} {
		m := events.Message{Parts: []events.Part{tt.part}}
		if got := e.Message(&m); got >= 100 != tt.want {
			t.Errorf("%s: %d tokens", name, got)
		}
	}
}

func TestMoreTextIsNotFewerTokens(t *testing.T) {
	for _, model := range []string{"openai/gpt-5", "other"} {
		e := tokens.New(model)
		var together sync.WaitGroup
		for range 4 {
			together.Go(func() { e.Request(request(20)) })
		}
		together.Wait()
		rapid.Check(t, func(rt *rapid.T) {
			n := rapid.IntRange(0, 30).Draw(rt, "turns")
			if less, more := e.Request(request(n)), e.Request(request(n+1)); more <= less {
				rt.Errorf("%s: %d turns have %d tokens, one more has %d", model, n, less, more)
			}
			text := rapid.String().Draw(rt, "text")
			if count(e, text) < 0 || count(e, text) != count(tokens.New(model), text) {
				rt.Errorf("%s: %q has %d tokens", model, text, count(e, text))
			}
		})
	}
}

func BenchmarkEstimator(b *testing.B) {
	r := request(500)
	size := 0
	for _, m := range r.Messages {
		data, _ := json.Marshal(m)
		size += len(data)
	}
	for name, model := range map[string]string{"tokenizer": "openai/gpt-5", "bytes": "other"} {
		e := tokens.New(model)
		e.Request(r) // loads the vocabulary
		b.Run(name+"/fresh", func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				tokens.New(model).Request(r)
			}
		})
		b.Run(name+"/grown", func(b *testing.B) {
			b.SetBytes(int64(size))
			turn := 0
			for b.Loop() {
				turn++
				grown := *r
				grown.Messages = append(r.Messages[:len(r.Messages):len(r.Messages)], events.Text("new", events.RoleUser, fmt.Sprint("new ", turn)))
				e.Request(&grown)
			}
		})
	}
}
