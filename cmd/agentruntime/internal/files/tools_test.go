package files_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/files"
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers/route/mcp"
)

// withTools loads one agent with the capabilities, and a file for desk.book.
func withTools(t *testing.T, capabilities string) (*files.Set, *int) {
	t.Helper()
	set, err := files.LoadFS(fstest.MapFS{
		"agents/a.yaml":               {Data: []byte("instructions: x\nmodel: a/b\ncapabilities: " + capabilities + "\n")},
		"capabilities/desk.book.yaml": {Data: []byte("effect: write\nroute: {nats: {subject: a}}\n")},
	}, "agents", "capabilities")
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	set.Tools = func(server string) ([]events.Capability, []*mcp.LeftOut, error) {
		asked++
		if server != "files" {
			return nil, nil, errors.New("this worker has no server of that name")
		}
		var kept []events.Capability
		for _, name := range []string{"mcp.files.read_file", "mcp.files.read_dir", "mcp.files.write_file"} {
			kept = append(kept, events.Capability{Name: name, Effect: events.EffectWrite})
		}
		return kept, []*mcp.LeftOut{{Server: "files", Tool: "read-pair", Capability: "mcp.files.read_pair", Schema: "input", Pointer: "/x", Reason: "no such keyword"}}, nil
	}
	return set, &asked
}

func TestAPatternBecomesTheToolsThatItMeansAndSaysWhatIsLeftOut(t *testing.T) {
	set, asked := withTools(t, `[desk.book, "mcp.files.read_*", mcp.files.read_dir, "mcp.files.write_*"]`)
	versions, err := set.Versions()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"desk.book", "mcp.files.read_file", "mcp.files.read_dir", "mcp.files.write_file"}
	var given []string
	for _, c := range versions[0].Capabilities {
		given = append(given, c.Name)
	}
	if got := versions[0].Agent.Capabilities; !slices.Equal(got, want) || !slices.Equal(given, want) {
		t.Errorf("the agent has %v and %v, want %v", got, given, want)
	}
	if *asked != 1 {
		t.Errorf("the server was asked %d times", *asked)
	}
	if left := set.LeftOut["a"]; len(left) != 1 || left[0].Tool != "read-pair" {
		t.Errorf("left out: %v", left)
	}
}

func TestAToolThatCannotBeHadIsReportedWhereItIsNamed(t *testing.T) {
	for name, words := range map[string]string{
		`"mcp.files.read_pair"`: `its input schema at "/x"`,
		`"mcp.files.list_*"`:    "mcp.files.read_file",
		`"mcp.other.*"`:         "no server of that name",
		`"mcp.files"`:           "mcp.<server>.<tool>",
		`"mcp.*.x"`:             "mcp.<server>.<tool>",
		`"mcp.files.[a]"`:       "mcp.<server>.<tool>",
	} {
		set, _ := withTools(t, "["+name+"]")
		_, err := set.Versions()
		var wrong *files.Error
		if !errors.As(err, &wrong) || wrong.Field != "capabilities[0]" || !strings.Contains(wrong.Reason, words) {
			t.Errorf("%s: %v, want %s", name, err, words)
		}
	}
}
