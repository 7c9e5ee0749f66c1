package schema_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/runtime/schema"
)

func TestTheGateRefusesWithThePointer(t *testing.T) {
	for _, c := range []struct{ promise, doc, pointer, reason string }{
		{"no document", ``, "", "not valid JSON"},
		{"a document that is no schema", `5`, "", "not an integer"},
		{"null", `null`, "", "not null"},
		{"two documents", `{} {}`, "", "something after"},
		{"a key twice", `{"properties":{"a":{"type":"string","type":"string"}}}`, "/properties/a/type", "twice"},
		{"invalid UTF-8", "{\"title\":\"\xff\"}", "/title", "UTF-8"},
		{"a lone surrogate", `{"title":"\ud800"}`, "/title", "surrogate"},
		{"a document nested too deep", strings.Repeat(`{"not":`, 200) + `{}` + strings.Repeat(`}`, 200), strings.Repeat("/not", 64)[:256] + "…", "deeper"},

		{"another dialect", `{"$schema":"http://json-schema.org/draft-07/schema#"}`, "/$schema", "dialect"},
		{"a dialect below the root", `{"items":{"$schema":"https://json-schema.org/draft/2020-12/schema"}}`, "/items/$schema", "root"},
		{"$id", `{"$id":"https://example.com/a"}`, "/$id", "not supported"},
		{"$anchor", `{"$defs":{"a":{"$anchor":"x"}}}`, "/$defs/a/$anchor", "not supported"},
		{"$dynamicRef", `{"$dynamicRef":"#a"}`, "/$dynamicRef", "not supported"},
		{"$vocabulary", `{"$vocabulary":{}}`, "/$vocabulary", "not supported"},
		{"if", `{"allOf":[true,{"if":true}]}`, "/allOf/1/if", "not supported"},
		{"prefixItems", `{"prefixItems":[true]}`, "/prefixItems", "not supported"},
		{"patternProperties", `{"patternProperties":{}}`, "/patternProperties", "not supported"},
		{"unevaluatedProperties", `{"unevaluatedProperties":false}`, "/unevaluatedProperties", "not supported"},
		{"contains", `{"not":{"contains":true}}`, "/not/contains", "not supported"},
		{"a keyword in the wrong case", `{"properties":{"a/b~":{"minlength":1}}}`, "/properties/a~1b~0/minlength", "not supported"},
		{"an unknown keyword", `{"x-extra":1}`, "/x-extra", "not supported"},
		{"a keyword that needs escaping", `{"a/b":1}`, "/a~1b", "not supported"},

		{"an annotation that is no string", `{"title":1}`, "/title", "a string"},
		{"a format that is no string", `{"format":null}`, "/format", "a string"},
		{"an annotation that is no boolean", `{"readOnly":"yes"}`, "/readOnly", "a boolean"},
		{"examples that are no array", `{"examples":1}`, "/examples", "an array"},
		{"a misspelt type", `{"type":"strnig"}`, "/type", `"strnig" is not a type`},
		{"a misspelt type in an array", `{"type":["null","int"]}`, "/type", `"int" is not a type`},
		{"no type", `{"type":[]}`, "/type", "at least one"},
		{"a type twice", `{"type":["null","null"]}`, "/type", "twice"},
		{"a type that is a number in an array", `{"type":[1]}`, "/type", "a type or an array"},
		{"a type that is an object", `{"type":{"a":"string"}}`, "/type", "a type or an array"},
		{"a type that is a number", `{"type":1}`, "/type", "a type or an array"},
		{"an enum that is no array", `{"enum":{"a":1}}`, "/enum", "an array"},
		{"properties that are no object", `{"properties":[]}`, "/properties", "an object of schemas"},
		{"a property that is no schema", `{"properties":{"a":1}}`, "/properties/a", "not an integer"},
		{"required as a boolean", `{"required":true}`, "/required", "an array"},
		{"a required name that is no string", `{"required":[1]}`, "/required", "property names"},
		{"a required name twice", `{"required":["a","\u0061"]}`, "/required", "twice"},
		{"items as an array", `{"items":[{}]}`, "/items", "not an array"},
		{"$defs that are no object", `{"$defs":true}`, "/$defs", "an object of schemas"},
		{"a bad definition nobody uses", `{"definitions":{"a":{"type":"x"}}}`, "/definitions/a/type", "not a type"},
		{"an empty allOf", `{"allOf":[]}`, "/allOf", "at least one"},
		{"an anyOf that is an object", `{"anyOf":{"a":{}}}`, "/anyOf", "an array"},
		{"a oneOf with something else", `{"oneOf":[{},"a"]}`, "/oneOf/1", "not a string"},
		{"a bound that is no number", `{"minimum":"1"}`, "/minimum", "a number"},
		{"a bound of a large exponent", `{"maximum":1e5000000}`, "/maximum", "exponent"},
		{"a bound of many digits", `{"maximum":1` + strings.Repeat("1", 1000) + `}`, "/maximum", "digits"},
		{"a constant of a large exponent", `{"const":{"a":[1e-10001]}}`, "/const/a/0", "exponent"},
		{"a divisor that is no number", `{"multipleOf":"1"}`, "/multipleOf", "a number"},
		{"a multiple of zero", `{"multipleOf":0.0}`, "/multipleOf", "more than 0"},
		{"a negative divisor", `{"multipleOf":-1}`, "/multipleOf", "more than 0"},
		{"a negative length", `{"minLength":-1}`, "/minLength", "from 0"},
		{"a length with a fraction", `{"maxItems":1.5}`, "/maxItems", "an integer"},
		{"a length beyond all lengths", `{"maxProperties":1e30}`, "/maxProperties", "9007199254740991"},
		{"a length that is a string", `{"maxLength":"1"}`, "/maxLength", "an integer"},
		{"uniqueItems that is no boolean", `{"uniqueItems":1}`, "/uniqueItems", "a boolean"},
		{"a pattern that is no string", `{"pattern":1}`, "/pattern", "a string"},
		{"a pattern with a look-ahead", `{"pattern":"(?=a)"}`, "/pattern", "RE2"},
		{"a pattern with a back-reference", `{"pattern":"(a)\\1"}`, "/pattern", "RE2"},
		{"a long pattern", `{"pattern":"` + strings.Repeat("a", 1001) + `"}`, "/pattern", "longer"},
		{"a short pattern with a long program", `{"pattern":"` + strings.Repeat("a{1000}", 11) + `"}`, "/pattern", "complex"},

		{"a reference that is no string", `{"$ref":{}}`, "/$ref", "a string"},
		{"a reference to another document", `{"$ref":"https://example.com/a"}`, "/$ref", "stays"},
		{"a reference to a file", `{"$ref":"file:///etc/passwd"}`, "/$ref", "stays"},
		{"a relative reference", `{"$ref":"a.json#/b"}`, "/$ref", "stays"},
		{"an empty reference", `{"$ref":""}`, "/$ref", "stays"},
		{"a reference to an anchor", `{"$ref":"#a"}`, "/$ref", "stays"},
		{"a reference to nothing", `{"items":{"$ref":"#/$defs/a"}}`, "/items/$ref", "lead"},
		{"a reference to a group of schemas", `{"$ref":"#/$defs","$defs":{}}`, "/$ref", "lead"},
		{"a reference into a text", `{"$ref":"#/title/a","title":"a"}`, "/$ref", "lead"},
		{"a reference into a constant", `{"$ref":"#/const","const":{}}`, "/$ref", "lead"},
		{"a reference into an example", `{"$ref":"#/examples/0","examples":[{}]}`, "/$ref", "lead"},
		{"a reference to an item by a strange number", `{"items":{"$ref":"#/allOf/00"},"allOf":[{}]}`, "/items/$ref", "lead"},
		{"a reference past the end of an array", `{"items":{"$ref":"#/allOf/1"},"allOf":[{}]}`, "/items/$ref", "lead"},
		{"a reference with a bad ~ escape", `{"$ref":"#/$defs/~2","$defs":{"~2":{}}}`, "/$ref", "lead"},
		{"a reference with a bad percent escape", `{"$ref":"#/$defs/%zz","$defs":{"%zz":{}}}`, "/$ref", "percent"},

		{"a reference to itself", `{"$ref":"#"}`, "/$ref", "back to itself"},
		{"a cycle of two", `{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`, "/$defs/b/$ref", "back to itself"},
		{"a cycle through allOf", `{"properties":{"a":{"allOf":[{"$ref":"#/properties/a"}]}}}`, "/properties/a/allOf/0/$ref", "back to itself"},
		{"a cycle through anyOf", `{"anyOf":[true,{"$ref":"#"}]}`, "/anyOf/1/$ref", "back to itself"},
		{"a cycle through oneOf", `{"oneOf":[true,{"$ref":"#"}]}`, "/oneOf/1/$ref", "back to itself"},
		{"a cycle through not", `{"not":{"$ref":"#"}}`, "/not/$ref", "back to itself"},
		{"a cycle entered in its middle", `{"$ref":"#/$defs/a/not","$defs":{"a":{"not":{"$ref":"#/$defs/a"}}}}`, "/$defs/a/not/$ref", "back to itself"},
	} {
		t.Run(c.promise, func(t *testing.T) {
			wantRefused(t, c.doc, c.pointer, c.reason)
		})
	}
}

