package host

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/config"
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

func TestTheOptionsOfAModelReachItsProvider(t *testing.T) {
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		body = string(data)
		http.Error(w, `{"error":{"message":"no"}}`, http.StatusForbidden)
	}))
	defer server.Close()
	cool := 0.2
	for _, tt := range []struct {
		kind    string
		options config.Options
		sent    string // and what is sent without
	}{
		{"openai", config.Options{Effort: "high"}, `"reasoning_effort":"high"`},
		{"openai", config.Options{Temperature: &cool}, `"temperature":0.2`},
		{"openai_compatible", config.Options{Effort: "low"}, `"reasoning_effort":"low"`},
		{"openai_responses", config.Options{Effort: "high"}, `"reasoning":{"effort":"high"}`},
		{"openai_responses", config.Options{Temperature: &cool}, `"temperature":0.2`},
		{"anthropic", config.Options{Effort: "high"}, `"output_config":{"effort":"high"}`},
		{"anthropic", config.Options{Thinking: "off"}, `"thinking":{"type":"disabled"}`},
		{"anthropic", config.Options{Thinking: "adaptive"}, `"thinking":{"type":"adaptive"}`},
		{"anthropic", config.Options{Thinking: "2048"}, `"thinking":{"budget_tokens":2048,"type":"enabled"}`},
		{"anthropic", config.Options{Temperature: &cool}, `"temperature":0.2`},
		{"gemini", config.Options{Thinking: "off"}, `"thinkingConfig":{"thinkingBudget":0}`},
		{"gemini", config.Options{Thinking: "adaptive"}, `"thinkingConfig":{"thinkingBudget":-1}`},
		{"gemini", config.Options{Thinking: "2048"}, `"thinkingConfig":{"thinkingBudget":2048}`},
		{"gemini", config.Options{Temperature: &cool}, `"temperature":0.2`},
	} {
		ask := func(o config.Options) string {
			m := &Models{Providers: map[string]config.Provider{"p": {Kind: tt.kind, BaseURL: server.URL, Key: "key", Models: map[string]config.Model{"m": {OutputTokens: 4096, Options: o}}}}}
			model, limits, err := m.Model("p/m")
			if err != nil {
				t.Fatalf("%s: %v", tt.kind, err)
			}
			_, _ = model.Generate(t.Context(), &runtime.Request{Messages: []events.Message{events.Text("m", events.RoleUser, "Go.")}, MaxOutputTokens: limits.OutputTokens})
			return body
		}
		key, _, _ := strings.Cut(tt.sent, ":")
		if with, without := ask(tt.options), ask(config.Options{}); !strings.Contains(with, tt.sent) || strings.Contains(without, key) || !strings.Contains(without, "4096") {
			t.Errorf("%s with %+v: sent %s, and without options %s", tt.kind, tt.options, with, without)
		}
	}
}
