package files

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
)

// jsonNames are the names of a type's fields in JSON.
func jsonNames[T any]() []string {
	var names []string
	for i := range reflect.TypeFor[T]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[T]().Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestTheSchemasHaveExactlyTheFieldsOfTheDefinitions(t *testing.T) {
	route := capabilityShape().fields["route"]
	for name, tt := range map[string]struct{ got, want []string }{
		"agent":      {agentShape().names, jsonNames[events.AgentDefinition]()},
		"limits":     {agentShape().fields["limits"].names, jsonNames[events.Limits]()},
		"budget":     {agentShape().fields["budget"].names, jsonNames[events.Budget]()},
		"capability": {capabilityShape().names, jsonNames[events.Capability]()},
		"route":      {route.names, jsonNames[events.Route]()},
		"nats":       {route.fields["nats"].names, jsonNames[events.NATSRoute]()},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestTheSchemasDescribeEveryField(t *testing.T) {
	var check func(path string, doc json.RawMessage)
	check = func(path string, doc json.RawMessage) {
		var parts struct {
			Description string
			Properties  map[string]json.RawMessage
		}
		if err := json.Unmarshal(doc, &parts); err != nil {
			t.Fatal(err)
		}
		if parts.Description == "" {
			t.Errorf("%s has no description", path)
		}
		for name, doc := range parts.Properties {
			check(path+"."+name, doc)
		}
	}
	check("agent", AgentSchema())
	check("capability", CapabilitySchema())
}

func TestASchemaThatWasHandedOutCanBeChanged(t *testing.T) {
	before := string(AgentSchema())
	AgentSchema()[0] = 'x'
	if string(AgentSchema()) != before {
		t.Error("the schema has changed")
	}
}

// anyValue draws a JSON value that has some chance to fit somewhere.
func anyValue(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		plain := []any{nil, true, "read", "call_settled", "30s", "a/b", 7, -1, 1.5, 1e20, []any{}, map[string]any{}}
		if depth == 0 || rapid.Bool().Draw(t, "plain") {
			return rapid.SampledFrom(plain).Draw(t, "value")
		}
		if rapid.Bool().Draw(t, "list") {
			return rapid.SliceOfN(anyValue(depth-1), 0, 3).Draw(t, "items")
		}
		names := slices.Concat(agentShape().names, capabilityShape().names, agentShape().fields["limits"].names, agentShape().fields["budget"].names, []string{"nats", "subject", "x"})
		return rapid.MapOfN(rapid.SampledFrom(names), anyValue(depth-1), 0, 3).Draw(t, "members")
	})
}

func TestTheWalkAndTheWholeSchemaComeToOneVerdict(t *testing.T) {
	for kind, shape := range map[string]*shape{"agent": agentShape(), "capability": capabilityShape()} {
		t.Run(kind, rapid.MakeCheck(func(t *rapid.T) {
			fields := map[string]any{"instructions": "x", "model": "a/b"}
			if kind == "capability" {
				fields = map[string]any{"effect": "read", "route": map[string]any{"nats": map[string]any{"subject": "a"}}}
			}
			changed := rapid.MapOfN(rapid.SampledFrom(append(slices.Clone(shape.names), "x")), anyValue(3), 0, 2).Draw(t, "fields")
			maps.Copy(fields, changed)
			for _, name := range rapid.SliceOfN(rapid.SampledFrom(shape.names), 0, 1).Draw(t, "removed") {
				delete(fields, name)
			}
			text, err := events.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			d := (&document{file: "f.yaml"}).read(text)
			if len(d.errors) > 0 {
				t.Fatalf("%s: %v", text, d.sorted())
			}
			kept := d.check(shape, d.root)
			whole := shape.schema.Validate(text)
			if (whole == nil) != (len(d.errors) == 0) {
				t.Fatalf("%s\nwhole schema: %v\nwalk: %v", text, whole, d.sorted())
			}
			var into any = new(events.AgentDefinition)
			if kind == "capability" {
				into = new(events.Capability)
			}
			if err := json.Unmarshal(kept, into); kept != nil && err != nil {
				t.Fatalf("%s\nkept %s, which cannot be read: %v", text, kept, err)
			}
		}))
	}
}
