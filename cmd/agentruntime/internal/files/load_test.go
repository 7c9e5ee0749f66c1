package files_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/files"
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
)

const (
	agent = "instructions: x\nmodel: a/b\n"
	book  = "effect: write\nroute: {nats: {subject: desk.book}}\n"
)

// write makes a folder of files.
func write(t testing.TB, contents map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range contents {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const everyField = `
# Everything an agent can have.
slug: triage
description: Sorts tickets.
instructions: |
  Read the ticket.
  Call tickets.classify.
model: openai/gpt-5
input:
  type: object
  properties:
    text: {type: string, default: null}
    day: {const: 2024-01-01}
output:
  type: number
  maximum: 9007199254740993
  multipleOf: 0.010
  enum: [1e400, 12345678901234567890.10, -0.0, yes]
capabilities:
  - desk.book
subagents: [triage]
budget:
  steps: 1e2
  input_tokens: 200000.0
  output_tokens: 0
  timeout: 2h
on_budget: hold
limits:
  timeout: 10m
  script_timeout: 5s
  repeated_calls: 3
  silent_answers: 4
  rejected_completions: 2
  calls_per_answer: 1e1
  context_tokens: 128000.0
  output_tokens: 4000
events: [call_dispatched, call_settled]
`

const everyCapabilityField = `
name: desk.book
description: Books a desk.
input: {type: object, required: [day], properties: {day: {type: string}}}
output: true
effect: idempotent
timeout: 10s
route:
  nats:
    subject: desk.book.v1
`

func TestEveryFieldReachesTheDefinition(t *testing.T) {
	dir := write(t, map[string]string{"agents/triage.yaml": everyField, "capabilities/desk.book.yml": everyCapabilityField})
	set, err := files.Load(filepath.Join(dir, "agents"), filepath.Join(dir, "capabilities"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := set.Versions()
	if err != nil {
		t.Fatal(err)
	}
	want := []handlers.Version{{
		Agent: events.AgentDefinition{
			Slug: "triage", Description: "Sorts tickets.", Instructions: "Read the ticket.\nCall tickets.classify.\n", Model: "openai/gpt-5",
			Input:        json.RawMessage(`{"type":"object","properties":{"text":{"type":"string","default":null},"day":{"const":"2024-01-01"}}}`),
			Output:       json.RawMessage(`{"type":"number","maximum":9007199254740993,"multipleOf":0.010,"enum":[1e400,12345678901234567890.10,-0.0,"yes"]}`),
			Capabilities: []string{"desk.book"}, Subagents: []string{"triage"},
			Budget: &events.Budget{Steps: 100, InputTokens: 200000, Timeout: "2h"}, OnBudget: events.OnBudgetHold,
			Limits: events.Limits{Timeout: "10m", ScriptTimeout: "5s", RepeatedCalls: 3, SilentAnswers: 4, RejectedCompletions: 2, CallsPerAnswer: 10,
				ContextTokens: 128000, OutputTokens: 4000},
			Events: []string{"call_dispatched", "call_settled"},
		},
		Capabilities: []events.Capability{{
			Name: "desk.book", Description: "Books a desk.",
			Input:  json.RawMessage(`{"type":"object","required":["day"],"properties":{"day":{"type":"string"}}}`),
			Output: json.RawMessage(`true`), Effect: events.EffectIdempotent, Timeout: "10s",
			Route: events.Route{NATS: &events.NATSRoute{Subject: "desk.book.v1"}},
		}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	if err := got[0].Check(); err != nil {
		t.Errorf("the version is refused: %v", err)
	}
}

func TestTheFileNamesAnAgentThatDoesNotNameItself(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": agent, "b.YAML": agent, "c.yml": agent, ".hidden.yaml": "x", "notes.txt": "x", "a.script.yaml": "responses: []", "d.yaml.bak": "x", "sub/e.yaml": "x"})
	set, err := files.Load(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	var slugs []string
	for _, a := range set.Agents {
		slugs = append(slugs, a.Slug)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, slugs); diff != "" {
		t.Errorf("slugs (-want +got):\n%s", diff)
	}
}

func TestAnEmptyFolderHoldsNothing(t *testing.T) {
	set, err := files.Load(t.TempDir(), t.TempDir())
	if err != nil || len(set.Agents)+len(set.Capabilities) != 0 {
		t.Errorf("set %+v, error %v", set, err)
	}
}

func TestAFolderThatCannotBeReadIsAnErrorThatSaysWhatToDo(t *testing.T) {
	dir := write(t, map[string]string{"file": "", "agents/a.yaml": agent})
	for _, tt := range []struct{ agents, capabilities, want string }{
		{"none", "", "DIR/none: there is no such folder: create it, or name the one that holds the agent files"},
		{"agents", "none", "DIR/none: there is no such folder: create it, or name the one that holds the capability files"},
		{"none", "nor", "DIR/none: there is no such folder: create it, or name the one that holds the agent files\n" +
			"DIR/nor: there is no such folder: create it, or name the one that holds the capability files"},
		{"file", "", "DIR/file: the folder of agent files cannot be read: not a directory"},
	} {
		capabilities := tt.capabilities
		if capabilities != "" {
			capabilities = filepath.Join(dir, capabilities)
		}
		set, err := files.Load(filepath.Join(dir, tt.agents), capabilities)
		if set != nil || err == nil || strings.ReplaceAll(err.Error(), dir, "DIR") != tt.want {
			t.Errorf("%s and %s: %v", tt.agents, tt.capabilities, err)
		}
	}
	if _, err := files.Load("", ""); err == nil || err.Error() != ": no folder of agent files is given: name one" {
		t.Errorf("without a name: %v", err)
	}
}

func TestAFileThatCannotBeReadIsAnErrorOfThatFile(t *testing.T) {
	dir := write(t, map[string]string{
		"d/big.yaml":          agent + "# " + strings.Repeat("x", 1<<20),
		"d/break.yaml":        agent + "description: \"a\u2028b\"\n",
		"d/latin.yaml":        agent + "description: caf\xe9\n",
		"d/return.yaml":       agent + "\rslug: x",
		"d/two.yaml":          agent,
		"d/two.yml":           agent,
		"d/utf16.yaml":        "\xff\xfea\x00:\x00",
		"d/folder.yaml/a.txt": "",
	})
	if err := os.Symlink("nowhere", filepath.Join(dir, "d/link.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(os.DevNull, filepath.Join(dir, "d/null.yaml")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	_, err := files.Load("d", "")
	want := `d/big.yaml: is larger than 1 MiB
d/break.yaml:3: holds the character U+2028, which YAML takes for the end of a line: remove it, or write it in double quotes as \u2028
d/folder.yaml: cannot be read: it is not a file
d/latin.yaml:3: is not UTF-8 text: save it in that encoding
d/link.yaml: cannot be read: no such file or directory
d/null.yaml: cannot be read: it is not a file
d/return.yaml:3: holds the character U+000D, which YAML takes for the end of a line: remove it, or write it in double quotes as \u000D
d/two.yml: there is two.yaml as well: one agent has one file
d/utf16.yaml:1: is not UTF-8 text: save it in that encoding`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestALinkedFileIsRead(t *testing.T) {
	dir := write(t, map[string]string{"..data/x": agent})
	if err := os.Symlink("..data/x", filepath.Join(dir, "linked.yaml")); err != nil {
		t.Fatal(err)
	}
	if set, err := files.Load(dir, ""); err != nil || len(set.Agents) != 1 || set.Agents[0].Slug != "linked" {
		t.Errorf("set %+v, error %v", set, err)
	}
}

func TestWindowsLineEndsAndAByteOrderMarkChangeNothing(t *testing.T) {
	plain := "instructions: |\n  a\n  b\nmodel: a/b\nlimits:\n  timeout: 5\n"
	var texts []string
	for _, data := range []string{plain, "\ufeff" + plain, strings.ReplaceAll(plain, "\n", "\r\n")} {
		_, err := files.LoadFS(fstest.MapFS{"d/a.yaml": {Data: []byte(data)}}, "d", "")
		texts = append(texts, err.Error())
	}
	want := "d/a.yaml:6: limits.timeout: must be a string, but is an integer"
	if diff := cmp.Diff([]string{want, want, want}, texts); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestAnErrorHoldsNoLongValue(t *testing.T) {
	long := strings.Repeat("secret", 100)
	for field, data := range map[string]string{
		"model":          "instructions: x\nmodel: " + long + "\n",
		"limits.timeout": agent + "limits: {timeout: " + long + "}\n",
		"events[0]":      agent + "events: [" + long + "]\n",
		"slug":           agent + "slug: " + long + "\n",
		"input.type":     agent + "input: {type: " + long + "}\n",
		"output.const":   agent + "output: {const: .5" + long + ", enum: " + long + "}\n",
		"unknown":        agent + long + ": x\n",
		"tag":            agent + "description: !" + long + " x\n",
		"number":         agent + "description: 1" + strings.Repeat("0", 600) + "\n",
		"broken":         agent + "description: " + long + ": " + long + "\n",
	} {
		_, err := files.LoadFS(fstest.MapFS{"d/a.yaml": {Data: []byte(data)}}, "d", "")
		if err == nil {
			t.Errorf("%s: accepted", field)
			continue
		}
		for line := range strings.Lines(err.Error()) {
			if strings.Count(line, "secret") > 40 || len(line) > 500 {
				t.Errorf("%s: %s", field, line)
			}
		}
	}
}

func TestASetWithoutFilesNamesTheAgent(t *testing.T) {
	set := &files.Set{Agents: []events.AgentDefinition{{Slug: "a", Capabilities: []string{"desk.book"}}}}
	_, err := set.Versions()
	want := `agent a: capabilities: there is no capability "desk.book": there are no capability files`
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestASubagentThatIsAppliedElsewhereMayBeAllowed(t *testing.T) {
	load := func() *files.Set {
		set, err := files.LoadFS(fstest.MapFS{"d/a.yaml": {Data: []byte(agent + "subagents:\n  - b\n")}}, "d", "")
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	_, err := load().Versions()
	want := `d/a.yaml:4: subagents[0]: there is no agent "b": describe it in a file b.yaml; when it is applied elsewhere, agents check and agents apply take --allow-missing-subagents`
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	set := load()
	set.AllowMissingSubagents = true
	versions, err := set.Versions()
	if err != nil || len(versions) != 1 || versions[0].Check() != nil || !slices.Equal(versions[0].Agent.Subagents, []string{"b"}) {
		t.Errorf("versions %+v, error %v", versions, err)
	}
}

func TestVersionsCanBeAskedForAgain(t *testing.T) {
	set, err := files.LoadFS(fstest.MapFS{
		"agents/a.yaml":         {Data: []byte(agent + "capabilities: [desk.book, desk.none]\nsubagents: [none]\n")},
		"caps/desk.book.yaml":   {Data: []byte(book)},
		"caps/desk.unused.yaml": {Data: []byte(book)},
	}, "agents", "caps")
	if err != nil {
		t.Fatal(err)
	}
	_, first := set.Versions()
	_, again := set.Versions()
	if diff := cmp.Diff(first.Error(), again.Error()); diff != "" {
		t.Errorf("errors (-first +again):\n%s", diff)
	}
}
