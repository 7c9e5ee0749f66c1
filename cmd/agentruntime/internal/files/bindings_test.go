package files_test

import (
	"slices"
	"testing"
	"testing/fstest"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/files"
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers/route/mcp"
	"github.com/agentruntime/agentruntime/runtime/catalogue"
	"github.com/agentruntime/agentruntime/runtime/executor"
)

// A name is judged by what scripts see in its place, which they can always have.
func TestNoNameIsRefusedForWhatJavaScriptUses(t *testing.T) {
	const script, tool = book, book + "expose: tool\n"
	for promise, given := range map[string]map[string]string{
		"a script is given another name":               {"then": script, "console.log": script, "JSON.parse": script, "class.x": script, "desk.then": script, "desk.constructor": script},
		"a function gives way to an object":            {"a": script, "a.b": script},
		"a tool alone has no name in a script":         {"then": tool, "console.log": tool, "desk.then": tool, "class": tool},
		"a tool alone is no object of a script either": {"a": tool, "a.b": script},
	} {
		tree := fstest.MapFS{}
		var names, scripts []string
		list := ""
		for name, data := range given {
			tree["capabilities/"+name+".yaml"] = &fstest.MapFile{Data: []byte(data)}
			list += "\n  - " + name
			names = append(names, name)
			if data == script {
				scripts = append(scripts, name)
			}
		}
		tree["agents/x.yaml"] = &fstest.MapFile{Data: []byte(agent + "capabilities:" + list + "\n")}
		set, err := files.LoadFS(tree, "agents", "capabilities")
		if err != nil {
			t.Errorf("%s: %v", promise, err)
			continue
		}
		versions, err := set.Versions()
		if err != nil {
			t.Errorf("%s: %v", promise, err)
			continue
		}
		if err := versions[0].Check(); err != nil {
			t.Errorf("%s: the version is refused: %v", promise, err)
		}
		if got := versions[0].Agent.Capabilities; !slices.Equal(got, names) {
			t.Errorf("%s: the agent has %v, want %v", promise, got, names)
		}
		var bindings []string
		for _, binding := range catalogue.Names(scripts) {
			bindings = append(bindings, binding)
		}
		if err := executor.CheckBindings(bindings); err != nil {
			t.Errorf("%s: no script can have them: %v", promise, err)
		}
	}
}

func TestAPatternMeansToolsWhoseNamesJavaScriptUses(t *testing.T) {
	set, err := files.LoadFS(fstest.MapFS{"agents/x.yaml": {Data: []byte(agent + "capabilities: [\"mcp.files.*\"]\n")}}, "agents", "")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"mcp.files.read", "mcp.files.then", "mcp.files.constructor", "mcp.files.toString"}
	set.Tools = func(string) (kept []events.Capability, left []*mcp.LeftOut, err error) {
		for _, name := range want {
			kept = append(kept, events.Capability{Name: name, Effect: events.EffectWrite})
		}
		return kept, nil, nil
	}
	versions, err := set.Versions()
	if err != nil {
		t.Fatal(err)
	}
	if got := versions[0].Agent.Capabilities; !slices.Equal(got, want) {
		t.Errorf("the agent has %v, want %v", got, want)
	}
}
