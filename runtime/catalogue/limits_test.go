package catalogue_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/runtime/catalogue"
	"github.com/agentruntime/agentruntime/runtime/executor"
)

func TestAScriptIsGivenAsManyCapabilitiesAsThereMayBe(t *testing.T) {
	names := catalogue.New(many(catalogue.MaxCapabilities)).Bindings()
	if len(names) != catalogue.MaxBindings {
		t.Errorf("%d names for %d capabilities, want %d", len(names), catalogue.MaxCapabilities, catalogue.MaxBindings)
	}
	if err := executor.CheckBindings(names); err != nil {
		t.Error(err)
	}
}

func TestALongQueryIsCut(t *testing.T) {
	c := catalogue.New(many(700))
	for query, want := range map[string]int{
		strings.Repeat("x", 980) + " letter":        1,
		strings.Repeat("x", 1000) + " letter":       0,
		strings.Repeat("\u00e9", 500) + " customer": 0,
	} {
		input, err := json.Marshal(query)
		if err != nil {
			t.Fatal(err)
		}
		answer, _, err := c.Serve(catalogue.Search, input)
		if err != nil {
			t.Fatal(err)
		}
		var found catalogue.Found
		if err := json.Unmarshal(answer, &found); err != nil {
			t.Fatal(err)
		}
		if got := len(found.Capabilities) + found.More; got != want {
			t.Errorf("a query of %d bytes finds %d, want %d", len(query), got, want)
		}
	}
}