func wantRefused(t *testing.T, doc, pointer, reason string) {
	t.Helper()
	_, err := schema.Compile("task", []byte(doc))
	var refused *schema.GateError
	if !errors.As(err, &refused) {
		t.Fatalf("the error is %v, want a *GateError", err)
	}
	if refused.Schema != "task" || refused.Pointer != pointer || !strings.Contains(refused.Reason, reason) {
		t.Errorf("refused at %q because %q\n   want at %q because … %q …", refused.Pointer, refused.Reason, pointer, reason)
	}
	if text := err.Error(); !strings.Contains(text, "task") || len(text) > 3000 {
		t.Errorf("the error's text is %q", text)
	}
}

func TestTheGateAccepts(t *testing.T) {
	for _, c := range []struct{ promise, doc string }{
		{"the empty schema", `{}`},
		{"true", `true`},
		{"false", ` false `},
		{"the dialect", `{"$schema":"https://json-schema.org/draft/2020-12/schema"}`},
		{"every annotation", `{"$comment":"","title":"","description":"","default":1,"examples":[1],"deprecated":true,"readOnly":false,"writeOnly":true,"format":"anything"}`},
		{"every assertion", `{"type":["null","string"],"enum":[1,1],"const":null,"required":[],"minProperties":0,"maxProperties":1,"minItems":1,"maxItems":1.0,"uniqueItems":false,"minLength":1e2,"maxLength":100,"pattern":"^\\p{Greek}+$","minimum":-1e400,"maximum":0.1,"exclusiveMinimum":0,"exclusiveMaximum":1,"multipleOf":1e-7}`},
		{"every place of a schema", `{"$defs":{"a":{}},"definitions":{"b":true},"properties":{"c":{}},"additionalProperties":false,"items":{},"allOf":[{}],"anyOf":[{}],"oneOf":[{}],"not":{}}`},
		{"an enum of nothing, as the draft does", `{"enum":[]}`},
		{"properties named like keywords", `{"properties":{"$id":{},"if":{},"$ref":{"$ref":"#"}}}`},
		{"unknown keys in values", `{"const":{"$id":1},"enum":[{"if":1}],"default":{"x":1},"examples":[{"y":1}]}`},
		{"a recursive tree", `{"properties":{"nodes":{"items":{"$ref":"#"}}}}`},
		{"recursion through additionalProperties", `{"additionalProperties":{"$ref":"#"}}`},
		{"two references to one schema", `{"$defs":{"a":{}},"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}]}`},
		{"references to every place", `{"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/definitions/b"},{"$ref":"#/properties/c"},{"$ref":"#/items"},{"$ref":"#/additionalProperties"},{"$ref":"#/not"},{"$ref":"#/anyOf/0"},{"$ref":"#/oneOf/1"}],"$defs":{"a":{}},"definitions":{"b":true},"properties":{"c":{}},"additionalProperties":{},"items":{},"anyOf":[{}],"oneOf":[{},{}],"not":{}}`},
		{"a reference with escapes", `{"$ref":"#/$defs/a~1b~0c%20%25d","$defs":{"a/b~c %d":{}}}`},
		{"a reference through empty names", `{"$ref":"#/$defs//$defs/","$defs":{"":{"$defs":{"":{}}}}}`},
		{"a reference that generated code writes", `{"$ref":"#/$defs/List[int]","$defs":{"List[int]":{}}}`},
	} {
		t.Run(c.promise, func(t *testing.T) {
			s := compile(t, c.doc)
			if got := string(s.Raw()); got != c.doc {
				t.Errorf("Raw is %s, want the document unchanged: %s", got, c.doc)
			}
		})
	}
}

