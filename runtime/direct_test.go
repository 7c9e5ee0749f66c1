package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// desk is a capability that the model calls itself.
func desk(effect events.Effect) events.Capability {
	return events.Capability{Name: "desk.book", Description: "Books a desk.", Effect: effect, Expose: events.ExposeTool,
		Input:  json.RawMessage(`{"type":"object","properties":{"seat":{"type":"integer"}},"required":["seat"]}`),
		Output: json.RawMessage(`{"type":"object","properties":{"booked":{"type":"boolean"}},"required":["booked"]}`)}
}

func TestACapabilityThatIsExposedAsAToolIsCalledByTheModelItself(t *testing.T) {
	h := newHost(rt.Calls(rt.ToolCall("desk_book", `{"seat":4}`), rt.ToolCall("desk_book", `{"seat":"four"}`)), rt.Complete(`1`))
	h.Input.Capabilities = []events.Capability{desk(events.EffectWrite)}
	h.Backend.Answer = reply(`{"booked":true}`)
	finish(t, h)
	wantResult(t, h, "call_0_0", events.OutcomeOK, `{"booked":true}`)
	wantResult(t, h, "call_0_1", events.OutcomeError, "/seat")
	if ledger := h.Backend.Ledger(); len(ledger) != 1 || ledger[0].CallID != "call_0_0" {
		t.Errorf("the backend was called %+v, want once, for the first call", ledger)
	}
}

func TestOnlyScriptsReachWhatIsExposedToThemAlone(t *testing.T) {
	for _, c := range []struct {
		expose       events.Expose
		tool, script bool
	}{{"", false, true}, {events.ExposeScript, false, true}, {events.ExposeTool, true, false}, {events.ExposeBoth, true, true}} {
		t.Run(string(c.expose), func(t *testing.T) {
			var told []runtime.Tool
			first := rt.Calls(rt.ToolCall("desk_book", `{"seat":1}`), rt.RunJSCall("desk.book {\"seat\":2}\nreturn"))
			h := newHost(func(step int, r *runtime.Request) (*runtime.Response, error) {
				told = r.Tools
				return first(step, r)
			}, rt.Complete(`1`))
			book := desk(events.EffectWrite)
			book.Expose = c.expose
			h.Input.Capabilities = []events.Capability{book}
			h.Backend.Answer = reply(`{"booked":true}`)
			finish(t, h)
			for call, reached := range map[string]bool{"call_0_0": c.tool, "call_0_1": c.script} {
				if outcome, text := h.Result(call); (outcome == events.OutcomeOK) != reached {
					t.Errorf("%s: %s %s", call, outcome, text)
				}
			}
			for _, tool := range told {
				if tool.Name == "run_js" && strings.Contains(tool.Description, "book: (input") != c.script {
					t.Errorf("scripts are told: %s", tool.Description)
				}
			}
			if offered := slices.ContainsFunc(told, func(t runtime.Tool) bool { return t.Name == "desk_book" }); offered != c.tool {
				t.Errorf("the model was offered the tool: %v", offered)
			}
		})
	}
}

func TestToolsOfCapabilitiesNeverTakeANameThatIsTaken(t *testing.T) {
	capability := func(name string) events.Capability { return events.Capability{Name: name, Expose: events.ExposeBoth} }
	list := []events.Capability{capability("run.js"), capability("a.b"), capability("a_b"), capability("spawn.helper"), capability("complete"), capability(strings.Repeat("x", 70)), capability(strings.Repeat("x", 69))}
	want := map[string]string{"run_js_2": "run.js", "a_b": "a.b", "a_b_2": "a_b", "call_spawn_helper": "spawn.helper", "complete_2": "complete",
		strings.Repeat("x", 64): strings.Repeat("x", 69), strings.Repeat("x", 62) + "_2": strings.Repeat("x", 70)}
	for range 2 {
		tools := runtime.CapabilityTools([]events.AgentDefinition{{Slug: "helper"}}, list)
		if len(tools) != len(want) {
			t.Errorf("%d tools, want %d", len(tools), len(want))
		}
		for name, capability := range want {
			if tools[name] == nil || tools[name].Name != capability {
				t.Errorf("tool %s is %v, want %s", name, tools[name], capability)
			}
		}
		slices.Reverse(list)
	}
}

