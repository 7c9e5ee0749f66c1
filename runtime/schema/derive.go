package schema

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/agentruntime/agentruntime/events"
)

// For derives the schema of a Go type from its fields and their json tags; the
// tag jsonschema describes a field. Objects of structs take no properties but
// those of the fields, and a field is required unless it may be omitted.
// json.RawMessage is any value and []byte is a string.
//
// It panics for a type that has no schema: one that contains itself, or a
// channel, a function or the like.
func For[T any]() *Schema {
	s, err := derive[T]()
	if err != nil {
		panic(fmt.Sprintf("schema.For[%s]: %v", reflect.TypeFor[T](), err))
	}
	return s
}

func derive[T any]() (*Schema, error) {
	inferred, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[[]byte]():          {Type: "string"},
	}})
	if err != nil {
		return nil, err
	}
	doc, err := events.Marshal(inferred)
	if err != nil {
		return nil, err
	}
	return Compile(reflect.TypeFor[T]().String(), doc)
}
