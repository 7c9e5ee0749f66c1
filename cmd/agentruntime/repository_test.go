package main_test

import (
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const (
	runCommand  = "go run ./cmd/agentruntime dev"
	testCommand = "go test ./..."
)

const (
	becauseTop      = "the top level holds the packages, deploy and the project's own files, nothing else"
	becauseMarker   = "what is unfinished is finished or written down where it is decided"
	becauseSleep    = "a test waits for a signal or runs in testing/synctest, never for time to pass"
	becauseSkip     = "a test that did not run is no test; choose a smaller size instead"
	becauseReadme   = "the README shows how to run the program and its tests"
	becauseGate     = "the gate runs the tests as the README tells a reader to"
	becauseReasoned = "every direct dependency has a reason in CONTRIBUTING.md"
)

// topLevel is everything that may stand at the root of the repository.
var topLevel = []string{
	".ci", ".dockerignore", ".git", ".gitattributes", ".gitignore",
	"cmd", "deploy", "events", "handlers", "jetstream", "projector", "runtime",
	"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md", "go.mod", "go.sum",
}

// sources are the names of files that people write. Data and lock files may
// hold any letters.
var sources = []string{
	".go", ".md", ".js", ".mjs", ".ts", ".html", ".css", ".sh", ".yaml", ".yml", ".toml", ".conf", ".service", ".txtar",
}

// markers are joined here so that this file does not hold them.
var markers = []string{"TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"}

var skips = []string{"Skip", "Skipf", "SkipNow"}

// repositoryFaults returns what the tree does against the rules of the house.
func repositoryFaults(tree fs.FS) ([]fault, error) {
	ignored, err := readIgnored(tree)
	if err != nil {
		return nil, err
	}
	var faults []fault
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".":
			return nil
		case ignored.match(name):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.Contains(name, "/") && !slices.Contains(topLevel, name) {
			faults = append(faults, fault{name, becauseTop})
		}
		if entry.IsDir() || !slices.Contains(sources, path.Ext(name)) && name != ".ci/run" {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		for _, marker := range markers {
			if strings.Contains(string(text), marker) {
				faults = append(faults, fault{name + " has " + marker, becauseMarker})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	tests, err := testFaults(tree)
	if err != nil {
		return nil, err
	}
	documents, err := documentFaults(tree)
	return slices.Concat(faults, tests, documents), err
}

// testFaults returns the tests and test support that sleep or skip.
func testFaults(tree fs.FS) ([]fault, error) {
	m, err := readModule(tree)
	if err != nil {
		return nil, err
	}
	var faults []fault
	for _, f := range m.files {
		if !f.test && !f.support {
			continue
		}
		for range f.uses("time", []string{"Sleep"}) {
			faults = append(faults, fault{f.path + " sleeps", becauseSleep})
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok && slices.Contains(skips, call.Sel.Name) {
				faults = append(faults, fault{f.path + " calls " + call.Sel.Name, becauseSkip})
			}
			return true
		})
	}
	return faults, nil
}

// documentFaults returns where the README, the gate, CONTRIBUTING.md and go.mod
// disagree.
func documentFaults(tree fs.FS) ([]fault, error) {
	var failed error
	read := func(name string) string {
		text, err := fs.ReadFile(tree, name)
		if err != nil && failed == nil {
			failed = err
		}
		return string(text)
	}
	readme, gate, contributing, mod := read("README.md"), read(".ci/run"), read("CONTRIBUTING.md"), read("go.mod")
	if failed != nil {
		return nil, failed
	}
	var faults []fault
	for _, command := range []string{runCommand, testCommand} {
		if !strings.Contains(readme, command) {
			faults = append(faults, fault{"README.md lacks " + command, becauseReadme})
		}
	}
	if !slices.ContainsFunc(strings.Split(gate, "\n"), func(line string) bool {
		return strings.TrimSpace(line) == testCommand
	}) {
		faults = append(faults, fault{".ci/run lacks " + testCommand, becauseGate})
	}
	for _, dependency := range directDependencies(mod) {
		if !strings.Contains(contributing, "`"+dependency+"`") {
			faults = append(faults, fault{"CONTRIBUTING.md lacks " + dependency, becauseReasoned})
		}
	}
	return faults, nil
}

// directDependencies returns the modules a go.mod requires for its own code.
func directDependencies(mod string) []string {
	var paths []string
	block := false
	for line := range strings.Lines(mod) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
			continue
		case fields[0] == "require" && len(fields) > 1 && fields[1] == "(":
			block = true
			continue
		case block && fields[0] == ")":
			block = false
			continue
		case fields[0] == "require":
			fields = fields[1:]
		case !block:
			continue
		}
		if len(fields) > 1 && strings.Contains(fields[0], ".") && !strings.Contains(line, "// indirect") {
			paths = append(paths, fields[0])
		}
	}
	return paths
}

// ignoredNames are the patterns of a .gitignore.
type ignoredNames []string

func readIgnored(tree fs.FS) (ignoredNames, error) {
	text, err := fs.ReadFile(tree, ".gitignore")
	if err != nil {
		return nil, err
	}
	var names ignoredNames
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if _, err := path.Match(line, ""); err != nil || line[0] == '!' || strings.Contains(line, "**") {
			return nil, fmt.Errorf(".gitignore: %q is more than this check understands", line)
		}
		names = append(names, line)
	}
	return names, nil
}

