package schema_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/runtime/schema"
)

// repeated applies one schema to a value so often that a value of 256 KiB is gone
// over in more steps than there are.
func repeated(doc string) string {
	const times = 4500
	return `{"allOf":[` + strings.Repeat(`{"$ref":"#/$defs/a"},`, times) + `{}],"$defs":{"a":` + doc + `}}`
}

// Each instance fits its schema, and is refused for the work alone: it takes more
// than the budget by what one keyword goes over.
func TestWhatAKeywordGoesOverIsCounted(t *testing.T) {
	long := strings.Repeat("x", 256<<10)
	digits := strings.Repeat("7", 9999)
	for _, c := range []struct{ promise, doc, instance string }{
		{"the characters of a string", `{"maxLength":1000000}`, `"` + long + `"`},
		{"the texts of items", `{"uniqueItems":true}`, `["` + long + `",1]`},
		{"the digits of a number", `{"minimum":7}`, digits},
		{"the text of a constant", `{"const":"` + long + `"}`, `"` + long + `"`},
		{"the text of a value of an enum", `{"enum":[1,["` + long + `"]]}`, `["` + long + `"]`},
		{"a name that is required", `{"required":["` + long + `"]}`, `{"` + long + `":1}`},
		{"a name that is looked up", `{"properties":{"a":true}}`, `{"` + long + `":1}`},
		{"a name of the others", `{"additionalProperties":true}`, `{"` + long + `":1}`},
	} {
		t.Run(c.promise, func(t *testing.T) {
			if refused := violations(t, compile(t, repeated(c.doc)), c.instance); refused == nil || !strings.Contains(refused.Error(), "too much work") {
				t.Errorf("got %v, want that it is too much work", refused)
			}
		})
	}
}

// The names and values of discriminators are counted like others. No value here
// has an alternative, which the schemas want.
func TestWhatAUnionGoesOverIsCounted(t *testing.T) {
	long := strings.Repeat("x", 400<<10)
	const times = 1900 // of five schemas each
	union := func(first, second string) string {
		return `{"allOf":[` + strings.Repeat(`{"not":{"$ref":"#/$defs/a"}},`, times) + `{}],"$defs":{"a":{"anyOf":[` + first + `,` + second + `]}}}`
	}
	for _, c := range []struct{ promise, doc, instance string }{
		{"the name of a discriminator", union(`{"properties":{"`+long+`":{"const":1}}}`, `{"type":["object","null"],"properties":{"`+long+`":{"const":2}},"required":["a"]}`), `{"` + long + `":3}`},
		{"the value of a discriminator", union(`{"properties":{"k":{"const":1}}}`, `{"properties":{"k":{"const":2}}}`), `{"k":"` + long + `"}`},
	} {
		t.Run(c.promise, func(t *testing.T) {
			if refused := violations(t, compile(t, c.doc), c.instance); refused == nil || !strings.Contains(refused.Error(), "too much work") {
				t.Errorf("got %v, want that it is too much work", refused)
			}
		})
	}
}

// A few short references multiply through unions as they do through allOf.
func TestTheAlternativesOfAUnionAreWeighed(t *testing.T) {
	branches := func(n int, doc string) string { return strings.Repeat(doc+",", n-1) + doc }
	for _, keyword := range []string{"anyOf", "oneOf"} {
		t.Run(keyword, func(t *testing.T) {
			wide := func(n int) string {
				return fmt.Sprintf(`{"%s":[%s],"$defs":{"a":{"%s":[%s]}}}`, keyword, branches(n, `{"$ref":"#/$defs/a"}`), keyword, branches(100, `{}`))
			}
			compile(t, wide(90))
			wantRefused(t, wide(100), "", "more than 10000 schemas")
			// Each definition is applied by the one before it, two levels at a time.
			deep := func(n int) string {
				var defs strings.Builder
				for i := range n {
					fmt.Fprintf(&defs, `"%d":{"%s":[{"$ref":"#/$defs/%d"}]},`, i, keyword, i+1)
				}
				return `{"$ref":"#/$defs/0","$defs":{` + defs.String() + `"` + strconv.Itoa(n) + `":{}}}`
			}
			compile(t, deep(31))
			if _, err := schema.Compile("task", []byte(deep(32))); err == nil || !strings.Contains(err.Error(), "each inside the other") {
				t.Errorf("got %v, want a refusal of the depth", err)
			}
		})
	}
}

// What the search for discriminators looks at is bounded for the whole document.
// Verdicts do not depend on it: a union that is left tells of its alternatives.
func TestDiscriminatorsAreSoughtWithinABound(t *testing.T) {
	var names, values strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&names, `"a%d":{"const":1},`, i)
		fmt.Fprintf(&values, `"v%d",`, i)
	}
	for _, c := range []struct{ promise, first, second string }{
		{"names", `{"properties":{` + names.String() + `"k":{"const":1}}}`, `{"properties":{"k":{"const":2}}}`},
		{"names that are not tried", `{"properties":{"k":{"const":1},` + strings.ReplaceAll(names.String(), `"a`, `"l`) + `"z":true}}`, `{"properties":{"k":{"const":2}}}`},
		{"values", `{"properties":{"k":{"enum":[` + values.String() + `1]}}}`, `{"properties":{"k":{"enum":[2]}}}`},
		{"schemas of an allOf", `{"allOf":[` + strings.Repeat(`{"minProperties":1},`, 2000) + `{"properties":{"k":{"const":1}}}]}`, `{"properties":{"k":{"const":2}}}`},
		{"required names", `{"properties":{"k":{"const":1}},"required":[` + values.String() + `"k"]}`, `{"properties":{"k":{"const":2}}}`},
	} {
		t.Run(c.promise, func(t *testing.T) {
			s := compile(t, `{"properties":{`+alternatives(200, `{"$ref":"#/$defs/first"},{"$ref":"#/$defs/second"}`)+`"z":true},"$defs":{"first":`+c.first+`,"second":`+c.second+`}}`)
			if refused := violations(t, s, `{"u0":{"k":2},"u99":{"k":2}}`); refused != nil {
				t.Error(refused)
			}
			refused := violations(t, s, `{"u0":{"k":3},"u99":{"k":3}}`)
			if refused == nil || len(refused.Violations) != 2 {
				t.Fatalf("got %v, want two violations", refused)
			}
			if at := refused.Violations[0].InstancePath; at != "/u0/k" {
				t.Errorf("the discriminator of the first union was not found: %v", refused)
			}
			if at := refused.Violations[1].InstancePath; at != "/u99" {
				t.Errorf("the last union was looked at as well: %v", refused)
			}
		})
	}
}

// alternatives writes n properties, each a union. The last, as they are sorted, is u99.
func alternatives(n int, branches string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"u%d":{"anyOf":[%s]},`, i, branches)
	}
	return b.String()
}
