package schema_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/agentruntime/agentruntime/runtime/schema"
)

// seeds are the schemas and instances of the suite file in testdata.
func seeds(f *testing.F, add func(doc, instance []byte)) {
	var groups suite
	if err := json.Unmarshal(builtin, &groups); err != nil {
		f.Fatal(err)
	}
	for _, group := range groups {
		for _, test := range group.Tests {
			add(group.Schema, test.Data)
		}
	}
}

func FuzzCompile(f *testing.F) {
	seeds(f, func(doc, _ []byte) { f.Add(doc) })
	f.Add([]byte(`{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"items":{"$ref":"#"}}}}`))
	f.Add([]byte(`{"minimum":-1e-30,"pattern":"^a{2,3}(b|c)*$","minLength":1e1}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		before := bytes.Clone(doc)
		s, err := schema.Compile("fuzz", doc)
		var refused *schema.GateError
		switch {
		case err == nil && !bytes.Equal(s.Raw(), before):
			t.Errorf("Raw is %s", s.Raw())
		case err == nil:
			if _, err := santhoshSchema(doc); err != nil {
				t.Errorf("the gate accepts what is no schema: %v", err)
			}
		case !errors.As(err, &refused) || refused.Reason == "" || len(err.Error()) > 6000:
			t.Errorf("the error is %T %v", err, err)
		}
	})
}

func FuzzValidate(f *testing.F) {
	seeds(f, func(doc, instance []byte) { f.Add(doc, instance) })
	f.Fuzz(func(t *testing.T, doc, instance []byte) {
		if len(doc)+len(instance) > 4096 {
			return // the oracle is slow
		}
		s, err := schema.Compile("fuzz", doc)
		if err != nil {
			return
		}
		refused := violations(t, s, string(instance))
		if refused != nil && (refused.Violations[0].Keyword == "" || len(refused.Error()) > 10_000) {
			if len(refused.Error()) > 10_000 {
				t.Errorf("the error has %d bytes", len(refused.Error()))
			}
			return // not read, or too much work
		}
		oracle, err := santhoshSchema(doc)
		if err != nil {
			t.Fatal(err)
		}
		want, err := santhoshAccepts(oracle, instance)
		if err != nil || want != (refused == nil) {
			t.Errorf("santhosh accepts: %t %v\nschema %s\ninstance %s\n%v", want, err, doc, instance, refused)
		}
	})
}
