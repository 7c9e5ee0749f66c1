package host

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/config"
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/scripted"
)

func TestAModelThatIsNotThereIsRefusedWithItsReason(t *testing.T) {
	folder := t.TempDir()
	scripts := filepath.Join(folder, "scripts")
	if err := os.Mkdir(scripts, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{filepath.Join(folder, "secret.script.yaml"), filepath.Join(scripts, "here.script.yaml")} {
		if err := os.WriteFile(file, []byte(echo), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(scripts, "broken.script.yaml"), []byte("responses: 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &Models{ScriptFolder: scripts, Providers: map[string]config.Provider{
		"openai": {Kind: "openai", KeyEnv: "OPENAI_API_KEY", KeyGone: "OPENAI_API_KEY is not set"},
		"claude": {Kind: "anthropic", KeyFile: "/keys/claude", KeyGone: "the key file cannot be read: open /keys/claude: permission denied"},
		"google": {Kind: "gemini", BaseURL: "http://127.0.0.1:1", KeyGone: "neither key_env nor key_file is configured"},
		"spaced": {Kind: "openai_responses", Key: "hunter 2"},
	}}
	for name, words := range map[string][]string{
		"":                                 {`provider ""`, "openai", "scripted"},
		"gpt-5":                            {`provider "gpt-5"`, "openai", "scripted"},
		"anthropic/claude":                 {`provider "anthropic"`, "no provider of that name", "claude, google, openai, scripted, spaced", "configuration"},
		"claude/sonnet":                    {`provider "claude"`, "/keys/claude", "permission denied", "start the worker again"},
		"google/pro":                       {"neither key_env nor key_file", "name the variable"},
		"openai/":                          {"OPENAI_API_KEY"},
		"spaced/gpt-5":                     {"api key", "space"},
		"openai/gpt-5":                     {"OPENAI_API_KEY", "OPENAI_BASE_URL"},
		"scripted/missing":                 {"missing.script.yaml", "no such file"},
		"scripted/broken":                  {"broken.script.yaml", "responses"},
		"scripted/":                        {"no script"},
		"scripted":                         {"no script"},
		"scripted/../secret":               {"no script"},
		"scripted/../scripts/here":         {"no script"},
		"scripted/" + folder + "/secret":   {"no script"},
		"scripted/./here":                  {"no script"},
		"scripted/here/../../secret":       {"no script"},
		"scripted/..":                      {"script"},
		"scripted/here.script.yaml\x00/..": {"no script"},
	} {
		model, _, err := m.Model(name)
		if err == nil || model != nil {
			t.Errorf("%s: model %v, error %v", name, model, err)
			continue
		}
		if strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: the error shows the key: %v", name, err)
		}
		var typed *ProviderError
		if !strings.HasPrefix(name, "scripted") && !errors.As(err, &typed) {
			t.Errorf("%s: the error %v is no ProviderError", name, err)
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: the error %q does not say %q", name, err, word)
			}
		}
	}
	if _, _, err := (&Models{}).Model("scripted/here"); err == nil {
		t.Error("a worker without a folder of scripts has one")
	}
	if _, _, err := m.Model("scripted/here"); err != nil {
		t.Error(err)
	}
}

func TestAScriptOfTheProgramComesBeforeTheFolders(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "echo.script.yaml"), []byte(echo), 0o600); err != nil {
		t.Fatal(err)
	}
	own, err := scripted.Parse("own", []byte(echo))
	if err != nil {
		t.Fatal(err)
	}
	m := &Models{ScriptFolder: folder, Scripts: map[string]*scripted.Model{"echo": own}}
	if got, _, err := m.Model("scripted/echo"); err != nil || got != own {
		t.Errorf("model %v, error %v", got, err)
	}
}

