package handlers_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/runtime/catalogue"
)

func named(name string, expose events.Expose) events.Capability {
	return events.Capability{Name: name, Effect: events.EffectRead, Expose: expose, Route: events.Route{NATS: &events.NATSRoute{Subject: "svc.a"}}}
}

func TestANameThatIsTakenIsRefusedAtItsField(t *testing.T) {
	for _, c := range []struct {
		name   string
		expose events.Expose
		field  string // "" when nothing is wrong
	}{
		{"desk.book", events.ExposeTool, ""},
		{"desk.capabilities", "", ""},
		{"run.js", "", ""},
		{"wait.calls", events.ExposeScript, ""},
		{"capabilities", "", "name"},
		{"capabilities.search", "", "name"},
		{"capabilities.mine", events.ExposeTool, "name"},
		{"run_js", "", "name"},
		{"complete.all", "", "name"},
		{"spawn_x", "", "name"},
		{"run.js", events.ExposeTool, "expose"},
		{"wait.calls", events.ExposeBoth, "expose"},
		{"spawn.js2", events.ExposeTool, "expose"},
	} {
		capability := named(c.name, c.expose)
		err := handlers.CheckCapability(&capability)
		var wrong *handlers.FieldError
		switch {
		case c.field == "" && err != nil:
			t.Errorf("%s %s: %v", c.name, c.expose, err)
		case c.field != "" && (!errors.As(err, &wrong) || wrong.Field != c.field):
			t.Errorf("%s %s: %v, want that %s is wrong", c.name, c.expose, err, c.field)
		}
	}
}

func TestCapabilitiesThatCannotBeBesideEachOtherAreRefused(t *testing.T) {
	many := func(n int, expose events.Expose) []events.Capability {
		list := make([]events.Capability, n)
		for i := range list {
			list[i] = named(fmt.Sprintf("desk.book%d", i), expose)
		}
		return list
	}
	long := strings.Repeat("x", 64)
	for _, c := range []struct {
		promise string
		list    []events.Capability
		parts   []string // of the error; none when nothing is wrong
	}{
		{"names that differ", []events.Capability{named("a.b", events.ExposeTool), named("a.b_c", events.ExposeBoth)}, nil},
		{"a name that is no tool beside one that is", []events.Capability{named("a.b", events.ExposeTool), named("a_b", "")}, nil},
		{"two that are one tool", []events.Capability{named("a_b", events.ExposeBoth), named("a.b", events.ExposeTool)}, []string{"a.b and a_b would both be the tool a_b"}},
		{"two that are one once they are cut", []events.Capability{named(long+"y", events.ExposeTool), named(long+"z", events.ExposeTool)}, []string{"would both be the tool " + long + ":"}},
		{"as many as a script can be given", many(catalogue.MaxCapabilities, ""), nil},
		{"one more", many(catalogue.MaxCapabilities+1, ""), []string{"at most 998", "these are 999"}},
		{"one more that no script sees", append(many(catalogue.MaxCapabilities, ""), named("a", events.ExposeTool)), nil},
	} {
		v := handlers.Version{Agent: events.AgentDefinition{Slug: "a", Instructions: "x", Model: "a/b"}, Capabilities: c.list}
		for i := range c.list {
			v.Agent.Capabilities = append(v.Agent.Capabilities, c.list[i].Name)
		}
		err := v.Check()
		var wrong *handlers.FieldError
		switch {
		case len(c.parts) == 0 && err != nil:
			t.Errorf("%s: %v", c.promise, err)
		case len(c.parts) > 0 && (!errors.As(err, &wrong) || wrong.Field != "capabilities" || wrong.Definition != "agent a"):
			t.Errorf("%s: %v", c.promise, err)
		}
		for _, part := range c.parts {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v does not say %q", c.promise, err, part)
			}
		}
	}
}
