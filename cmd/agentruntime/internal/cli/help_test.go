package cli

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// walk visits every command of the program, parents first.
func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, c := range cmd.Commands() {
		walk(c, visit)
	}
}

func TestEveryCommandExplainsItselfByExample(t *testing.T) {
	walk((&app{}).root(), func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: the short description is %q", path, cmd.Short)
		}
		for line := range strings.Lines(cmd.Example) {
			if !strings.HasPrefix(line, "  agentruntime") {
				t.Errorf("%s: the example %q is no command line", path, line)
			}
		}
		args := append(strings.Fields(path)[1:], "--help")
		demand(t, call(t, args...).ok(t), "Examples:\n  "+path, "Usage:\n  "+path, "--output")
	})
}

func TestHelpIsAsItWasRead(t *testing.T) {
	const golden = "testdata/help.golden"
	var all strings.Builder
	walk((&app{}).root(), func(cmd *cobra.Command) {
		args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		all.WriteString("-- " + cmd.CommandPath() + " --\n" + call(t, args...).ok(t))
	})
	if *update {
		if err := os.WriteFile(golden, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), all.String()); diff != "" {
		t.Errorf("help (-want +got; -update rewrites it):\n%s", diff)
	}
}

func TestACommandThatHasOthersShowsItsHelp(t *testing.T) {
	for _, args := range [][]string{nil, {"run"}, {"agents"}} {
		demand(t, call(t, args...).ok(t), "Available Commands:")
	}
}
