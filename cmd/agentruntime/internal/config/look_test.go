package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/handlers/policy"
)

// put writes a file anew, as of an hour ago.
func put(t *testing.T, file, text string) {
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

// opened opens a policy that denies everything.
func opened(t *testing.T, told *[]error) (*PolicyFile, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	put(t, file, "namespaces: {}")
	f, err := OpenPolicy(file, func(_ *policy.Policy, err error) { *told = append(*told, err) })
	if err != nil {
		t.Fatal(err)
	}
	return f, file
}

func TestAPolicyThatIsWrongIsReadOnceUntilItChanges(t *testing.T) {
	var many strings.Builder
	many.WriteString("namespaces:\n")
	for i := range 300 {
		fmt.Fprintf(&many, "  ns%d: {agents: ['*']}\n", i)
	}
	for name, wrong := range map[string]string{"wrong": many.String() + "  bad: {egres: allow}\n", "too large": many.String() + "#" + strings.Repeat("x", maxPolicy)} {
		t.Run(name, func(t *testing.T) {
			var told []error
			f, file := opened(t, &told)
			put(t, file, wrong)
			if n := testing.AllocsPerRun(20, func() { f.Policy() }); n > 50 {
				t.Errorf("a question costs %v allocations", n)
			}
			if len(told) != 1 || told[0] == nil {
				t.Errorf("told %v", told)
			}
			put(t, file, many.String())
			if len(f.Policy().Namespaces) != 300 || len(told) != 2 || told[1] != nil {
				t.Errorf("what was mended is not in force; told %v", told)
			}
		})
	}
}

// A file shows no change when its reading is allowed.
func TestAPolicyThatCannotBeReadIsTriedEachTime(t *testing.T) {
	var told []error
	f, file := opened(t, &told)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file, 0o700); err != nil { // it can be looked at, and not be read
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if f.Policy(); f.seen != nil || len(told) != 1 || !strings.Contains(fmt.Sprint(told), "cannot be read") {
			t.Errorf("told %v; taken as read: %t", told, f.seen != nil)
		}
	}
}
