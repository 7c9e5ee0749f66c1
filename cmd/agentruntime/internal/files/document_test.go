package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
)

// convert reads YAML that must have no errors, as JSON.
func convert(t interface{ Fatalf(string, ...any) }, data string) string {
	d := (&document{file: "f.yaml"}).read([]byte(data))
	if len(d.errors) > 0 {
		t.Fatalf("%q: %v", data, errors.Join(d.sorted()...))
	}
	return string(d.root.json())
}

func TestYAMLMeansWhatItsJSONMeans(t *testing.T) {
	for data, want := range map[string]string{
		"9007199254740993":                     `9007199254740993`,
		"123456789012345678901234567890":       `123456789012345678901234567890`,
		"0.10000000000000000000000000001":      `0.10000000000000000000000000001`,
		"1.0":                                  `1.0`,
		"-0":                                   `-0`,
		"-0.0e0":                               `-0.0e0`,
		"1E400":                                `1E400`,
		"1e-400":                               `1e-400`,
		`"1e400"`:                              `"1e400"`,
		"'007'":                                `"007"`,
		"2024-01-01":                           `"2024-01-01"`,
		"2024-01-01T10:00:00Z":                 `"2024-01-01T10:00:00Z"`,
		"12:30:45":                             `"12:30:45"`,
		"1.2.3":                                `"1.2.3"`,
		"null":                                 `null`,
		"'null'":                               `"null"`,
		"'~'":                                  `"~"`,
		"[yes, no, on, off, y, n]":             `["yes","no","on","off","y","n"]`,
		"{2024-01-01: 1, yes: 2, '3': 4}":      `{"2024-01-01":1,"yes":2,"3":4}`,
		"'<<'":                                 `"<<"`,
		"{'<<': 1}":                            `{"<<":1}`,
		"{b: 1, a: 2}":                         `{"b":1,"a":2}`,
		"|\n  a\n  b\n":                        `"a\nb\n"`,
		">-\n  a\n  b\n":                       `"a b"`,
		`"<a href=\"x\">&\u2028\0\x7f"`:        "\"<a href=\\\"x\\\">&\\u2028\\u0000\x7f\"",
		"{\"a\":[1,{\"b\":null}],\"c\":\"d\"}": `{"a":[1,{"b":null}],"c":"d"}`,
		"%YAML 1.1\n---\na: 1\n...\n":          `{"a":1}`,
	} {
		if got := convert(t, data); got != want {
			t.Errorf("%q is %s, want %s", data, got, want)
		}
	}
}

func TestNestingIsBounded(t *testing.T) {
	deep := func(n int) string { return "a: " + strings.Repeat("[", n) + strings.Repeat("]", n) }
	if got := convert(t, deep(maxDepth-1)); got != `{"a":`+strings.Repeat("[", maxDepth-1)+strings.Repeat("]", maxDepth-1)+"}" {
		t.Errorf("got %s", got)
	}
	for _, n := range []int{maxDepth, 5000, 500_000} {
		d := (&document{file: "f.yaml"}).read([]byte(deep(n)))
		if len(d.errors) != 1 || d.errors[0].Line != 1 {
			t.Errorf("%d deep: %v", n, d.errors)
		}
	}
}

func TestEveryJSONIsReadAsItStands(t *testing.T) {
	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?`)
	character := rapid.Rune().Filter(func(r rune) bool { return r < 0x7f || r > 0x9f && r != 0xfeff && r < 0xfffe || r > 0xffff })
	text := rapid.OneOf(rapid.StringOf(character), rapid.StringMatching(`[-+~!&*#?:,\[\]{}|>%@ 0-9nullTrue.yes"']*`))
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		return rapid.Custom(func(t *rapid.T) any {
			switch rapid.IntRange(0, 4+min(depth, 1)*2).Draw(t, "kind") {
			case 0:
				return nil
			case 1:
				return rapid.Bool().Draw(t, "bool")
			case 2:
				return json.Number(number.Draw(t, "number"))
			case 3, 4:
				return text.Draw(t, "text")
			case 5:
				return rapid.SliceOfN(value(depth-1), 0, 4).Draw(t, "items")
			}
			return rapid.MapOfN(text, value(depth-1), 0, 4).Draw(t, "members")
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		want, err := events.Marshal([]any{value(4).Draw(t, "value")})
		if err != nil {
			t.Fatal(err)
		}
		if got := convert(t, string(want)); got != string(want) {
			t.Fatalf("JSON %s is %s", want, got)
		}
		pretty, err := yaml.Marshal(yamlNode(want))
		if err != nil {
			t.Fatal(err)
		}
		if got := convert(t, string(pretty)); got != string(want) {
			t.Fatalf("YAML\n%s\nis   %s\nwant %s", pretty, got, want)
		}
	})
}

// yamlNode is a JSON text in the style that YAML is usually written in.
func yamlNode(text json.RawMessage) *yaml.Node {
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	var read func() *yaml.Node
	read = func() *yaml.Node {
		token, err := decoder.Token()
		if err != nil {
			panic(err)
		}
		n := &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(token)}
		switch token := token.(type) {
		case json.Delim:
			n.Value, n.Kind = "", yaml.SequenceNode
			if token == '{' {
				n.Kind = yaml.MappingNode
			}
			for decoder.More() {
				n.Content = append(n.Content, read())
			}
			_, _ = decoder.Token() // the end, which More has seen
		case string:
			n.Tag = "!!str"
			n.Style = yaml.DoubleQuotedStyle
		case nil:
			n.Value = "null"
		}
		return n
	}
	return read()
}