func TestADocumentOfTooMuchIsRefused(t *testing.T) {
	repeat := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, format, i, i+1)
		}
		return b.String()
	}
	for _, c := range []struct{ promise, doc, pointer, reason string }{
		{"a large document", `{"title":"` + strings.Repeat("a", 1<<20) + `"}`, "", "larger"},
		{"many schemas", `{"$defs":{` + repeat(10_000, `"%d":{"title":"%d"}`) + `}}`, "/$defs/9999", "schemas"},
		{"a reference that doubles at every step", `{"$defs":{` + repeat(30, `"%d":{"allOf":[{"$ref":"#/$defs/%[2]d"},{"$ref":"#/$defs/%[2]d"}]}`) + `,"30":{}}}`, "/$defs/18", "10000"},
		{"a long chain of references", `{"$defs":{` + repeat(100, `"a%d":{"$ref":"#/$defs/a%d"}`) + `,"a100":{}}}`, "/$defs/a35", "64"},
		{"many programs of patterns", `{"allOf":[` + repeat(200, `{"title":"%d %d","pattern":"a{900}"}`) + `]}`, "/allOf/110/pattern", "complex"},
	} {
		t.Run(c.promise, func(t *testing.T) {
			wantRefused(t, c.doc, c.pointer, c.reason)
		})
	}
}
