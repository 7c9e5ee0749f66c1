package wire_test

import (
	"encoding/json"
	"testing"

	"github.com/agentruntime/agentruntime/runtime/model/internal/wire"
)

func TestOnlySchemasThatConformAsTheyStandAreStrict(t *testing.T) {
	deep := `{"type":"string"}`
	for range 11 {
		deep = `{"type":"array","items":` + deep + `}`
	}
	for schema, want := range map[string]bool{
		`{"type":"object","properties":{},"additionalProperties":false}`:                                                                               true,
		`{"type":"object","properties":{"a":{"type":["string","null"]}},"required":["a"],"additionalProperties":false}`:                                true,
		`{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["a"],"additionalProperties":false}`:             true,
		`{"type":"object","properties":{"a":{"type":"array","items":{"enum":["x",1],"type":"string"}}},"required":["a"],"additionalProperties":false}`: true,

		``: false, `true`: false, `[]`: false, `{`: false, `{}`: false,
		`{"type":"object"}`: false,
		`{"type":["object"],"additionalProperties":false}`:                                                                   false,
		`{"type":"object","additionalProperties":true}`:                                                                      false,
		`{"type":"object","anyOf":[{"type":"object","additionalProperties":false}],"additionalProperties":false}`:            false,
		`{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}`:                                false,
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["b"],"additionalProperties":false}`:               false,
		`{"type":"object","properties":{"a":{}},"required":["a"],"additionalProperties":false}`:                              false,
		`{"type":"object","properties":{"a":{"type":"array"}},"required":["a"],"additionalProperties":false}`:                false,
		`{"type":"object","properties":{"a":{"type":"object"}},"required":["a"],"additionalProperties":false}`:               false,
		`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"],"additionalProperties":false}`:                    false,
		`{"type":"object","properties":{"a":{"enum":[{}],"type":"object"}},"required":["a"],"additionalProperties":false}`:   false,
		`{"type":"object","properties":{"a":{"type":"string","default":"x"}},"required":["a"],"additionalProperties":false}`: false,
		`{"type":"object","properties":{"a":` + deep + `},"required":["a"],"additionalProperties":false}`:                    false,
		`{"type":"object","properties":{"a":{"type":7}},"required":["a"],"additionalProperties":false}`:                      false,
		`{"type":"object","oneOf":[],"additionalProperties":false}`:                                                          false,
	} {
		if got := wire.Strict(json.RawMessage(schema)); got != want {
			t.Errorf("%s: %v", schema, got)
		}
	}
}