func TestTheLineOfABreakIsTheFirstThatCannotBeRight(t *testing.T) {
	comment := strings.Repeat("# nothing\n", 1000)
	for _, tt := range []struct {
		data string
		line int
	}{
		{"a: 1\n  b: 2\nc: 3\n", 2},
		{comment + "a: 1\n  b: 2\n" + comment, 1002},
		{"a:\n  b: 1\n c: 2\n", 3},
		{"a:\n  - b\n  c\n", 3},
		{"a: *x\n", 1},
		{"a: 1\n# *x\nb: '*x'\nc: *x\nd: *x\n", 4},
		{"a: [1, 2\nb: 3\n" + comment, 1},
		{"a: [1,\n  2 3: 4,\n  }\n", 3},
		{"a: 1\nb: 'c\n" + comment, 2},
		{"a: 1\n\tb: 2\n", 2},
		{"a: b: c\n", 1},
		{"a: 1\n\nb: @c\n", 3},
		{"a: 1\nb: \"\\q\"\nc: 1\n", 2},
		{"a: 1\nb: \x00\n", 2},
		{"a: 1\n---\nb: [}\n", 3},
		{"a: 1\n}\n", 2},
		{"%YAML 3.0\n---\na: 1\n", 2},
	} {
		d := (&document{file: "f.yaml"}).read([]byte(tt.data))
		if len(d.errors) != 1 || d.errors[0].Line != tt.line {
			t.Errorf("%q: %v, want line %d", cut(tt.data, 40), errors.Join(d.sorted()...), tt.line)
		}
	}
}

func TestAnErrorNamesTheColumnOfItsKeyOrItem(t *testing.T) {
	d := (&document{file: "f.yaml"}).read([]byte("äö: 1\nlist: [a, 0x1, b]\nmap:\n  - é: {x: ~}\n"))
	var got []Error
	for _, err := range d.errors {
		got = append(got, Error{Line: err.Line, Column: err.Column, Field: err.Field})
	}
	want := []Error{{Line: 2, Column: 11, Field: "list[1]"}, {Line: 4, Column: 9, Field: `map[0]["é"].x`}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestTheNearestNameIsTheOneThatWasMeant(t *testing.T) {
	names := agentShape().names
	for name, want := range map[string]string{
		"instrutions": "instructions", "instruction": "instructions", "Instructions": "instructions", "modle": "model", "modells": "models",
		"sub_agents": "subagents", "sub-agents": "subagents", "capabilites": "capabilities", "desc": "", "temperature": "", "x": "", "": "",
		"slgu": "slug", strings.Repeat("model", 20): "",
	} {
		if got := nearest(name, names); got != want {
			t.Errorf("%q is taken for %q, want %q", name, got, want)
		}
	}
}

// FuzzLoad holds whatever stands in a file to the promises of the package.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		"instructions: x\nmodel: a/b\n", "effect: read\nroute: {nats: {subject: a}}\n", "a: &x [*x]\n", "a: *x", "? [a]\n: b", "- - - 1", "a: |\n  b\n c",
		"instructions: x\nmodel: a/b\noutput: {properties: {a: {type: strin}}}\ncapabilities: [c, d]\n", "<<: {a: 1}", "a: 1e400", "{", "'", "---\n---\n", "\xff", "!!x y",
		"instructions: x\nmodel: a/b\nlimits: {timeout: 5, calls_per_answer: 1e3}\nevents: [1, 1]\n", "a: \"\\u2028\"\r\nb: 1", "%TAG ! x\n--- !a b",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tree := fstest.MapFS{"agents/a.yaml": {Data: data}, "capabilities/c.yaml": {Data: data}}
		for _, capabilities := range []string{"", "capabilities"} {
			set, err := LoadFS(tree, "agents", capabilities)
			if err == nil {
				_, err = set.Versions()
			}
			checkErrors(t, data, err)
			if set == nil {
				continue
			}
			for _, a := range set.Agents {
				text, err := events.Marshal(a)
				if err != nil {
					t.Fatalf("the agent cannot be written: %v", err)
				}
				if err := events.CheckJSON(text, events.JSONLimits{}); err != nil {
					t.Fatalf("the agent is no JSON: %v", err)
				}
			}
		}
		if d := (&document{file: "f"}).read(data); d.root != nil {
			if err := events.CheckJSON(d.root.json(), events.JSONLimits{}); err != nil && len(d.errors) == 0 {
				t.Fatalf("%q became %s: %v", data, d.root.json(), err)
			}
		}
	})
}

func checkErrors(t *testing.T, data []byte, err error) {
	if err == nil {
		return
	}
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		at, ok := err.(*Error)
		if !ok {
			t.Fatalf("%T is no *Error: %v", err, err)
		}
		if strings.ContainsAny(at.Error(), "\r\n") || len(at.Error()) > 1000 || at.Reason == "" {
			t.Fatalf("not one short line: %q", at.Error())
		}
		if at.Line < 1 || at.Line > strings.Count(string(data), "\n")+1 {
			t.Fatalf("%q has no line %d: %v", data, at.Line, err)
		}
	}
}
