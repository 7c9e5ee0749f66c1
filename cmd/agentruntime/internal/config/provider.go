package config

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/handlers"
)

// Provider is where models are asked that a definition names <provider>/<model>.
// Its key stands in no file of the configuration: KeyEnv names a variable of the
// environment, or KeyFile a file, that holds it.
type Provider struct {
	Kind    string `yaml:"kind"`     // one of Kinds; the provider's name by default, where it is one
	BaseURL string `yaml:"base_url"` // the vendor's own by default; <NAME>_BASE_URL for a name of KeyVariables
	KeyEnv  string `yaml:"key_env"`  // that of KeyVariables by default
	KeyFile string `yaml:"key_file"`

	ContextTokens int64            `yaml:"context_tokens"` // of models that Models does not list; 128000
	Files         *Files           `yaml:"files"`          // that its models take; by the kind, by default
	Models        map[string]Model `yaml:"models"`         // by the name that the provider knows
	Limits        Limits           `yaml:"limits"`         // of the key, over all workers; none by default

	Key     string `yaml:"-"` // what the reference leads to, once the configuration is read
	KeyGone string `yaml:"-"` // why there is no key
	Default bool   `yaml:"-"` // the file does not name the provider
}

// Limits bound what is asked of a provider with one key, by all workers together.
// A zero bounds nothing.
type Limits struct {
	Concurrent        int   `yaml:"concurrent"`          // requests under way
	RequestsPerMinute int   `yaml:"requests_per_minute"` // a sixth of it at once
	TokensPerMinute   int64 `yaml:"tokens_per_minute"`   // sent and received; a sixth of it at once
}

// Model is what is known of one model.
type Model struct {
	ContextTokens int64  `yaml:"context_tokens"` // window: input and output together
	OutputTokens  int64  `yaml:"output_tokens"`  // of one response; the provider's default
	Price         *Price `yaml:"price"`          // unknown by default

	Options `yaml:",inline"`
	Files   *Files `yaml:"files"` // as the provider's, by default
}

// Price is what a million tokens cost, as decimal numbers of Config.Currency.
type Price struct {
	Input  string `yaml:"input" takes:"number"`
	Cached string `yaml:"cached" takes:"number"` // input read from the provider's cache; as input by default
	Output string `yaml:"output" takes:"number"`
}

// The kinds of providers.
const (
	KindOpenAI          = "openai"            // chat completions, the vendor's own
	KindOpenAIResponses = "openai_responses"  // the Responses API
	KindCompatible      = "openai_compatible" // chat completions as others serve them
	KindAnthropic       = "anthropic"
	KindGemini          = "gemini"
)

// Kinds lists the kinds of providers.
var Kinds = []string{KindOpenAI, KindOpenAIResponses, KindCompatible, KindAnthropic, KindGemini}

// KeyVariables are the variables that hold the keys of the providers that need no
// configuration. Another name has no such default: the key of a vendor is not for
// whatever endpoint a file names.
var KeyVariables = map[string]string{"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"}

// maxKey bounds the file that holds a key, in bytes.
const maxKey = 16 << 10

// provide completes the providers with the defaults and the environment.
func (c *Config) provide(getenv func(string) string) {
	if c.Providers == nil {
		c.Providers = make(map[string]Provider)
	}
	for name, variable := range KeyVariables {
		p, given := c.Providers[name]
		p.Default = !given
		if p.KeyEnv == "" && p.KeyFile == "" {
			p.KeyEnv = variable
		}
		if base := getenv(strings.ToUpper(name) + "_BASE_URL"); base != "" {
			p.BaseURL = base
		}
		c.Providers[name] = p
	}
	for name, p := range c.Providers {
		if p.Kind == "" && slices.Contains(Kinds, name) {
			p.Kind = name
		}
		c.Providers[name] = p
	}
}

