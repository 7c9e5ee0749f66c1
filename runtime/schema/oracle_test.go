package schema_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	google "github.com/google/jsonschema-go/jsonschema"
	santhosh "github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime/schema"
)

// refuseToLoad keeps the oracle from reading files.
type refuseToLoad struct{}

func (refuseToLoad) Load(url string) (any, error) { return nil, fmt.Errorf("refused to load %s", url) }

// santhoshSchema compiles a document that the gate has accepted.
func santhoshSchema(doc []byte) (*santhosh.Schema, error) {
	v, err := santhosh.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return nil, err
	}
	c := santhosh.NewCompiler()
	c.UseLoader(refuseToLoad{})
	c.DefaultDraft(santhosh.Draft2020)
	if err := c.AddResource("urn:test", v); err != nil {
		return nil, err
	}
	return c.Compile("urn:test")
}

func santhoshAccepts(s *santhosh.Schema, instance []byte) (bool, error) {
	v, err := santhosh.UnmarshalJSON(bytes.NewReader(instance))
	if err != nil {
		return false, err
	}
	return s.Validate(v) == nil, nil
}

func googleSchema(doc []byte) (*google.Resolved, error) {
	var s google.Schema
	if err := json.Unmarshal(doc, &s); err != nil {
		return nil, err
	}
	return s.Resolve(nil)
}

func marshal(t *rapid.T, v any) []byte {
	doc, err := events.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func instancesPerSchema() int {
	if slow {
		return 300
	}
	return 30
}

func TestVerdictsAreThoseOfTwoOtherValidators(t *testing.T) {
	compiled, accepted, refused := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		doc := marshal(t, drawDocument(t))
		s, err := schema.Compile("drawn", doc)
		if err != nil {
			var gate *schema.GateError
			if !errors.As(err, &gate) || !strings.Contains(gate.Reason, "back to itself") {
				t.Fatalf("%s\n%v", doc, err)
			}
			return
		}
		compiled++
		first, err := santhoshSchema(doc)
		if err != nil {
			t.Fatalf("the gate accepts %s; santhosh: %v", doc, err)
		}
		second, err := googleSchema(doc)
		if err != nil {
			t.Fatalf("the gate accepts %s; google: %v", doc, err)
		}
		for range instancesPerSchema() {
			instance := marshal(t, drawInstance(t, 3))
			got := violations(t, s, string(instance))
			if got == nil {
				accepted++
			} else {
				refused++
			}
			want, err := santhoshAccepts(first, instance)
			if err != nil {
				t.Fatal(err)
			}
			if want != (got == nil) {
				t.Fatalf("santhosh accepts: %t\nschema %s\ninstance %s\n%v", want, doc, instance, got)
			}
			var floats any
			if err := json.Unmarshal(instance, &floats); err != nil {
				t.Fatal(err)
			}
			if err := second.Validate(floats); (err == nil) != (got == nil) {
				t.Fatalf("google: %v\nschema %s\ninstance %s\n%v", err, doc, instance, got)
			}
			checkViolations(t, s, instance, got)
		}
	})
	t.Logf("%d schemas, %d instances accepted, %d refused", compiled, accepted, refused)
	if min(compiled, accepted, refused) < 50 {
		t.Error("the generators make too little of one sort")
	}
}

// checkViolations holds that every path leads to a value of the instance, and
// that the error is the same every time.
func checkViolations(t *rapid.T, s *schema.Schema, instance []byte, refused *schema.ValidationError) {
	if refused == nil {
		return
	}
	for _, v := range refused.Violations {
		if v.Keyword == "" || v.Message == "" || !leads(instance, v.InstancePath) {
			t.Fatalf("%s has the violation %+v", instance, v)
		}
	}
	if again := violations(t, s, string(instance)); !reflect.DeepEqual(refused, again) {
		t.Fatalf("two errors for %s:\n%v\n%v", instance, refused, again)
	}
}

func leads(instance []byte, pointer string) bool {
	var v any
	if json.Unmarshal(instance, &v) != nil {
		return false
	}
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		switch in := v.(type) {
		case map[string]any:
			member, ok := in[strings.NewReplacer("~1", "/", "~0", "~").Replace(token)]
			if !ok {
				return pointer == ""
			}
			v = member
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(in) {
				return pointer == ""
			}
			v = in[i]
		default:
			return pointer == ""
		}
	}
	return true
}

func TestNumbersOfAnySizeCompareLikeRationals(t *testing.T) {
	digits := rapid.StringMatching(`-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,12})?([eE][+-]?[0-9]{1,2})?`)
	rapid.Check(t, func(t *rapid.T) {
		keyword := rapid.SampledFrom([]string{
			"const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
		}).Draw(t, "keyword")
		limit := digits.Draw(t, "limit")
		if keyword == "multipleOf" {
			limit = rapid.StringMatching(`[1-9][0-9]{0,3}(e-?[0-9])?`).Draw(t, "divisor")
		}
		doc := fmt.Appendf(nil, `{%q:%s}`, keyword, limit)
		s, err := schema.Compile("drawn", doc)
		if err != nil {
			t.Fatal(err)
		}
		oracle, err := santhoshSchema(doc)
		if err != nil {
			t.Fatal(err)
		}
		instance := []byte(rapid.OneOf(digits, rapid.Just(limit), rapid.Just(limit+"0"), rapid.StringMatching(`[1-9]0{0,5}(e[0-9]{1,2})?`)).Draw(t, "instance"))
		if !json.Valid(instance) {
			instance = []byte(limit) // a zero after a lone zero is no number
		}
		want, err := santhoshAccepts(oracle, instance)
		if err != nil {
			t.Fatal(err)
		}
		if got := violations(t, s, string(instance)) == nil; got != want {
			t.Fatalf("%s accepts %s: %t, want %t", doc, instance, got, want)
		}
	})
}

func TestNoValueOfTheInstanceIsPrinted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := marshal(t, drawDocument(t))
		s, err := schema.Compile("drawn", doc)
		if err != nil {
			return
		}
		for range instancesPerSchema() {
			instance := marshal(t, hide(drawInstance(t, 3)))
			if refused := violations(t, s, string(instance)); refused != nil {
				if text := refused.Error(); strings.Contains(text, "hush") || strings.Contains(text, "31337") {
					t.Fatalf("schema %s\ninstance %s\n%s", doc, instance, text)
				}
			}
		}
	})
}

// hide replaces strings and numbers by ones that no schema holds.
func hide(v any) any {
	switch v := v.(type) {
	case string:
		return "hush" + v
	case json.Number:
		return json.Number("31337")
	case []any:
		for i := range v {
			v[i] = hide(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = hide(v[k])
		}
	}
	return v
}
