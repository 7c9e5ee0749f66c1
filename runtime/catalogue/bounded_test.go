package catalogue_test

import (
	"encoding/json"
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime/catalogue"
	"github.com/agentruntime/agentruntime/runtime/schema"
)

// list writes n texts of a format with commas between them.
func list(n int, format func(i int) string) string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = format(i)
	}
	return strings.Join(texts, ",")
}

func numbered(format string) func(int) string {
	return func(i int) string { return fmt.Sprintf(format, i) }
}

// hostile are schemas that the gate accepts, each large in another way.
func hostile() map[string]string {
	long := strings.Repeat("x", 100_000)
	escaped := strings.Repeat(`\u0001`, 20_000)
	percent := func(i int) string {
		var b strings.Builder
		for bit, c := range "abcdefghijklm" {
			if i>>bit&1 == 1 {
				fmt.Fprintf(&b, "%%%x", c)
			} else {
				b.WriteRune(c)
			}
		}
		return `{"$ref":"#/$defs/` + b.String() + `"}`
	}
	return map[string]string{
		"many names are required":            `{"type":"object","required":[` + list(20_000, numbered(`"property%d"`)) + `]}`,
		"many are required and described":    `{"type":"object","properties":{` + list(5000, numbered(`"p%d":true`)) + `},"required":[` + list(20_000, numbered(`"p%d"`)) + `]}`,
		"many properties":                    `{"type":"object","properties":{` + list(2000, numbered(`"p%d":{"description":"`+strings.Repeat("é ", 30)+`"}`)) + `}}`,
		"many references to one":             `{"allOf":[` + list(2000, numbered(`{"type":"object","properties":{"p%d":{"$ref":"#/$defs/a"}}}`)) + `],"$defs":{"a":{"type":"object","required":[` + list(10_000, numbered(`"p%d"`)) + `]}}}`,
		"one reference written in many ways": `{"anyOf":[` + list(2000, percent) + `],"$defs":{"abcdefghijklm":{"type":"object","required":[` + list(10_000, numbered(`"p%d"`)) + `]}}}`,
		"many references of one name":        `{"anyOf":[` + list(2000, numbered(`{"$ref":"#/$defs/%d/properties/a"}`)) + `],"$defs":{` + list(2000, numbered(`"%d":{"type":"object","properties":{"a":{"type":"string"}}}`)) + `}}`,
		"many definitions of long names":     `{"anyOf":[` + list(2000, numbered(`{"$ref":"#/$defs/`+strings.Repeat("n", 100)+`%d"}`)) + `],"$defs":{` + list(2000, numbered(`"`+strings.Repeat("n", 100)+`%d":{"type":"string"}`)) + `}}`,
		"many alternatives":                  `{"anyOf":[` + list(4000, numbered(`{"const":%d}`)) + `]}`,
		"many alternatives that are alike":   `{"anyOf":[` + list(4000, func(int) string { return `{"const":1}` }) + `]}`,
		"many that say nothing":              `{"allOf":[` + list(4000, func(int) string { return `{}` }) + `]}`,
		"many intersections of unions":       `{"allOf":[` + list(2000, numbered(`{"type":["string","null"],"minLength":%d}`)) + `]}`,
		"a long constant":                    `{"const":"` + long + `"}`,
		"a long constant in another":         `{"const":{"a":[["` + long + `"]]}}`,
		"a constant of many parts":           `{"const":[` + list(50_000, numbered("%d")) + `]}`,
		"a constant with a long name":        `{"const":{"` + long + `":1}}`,
		"long values of an enum":             `{"enum":[` + list(60, numbered(`"%d`+strings.Repeat("y", 395)+`"`)) + `]}`,
		"an enum of values that are escaped": `{"enum":["` + escaped + `","` + strings.Repeat(`\u0001`, 80) + `"]}`,
		"a property of a long name":          `{"type":"object","properties":{"` + long + `":{"type":"string"},"b":true},"required":["` + long + `"],"additionalProperties":false}`,
		"a property of an escaped name":      `{"type":"object","properties":{"` + strings.Repeat(`\u0001`, 150) + `":true}}`,
		"a definition of a long name":        `{"$ref":"#/$defs/` + long + `","$defs":{"` + long + `":{"type":"string"}}}`,
		"a long description and default":     `{"type":"object","properties":{"a":{"description":"` + long + `","default":"` + escaped + `"}},"description":"` + strings.Repeat("*/", 100_000) + `","title":"` + long + `"}`,
		"every keyword at its longest":       `{"type":"object","properties":{` + list(300, numbered(`"p%d":{"format":"`+strings.Repeat(`\u0001`, 200)+`","default":"`+strings.Repeat("*/", 200)+`","minimum":1e`+`300,"maximum":`+strings.Repeat("9", 900)+`,"exclusiveMinimum":`+strings.Repeat("8", 900)+`}`)) + `}}`,
		"depth":                              strings.Repeat(`{"type":"array","items":`, 100) + `{"type":["object","null"],"properties":{"a":true}}` + strings.Repeat(`}`, 100),
		"depth of references": `{"$ref":"#/$defs/0","$defs":{` + list(2000, func(i int) string {
			return fmt.Sprintf(`"%d":{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"$ref":"#/$defs/%d"}}}}}`, i, (i+1)%2000)
		}) + `}}`,
	}
}

// Of every document that the gate accepts, a declaration is made in a time that
// grows as the document, and no longer than is promised.
func TestADeclarationIsBoundedWhateverTheSchema(t *testing.T) {
	texts := make(map[string]string)
	for name, doc := range hostile() {
		t.Run(name, func(t *testing.T) {
			if _, err := schema.Compile("hostile", []byte(doc)); err != nil {
				t.Fatal(err)
			}
			binding := strings.Repeat("a.", 89) + "a"
			list := []events.Capability{{Name: binding, Input: json.RawMessage(doc), Output: json.RawMessage(doc), Description: strings.Repeat("d", 5000)}}
			var before, after goruntime.MemStats
			goruntime.ReadMemStats(&before)
			text := catalogue.New(list).Text()
			goruntime.ReadMemStats(&after)
			if len(text) > 16<<10 || !strings.Contains(text, "declare const a: {") {
				t.Errorf("the declaration is too long to be told, or has %d bytes", len(text))
			}
			// Going over a document a second time for each of its parts takes more.
			if used := after.TotalAlloc - before.TotalAlloc; used > uint64(2*len(doc)*50+2<<20) {
				t.Errorf("%d bytes were allocated for a document of %d", used, len(doc))
			}
			texts["hostile "+name] = text
		})
	}
	check(t, texts)
}
