package main_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// layers are the folders that hold Go code, with the folders of this module
// that each may import beside itself. Tests are exempt, test support is not.
var layers = map[string]struct {
	may     []string
	because string
}{
	"events":    {nil, "events is the vocabulary of every other package and depends on none of them"},
	"projector": {[]string{"events"}, "a fold is a function of events alone, so that live and recovered state cannot differ"},
	"runtime":   {[]string{"events", "projector"}, "the loop can be embedded without this service, so it reaches storage and scheduling through its own ports"},
	"jetstream": {[]string{"events"}, "the log's adapter stores facts and decides nothing about a run"},
	"handlers":  {[]string{"events", "projector", "runtime"}, "reactions reach storage through the ports they declare, so that they run against memory as well"},
	"cmd":       {[]string{"events", "projector", "runtime", "jetstream", "handlers"}, "cmd wires everything that holds code"},
}

const (
	becausePlace    = "Go code lives only in cmd, events, projector, runtime, jetstream and handlers"
	becauseModule   = "a second module would escape ./... and with it every check"
	becauseSupport  = "test support stays out of the binary, so only tests and other test support import it"
	becauseProvider = "each provider's SDK is known to one folder runtime/model/<provider>, so that a provider can be changed alone"
	becauseRoutines = "a fold takes its events in one order, which a goroutine would not keep"
)

// importRule keeps packages out of folders.
type importRule struct {
	imports []string // these packages and what is below them
	but     []string // and not these
	within  []string // in these folders; none: in all
	outside []string // and not in these
	support bool     // in test support as well
	because string
}

var importRules = []importRule{
	{
		imports: []string{"net", "os", "syscall", "golang.org/x/sys", "math/rand", "crypto/rand"},
		but:     []string{"net/url", "net/netip"}, // they parse, they do not dial
		within:  []string{"events", "projector"},
		because: "facts and folds do no input or output and draw no randomness, so that a replay gives the same state",
	},
	{
		imports: []string{"context"},
		within:  []string{"projector"},
		because: "a fold cannot be cancelled half way",
	},
	{
		imports: []string{"net", "os", "syscall", "golang.org/x/sys"},
		but:     []string{"net/url", "net/netip"},
		within:  []string{"runtime"},
		outside: []string{"runtime/executor", "runtime/model"},
		because: "the loop reaches the world through the ports of its Input; only the executor starts processes and only models dial",
	},
	{
		imports: []string{"github.com/nats-io"},
		outside: []string{"jetstream", "cmd"},
		support: true,
		because: "NATS is known to its adapter and to the wiring, so that a Go host needs no NATS",
	},
	{
		imports: []string{"github.com/cloudevents"},
		outside: []string{"events"},
		support: true,
		because: "there is one CloudEvents codec, in events",
	},
	{
		imports: []string{"github.com/dop251"},
		outside: []string{"runtime/executor"},
		support: true,
		because: "scripts run only in the executor's child process",
	},
	{
		imports: []string{"github.com/modelcontextprotocol"},
		outside: []string{"handlers/route/mcp"},
		support: true,
		because: "MCP is known to its route alone",
	},
	{
		imports: []string{"testing", "github.com/google/go-cmp", "pgregory.net/rapid"},
		because: "testing libraries stay out of the binary",
	},
}

// clockRules keep functions of package time out of folders.
var clockRules = []struct {
	within  []string
	names   []string
	because string
}{
	// The appender pauses between attempts, so events may wait.
	{[]string{"events"}, []string{"Now", "Since", "Until"}, "the time of a fact is given by whoever records it"},
	{
		[]string{"projector"},
		[]string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"},
		"time is a fact of an event, so that a replay gives the same state",
	},
}

// providers are the SDKs of model providers, by the start of their import path.
var providers = []string{
	"github.com/openai",
	"github.com/anthropics",
	"github.com/google/generative-ai-go",
	"google.golang.org/genai",
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime",
}

// goFile is one parsed file, whatever its build constraints say.
type goFile struct {
	path, dir string
	test      bool // a _test.go file
	support   bool // in a package such as events/eventstest
	syntax    *ast.File
}

// imports returns the import paths of the file.
func (f goFile) imports() []string {
	var paths []string
	for _, spec := range f.syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			panic(err) // the parser has accepted the literal
		}
		paths = append(paths, p)
	}
	return paths
}

// uses returns which of the names of the imported package the file mentions,
// under whatever name it imports it.
func (f goFile) uses(pkg string, names []string) []string {
	var found []string
	for _, spec := range f.syntax.Imports {
		if spec.Path.Value != strconv.Quote(pkg) {
			continue
		}
		local := path.Base(pkg)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == local && slices.Contains(names, n.Sel.Name) {
					found = append(found, n.Sel.Name)
				}
			case *ast.Ident:
				if local == "." && slices.Contains(names, n.Name) {
					found = append(found, n.Name)
				}
			}
			return true
		})
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// starts reports whether the file has a go statement.
func (f goFile) starts() bool {
	found := false
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		_, ok := n.(*ast.GoStmt)
		found = found || ok
		return !found
	})
	return found
}

