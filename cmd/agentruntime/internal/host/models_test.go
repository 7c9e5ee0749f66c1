package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	m := &Models{ScriptFolder: scripts}
	for name, words := range map[string][]string{
		"":                                 {`no provider ""`, "openai", "scripted"},
		"gpt-5":                            {`no provider "gpt-5"`, "openai", "scripted"},
		"anthropic/claude":                 {`no provider "anthropic"`},
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

func TestAModelHasAContextWindow(t *testing.T) {
	for _, test := range []struct {
		configured, want int64
	}{{0, DefaultContextTokens}, {32_000, 32_000}} {
		for _, m := range []*Models{{OpenAIKey: "key"}, {OpenAIBaseURL: "http://127.0.0.1:1/v1"}} {
			m.ContextTokens = test.configured
			model, limits, err := m.Model("openai/any")
			if err != nil || model == nil || limits.ContextTokens != test.want {
				t.Errorf("configured %d: limits %+v, error %v", test.configured, limits, err)
			}
		}
	}
}
