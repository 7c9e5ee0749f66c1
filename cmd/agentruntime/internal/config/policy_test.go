package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/config"
	"github.com/agentruntime/agentruntime/handlers/policy"
)

const allowing = `
namespaces:
  default:
    agents: [desk-*]
    subagents: [desk-helper]
    models: [openai/*]
    capabilities: [desk.*]
    egress: until_untrusted
    limits: { "desk.*": { concurrent: 2, per_minute: 60 } }
`

// place writes a file in the place of what is there, at once.
func place(t *testing.T, file, text string) {
	t.Helper()
	next := filepath.Join(t.TempDir(), "next")
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
}

func TestAPolicyThatIsWrongIsRefusedInOneLine(t *testing.T) {
	for text, says := range map[string]string{
		"":                                      "empty",
		"namespaces: {a.b: {}}":                 "no namespace's name",
		"namespaces: {a: {agents: ['[']}}":      "no pattern",
		"namespaces: {a: {agents: ['']}}":       "no pattern",
		"namespaces: {a: {egress: some}}":       "none of deny",
		"namespaces: {a: {limits: {x: {}}}}":    "concurrent or per_minute",
		"namespaces: {a: {agent: [x]}}":         "agent",
		"namespaces: {}\n---\nnamespaces: {}\n": "second document",
	} {
		file := write(t, text)
		_, err := config.ReadPolicy(file)
		refused(t, err, file, says)
	}
	if _, err := config.ReadPolicy(write(t, allowing)); err != nil {
		t.Error(err)
	}
	if _, err := config.OpenPolicy(filepath.Join(t.TempDir(), "none"), nil); err == nil {
		t.Error("a policy that is not there was opened")
	}
}

func TestAPolicyIsThatOfItsFileAtTheMoment(t *testing.T) {
	file := write(t, allowing)
	var told []error
	f, err := config.OpenPolicy(file, func(_ *policy.Policy, err error) { told = append(told, err) })
	if err != nil {
		t.Fatal(err)
	}
	may := func(want bool) {
		t.Helper()
		if got := f.Policy().Agent("default", "desk-helper", false) == nil; got != want {
			t.Fatalf("the agent may run: %t, want %t", got, want)
		}
	}
	may(true)
	place(t, file, "namespaces: {}")
	may(false)
	place(t, file, allowing)
	may(true)
	// What is wrong, or gone, leaves in force what was right.
	for range 3 {
		place(t, file, "namespaces: {default: {agents: [")
		may(true)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	may(true)
	place(t, file, "namespaces: {}")
	may(false)
	if len(told) != 5 || told[0] != nil || told[1] != nil || told[2] == nil || told[3] == nil || told[4] != nil {
		t.Errorf("told %v", told)
	}
	var wrong *config.Error
	if !errors.As(told[2], &wrong) || !strings.Contains(told[2].Error(), file) {
		t.Errorf("told %v", told[2])
	}
	// Written in place, with the size that it had and at nearly the same time.
	for i := range 20 {
		want := i%2 == 0
		text := "namespaces: {default: {agents: [xxxx-*]}}"
		if want {
			text = strings.Replace(text, "xxxx", "desk", 1)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		may(want)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	may(false)
}