// module is what the Go command would find below a go.mod.
type module struct {
	path   string
	files  []goFile
	nested []string // further go.mod files
}

// readModule parses every Go file of the tree but what the Go command ignores.
// A tree without any is an error: a check of nothing would pass.
func readModule(tree fs.FS) (*module, error) {
	mod, err := fs.ReadFile(tree, "go.mod")
	if err != nil {
		return nil, err
	}
	m := new(module)
	for line := range strings.Lines(string(mod)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "module" {
			m.path = fields[1]
		}
	}
	if m.path == "" {
		return nil, fmt.Errorf("go.mod names no module")
	}
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		switch {
		case name == ".":
		case entry.IsDir() && (base == "testdata" || base == "node_modules" || base[0] == '.' || base[0] == '_'):
			return fs.SkipDir
		case base == "go.mod" && name != "go.mod":
			m.nested = append(m.nested, name)
		case !entry.IsDir() && path.Ext(name) == ".go":
			text, err := fs.ReadFile(tree, name)
			if err != nil {
				return err
			}
			syntax, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			dir := path.Dir(name)
			m.files = append(m.files, goFile{name, dir, strings.HasSuffix(name, "_test.go"), supports(dir), syntax})
		}
		return nil
	})
	if err == nil && len(m.files) == 0 {
		err = fmt.Errorf("the module %s has no Go files", m.path)
	}
	return m, err
}

// supports reports whether a folder is test support: events/eventstest and the
// like, and what is below them.
func supports(dir string) bool {
	return slices.ContainsFunc(strings.Split(dir, "/"), func(element string) bool {
		return strings.HasSuffix(element, "test")
	})
}

// below reports whether a path is one of the roots or below one.
func below(name string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return name == root || strings.HasPrefix(name, root+"/")
	})
}

// fault is something a tree does that a rule forbids.
type fault struct{ what, because string }

func (f fault) String() string { return f.what + ": " + f.because }

// importFaults returns what the module does against the import rule.
func importFaults(m *module) []fault {
	var faults []fault
	for _, name := range m.nested {
		faults = append(faults, fault{name, becauseModule})
	}
	owners := map[string]string{} // of provider SDKs: the folder seen first
	for _, f := range m.files {
		top, _, _ := strings.Cut(f.dir, "/")
		layer, known := layers[top]
		if !known {
			faults = append(faults, fault{f.path, becausePlace})
			continue
		}
		if f.test {
			continue
		}
		for _, imported := range f.imports() {
			refuse := func(because string) {
				faults = append(faults, fault{f.path + " imports " + imported, because})
			}
			if ours, ok := strings.CutPrefix(imported, m.path+"/"); ok {
				if !below(ours, []string{top}) && !below(ours, layer.may) {
					refuse(layer.because)
				}
				if supports(ours) && !f.support {
					refuse(becauseSupport)
				}
				continue
			}
			for _, rule := range importRules {
				if rule.forbids(f, imported) {
					refuse(rule.because)
				}
			}
			for _, sdk := range providers {
				if !below(imported, []string{sdk}) {
					continue
				}
				folder := providerFolder(f.dir)
				if first, seen := owners[sdk]; folder == "" || seen && first != folder {
					refuse(becauseProvider)
				} else {
					owners[sdk] = folder
				}
			}
		}
		if f.support {
			continue
		}
		for _, rule := range clockRules {
			if !below(f.dir, rule.within) {
				continue
			}
			for _, name := range f.uses("time", rule.names) {
				faults = append(faults, fault{f.path + " uses time." + name, rule.because})
			}
		}
		if below(f.dir, []string{"projector"}) && f.starts() {
			faults = append(faults, fault{f.path + " starts a goroutine", becauseRoutines})
		}
	}
	return faults
}

// forbids reports whether the rule keeps the imported package out of the file.
func (r importRule) forbids(f goFile, imported string) bool {
	return below(imported, r.imports) && !below(imported, r.but) &&
		(r.within == nil || below(f.dir, r.within)) && !below(f.dir, r.outside) &&
		(r.support || !f.support)
}

// providerFolder returns the folder runtime/model/<provider> that holds dir,
// or nothing.
func providerFolder(dir string) string {
	elements := strings.Split(dir, "/")
	if len(elements) < 3 || elements[0] != "runtime" || elements[1] != "model" {
		return ""
	}
	return path.Join(elements[:3]...)
}