// match reports whether git leaves the name out: a pattern with a slash before
// its end is meant from the root, any other at every depth.
func (names ignoredNames) match(name string) bool {
	if name == ".git" {
		return true
	}
	return slices.ContainsFunc(names, func(pattern string) bool {
		pattern = strings.TrimSuffix(pattern, "/")
		subject := name
		if !strings.Contains(pattern, "/") {
			subject = path.Base(name)
		}
		ok, _ := path.Match(strings.TrimPrefix(pattern, "/"), subject)
		return ok
	})
}

func TestRepositoryKeepsTheRulesOfTheHouse(t *testing.T) {
	faults, err := repositoryFaults(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
}

// TestRepositoryRulesRefuse holds that every rule above can fail. Each case
// changes one thing in a tree that is in order.
func TestRepositoryRulesRefuse(t *testing.T) {
	inOrder := map[string]string{
		".git/config":  markers[0],
		".gitignore":   "# built\n/agentruntime\n/.ci/cache/\nnode_modules/\n*.out\n",
		".ci/run":      "tests() {\n\t" + testCommand + "\n}\n",
		".ci/cache/a":  "",
		"LICENSE":      "",
		"agentruntime": "a binary",
		"cpu.out":      "",
		"go.mod": "module example.org/module\n\nrequire example.org/one v1.0.0\n\n" +
			"require (\n\t// why\n\texample.org/two/v2 v2.0.0\n\texample.org/three v1.0.0 // indirect\n)\n",
		"go.sum":                      "example.org/one v1.0.0 h1:" + markers[2],
		"README.md":                   "    " + runCommand + "\n    " + testCommand + "\n",
		"CONTRIBUTING.md":             "| `example.org/one` | |\n| `example.org/two/v2` | |\n",
		"events/a.go":                 "package events\nimport \"time\"\nvar wait = time.Sleep\n",
		"events/a_test.go":            "package events\nimport \"time\"\nvar at time.Time\n",
		"deploy/js/node_modules/a.js": markers[0],
	}
	fired := map[string]bool{}
	for _, test := range []struct {
		name, file, text string
		want             []string
	}{
		{"nothing changed", "LICENSE", "", nil},
		{"another folder at the top", "util/a.txt", "", []string{"util"}},
		{"another file at the top", "go.work", "", []string{"go.work"}},
		{"the binary's name elsewhere is not ignored", "cmd/agentruntime/a.md", markers[0], []string{"cmd/agentruntime/a.md has " + markers[0]}},
		{"a marker in a script", ".ci/run", testCommand + "\n# " + markers[1], []string{".ci/run has " + markers[1]}},
		{"a marker in a scenario", "handlers/testdata/a.txtar", markers[2], []string{"handlers/testdata/a.txtar has " + markers[2]}},
		{"a marker in a client", "deploy/js/a.mjs", "// " + markers[3], []string{"deploy/js/a.mjs has " + markers[3]}},
		{"a marker in recorded data", "runtime/testdata/a.json", markers[2], nil},
		{"a test that sleeps", "events/b_test.go", "package events\nimport t \"time\"\nfunc f() { t.Sleep(1) }\n", []string{"events/b_test.go sleeps"}},
		{"test support that sleeps", "events/eventstest/a.go", "package eventstest\nimport \"time\"\nvar wait = time.Sleep\n", []string{"events/eventstest/a.go sleeps"}},
		{"a test that skips", "events/b_test.go", "package events\nfunc f(t *testing.T) { t." + skips[0] + "() }\n", []string{"events/b_test.go calls " + skips[0]}},
		{"a test that skips with words", "events/b_test.go", "package events\nfunc f(t *testing.T) { t." + skips[1] + "(\"\") }\n", []string{"events/b_test.go calls " + skips[1]}},
		{"a test that skips now", "events/b_test.go", "package events\nvar f = (*testing.T)." + skips[2] + "\n", []string{"events/b_test.go calls " + skips[2]}},
		{"a README without the run command", "README.md", testCommand, []string{"README.md lacks " + runCommand}},
		{"a README without the test command", "README.md", runCommand, []string{"README.md lacks " + testCommand}},
		{"a gate with another test command", ".ci/run", testCommand + " -short\n# " + testCommand, []string{".ci/run lacks " + testCommand}},
		{"dependencies without a reason", "CONTRIBUTING.md", "example.org/one, `example.org/two`", []string{"CONTRIBUTING.md lacks example.org/one", "CONTRIBUTING.md lacks example.org/two/v2"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := fstest.MapFS{}
			for name, text := range inOrder {
				tree[name] = &fstest.MapFile{Data: []byte(text)}
			}
			tree[test.file] = &fstest.MapFile{Data: []byte(test.text)}
			faults, err := repositoryFaults(tree)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, fault := range faults {
				got = append(got, fault.what)
				fired[fault.because] = true
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("refused (-want +got):\n%s", diff)
			}
		})
	}
	for _, because := range []string{
		becauseTop, becauseMarker, becauseSleep, becauseSkip, becauseReadme, becauseGate, becauseReasoned,
	} {
		if !fired[because] {
			t.Errorf("no case breaks the rule %q", because)
		}
	}
	for _, name := range []string{".gitignore", ".ci/run", "README.md", "CONTRIBUTING.md", "go.mod"} {
		tree := fstest.MapFS{}
		for other, text := range inOrder {
			if other != name {
				tree[other] = &fstest.MapFile{Data: []byte(text)}
			}
		}
		if _, err := repositoryFaults(tree); err == nil {
			t.Errorf("a tree without %s is not refused", name)
		}
	}
}
