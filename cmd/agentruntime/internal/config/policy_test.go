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

// place puts a file that was written long ago in the place of what is there, at once.
func place(t *testing.T, file, text string) {
	t.Helper()
	next := filepath.Join(t.TempDir(), "next")
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(next, old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
}

func TestAPolicyThatIsWrongIsRefusedWithItsLine(t *testing.T) {
	for text, says := range map[string]string{
		"":                                      ": it is empty; to deny everything say namespaces: {}",
		"# nothing yet\n":                       ": it is empty; to deny everything say namespaces: {}",
		"namespaces: {a.b: {}}":                 ":1: namespaces.a.b: can be no namespace's name",
		"namespaces:\n  a: {agents: ['[']}":     `:2: namespaces.a.agents: "[" is no pattern`,
		"namespaces: {a: {agents: ['']}}":       `:1: namespaces.a.agents: "" is no pattern`,
		"namespaces: {a: {agents: [5]}}":        ":1: namespaces.a.agents[0]: must be a string, but is an integer",
		"namespaces:\n  a:\n    egress: some":   `:3: namespaces.a.egress: "some" is none of deny, until_untrusted, allow`,
		"namespaces: {a: {limits: {x.*: {}}}}":  ":1: namespaces.a.limits.x.*: must have concurrent or per_minute, and neither negative",
		"namespaces:\n  a:\n    routs: {}":      ":3: namespaces.a.routs: is not a field; did you mean routes?",
		"namespaces: []":                        ":1: namespaces: must be an object, but is an array",
		"[]":                                    ":1: must be an object, but is an array",
		"namespaces: {}\n---\nnamespaces: {}\n": ":2: begins a second document: write it to a file of its own",
	} {
		file := write(t, text)
		_, err := config.ReadPolicy(file)
		var wrong *config.Error
		if !errors.As(err, &wrong) || err.Error() != "configuration "+file+says {
			t.Errorf("%q: %v, want %s", text, err, says)
		}
	}
	file := write(t, "namespaces:\n  a: {agent: [x]}\n  b: {agents: x}\n")
	if _, err := config.ReadPolicy(file); err == nil || strings.Count(err.Error(), "\n") != 1 || !strings.Contains(err.Error(), file+":3: namespaces.b.agents: ") {
		t.Errorf("two errors: %v", err)
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
}
