package catalogue_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime/catalogue"
	"github.com/agentruntime/agentruntime/runtime/executor"
	"github.com/agentruntime/agentruntime/runtime/schema"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const golden = "testdata/declarations.txtar"

// granted reads the catalogues of the archive, each a JSON array, with the text
// that a model is told.
func granted(t *testing.T) (archive *txtar.Archive, lists map[string][]events.Capability) {
	t.Helper()
	archive, err := txtar.ParseFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	lists = make(map[string][]events.Capability)
	for i := 0; i+1 < len(archive.Files); i += 2 {
		name := strings.TrimSuffix(archive.Files[i].Name, "/capabilities")
		var list []events.Capability
		if err := json.Unmarshal(archive.Files[i].Data, &list); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, c := range list {
			for _, doc := range [][]byte{c.Input, c.Output} {
				if len(doc) > 0 {
					if _, err := schema.Compile(c.Name, doc); err != nil {
						t.Fatalf("%s: %v", name, err)
					}
				}
			}
		}
		lists[name] = list
	}
	return archive, lists
}

func TestAModelIsToldTypes(t *testing.T) {
	archive, lists := granted(t)
	for i := 0; i+1 < len(archive.Files); i += 2 {
		name := strings.TrimSuffix(archive.Files[i].Name, "/capabilities")
		got := catalogue.New(lists[name]).Text()
		if *update {
			archive.Files[i+1].Data = []byte(got)
		} else if diff := cmp.Diff(string(archive.Files[i+1].Data), got); diff != "" {
			t.Errorf("%s: want -, got +\n%s", name, diff)
		}
	}
	if *update {
		if err := os.WriteFile(golden, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNamesFollowFromTheSet(t *testing.T) {
	for _, c := range []struct {
		promise string
		names   []string
		want    []string
	}{
		{"a name that JavaScript can say stays", []string{"desk.book", "$._", "ping"}, []string{"desk.book", "$._", "ping"}},
		{"other characters become _", []string{"get-sum", "github/issues:list", "a b", "é"}, []string{"get_sum", "github_issues_list", "a_b", "_"}},
		{"digits and empty parts get a _", []string{"3d.view", "a.1", "x..y", ""}, []string{"_3d.view", "a._1", "x._.y", "_"}},
		{"no control tool is bound", []string{"complete", "run_js", "wait_calls.x", "spawn_writer"}, []string{"_complete", "_run_js", "_wait_calls.x", "_spawn_writer"}},
		{"no global is hidden", []string{"JSON.parse", "console", "class.x", "capabilities.search", "attach"}, []string{"_JSON.parse", "_console", "_class.x", "_capabilities.search", "_attach"}},
		{"no member changes its object", []string{"desk.then", "desk.__proto__", "toJSON"}, []string{"desk._then", "desk.___proto__", "_toJSON"}},
		{"the one that needs no change keeps its name", []string{"a-b", "a_b", "a+b"}, []string{"a_b_3", "a_b", "a_b_2"}},
		{"a function gives way to an object", []string{"desk", "desk.book", "desk.room.x", "desk.room"}, []string{"desk_2", "desk.book", "desk.room.x", "desk.room_2"}},
	} {
		got := catalogue.Names(c.names)
		reversed := slices.Clone(c.names)
		slices.Reverse(reversed)
		if !maps.Equal(got, catalogue.Names(reversed)) {
			t.Errorf("%s: it depends on the order", c.promise)
		}
		for i, name := range c.names {
			if got[name] != c.want[i] {
				t.Errorf("%s: %q is bound to %q, want %q", c.promise, name, got[name], c.want[i])
			}
		}
	}
}

func TestWhateverTheNamesAScriptCanBeGivenThem(t *testing.T) {
	part := rapid.OneOf(
		rapid.SampledFrom([]string{"a", "b", "complete", "spawn_", "then", "class", "JSON", "capabilities", "a-b", "a_b", "", "1", "é", "__proto__", strings.Repeat("x", 150)}),
		rapid.String(),
	)
	names := rapid.SliceOfN(rapid.Map(rapid.SliceOfN(part, 1, 4), func(parts []string) string { return strings.Join(parts, ".") }), 0, 12)
	rapid.Check(t, func(t *rapid.T) {
		list := names.Draw(t, "names")
		bound := catalogue.Names(list)
		bindings := slices.Collect(maps.Values(bound))
		if err := executor.CheckBindings(bindings); err != nil {
			t.Fatalf("%q: %v", list, err)
		}
		for _, b := range bindings {
			if first, _, _ := strings.Cut(b, "."); first == "capabilities" {
				t.Fatalf("%q is bound to %q", list, b)
			}
		}
	})
}

// many is a catalogue that is too large to be told.
func many(n int) []events.Capability {
	list := make([]events.Capability, n)
	for i := range list {
		list[i] = events.Capability{Name: fmt.Sprintf("store%d.find-item", i), Description: fmt.Sprintf("Finds items of store %d.\nSlowly.", i), Effect: events.EffectRead,
			Input: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string","description":"what to look for"},"limit":{"type":"integer"}},"required":["text"]}`)}
	}
	list[n/2].Name, list[n/2].Description = "mail.send", "Sends a letter to a customer."
	return list
}

func TestALargeCatalogueIsSearched(t *testing.T) {
	c := catalogue.New(many(700))
	text := c.Text()
	if len(text) > 13<<10 || !strings.Contains(text, "- store0.find_item: Finds items of store 0.\n") || !strings.Contains(text, "more, which capabilities.search finds") {
		t.Errorf("%d bytes: %.400s", len(text), text)
	}
	if bindings := c.Bindings(); len(bindings) != 702 || executor.CheckBindings(bindings) != nil {
		t.Errorf("%d bindings, %v", len(bindings), executor.CheckBindings(bindings))
	}
	serve := func(name, input string, into any) error {
		answer, served, err := c.Serve(name, json.RawMessage(input))
		if !served {
			t.Fatalf("%s is not served", name)
		}
		if err == nil {
			err = json.Unmarshal(answer, into)
		}
		return err
	}
	var found catalogue.Found
	if err := serve(catalogue.Search, `"letter customer"`, &found); err != nil || len(found.Capabilities) != 1 || found.Capabilities[0] != (catalogue.FoundCapability{Name: "mail.send", Description: "Sends a letter to a customer."}) {
		t.Errorf("got %+v, %v", found, err)
	}
	if err := serve(catalogue.Search, `"Find"`, &found); err != nil || len(found.Capabilities) != 25 || found.More != 699-25 {
		t.Errorf("got %d and %d more, %v", len(found.Capabilities), found.More, err)
	}
	var declared string
	if err := serve(catalogue.Describe, `"store7.find_item"`, &declared); err != nil || !strings.Contains(declared, "find_item: (input: {") || !strings.Contains(declared, "text: string;") {
		t.Errorf("got %s, %v", declared, err)
	}
	for name, input := range map[string]string{catalogue.Describe: `"nothing"`, catalogue.Search: `{}`} {
		if err := serve(name, input, nil); err == nil {
			t.Errorf("%s(%s) was answered", name, input)
		}
	}
	if _, served, _ := catalogue.New(many(3)).Serve(catalogue.Search, json.RawMessage(`""`)); served {
		t.Error("a small catalogue is searched")
	}
}

func TestADeclarationIsBounded(t *testing.T) {
	wide := map[string]any{}
	for i := range 3000 {
		wide[fmt.Sprintf("property%d", i)] = map[string]any{"type": "string", "description": strings.Repeat("é ", 500)}
	}
	wideDoc, err := json.Marshal(map[string]any{"type": "object", "properties": wide})
	if err != nil {
		t.Fatal(err)
	}
	deep := json.RawMessage(strings.Repeat(`{"type":"object","properties":{"a":`, 100) + `{}` + strings.Repeat(`}}`, 100))
	c := catalogue.New([]events.Capability{
		{Name: "wide", Input: wideDoc}, {Name: "deep", Input: deep, Description: strings.Repeat("x", 100_000)},
	})
	if text := c.Text(); len(text) > 24<<10 || !strings.Contains(text, "[more: string]: unknown") || strings.Count(text, "a?: ") > 20 {
		t.Errorf("%d bytes: %.2000s", len(text), text)
	}
	check(t, map[string]string{"bounded": c.Text()})
}

// Every capability there can be is declared in a way that the compiler reads.
func TestTheCompilerReadsTheDeclarations(t *testing.T) {
	_, lists := granted(t)
	texts := make(map[string]string)
	for name, list := range lists {
		texts[name] = catalogue.New(list).Text()
	}
	check(t, texts)
}

// check gives declarations to the TypeScript compiler of the folder that
// AGENTRUNTIME_NPM names. Without one they are only checked for their brackets.
func check(t *testing.T, texts map[string]string) {
	t.Helper()
	folder := t.TempDir()
	var files []string
	for name, text := range texts {
		_, code, _ := strings.Cut(text, "\n") // the sentence before it
		if strings.Count(code, "{") != strings.Count(code, "}") {
			t.Errorf("%s: the brackets do not match:\n%s", name, code)
		}
		if !strings.Contains(code, "declare const ") {
			continue
		}
		file := filepath.Join(folder, name+".ts")
		if err := os.WriteFile(file, []byte(code+"export {};\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	npm := os.Getenv("AGENTRUNTIME_NPM")
	if npm == "" {
		return
	}
	args := append([]string{"--noEmit", "--strict", "--target", "es2022", "--lib", "es2022", "--types", ""}, files...)
	var out bytes.Buffer
	cmd := exec.Command(filepath.Join(npm, "node_modules", ".bin", "tsc"), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("the compiler: %v\n%.4000s", err, out.String())
	}
	t.Logf("the compiler read %d files", len(files))
}
