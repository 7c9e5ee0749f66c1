package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/config"
	"github.com/agentruntime/agentruntime/handlers"
)

func TestAProviderThatCannotWorkIsRefused(t *testing.T) {
	for text, source := range map[string]string{
		"a/b: { kind: openai }":                                                    "providers.a/b",
		"scripted: { kind: openai }":                                               "providers.scripted",
		"proxy: { base_url: 'http://a' }":                                          "providers.proxy.kind",
		"proxy: { kind: bedrock }":                                                 "providers.proxy.kind",
		"openai: { key_env: A, key_file: b }":                                      "providers.openai",
		"openai: { key_env: sk-hunter2-is-the-key }":                               "providers.openai.key_env",
		"proxy: { kind: openai_compatible }":                                       "providers.proxy.base_url",
		"openai: { base_url: api.openai.com }":                                     "providers.openai.base_url",
		"openai: { base_url: 'https://me:hunter2@a' }":                             "providers.openai.base_url",
		"openai: { base_url: 'https://a?key=hunter2' }":                            "providers.openai.base_url",
		"openai: { context_tokens: -1 }":                                           "providers.openai.context_tokens",
		"openai: { models: { m: { context_tokens: -1 } } }":                        "providers.openai.models.m.context_tokens",
		"openai: { models: { m: { output_tokens: -1 } } }":                         "providers.openai.models.m.output_tokens",
		"openai: { models: { m: { context_tokens: 100, output_tokens: 100 } } }":   "providers.openai.models.m.output_tokens",
		"openai: { models: { m: { effort: 'Very high' } } }":                       "providers.openai.models.m.effort",
		"gemini: { models: { m: { effort: high } } }":                              "providers.gemini.models.m.effort",
		"openai: { models: { m: { thinking: off } } }":                             "providers.openai.models.m.thinking",
		"gemini: { models: { m: { thinking: never } } }":                           "providers.gemini.models.m.thinking",
		"anthropic: { models: { m: { thinking: 100 } } }":                          "providers.anthropic.models.m.thinking",
		"anthropic: { models: { m: { thinking: 2000 } } }":                         "providers.anthropic.models.m.output_tokens",
		"anthropic: { models: { m: { thinking: 2000, output_tokens: 2000 } } }":    "providers.anthropic.models.m.thinking",
		"anthropic: { models: { m: { temperature: 1.5 } } }":                       "providers.anthropic.models.m.temperature",
		"openai: { models: { m: { temperature: nan } } }":                          "providers.openai.models.m.temperature",
		"openai: { models: { m: { temperature: 1, effort: low } } }":               "providers.openai.models.m.temperature",
		"gemini: { models: { m: { temperature: 1, thinking: adaptive } } }":        "providers.gemini.models.m.temperature",
		"openai: { files: { types: [PNG] } }":                                      "providers.openai.files.types[0]",
		"openai: { models: { m: { files: { max_total: -1 } } } }":                  "providers.openai.models.m.files",
		"openai: { models: { m: { price: { input: 1 } } } }":                       "providers.openai.models.m.price",
		"openai: { models: { m: { price: { input: -1, output: 1 } } } }":           "providers.openai.models.m.price",
		"openai: { models: { m: { price: { input: 1e3, output: 1 } } } }":          "providers.openai.models.m.price",
		"openai: { models: { m: { price: { input: 0.1234567, output: 1 } } } }":    "providers.openai.models.m.price",
		"openai: { models: { m: { price: { input: 1, cached: x, output: 1 } } } }": "providers.openai.models.m.price",
	} {
		_, err := config.Read(write(t, "providers: { "+text+" }\n"), environment{}.get)
		refused(t, err, source, "must")
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows what may be a key: %v", err)
		}
	}
}

func TestAnUnknownOptionOfAModelIsRefused(t *testing.T) {
	_, err := config.Read(write(t, "providers: { openai: { models: { m: { efort: high } } } }\n"), environment{}.get)
	if err == nil || !strings.Contains(err.Error(), "efort") {
		t.Errorf("error %v", err)
	}
}

func TestAKeyIsReadFromWhereItsReferenceLeadsAndIsASecret(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "key")
	if err := os.WriteFile(file, []byte("from-the-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Read(write(t, "providers:\n  one: { kind: anthropic, key_env: ONE }\n  two: { kind: gemini, key_file: "+file+" }\n"),
		environment{"ONE": " from-the-variable ", "GEMINI_API_KEY": "from-the-default"}.get)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"one": "from-the-variable", "two": "from-the-file", "gemini": "from-the-default", "openai": ""} {
		if p := c.Providers[name]; p.Key != want || (p.KeyGone == "") != (want != "") {
			t.Errorf("provider %s has the key %q, gone: %q", name, p.Key, p.KeyGone)
		}
	}
	if got, want := c.Secrets(), []string{"from-the-default", "from-the-variable", "from-the-file"}; !slices.Equal(got, want) {
		t.Errorf("secrets %q, want %q", got, want)
	}
}

func TestAKeyFileThatHoldsNoKeySaysWhy(t *testing.T) {
	folder := t.TempDir()
	for name, content := range map[string]string{"empty": " \n", "large": strings.Repeat("k", 20<<10)} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, words := range map[string]string{"empty": "is empty", "large": "no key has", "missing": "no such file", ".": "cannot be read"} {
		c, err := config.Read(write(t, "providers: { anthropic: { key_file: "+filepath.Join(folder, name)+" } }\n"), environment{}.get)
		if err != nil {
			t.Fatal(err)
		}
		if p := c.Providers["anthropic"]; p.Key != "" || !strings.Contains(p.KeyGone, words) {
			t.Errorf("%s: key %q, gone: %q", name, p.Key, p.KeyGone)
		}
	}
}

// The key of a vendor is not for whatever endpoint a file names.
func TestAnotherNameHasNoDefaultKey(t *testing.T) {
	c, err := config.Read(write(t, "providers: { proxy: { kind: openai, base_url: 'https://proxy.example/v1' } }\n"), environment{"OPENAI_API_KEY": "the-vendors"}.get)
	if err != nil {
		t.Fatal(err)
	}
	if p := c.Providers["proxy"]; p.Key != "" || p.KeyGone == "" {
		t.Errorf("the provider is %+v", p)
	}
}

func TestAPriceIsReadDigitByDigit(t *testing.T) {
	got, err := (&config.Price{Input: "1.25", Output: "10"}).Parse()
	if want := (handlers.Price{Input: 1_250_000, Cached: 1_250_000, Output: 10_000_000}); err != nil || got != want {
		t.Errorf("the price is %+v, %v; want %+v", got, err, want)
	}
	got, err = (&config.Price{Input: "0.000001", Cached: "0", Output: "0.3"}).Parse()
	if want := (handlers.Price{Input: 1, Output: 300_000}); err != nil || got != want {
		t.Errorf("the price is %+v, %v; want %+v", got, err, want)
	}
}