func TestWhatIsNoObjectIsNoTool(t *testing.T) {
	h := newHost()
	c := desk(events.EffectRead)
	c.Input = json.RawMessage(`{"type":"string"}`)
	h.Input.Capabilities = []events.Capability{c}
	var invalid *runtime.InputError
	if err := stop(t, h); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "desk.book") {
		t.Errorf("the attempt ended with %v", err)
	}
}

func TestTheModelIsToldHowItsOwnCallFailed(t *testing.T) {
	for _, c := range []struct {
		name    string
		respond func(context.Context, *runtime.Callback) (rawJSON, error)
		outcome events.Outcome
		text    string
	}{
		{"an error", failing(errClosed), events.OutcomeError, "the desk is closed"},
		{"an open outcome", failing(&runtime.CallbackError{Outcome: events.OutcomeUnknown, Err: errors.New("The desk went silent.")}), events.OutcomeUnknown, "The desk went silent."},
		{"a refusal", failing(&runtime.DeniedError{Reason: "not yours"}), events.OutcomeDenied, "not yours"},
		{"the wrong shape", reply(`{"booked":"yes"}`), events.OutcomeError, "was carried out"},
		{"nothing", reply(``), events.OutcomeError, "was carried out"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(rt.Calls(rt.ToolCall("desk_book", `{"seat":4}`)), rt.Complete(`1`))
			h.Input.Capabilities = []events.Capability{desk(events.EffectWrite)}
			h.Backend.Answer = c.respond
			finish(t, h)
			wantResult(t, h, "call_0_0", c.outcome, c.text)
		})
	}
}

// recaller knows what became of calls.
type recaller struct {
	*rt.Backend
	output rawJSON
	known  bool
}

func (r recaller) Recall(context.Context, *runtime.Callback) (json.RawMessage, bool, error) {
	return r.output, r.known, nil
}

func TestWhatBecomesOfAnInterruptedCallIsDecidedByItsEffectAndByWhatIsKnown(t *testing.T) {
	died := errors.New("the worker died")
	for _, c := range []struct {
		name    string
		effect  events.Effect
		known   bool
		outcome events.Outcome
		calls   int
	}{
		{"a read is made again", events.EffectRead, false, events.OutcomeOK, 2},
		{"an idempotent one is made again", events.EffectIdempotent, false, events.OutcomeOK, 2},
		{"a write is unknown", events.EffectWrite, false, events.OutcomeUnknown, 1},
		{"without an effect it is unknown", "", false, events.OutcomeUnknown, 1},
		{"a read that is known is not made again", events.EffectRead, true, events.OutcomeOK, 1},
		{"a write that is known is not made again", events.EffectWrite, true, events.OutcomeOK, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(rt.Calls(rt.ToolCall("desk_book", `{"seat":4}`)), rt.Complete(`1`))
			h.Input.Capabilities = []events.Capability{desk(c.effect)}
			h.Backend.Answer = failing(&rt.FatalError{Err: died})
			if err := stop(t, h); !errors.Is(err, died) {
				t.Fatalf("the first attempt ended with %v", err)
			}
			h.Backend.Answer = reply(`{"booked":true}`)
			if c.known {
				h.Ports = func(in *runtime.Input) { in.Backend = recaller{h.Backend, rawJSON(`{"booked":true}`), true} }
			}
			finish(t, h)
			wantResult(t, h, "call_0_0", c.outcome)
			if n := len(h.Backend.Ledger()); n != c.calls {
				t.Errorf("%d calls reached the backend, want %d", n, c.calls)
			}
		})
	}
}

func TestWhatAServiceSaysOfAnInterruptedCallIsToldTheModel(t *testing.T) {
	status := func(state, result string) func(*runtime.Callback) (*runtime.CallbackStatus, error) {
		return func(*runtime.Callback) (*runtime.CallbackStatus, error) {
			return &runtime.CallbackStatus{State: state, Result: rawJSON(result)}, nil
		}
	}
	for _, c := range []struct {
		name    string
		status  func(*runtime.Callback) (*runtime.CallbackStatus, error)
		outcome events.Outcome
		text    string
	}{
		{"done", status("done", `{"booked":true}`), events.OutcomeOK, `{"booked":true}`},
		{"done and no more", status("done", ""), events.OutcomeOK, "desk.book says that the call was carried out"},
		{"done with what does not fit", status("done", `1`), events.OutcomeError, "does not fit"},
		{"not done", status("not-done", ""), events.OutcomeError, "was not carried out"},
		{"nothing", status("unknown", ""), events.OutcomeUnknown, "Do not simply repeat it"},
		{"no word", func(*runtime.Callback) (*runtime.CallbackStatus, error) { return nil, errClosed }, events.OutcomeUnknown, "Do not simply repeat it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(rt.Calls(rt.ToolCall("desk_book", `{"seat":4}`)), rt.CompleteQuoting())
			book := desk(events.EffectWrite)
			book.Status = &events.Route{}
			h.Input.Capabilities = []events.Capability{book}
			h.Backend.Answer = failing(power{})
			store := rt.Journaled{Store: h.Store}
			if _, err := attempt(t, h, store.Take(), h.Backend); !errors.As(err, &power{}) {
				t.Fatalf("the first attempt ended with %v", err)
			}
			result, err := attempt(t, h, store.Take(), knowing{h.Backend, c.status})
			if err != nil || result.Reply == nil {
				t.Fatalf("the run ended with %+v, %v", result, err)
			}
			wantParts(t, string(result.Reply.Output), append(jsonParts([]string{c.text}), `"outcome":"`+string(c.outcome)+`"`)...)
		})
	}
}

