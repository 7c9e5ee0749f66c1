package schema_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/agentruntime/agentruntime/runtime/schema"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestNumbersAreComparedExactly(t *testing.T) {
	for _, c := range []struct {
		doc, instance string
		accepted      bool
	}{
		{`{"const":9007199254740992}`, `9007199254740993`, false},
		{`{"const":9007199254740993}`, `9007199254740993`, true},
		{`{"const":9007199254740993}`, `9007199254740992`, false},
		{`{"const":1}`, `1.0`, true},
		{`{"const":1}`, `10e-1`, true},
		{`{"const":[{"a":1}]}`, `[{"a":1.00}]`, true},
		{`{"const":0}`, `-0.0`, true},
		{`{"const":0}`, `false`, false},
		{`{"enum":[9007199254740992]}`, `9007199254740993`, false},
		{`{"maximum":9007199254740992}`, `9007199254740993`, false},
		{`{"maximum":9007199254740992}`, `9007199254740992`, true},
		{`{"exclusiveMaximum":9007199254740993}`, `9007199254740992`, true},
		{`{"exclusiveMaximum":9007199254740993}`, `9007199254740993`, false},
		{`{"minimum":-9007199254740992}`, `-9007199254740993`, false},
		{`{"exclusiveMinimum":0}`, `1e-400`, true},
		{`{"exclusiveMinimum":0}`, `0e400`, false},
		{`{"maximum":0.3}`, `0.3`, true},
		{`{"maximum":0.3}`, `0.30000000000000001`, false},
		{`{"minimum":1e400}`, `1e399`, false},
		{`{"minimum":1e400}`, `10e399`, true},
		{`{"multipleOf":0.01}`, `19.99`, true},
		{`{"multipleOf":0.01}`, `19.999`, false},
		{`{"multipleOf":0.1}`, `0.3`, true},
		{`{"multipleOf":2}`, `9007199254740993`, false},
		{`{"multipleOf":2}`, `9007199254740992`, true},
		{`{"multipleOf":3}`, `1e400`, false},
		{`{"multipleOf":5}`, `1e400`, true},
		{`{"multipleOf":1e-400}`, `7`, true},
		{`{"multipleOf":7e10}`, `-1.4e11`, true},
		{`{"multipleOf":10}`, `5`, false},
		{`{"multipleOf":2.5}`, `0`, true},
		{`{"type":"integer"}`, `1.0`, true},
		{`{"type":"integer"}`, `1.5e1`, true},
		{`{"type":"integer"}`, `1e400`, true},
		{`{"type":"integer"}`, `0e-5`, true},
		{`{"type":"integer"}`, `9007199254740993.5`, false},
		{`{"type":"integer"}`, `1e-400`, false},
		{`{"type":"number"}`, `1e400`, true},
		{`{"type":"number"}`, `5`, true},
		{`{"type":"string"}`, `5`, false},
		{`{"uniqueItems":true}`, `[9007199254740992,9007199254740993]`, true},
		{`{"uniqueItems":true}`, `[1,1.0]`, false},
		{`{"uniqueItems":true}`, `[{"a":1,"b":2},{"b":2.0,"a":1}]`, false},
		{`{"uniqueItems":true}`, `[1,true,"1",[1],null]`, true},
		{`{"minItems":1.0}`, `[]`, false},
	} {
		if got := violations(t, compile(t, c.doc), c.instance) == nil; got != c.accepted {
			t.Errorf("%s accepts %s: %t, want %t", c.doc, c.instance, got, c.accepted)
		}
	}
}

func TestFormatIsAnAnnotation(t *testing.T) {
	if refused := violations(t, compile(t, `{"format":"date"}`), `"no date"`); refused != nil {
		t.Error(refused)
	}
}

// Each case of the archive is a schema, an instance, and the text of the error.
func TestViolationsTellAModelWhatToRepair(t *testing.T) {
	const golden = "testdata/violations.txtar"
	archive, err := txtar.ParseFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+2 < len(archive.Files); i += 3 {
		files := archive.Files[i : i+3]
		name, _ := strings.CutSuffix(files[0].Name, "/schema")
		if files[1].Name != name+"/instance" || files[2].Name != name+"/error" {
			t.Fatalf("%s is not followed by its instance and error", files[0].Name)
		}
		t.Run(name, func(t *testing.T) {
			got := "accepted"
			s := compile(t, string(files[0].Data))
			if refused := violations(t, s, string(files[1].Data)); refused != nil {
				got = refused.Error()
			}
			got += "\n"
			if *update {
				archive.Files[i+2].Data = []byte(got)
			} else if diff := cmp.Diff(string(files[2].Data), got); diff != "" {
				t.Errorf("want -, got +\n%s", diff)
			}
		})
	}
	if *update {
		if err := os.WriteFile(golden, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAViolationNamesPathAndKeyword(t *testing.T) {
	s := compile(t, `{"properties":{"a/b":{"items":{"type":"string"}},"n":{"minimum":3,"multipleOf":2}},"required":["z"]}`)
	refused := violations(t, s, `{"a/b":["x",null],"n":1}`)
	if refused == nil {
		t.Fatal("accepted")
	}
	type violation struct{ path, keyword string }
	var got []violation
	for _, v := range refused.Violations {
		got = append(got, violation{v.InstancePath, v.Keyword})
	}
	want := []violation{{"", "required"}, {"/a~1b/1", "type"}, {"/n", "minimum"}, {"/n", "multipleOf"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAnErrorIsBoundedWhateverTheInstance(t *testing.T) {
	s := compile(t, `{"additionalProperties":{"type":"string","pattern":"`+strings.Repeat("a", 900)+`"},"required":["x`+strings.Repeat("é", 500)+`"]}`)
	var b strings.Builder
	for range 30 {
		b.WriteString(`"` + strings.Repeat("k", b.Len()+2000) + `":"v",`)
		if b.Len() > 1<<22 {
			break
		}
	}
	refused := violations(t, s, `{`+b.String()+`"last":1}`)
	if refused == nil || len(refused.Violations) != 8 || !refused.More {
		t.Fatalf("got %v, want 8 violations and more", refused)
	}
	if message := refused.Violations[0].Message; !strings.Contains(message, "é…") {
		t.Errorf("a long name is not cut between characters: %s", message)
	}
	if text := refused.Error(); len(text) > 8*1000 || !strings.HasSuffix(text, "there is more") {
		t.Errorf("the text has %d bytes: %s", len(text), text)
	}
}

func TestASchemaIsUsedByManyAtOnce(t *testing.T) {
	s := compile(t, `{"oneOf":[{"properties":{"k":{"const":1}}},{"properties":{"k":{"const":2}}}],"properties":{"s":{"pattern":"a+"}}}`)
	done := make(chan *schema.ValidationError)
	for range 8 {
		go func() { done <- violations(t, s, `{"k":1,"s":"b"}`) }()
	}
	for range 8 {
		if refused := <-done; refused == nil || len(refused.Violations) != 1 {
			t.Errorf("got %v, want one violation", refused)
		}
	}
}
