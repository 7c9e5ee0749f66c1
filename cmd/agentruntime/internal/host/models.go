package host

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/openai"
	"github.com/agentruntime/agentruntime/runtime/model/retry"
	"github.com/agentruntime/agentruntime/runtime/model/scripted"
)

// Models finds models by the names that definitions use: openai/<name> at any
// OpenAI-compatible endpoint, and scripted/<name>, a file of responses.
type Models struct {
	OpenAIKey     string
	OpenAIBaseURL string // the vendor's own when empty
	ContextTokens int64  // of a model whose definition does not say; DefaultContextTokens when zero

	// ScriptFolder holds <name>.script.yaml files. Empty: no such model.
	ScriptFolder string

	// Scripts are scripted models by name; they come before the folder's.
	Scripts map[string]*scripted.Model
}

// DefaultContextTokens is the context window assumed for a model, in tokens. It
// is what the large providers' current models take at the least; a definition
// may say more or less.
const DefaultContextTokens = 128_000

// Model implements handlers.Models.
func (m *Models) Model(name string) (runtime.Model, runtime.ModelLimits, error) {
	limits := runtime.ModelLimits{ContextTokens: m.ContextTokens}
	if limits.ContextTokens == 0 {
		limits.ContextTokens = DefaultContextTokens
	}
	provider, model, _ := strings.Cut(name, "/")
	switch provider {
	case "scripted":
		s, err := m.script(model)
		return s, limits, err
	case "openai":
		if m.OpenAIKey == "" && m.OpenAIBaseURL == "" {
			return nil, limits, fmt.Errorf("OPENAI_API_KEY is not set for this worker; set it, or OPENAI_BASE_URL for an endpoint that needs no key")
		}
		o, err := openai.New(openai.Config{Name: model, APIKey: m.OpenAIKey, BaseURL: m.OpenAIBaseURL})
		if err != nil {
			return nil, limits, err
		}
		return &retry.Model{Next: o, Pause: func(ctx context.Context, d time.Duration) error { return events.Sleep(ctx, d) }, Jitter: rand.Float64}, limits, nil
	}
	return nil, limits, fmt.Errorf("there is no provider %q; known are openai and scripted", provider)
}

func (m *Models) script(name string) (runtime.Model, error) {
	if s, ok := m.Scripts[name]; ok {
		return s, nil
	}
	if m.ScriptFolder == "" || name != filepath.Base(name) {
		return nil, fmt.Errorf("there is no script %q", name)
	}
	s, err := scripted.Load(filepath.Join(m.ScriptFolder, name+".script.yaml"))
	if err != nil {
		return nil, err
	}
	return s, nil
}