// deaf is a store that finishes a commit whatever becomes of its context.
type deaf struct {
	runtime.Store
	runtime.Journal
}

func (d deaf) SaveCheckpoint(ctx context.Context, c *projector.Checkpoint) error {
	return d.Store.SaveCheckpoint(context.WithoutCancel(ctx), c)
}

// An inquiry that the end of the attempt interrupts says nothing of the call.
func TestAnInquiryThatIsInterruptedIsMadeAgain(t *testing.T) {
	for _, script := range []bool{false, true} {
		first := rt.Calls(rt.ToolCall("desk_book", `{"seat":4}`))
		book := desk(events.EffectWrite)
		book.Status = &events.Route{}
		if script {
			first, book.Expose = rt.RunJS("desk.book {\"seat\":4}\nreturn"), ""
		}
		h := newHost(first, rt.CompleteQuoting())
		h.Input.Capabilities = []events.Capability{book}
		h.Backend.Answer = failing(power{})
		store := rt.Journaled{Store: h.Store}
		if _, err := attempt(t, h, store.Take(), h.Backend); !errors.As(err, &power{}) {
			t.Fatalf("the first attempt ended with %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		taken := store.Take()
		asked := func(*runtime.Callback) (*runtime.CallbackStatus, error) {
			cancel()
			return nil, context.Canceled
		}
		if _, err := attemptIn(ctx, h, deaf{taken, taken.(runtime.Journal)}, knowing{h.Backend, asked}); !errors.Is(err, context.Canceled) {
			t.Errorf("script %v: the interrupted attempt ended with %v", script, err)
		}
		cut := func(*runtime.Callback) (*runtime.CallbackStatus, error) { return nil, power{} }
		if _, err := attempt(t, h, store.Take(), knowing{h.Backend, cut}); !errors.As(err, &power{}) {
			t.Errorf("script %v: the attempt that stopped ended with %v", script, err)
		}
		done := func(*runtime.Callback) (*runtime.CallbackStatus, error) {
			return &runtime.CallbackStatus{State: runtime.StatusDone, Result: rawJSON(`{"booked":true}`)}, nil
		}
		result, err := attempt(t, h, store.Take(), knowing{h.Backend, done})
		if err != nil || result.Reply == nil || !strings.Contains(string(result.Reply.Output), "booked") || strings.Contains(string(result.Reply.Output), "not known whether") {
			t.Errorf("script %v: the run ended with %+v, %v", script, result, err)
		}
	}
}

func TestFilesThatADirectCallsAnswerCameWithArePartOfItsResult(t *testing.T) {
	h := newHost(rt.Calls(rt.ToolCall("desk_book", `{"seat":4}`)), rt.Complete(`1`))
	h.Input.Files, h.Input.Capabilities = &rt.Files{}, []events.Capability{desk(events.EffectWrite)}
	h.Backend.Answer = func(_ context.Context, c *runtime.Callback) (rawJSON, error) {
		return rawJSON(`{"booked":true}`), c.Attach(runtime.Attachment{Name: "plan.txt", Data: []byte("row four")})
	}
	finish(t, h)
	for _, m := range h.Transcript() {
		for _, p := range m.Parts {
			if p.Result != nil && p.Result.CallID == "call_0_0" && (len(p.Result.Parts) != 2 || p.Result.Parts[1].File == nil || p.Result.Parts[1].File.Name != "plan.txt") {
				t.Errorf("the result has the parts %+v", p.Result.Parts)
			}
		}
	}
}