func (p *Provider) readKey(getenv func(string) string) {
	switch {
	case p.KeyEnv != "":
		if p.Key = strings.TrimSpace(getenv(p.KeyEnv)); p.Key == "" {
			p.KeyGone = p.KeyEnv + " is not set"
		}
	case p.KeyFile != "":
		data, err := readBounded(p.KeyFile)
		if err != nil {
			p.KeyGone = fmt.Sprintf("the key file cannot be read: %v", err)
		} else if p.Key = strings.TrimSpace(string(data)); p.Key == "" {
			p.KeyGone = fmt.Sprintf("the key file %s is empty", p.KeyFile)
		}
	default:
		p.KeyGone = "neither key_env nor key_file is configured"
	}
}

func readBounded(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxKey+1))
	if err == nil && len(data) > maxKey {
		err = fmt.Errorf("%s has more than %d bytes, which no key has", file, maxKey)
	}
	return data, err
}

var (
	providerForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	currencyForm = regexp.MustCompile(`^[A-Z]{3}$`)
)

// checkProviders refuses what no worker can work with. It repeats no value that
// may be a key in the wrong place.
func (c *Config) checkProviders() error {
	if c.Currency != "" && !currencyForm.MatchString(c.Currency) {
		return &Error{"currency", "must be three capital letters, such as USD"}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		p, at := c.Providers[name], "providers."+name
		switch {
		case !providerForm.MatchString(name) || name == "scripted":
			return &Error{at, "must be named with 1 to 64 characters of A-Z a-z 0-9 _ -, and not scripted"}
		case !slices.Contains(Kinds, p.Kind):
			return &Error{at + ".kind", "must be one of " + strings.Join(Kinds, ", ")}
		case p.KeyEnv != "" && p.KeyFile != "":
			return &Error{at, "must have one of key_env and key_file, not both"}
		case p.KeyEnv != "" && !variableForm.MatchString(p.KeyEnv):
			return &Error{at + ".key_env", "must be the name of an environment variable, not the key itself"}
		case p.Kind == KindCompatible && p.BaseURL == "":
			return &Error{at + ".base_url", "must be given for " + KindCompatible}
		case p.BaseURL != "" && !isEndpoint(p.BaseURL):
			return &Error{at + ".base_url", "must begin with http:// or https://, name a host, and have no user, query or fragment; a key belongs in key_env or key_file"}
		case p.ContextTokens < 0:
			return &Error{at + ".context_tokens", "must be positive"}
		case p.Limits.Concurrent < 0 || p.Limits.RequestsPerMinute < 0 || p.Limits.TokensPerMinute < 0:
			return &Error{at + ".limits", "must be positive"}
		}
		if err := p.Files.check(at + ".files"); err != nil {
			return err
		}
		for _, model := range slices.Sorted(maps.Keys(p.Models)) {
			m, at := p.Models[model], at+".models."+model
			if err := cmp.Or(m.check(at), m.Options.check(at, p.Kind, m.OutputTokens)); err != nil {
				return err
			}
		}
	}
	return nil
}

func isEndpoint(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

func (m Model) check(at string) error {
	switch {
	case m.ContextTokens < 0:
		return &Error{at + ".context_tokens", "must be positive"}
	case m.OutputTokens < 0 || m.ContextTokens > 0 && m.OutputTokens >= m.ContextTokens:
		return &Error{at + ".output_tokens", "must be positive and less than context_tokens"}
	}
	if err := m.Files.check(at + ".files"); err != nil {
		return err
	}
	switch {
	case m.Price == nil:
		return nil
	}
	_, err := m.Price.Parse()
	if err != nil {
		return &Error{at + ".price", "must have input and output, and may have cached: what a million tokens cost, such as 1.25"}
	}
	return nil
}

// Parse returns the price as what runs cost is computed with.
func (p *Price) Parse() (price handlers.Price, err error) {
	cached := p.Cached
	if cached == "" {
		cached = p.Input
	}
	for _, part := range []struct {
		text string
		into *handlers.Amount
	}{{p.Input, &price.Input}, {cached, &price.Cached}, {p.Output, &price.Output}} {
		if *part.into, err = handlers.ParseAmount(part.text); err != nil {
			return price, err
		}
	}
	return price, nil
}
