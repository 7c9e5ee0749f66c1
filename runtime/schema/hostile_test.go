package schema_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/runtime/schema"
)

// patience is how long one hostile text may take. What it guards against takes
// hours or for ever.
const patience = time.Minute

func TestAHostileInstanceIsRefusedInTime(t *testing.T) {
	const tree = `{"additionalProperties":{"$ref":"#"},"items":{"$ref":"#"}}`
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct{ promise, doc, instance, reason string }{
		{"arrays nested 100000 deep", tree, nested(100_000), "deeper"},
		{"objects nested 100000 deep", tree, strings.Repeat(`{"a":`, 100_000), "deeper"},
		{"a huge exponent", `{"multipleOf":0.1}`, `1e5000000`, "exponent"},
		{"a tiny exponent", `{"minimum":1}`, `{"a":-1e-5000000}`, "exponent"},
		{"an exponent of many digits", `true`, `1e` + strings.Repeat("9", 1000), "exponent"},
		{"a number of a million digits", `{"type":"integer"}`, strings.Repeat("9", 1_000_000), "digits"},
		{"more values than are read", `true`, `[` + strings.Repeat("0,", 600_000) + `0]`, "values"},
		{"a text of 17 MiB", `true`, `"` + strings.Repeat("a", 17<<20) + `"`, "larger"},
		{"a pattern that multiplies with the text", `{"pattern":"^(a?){900}(a|b){900}$"}`, `"` + strings.Repeat("a", 1<<20) + `"`, "too much work"},
		{"alternatives that double at every level", `{"anyOf":[{"items":{"$ref":"#"},"title":"a"},{"items":{"$ref":"#"},"title":"b"}],"type":"array"}`, strings.Repeat("[", 100) + "1" + strings.Repeat("]", 100), "too much work"},
		{"alternatives that double while the reason is sought", `{"type":"array","allOf":[{"items":{"$ref":"#"}},{"items":{"$ref":"#"}},{"items":{"anyOf":[{"type":"array","minItems":1},{"type":"array","maxItems":1}]}}]}`, strings.Repeat("[", 100) + "1" + strings.Repeat("]", 100), ""},
		{"a value whose fault is found with the last of the budget", `{"anyOf":[{"items":{"allOf":[` + strings.Repeat(`{"minimum":0},`, 9000) + `{}]}}]}`, `[` + strings.Repeat("1,", 1000) + `-1]`, "too large to say where"},
		{"a value given to many schemas", `{"items":{"allOf":[` + strings.Repeat(`{"minimum":0},`, 9000) + `{}]}}`, `[` + strings.Repeat("1,", 5000) + `1]`, "too much work"},
	} {
		t.Run(c.promise, func(t *testing.T) {
			s := compile(t, c.doc)
			start := time.Now()
			refused := violations(t, s, c.instance)
			if took := time.Since(start); took > patience {
				t.Errorf("it took %s", took)
			}
			if refused == nil || !strings.Contains(refused.Error(), c.reason) || len(refused.Error()) > 8000 {
				t.Errorf("got %v, want a refusal that says %q", refused, c.reason)
			}
		})
	}
}

func TestALargeInstanceIsAcceptedWithinTheBudget(t *testing.T) {
	var distinct, deep, objects strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&distinct, "%d,", i)
	}
	for i := range 20_000 {
		fmt.Fprintf(&objects, `{"kind":"b","id":%d,"next":{"kind":"a"}},`, i)
	}
	deep.WriteString(strings.Repeat("[", 120) + strings.Repeat("]", 120))
	op := `{"op":"add","left":{"op":"int","value":1},"right":`
	tree := strings.Repeat(op, 100) + `{"op":"int","value":1}` + strings.Repeat("}", 100)
	for _, c := range []struct{ promise, doc, instance string }{
		{"unique items", `{"uniqueItems":true,"items":{"type":"integer"}}`, `[` + distinct.String() + `-1]`},
		{"unique objects", `{"uniqueItems":true}`, `[` + objects.String() + `{}]`},
		{"depth", `{"items":{"$ref":"#"},"type":"array"}`, deep.String()},
		{"a long text with a pattern", `{"pattern":"^[a-z ]*$"}`, `"` + strings.Repeat("word ", 1<<18) + `"`},
		{"an array of unions", `{"items":{"oneOf":[{"properties":{"kind":{"const":"a"}},"required":["kind"]},{"properties":{"kind":{"const":"b"},"id":{"type":"integer"},"next":{"$ref":"#/items"}},"required":["kind"]}]}}`, `[` + objects.String() + `{"kind":"a"}]`},
		{
			"a deep tree of discriminated unions",
			`{"anyOf":[{"$ref":"#/$defs/int"},{"$ref":"#/$defs/add"},{"$ref":"#/$defs/mul"}],"$defs":{"int":{"properties":{"op":{"const":"int"}},"required":["op","value"]},"add":{"properties":{"left":{"$ref":"#"},"op":{"const":"add"},"right":{"$ref":"#"}},"required":["op"]},"mul":{"properties":{"left":{"$ref":"#"},"op":{"const":"mul"},"right":{"$ref":"#"}},"required":["op"]}}}`,
			tree,
		},
	} {
		t.Run(c.promise, func(t *testing.T) {
			if refused := violations(t, compile(t, c.doc), c.instance); refused != nil {
				t.Error(refused)
			}
		})
	}
}

func TestAHostileDocumentIsRefusedInTime(t *testing.T) {
	long := strings.Repeat("k", 4000)
	for _, c := range []struct{ promise, doc string }{
		{"nested 100000 deep", strings.Repeat(`{"not":`, 100_000)},
		{"references below long names", strings.Repeat(`{"properties":{"`+long+`":`, 60) + `{"allOf":[` + strings.Repeat(`{"$ref":"#/x"},`, 9000) + `{}]}` + strings.Repeat(`}}`, 60)},
		{"a repetition of repetitions", `{"pattern":"((((a{1000}){1000}){1000}){1000})"}`},
		{"patterns of large classes", `{"allOf":[` + strings.Repeat(`{"pattern":"`+strings.Repeat(`\\pL{1000}`, 9)+`"},`, 1000) + `{}]}`},
	} {
		t.Run(c.promise, func(t *testing.T) {
			start := time.Now()
			_, err := schema.Compile("hostile", []byte(c.doc))
			if took := time.Since(start); took > patience {
				t.Errorf("it took %s", took)
			}
			if err == nil || len(err.Error()) > 4000 {
				t.Errorf("got %v, want a short refusal", err)
			}
		})
	}
}
