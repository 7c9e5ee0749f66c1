package catalogue_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime/catalogue"
	"github.com/agentruntime/agentruntime/runtime/schema"
)

// input returns the type that a capability with this input is told to take.
func input(t *testing.T, doc string) string {
	t.Helper()
	if _, err := schema.Compile("input", []byte(doc)); err != nil {
		t.Fatal(err)
	}
	text := catalogue.New([]events.Capability{{Name: "a", Effect: events.EffectRead, Input: json.RawMessage(doc)}}).Text()
	_, text, _ = strings.Cut(text, "(input")
	text, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(text, "?"), ": "), ") => Promise")
	return text
}

func TestANumberIsToldOnlyIfTheSchemaTakesIt(t *testing.T) {
	for number, want := range map[string]string{
		"0.1": "0.1", "-2.50": "-2.5", "1e3": "1000", "25e-1": "2.5", "1e-7": "0.0000001", "-0.0": "0", "9007199254740991": "9007199254740991",
		"4503599627370495.5": "4503599627370495.5", "0.10000000000000000001": "number", "4503599627370497.25": "number", "1e-400": "number",
		"9007199254740992": "number", "9007199254740993": "number", "1e400": "number",
	} {
		doc := `{"const":` + number + `}`
		told := input(t, doc)
		if told != want {
			t.Errorf("%s is told as %s, want %s", number, told, want)
		}
		if told == "number" {
			continue
		}
		s, err := schema.Compile("input", []byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		if s.Validate([]byte(told)) != nil {
			t.Errorf("%s is told as %s, which the schema refuses", number, told)
		}
	}
}

// A list that is told in part would refuse the values it leaves out.
func TestAListOfValuesIsToldWholeOrNotAtAll(t *testing.T) {
	values := func(n, size int) string {
		return `{"enum":[` + list(n, numbered(`"%02d`+strings.Repeat("y", size)+`"`)) + `]}`
	}
	if told := input(t, values(60, 100)); strings.Count(told, "y\"") != 60 {
		t.Errorf("%d of 60 values are told", strings.Count(told, "y\""))
	}
	if told := input(t, values(60, 390)); told != "unknown" {
		t.Errorf("of values that do not fit, %.100s is told", told)
	}
}

func TestATypeIsNamedUnlikeAllOthers(t *testing.T) {
	// The number that tells the third from the second makes the name of the first.
	names := []string{"b2", "b", "B", "b-", "B3"}
	told := catalogue.New([]events.Capability{{Name: "a", Effect: events.EffectRead, Input: json.RawMessage(`{"anyOf":[` +
		list(len(names), func(i int) string { return `{"$ref":"#/$defs/` + names[i] + `"}` }) + `],"$defs":{` +
		list(len(names), func(i int) string { return fmt.Sprintf(`"%s":{"const":%d}`, names[i], i) }) + `}}`)}}).Text()
	seen := make(map[string]bool)
	for _, declared := range regexp.MustCompile(`(?m)^type (\w+) = `).FindAllStringSubmatch(told, -1) {
		if seen[declared[1]] {
			t.Errorf("there are two types %s:\n%s", declared[1], told)
		}
		seen[declared[1]] = true
	}
	if len(seen) != len(names) {
		t.Errorf("%d types are declared, want %d:\n%s", len(seen), len(names), told)
	}
}

func TestANameThatIsLongOnceItIsQuotedIsNotTold(t *testing.T) {
	name := strings.Repeat(`\u0001`, 150)
	for doc, want := range map[string]string{
		`{"type":"object","properties":{"` + name + `":{"type":"string"},"b":{"type":"string"}}}`: "{\n  b?: string;\n  [more: string]: unknown;\n}",
		`{"const":{"` + name[:60*len(`\u0001`)] + `":1}}`:                                         "object",
		`{"const":{"` + name[:30*len(`\u0001`)] + `":1}}`:                                         `{ "` + name[:30*len(`\u0001`)] + `": 1 }`,
	} {
		if told := input(t, doc); told != want {
			t.Errorf("told is %q, want %q", told, want)
		}
	}
}