func TestImportsFollowTheRule(t *testing.T) {
	m, err := readModule(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range importFaults(m) {
		t.Error(fault)
	}
}

// TestImportRuleRefuses holds that every rule above can fail, and only for
// what it is about. Each case is a tree, and what is refused in it.
func TestImportRuleRefuses(t *testing.T) {
	const ours = "example.org/module/"
	imports := func(paths ...string) string {
		text := "package p\n"
		for _, p := range paths {
			text += "import " + strconv.Quote(p) + "\n"
		}
		return text
	}
	type files = map[string]string
	fired := map[string]bool{}
	for _, test := range []struct {
		name  string
		files files
		want  []string
	}{
		{"a tree in order", files{
			"events/a.go":                      imports("context", "time", "net/url", "github.com/cloudevents/sdk-go/v2/event"),
			"events/eventstest/a.go":           imports("testing", "os", ours+"events"),
			"projector/a.go":                   imports(ours + "events"),
			"runtime/a.go":                     imports("context", ours+"events", ours+"projector", ours+"runtime/schema"),
			"runtime/schema/a.go":              imports("math/big"),
			"runtime/executor/a.go":            imports("os", "os/exec", "golang.org/x/sys/unix", "github.com/dop251/goja/parser"),
			"runtime/model/openai/a.go":        imports("net/http", "github.com/openai/openai-go/v3"),
			"runtime/model/openai/wire/a.go":   imports("github.com/openai/openai-go/v3/option"),
			"runtime/runtimetest/a.go":         imports("os", "pgregory.net/rapid", ours+"events/eventstest"),
			"jetstream/a.go":                   imports("os", "github.com/nats-io/nats.go", ours+"events", ours+"jetstream/internal/codes"),
			"handlers/readmodel/a.go":          imports(ours+"runtime", ours+"projector", ours+"handlers"),
			"cmd/agentruntime/main.go":         imports("github.com/nats-io/nats.go", ours+"jetstream", ours+"handlers"),
			"events/a_test.go":                 imports("os", "github.com/nats-io/nats.go", ours+"cmd/agentruntime", ours+"events/eventstest"),
			"deploy/clients/go/testdata/a.go":  imports("os"),
			"deploy/clients/js/node_modules/a": "",
		}, nil},
		{"MCP stays in its route", files{"handlers/a.go": imports("github.com/modelcontextprotocol/go-sdk/mcp")},
			[]string{"handlers/a.go imports github.com/modelcontextprotocol/go-sdk/mcp"}},
		{"events imports nothing of ours", files{"events/a.go": imports(ours + "projector")},
			[]string{"events/a.go imports " + ours + "projector"}},
		{"test support keeps the direction of its folder", files{"events/eventstest/a.go": imports(ours + "jetstream")},
			[]string{"events/eventstest/a.go imports " + ours + "jetstream"}},
		{"projector imports only events", files{"projector/a.go": imports(ours + "runtime")},
			[]string{"projector/a.go imports " + ours + "runtime"}},
		{"runtime does not import handlers", files{"runtime/model/openai/a.go": imports(ours + "handlers")},
			[]string{"runtime/model/openai/a.go imports " + ours + "handlers"}},
		{"a folder whose name only begins like an allowed one", files{"runtime/a.go": imports(ours + "eventstore")},
			[]string{"runtime/a.go imports " + ours + "eventstore"}},
		{"jetstream does not import projector", files{"jetstream/internal/a.go": imports(ours + "projector")},
			[]string{"jetstream/internal/a.go imports " + ours + "projector"}},
		{"handlers does not import jetstream", files{"handlers/a.go": imports(ours + "jetstream")},
			[]string{"handlers/a.go imports " + ours + "jetstream"}},
		{"cmd does not import what holds no code", files{"cmd/agentruntime/a.go": imports(ours + "deploy")},
			[]string{"cmd/agentruntime/a.go imports " + ours + "deploy"}},
		{"test support in the binary", files{"cmd/agentruntime/a.go": imports(ours + "runtime/runtimetest")},
			[]string{"cmd/agentruntime/a.go imports " + ours + "runtime/runtimetest"}},
		{"code in other folders", files{"a.go": imports(), "util/a.go": imports(), "deploy/a_test.go": imports()},
			[]string{"a.go", "deploy/a_test.go", "util/a.go"}},
		{"a second module", files{"events/a.go": imports(), "events/internal/go.mod": "module example.org/other\n"},
			[]string{"events/internal/go.mod"}},
		{"the world in events and projector", files{
			"events/a.go":    imports("os", "net/http", "math/rand/v2"),
			"projector/a.go": imports("crypto/rand", "syscall"),
		}, []string{
			"events/a.go imports os", "events/a.go imports net/http", "events/a.go imports math/rand/v2",
			"projector/a.go imports crypto/rand", "projector/a.go imports syscall",
		}},
		{"files that this system does not build", files{
			"events/a_windows.go": imports("os"),
			"events/b.go":         "//go:build ignore\n\n" + imports("os"),
		}, []string{"events/a_windows.go imports os", "events/b.go imports os"}},
		{"context in projector", files{"projector/internal/a.go": imports("context")},
			[]string{"projector/internal/a.go imports context"}},
		{"the clock", files{
			"events/a.go":            "package p\nimport \"time\"\nvar at time.Time\nvar now = time.Now\n",
			"projector/a.go":         "package p\nimport t \"time\"\nfunc f(at t.Time) t.Duration { return t.Since(at) }\n",
			"projector/b.go":         "package p\nimport . \"time\"\nvar now = Now()\n",
			"projector/c.go":         "package p\nimport \"time\"\nvar wait = time.NewTimer\n",
			"events/b.go":            "package p\nimport \"time\"\nvar wait = time.NewTimer\n",
			"events/eventstest/a.go": "package p\nimport \"time\"\nvar now = time.Now\n",
		}, []string{"events/a.go uses time.Now", "projector/a.go uses time.Since", "projector/b.go uses time.Now", "projector/c.go uses time.NewTimer"}},
		{"a goroutine in a fold", files{"projector/a.go": "package p\nfunc f() { go f() }\n"},
			[]string{"projector/a.go starts a goroutine"}},
		{"the world in the loop", files{"runtime/a.go": imports("os/exec"), "runtime/schema/a.go": imports("net")},
			[]string{"runtime/a.go imports os/exec", "runtime/schema/a.go imports net"}},
		{"NATS elsewhere", files{"handlers/a.go": imports("github.com/nats-io/nats.go/jetstream"), "runtime/runtimetest/a.go": imports("github.com/nats-io/nats-server/v2/server")},
			[]string{"handlers/a.go imports github.com/nats-io/nats.go/jetstream", "runtime/runtimetest/a.go imports github.com/nats-io/nats-server/v2/server"}},
		{"CloudEvents elsewhere", files{"jetstream/a.go": imports("github.com/cloudevents/sdk-go/v2/event")},
			[]string{"jetstream/a.go imports github.com/cloudevents/sdk-go/v2/event"}},
		{"goja elsewhere", files{"runtime/a.go": imports("github.com/dop251/goja")},
			[]string{"runtime/a.go imports github.com/dop251/goja"}},
		{"a testing library in the binary", files{"handlers/a.go": imports("github.com/google/go-cmp/cmp")},
			[]string{"handlers/a.go imports github.com/google/go-cmp/cmp"}},
		{"a provider's SDK elsewhere", files{"runtime/model/a.go": imports("github.com/openai/openai-go/v3")},
			[]string{"runtime/model/a.go imports github.com/openai/openai-go/v3"}},
		{"a provider's SDK in two folders", files{
			"runtime/model/azure/a.go":  imports("github.com/openai/openai-go/v3"),
			"runtime/model/openai/a.go": imports("github.com/openai/openai-go/v3"),
		}, []string{"runtime/model/openai/a.go imports github.com/openai/openai-go/v3"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := fstest.MapFS{"go.mod": {Data: []byte("module example.org/module\n")}}
			for name, text := range test.files {
				tree[name] = &fstest.MapFile{Data: []byte(text)}
			}
			m, err := readModule(tree)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, fault := range importFaults(m) {
				got = append(got, fault.what)
				fired[fault.because] = true
			}
			slices.Sort(got)
			slices.Sort(test.want)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("refused (-want +got):\n%s", diff)
			}
		})
	}

	reasons := []string{becausePlace, becauseModule, becauseSupport, becauseProvider, becauseRoutines}
	for _, layer := range layers {
		reasons = append(reasons, layer.because)
	}
	for _, rule := range importRules {
		reasons = append(reasons, rule.because)
	}
	for _, rule := range clockRules {
		reasons = append(reasons, rule.because)
	}
	for _, because := range reasons {
		if !fired[because] {
			t.Errorf("no case breaks the rule %q", because)
		}
	}
}

func TestReadModuleRefusesATreeItCannotCheck(t *testing.T) {
	for name, tree := range map[string]fstest.MapFS{
		"no go.mod":         {"events/a.go": {Data: []byte("package events\n")}},
		"no module path":    {"go.mod": {Data: []byte("go 1.26\n")}, "events/a.go": {Data: []byte("package events\n")}},
		"no Go files":       {"go.mod": {Data: []byte("module example.org/module\n")}},
		"a file of nothing": {"go.mod": {Data: []byte("module example.org/module\n")}, "events/a.go": {Data: []byte("")}},
	} {
		if _, err := readModule(tree); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
