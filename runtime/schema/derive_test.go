package schema_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/runtime/schema"
)

type order struct {
	ID      string            `json:"id" jsonschema:"as the shop knows it"`
	Count   int               `json:"count"`
	Note    *string           `json:"note,omitempty"`
	Lines   []line            `json:"lines,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Payload json.RawMessage   `json:"payload,omitempty"`
	Image   []byte            `json:"image,omitempty"`
	At      time.Time         `json:"at,omitzero"`
	hidden  bool
}

type line struct {
	Article string  `json:"article"`
	Price   float64 `json:"price"`
}

func TestASchemaIsDerivedFromAGoType(t *testing.T) {
	s := schema.For[order]()
	want := `{"type":"object","properties":{` +
		`"id":{"type":"string","description":"as the shop knows it"},"count":{"type":"integer"},"note":{"type":["null","string"]},` +
		`"lines":{"type":["null","array"],"items":{"type":"object","properties":{"article":{"type":"string"},"price":{"type":"number"}},"required":["article","price"],"additionalProperties":false}},` +
		`"labels":{"type":"object","additionalProperties":{"type":"string"}},"payload":true,"image":{"type":"string"},"at":{"type":"string"}},` +
		`"required":["id","count"],"additionalProperties":false}`
	if diff := cmp.Diff(want, string(s.Raw())); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	note := "x"
	for _, o := range []order{
		{},
		{ID: "a", Note: &note, Lines: []line{{"b", 1.5}}, Payload: json.RawMessage(`[null]`), Image: []byte{255}, At: time.Unix(0, 0), hidden: true},
	} {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if refused := violations(t, s, string(text)); refused != nil {
			t.Errorf("%s\n%v", text, refused)
		}
	}
	for _, text := range []string{`{}`, `{"id":"a","count":1,"hidden":true}`, `{"id":"a","count":1,"lines":[{"article":"b","price":1,"x":1}]}`} {
		if violations(t, s, text) == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

func TestATypeWithoutASchemaPanics(t *testing.T) {
	type tree struct{ Children []tree }
	for name, derive := range map[string]func() *schema.Schema{
		"schema_test.tree":        schema.For[tree],
		"struct { C chan int }":   schema.For[struct{ C chan int }],
		"map[float64]interface {": schema.For[map[float64]any],
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, name) {
					t.Errorf("%s: the panic is %s", name, text)
				}
			}()
			derive()
		}()
	}
}
