package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"

	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

func TestAScriptIsToldTypesAndWhatItLacks(t *testing.T) {
	var told string
	h := newHost(func(_ int, r *runtime.Request) (*runtime.Response, error) {
		for _, tool := range r.Tools {
			if tool.Name == "run_js" {
				told = tool.Description
			}
		}
		return rt.Complete(`1`)(0, r)
	})
	h.Input.Capabilities[0].Input = rawJSON(`{"type":"object","properties":{"seat":{"type":"integer"}},"required":["seat"]}`)
	finish(t, h)
	for _, part := range []string{h.Factory.Describe(), "declare const desk: {", "seat: number;"} {
		if !strings.Contains(told, part) {
			t.Errorf("%q is missing from\n%s", part, told)
		}
	}
}

func TestACapabilityIsCalledByTheNameItIsBoundTo(t *testing.T) {
	h := newHost(rt.RunJS("server_x.get_sum {\"a\":1}\nreturn"), rt.Complete(`1`))
	h.Input.Capabilities[0].Name = "server-x.get-sum"
	finish(t, h)
	if ledger := h.Backend.Ledger(); len(ledger) != 1 || ledger[0].Capability != "server-x.get-sum" {
		t.Errorf("the ledger is %+v", ledger)
	}
}

func TestALargeCatalogueIsSearchedFromAScript(t *testing.T) {
	h := newHost(rt.RunJS("search"), rt.Complete(`1`))
	for i := range 300 {
		h.Input.Capabilities = append(h.Input.Capabilities, events.Capability{Name: fmt.Sprintf("shop%d.sell", i), Description: strings.Repeat("Sells. ", 30), Effect: events.EffectWrite})
	}
	h.Factory.Scripts = map[string]rt.ScriptFunc{"search": func(_ context.Context, call rt.Callback) (any, error) {
		found, err := call("capabilities.search", rawJSON(`"shop17"`))
		if err != nil {
			return nil, err
		}
		declared, err := call("capabilities.describe", rawJSON(`"shop17.sell"`))
		if err != nil {
			return nil, err
		}
		if _, err = call("capabilities.describe", rawJSON(`"shop.buy"`)); err == nil {
			return nil, errors.New("what is not there was described")
		}
		return []any{found, declared}, nil
	}}
	finish(t, h)
	wantResult(t, h, "call_0_0", events.OutcomeOK, "shop17.sell", "declare const shop17")
	if ledger := h.Backend.Ledger(); len(ledger) > 0 {
		t.Errorf("the catalogue's own functions reached the backend: %+v", ledger)
	}
}

func TestLimitsOfADefinitionReachItsScripts(t *testing.T) {
	h := newHost(rt.RunJS("return 1"), rt.Complete(`1`))
	h.Input.Definition.Limits = events.Limits{ScriptTimeout: "5s", ScriptCallbacks: 7, ScriptConcurrent: 3, ScriptOutput: 1000, ScriptLogs: 2000}
	finish(t, h)
	want := runtime.ScriptLimits{Timeout: 5e9, Callbacks: 7, Concurrent: 3, Output: 1000, Logs: 2000}
	if got := h.Factory.Limits(); len(got) != 1 || got[0] != want {
		t.Errorf("the script was given %+v", got)
	}
}
