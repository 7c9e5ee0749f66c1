package host

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/config"
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/limit"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/anthropic"
	"github.com/agentruntime/agentruntime/runtime/model/gemini"
	"github.com/agentruntime/agentruntime/runtime/model/openai"
	openairesponses "github.com/agentruntime/agentruntime/runtime/model/openai/responses"
	"github.com/agentruntime/agentruntime/runtime/model/retry"
	"github.com/agentruntime/agentruntime/runtime/model/scripted"
	tokenizer "github.com/agentruntime/agentruntime/runtime/tokens"
)

// Models finds models by the names that definitions use: <provider>/<name> at a
// configured provider, and scripted/<name>, a file of responses.
type Models struct {
	Providers map[string]config.Provider
	Requests  config.Requests
	Money     string         // currency of the prices; USD when empty
	Limits    *limit.Limiter // optional: without it no provider is limited

	// ScriptFolder holds <name>.script.yaml files. Empty: no such model.
	ScriptFolder string

	// Scripts are scripted models by name; they come before the folder's.
	Scripts map[string]*scripted.Model

	mu   sync.Mutex
	made map[string]runtime.Model // each keeps its connections
}

// DefaultContextTokens is the context window assumed for a model, in tokens. It
// is what the large providers' current models take at the least; the
// configuration and a definition may say more or less.
const DefaultContextTokens = 128_000

// ProviderError reports a model that this worker cannot ask.
type ProviderError struct {
	Provider string
	Reason   string
}

func (e *ProviderError) Error() string {
	return fmt.Sprintf("provider %q: %s", e.Provider, e.Reason)
}

// Model implements handlers.Models.
func (m *Models) Model(name string) (runtime.Model, runtime.ModelLimits, error) {
	limits := runtime.ModelLimits{ContextTokens: DefaultContextTokens}
	provider, model, _ := strings.Cut(name, "/")
	if provider == "scripted" {
		limits.Files = runtime.FileLimits{Types: []string{"image/*", "text/*", "application/json", "application/pdf"}}
		s, err := m.script(model)
		return s, limits, err
	}
	p, ok := m.Providers[provider]
	if !ok {
		known := append(slices.Collect(maps.Keys(m.Providers)), "scripted")
		slices.Sort(known)
		return nil, limits, &ProviderError{provider, fmt.Sprintf("this worker has no provider of that name; known are %s; add it to providers in the configuration", strings.Join(known, ", "))}
	}
	known := p.Models[model]
	for _, n := range []int64{p.ContextTokens, known.ContextTokens} {
		if n > 0 {
			limits.ContextTokens = n
		}
	}
	limits.OutputTokens = known.OutputTokens
	limits.Files = p.FileLimits(model)
	m.mu.Lock()
	defer m.mu.Unlock()
	if made := m.made[name]; made != nil {
		return made, limits, nil
	}
	made, err := newModel(provider, model, &p)
	if err != nil {
		return nil, limits, err
	}
	if m.made == nil {
		m.made = make(map[string]runtime.Model)
	}
	m.made[name] = &retry.Model{Next: m.limited(name, made, &p), Pause: events.Sleep, Attempts: m.Requests.PerCall, Max: m.Requests.Patience}
	return m.made[name], limits, nil
}

// limited holds the requests to a model to the limits of its provider's key. The
// key is known by its reference: what it is does not leave the process.
func (m *Models) limited(name string, made runtime.Model, p *config.Provider) runtime.Model {
	limits := limit.Limits{Concurrent: p.Limits.Concurrent, RequestsPerMinute: p.Limits.RequestsPerMinute, TokensPerMinute: p.Limits.TokensPerMinute}
	if m.Limits == nil || limits.None() {
		return made
	}
	provider, _, _ := strings.Cut(name, "/")
	return &limit.Model{Next: made, Limiter: m.Limits, Key: limit.Key("provider", provider, p.KeyEnv, p.KeyFile), Name: "provider " + provider, Limits: limits,
		Patience: cmp.Or(m.Requests.Patience, retry.DefaultMax), Estimate: tokenizer.New(name).Request}
}

// Price implements handlers.Prices.
func (m *Models) Price(name string) (handlers.Price, bool) {
	provider, model, _ := strings.Cut(name, "/")
	p := m.Providers[provider].Models[model].Price
	if p == nil {
		return handlers.Price{}, false
	}
	price, err := p.Parse()
	return price, err == nil // the configuration was checked
}

// Currency implements handlers.Prices.
func (m *Models) Currency() string { return cmp.Or(m.Money, "USD") }

// newModel returns a model that makes one request at a time.
func newModel(provider, name string, p *config.Provider) (made runtime.Model, err error) {
	if p.Key == "" && (p.BaseURL == "" || p.KeyFile != "" || p.Kind == config.KindGemini) {
		advice := "set it where the worker runs"
		switch {
		case p.KeyFile != "":
			advice = "make it one that the worker can read, and start the worker again"
		case p.KeyEnv == "":
			advice = "name the variable or the file that holds the key"
		}
		if p.Kind != config.KindGemini && p.KeyFile == "" {
			advice += ", or the base_url of an endpoint that needs no key"
			if config.KeyVariables[provider] != "" {
				advice += " (" + strings.ToUpper(provider) + "_BASE_URL)"
			}
		}
		return nil, &ProviderError{provider, p.KeyGone + "; " + advice}
	}
	o := p.Models[name].Options
	switch p.Kind {
	case config.KindOpenAI, config.KindCompatible:
		made, err = openai.New(openai.Config{Name: name, APIKey: p.Key, BaseURL: p.BaseURL, LegacyMaxTokens: p.Kind == config.KindCompatible, Effort: o.Effort, Temperature: o.Temperature})
	case config.KindOpenAIResponses:
		made, err = openairesponses.New(openairesponses.Config{Name: name, APIKey: p.Key, BaseURL: p.BaseURL, Effort: o.Effort, Temperature: o.Temperature, NoReasoning: o.Temperature != nil})
	case config.KindAnthropic:
		thinking := map[string]string{config.ThinkingOff: "disabled", config.ThinkingAdaptive: "adaptive"}[o.Thinking]
		made, err = anthropic.New(anthropic.Config{Name: name, APIKey: p.Key, BaseURL: p.BaseURL, Effort: o.Effort, Temperature: o.Temperature, Thinking: thinking, ThinkingTokens: o.ThinkingTokens()})
	case config.KindGemini:
		thinking := map[string]string{config.ThinkingOff: "off", config.ThinkingAdaptive: "adaptive"}[o.Thinking]
		made, err = gemini.New(gemini.Config{Name: name, APIKey: p.Key, BaseURL: p.BaseURL, Temperature: o.Temperature, Thinking: thinking, ThinkingTokens: o.ThinkingTokens()})
	default:
		err = fmt.Errorf("kind %q is none of %s", p.Kind, strings.Join(config.Kinds, ", "))
	}
	if err != nil {
		return nil, &ProviderError{provider, err.Error()}
	}
	return made, nil
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