func TestAModelHasTheLimitsThatTheConfigurationGives(t *testing.T) {
	m := &Models{Providers: map[string]config.Provider{
		"plain": {Kind: "openai", Key: "key"},
		"local": {Kind: "openai_compatible", BaseURL: "http://127.0.0.1:1/v1", ContextTokens: 32_000,
			Models: map[string]config.Model{"large": {ContextTokens: 64_000, OutputTokens: 8_000}, "short": {OutputTokens: 1_000}}},
	}}
	for name, want := range map[string]runtime.ModelLimits{
		"plain/any":   {ContextTokens: DefaultContextTokens},
		"local/any":   {ContextTokens: 32_000},
		"local/large": {ContextTokens: 64_000, OutputTokens: 8_000},
		"local/short": {ContextTokens: 32_000, OutputTokens: 1_000},
	} {
		model, limits, err := m.Model(name)
		limits.Files = runtime.FileLimits{}
		if err != nil || model == nil || !reflect.DeepEqual(limits, want) {
			t.Errorf("%s: limits %+v, error %v; want %+v", name, limits, err, want)
		}
		if again, _, err := m.Model(name); err != nil || again != model {
			t.Errorf("%s: each attempt gets connections of its own", name)
		}
	}
}

func TestAModelIsSentTheFilesThatItsProviderTakes(t *testing.T) {
	own := &config.Files{Types: []string{"image/png"}, MaxImage: 1, MaxFile: 2, MaxTotal: 3}
	m := &Models{Providers: map[string]config.Provider{
		"anthropic": {Kind: "anthropic", Key: "key", Models: map[string]config.Model{"blind": {Files: &config.Files{}}}},
		"openai":    {Kind: "openai", Key: "key"}, "responses": {Kind: "openai_responses", Key: "key"}, "gemini": {Kind: "gemini", Key: "key"},
		"elsewhere": {Kind: "openai", Key: "key", BaseURL: "http://127.0.0.1:1/v1"},
		"local":     {Kind: "openai_compatible", BaseURL: "http://127.0.0.1:1/v1"},
		"own":       {Kind: "openai_compatible", BaseURL: "http://127.0.0.1:1/v1", Files: own, Models: map[string]config.Model{"text": {Files: &config.Files{Types: []string{"text/csv"}}}}},
	}}
	for name, want := range map[string]string{
		"anthropic/any":   "image/png image/gif application/pdf text/csv",
		"anthropic/blind": "",
		"openai/any":      "image/png image/gif application/pdf text/csv",
		"responses/any":   "image/png image/gif application/pdf text/csv",
		"gemini/any":      "image/png application/pdf text/csv audio/ogg",
		"elsewhere/any":   "text/csv",
		"local/any":       "text/csv",
		"own/any":         "image/png",
		"own/text":        "text/csv",
	} {
		_, limits, err := m.Model(name)
		if err != nil {
			t.Fatal(err)
		}
		var takes []string
		for _, kind := range []string{"image/png", "image/gif", "application/pdf", "text/csv", "audio/ogg", "video/mp4"} {
			if limits.Files.Takes(kind) {
				takes = append(takes, kind)
			}
		}
		if got := strings.Join(takes, " "); got != want {
			t.Errorf("%s takes %q, want %q", name, got, want)
		}
		if total := limits.Files.MaxTotal; (total <= 0 || total > 32<<20) && name != "anthropic/blind" && name != "own/text" {
			t.Errorf("%s takes %d bytes in all", name, total)
		}
	}
}

// Each kind asks its own API with its own header.
func TestEachKindOfProviderIsAskedInItsOwnWay(t *testing.T) {
	type asked struct{ path, key string }
	var got asked
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		for _, name := range []string{"X-Api-Key", "X-Goog-Api-Key"} {
			key += r.Header.Get(name)
		}
		got = asked{r.URL.Path, key}
		http.Error(w, `{"error":{"message":"no"}}`, http.StatusForbidden)
	}))
	defer server.Close()
	for kind, path := range map[string]string{
		"openai": "/chat/completions", "openai_compatible": "/chat/completions", "openai_responses": "/responses",
		"anthropic": "/v1/messages", "gemini": "/v1beta/models/m:streamGenerateContent",
	} {
		m := &Models{Providers: map[string]config.Provider{"p": {Kind: kind, BaseURL: server.URL, Key: "key-" + kind}}}
		model, _, err := m.Model("p/m")
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		_, err = model.Generate(t.Context(), &runtime.Request{Messages: []events.Message{events.Text("m", events.RoleUser, "Go.")}})
		var failed *runtime.ModelError
		if !errors.As(err, &failed) || failed.Class != runtime.ClassDenied || got != (asked{path, "key-" + kind}) {
			t.Errorf("%s: asked %+v, error %v", kind, got, err)
		}
	}
}
