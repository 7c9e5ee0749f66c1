package schema_test

import (
	_ "embed"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/runtime/schema"
)

// suite is one file in the format of the official JSON Schema test suite.
type suite []struct {
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	Tests       []struct {
		Description string          `json:"description"`
		Data        json.RawMessage `json:"data"`
		Valid       bool            `json:"valid"`
	} `json:"tests"`
}

// suiteCounts is what a run of suite files has covered.
type suiteCounts struct {
	compiled, refused  int // schemas
	accepted, rejected int // instances
}

//go:embed testdata/suite.json
var builtin []byte

func TestTheSuitesVerdictsHold(t *testing.T) {
	t.Run("built in", func(t *testing.T) {
		var counts suiteCounts
		runSuite(t, builtin, &counts)
		wantAtLeast(t, counts, suiteCounts{compiled: 20, refused: 10, accepted: 30, rejected: 30})
	})
	folder := os.Getenv("AGENTRUNTIME_SCHEMA_SUITE")
	if folder == "" {
		return
	}
	t.Run("official", func(t *testing.T) {
		files, err := filepath.Glob(filepath.Join(folder, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		var counts suiteCounts
		for _, file := range files {
			t.Run(filepath.Base(file), func(t *testing.T) {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				runSuite(t, text, &counts)
			})
		}
		wantAtLeast(t, counts, suiteCounts{compiled: 170, refused: 190, accepted: 400, rejected: 250})
	})
}

func wantAtLeast(t *testing.T, got, want suiteCounts) {
	t.Helper()
	t.Logf("%d schemas compiled, %d refused by the gate; %d instances accepted, %d rejected",
		got.compiled, got.refused, got.accepted, got.rejected)
	if got.compiled < want.compiled || got.refused < want.refused || got.accepted < want.accepted || got.rejected < want.rejected {
		t.Errorf("got %+v, want at least %+v", got, want)
	}
}

func runSuite(t *testing.T, text []byte, counts *suiteCounts) {
	var groups suite
	if err := json.Unmarshal(text, &groups); err != nil {
		t.Fatal(err)
	}
	for _, group := range groups {
		var doc any
		if err := json.Unmarshal(group.Schema, &doc); err != nil {
			t.Fatal(err)
		}
		offending := unsupported(doc, "")
		s, err := schema.Compile("suite", group.Schema)
		if len(offending) > 0 {
			var refused *schema.GateError
			if !errors.As(err, &refused) || !slices.Contains(offending, refused.Pointer) {
				t.Errorf("%s: %s\ngot %v, want a refusal at one of %q", group.Description, group.Schema, err, offending)
			}
			counts.refused++
			continue
		}
		if err != nil {
			t.Errorf("%s: %s\n%v", group.Description, group.Schema, err)
			continue
		}
		counts.compiled++
		for _, test := range group.Tests {
			if refused := violations(t, s, string(test.Data)); (refused == nil) != test.Valid {
				t.Errorf("%s, %s\n%s\n%s\n%v", group.Description, test.Description, group.Schema, test.Data, refused)
			}
			if test.Valid {
				counts.accepted++
			} else {
				counts.rejected++
			}
		}
	}
}

// supported is written again here, by the kind of thing a keyword holds.
var supported = map[string][]string{
	"schema":  {"additionalProperties", "items", "not"},
	"schemas": {"$defs", "definitions", "properties"},
	"list":    {"allOf", "anyOf", "oneOf"},
	"data": {
		"$comment", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "format",
		"type", "enum", "const", "required", "minProperties", "maxProperties", "minItems", "maxItems", "uniqueItems",
		"minLength", "maxLength", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
	},
}

// unsupported returns the pointers of all keywords for which the gate must
// refuse a schema of the suite, all of which are well formed.
func unsupported(s any, pointer string) []string {
	object, _ := s.(map[string]any)
	var found []string
	for _, keyword := range slices.Sorted(maps.Keys(object)) {
		at := pointer + "/" + keyword
		switch v := object[keyword]; {
		case slices.Contains(supported["schema"], keyword):
			found = append(found, unsupported(v, at)...)
		case slices.Contains(supported["schemas"], keyword):
			for name, child := range v.(map[string]any) {
				name = strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
				found = append(found, unsupported(child, at+"/"+name)...)
			}
		case slices.Contains(supported["list"], keyword):
			for i, child := range v.([]any) {
				found = append(found, unsupported(child, at+"/"+strconv.Itoa(i))...)
			}
		case keyword == "$schema" && pointer == "" && v == "https://json-schema.org/draft/2020-12/schema":
		case keyword == "$ref" && (v == "#" || strings.HasPrefix(v.(string), "#/")):
		case !slices.Contains(supported["data"], keyword):
			found = append(found, at)
		}
	}
	return found
}
