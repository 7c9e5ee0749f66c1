package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

func TestAScriptOfManyFailedCallbacksIsToldWithinTheRoom(t *testing.T) {
	h := newHost(rt.RunJS(strings.Repeat("try desk.book {}\n", 1000)+"throw enough"), rt.Complete(`1`))
	h.Backend.Answer = failing(errors.New(strings.Repeat("the service says no. ", 50)))
	finish(t, h)
	if _, text := h.Result("call_0_0"); len(text) > 40<<10 || !strings.Contains(text, "more: failed.") {
		t.Errorf("%d bytes are told, and end with %q", len(text), text[len(text)-200:])
	}
}

// A result that is too large for the window is cut and says so, and the run goes on.
func TestAResultThatDoesNotFitIsCutAndTheRunGoesOn(t *testing.T) {
	large := `{"rows":"` + strings.Repeat("row ", 150_000) + `"}`
	c := desk(events.EffectRead)
	c.Output = nil
	one := rt.ToolCall("desk_book", `{"seat":4}`)
	for name, calls := range map[string][]events.ToolCall{"alone": {one}, "three at once": {one, rt.ToolCall("desk_book", `{"seat":5}`), rt.ToolCall("desk_book", `{"seat":6}`)}} {
		h := newHost(rt.Calls(calls...), rt.Complete(`1`))
		h.Input.Capabilities = []events.Capability{c}
		h.Backend.Answer = reply(large)
		finish(t, h)
		for i := range calls {
			outcome, text := h.Result(fmt.Sprint("call_0_", i))
			if outcome != events.OutcomeOK || !strings.Contains(text, fmt.Sprintf("this result had %d bytes", len(large))) || !strings.Contains(text, "bytes were left out here") || !strings.HasPrefix(text, `{"rows":"row `) {
				t.Errorf("%s: call %d is told %s in %d bytes: …%s", name, i, outcome, len(text), text[max(len(text)-200, 0):])
			}
		}
	}
	h := longHost(3, 30_000)
	finish(t, h)
}

func TestFilesOfACallbackThatIsSentAgainBelongToTheResult(t *testing.T) {
	h := newHost(rt.RunJS("desk.book {}\nreturn"), rt.Complete(`1`))
	h.Input.Files = &rt.Files{}
	h.Input.Capabilities = []events.Capability{{Name: "desk.book", Effect: events.EffectIdempotent}}
	h.Backend.Answer = func(_ context.Context, c *runtime.Callback) (json.RawMessage, error) {
		if !c.Again {
			return nil, power{}
		}
		return json.RawMessage(`1`), c.Attach(runtime.Attachment{Name: "seat.txt", Data: []byte("seat 4")})
	}
	store := rt.Journaled{Store: h.Store}
	if _, err := attempt(t, h, store.Take(), h.Backend); !errors.As(err, &power{}) {
		t.Fatal(err)
	}
	if _, err := attempt(t, h, store.Take(), h.Backend); err != nil {
		t.Fatal(err)
	}
	var files []string
	window, err := store.Take().Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range window {
		for _, p := range m.Parts {
			if p.Result == nil {
				continue
			}
			for _, inner := range p.Result.Parts {
				if inner.File != nil {
					files = append(files, p.Result.CallID+" "+inner.File.Name)
				}
			}
		}
	}
	if len(files) != 1 || files[0] != "call_0_0 seat.txt" {
		t.Errorf("the results have the files %v", files)
	}
}

// Only the end of the attempt's own context ends the attempt.
func TestACarrierThatCancelledItselfIsAnErrorOfTheCall(t *testing.T) {
	h := newHost(rt.Calls(rt.ToolCall("desk_book", `{"seat":4}`)), rt.Complete(`1`))
	h.Input.Capabilities = []events.Capability{desk(events.EffectRead)}
	h.Backend.Answer = failing(fmt.Errorf("the connection ended: %w", context.Canceled))
	finish(t, h)
	wantResult(t, h, "call_0_0", events.OutcomeError, "the connection ended")
}

// gate is a backend that lets nothing through.
type gate struct {
	*rt.Backend
	err error
}

// Admit implements runtime.Admitter.
func (g gate) Admit(context.Context, *runtime.Callback) (func(), error) { return func() {}, g.err }

func TestACallbackThatIsNotAdmittedIsNeitherRecordedNorSent(t *testing.T) {
	for name, refusal := range map[string]error{"denied": &runtime.DeniedError{Reason: "no"}, "limited": errors.New("not now"), "let through": nil} {
		h := newHost(rt.RunJS("try desk.book {}\ndesk.list {}\nreturn"), rt.Complete(`1`))
		h.Input.Capabilities[0].Effect, h.Input.Capabilities[1].Effect = events.EffectIdempotent, events.EffectRead
		recorded := 0
		store := counting{rt.Journaled{Store: h.Store}.Take(), &recorded}
		if _, err := attempt(t, h, store, gate{h.Backend, refusal}); err != nil && refusal == nil {
			t.Fatal(name, err)
		}
		if n := len(h.Backend.Ledger()); refusal != nil && n+recorded != 0 || refusal == nil && (n != 2 || recorded == 0) {
			t.Errorf("%s: %d callbacks were sent, %d recorded", name, n, recorded)
		}
	}
}

// counting counts what is announced.
type counting struct {
	runtime.Store
	n *int
}

// RecordCallbacks implements runtime.Journal.
func (c counting) RecordCallbacks(ctx context.Context, r *events.CallbacksRecorded) error {
	*c.n += len(r.Made)
	return c.Store.(runtime.Journal).RecordCallbacks(ctx, r)
}

// Callbacks implements runtime.Journal.
func (c counting) Callbacks(ctx context.Context, id string) ([]projector.Callback, error) {
	return c.Store.(runtime.Journal).Callbacks(ctx, id)
}
