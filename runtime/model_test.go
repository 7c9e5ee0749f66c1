package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

func TestAResponseThatEndsForAnUnknownReasonIsNotAccepted(t *testing.T) {
	for _, finish := range []runtime.FinishReason{"", "error", "STOP"} {
		h := newHost(rt.Cut(finish, rt.RunJSCall(booking)))
		err := stop(t, h)
		var refused *runtime.ModelError
		if !errors.As(err, &refused) || refused.Class != runtime.ClassInvalid || refused.Retryable() {
			t.Errorf("%q: %v", finish, err)
		}
		if n := len(h.Store.Commits()); n != 1 {
			t.Errorf("%q: there are %d commits", finish, n)
		}
	}
}

func TestAResponseThatCannotBeStoredIsNotAccepted(t *testing.T) {
	h := newHost(func(int, *runtime.Request) (*runtime.Response, error) {
		return &runtime.Response{Finish: runtime.FinishStop, Parts: []events.Part{{Type: events.PartText, Text: "hi", Provider: map[string]rawJSON{"p": rawJSON(`{`)}}}}, nil
	})
	var refused *runtime.ModelError
	if err := stop(t, h); !errors.As(err, &refused) || refused.Class != runtime.ClassInvalid || len(h.Store.Commits()) != 1 {
		t.Errorf("got %v and %d commits", err, len(h.Store.Commits()))
	}
}

func TestCallsOfACutResponseAreNeverMade(t *testing.T) {
	for finishReason, says := range map[runtime.FinishReason]string{runtime.FinishLength: "output limit", runtime.FinishFilter: "content filter"} {
		h := newHost(rt.Cut(finishReason, rt.RunJSCall(booking), rt.ToolCall("complete", `{"kind":"output","output":1}`)), rt.Cut(finishReason), rt.Complete(`2`))
		if result := finish(t, h); string(result.Reply.Output) != "2" {
			t.Errorf("the reply is %s", result.Reply.Output)
		}
		wantResult(t, h, "call_0_0", events.OutcomeError, says)
		wantResult(t, h, "call_0_1", events.OutcomeError, says)
		if h.Factory.Started() > 0 {
			t.Errorf("%s: a script was run", finishReason)
		}
		wantParts(t, rt.RenderMessages(h.Transcript()), "Your answer was cut")
	}
}

func TestAModelSeesWhatWasStoredAndNothingElse(t *testing.T) {
	provider := map[string]rawJSON{"scripted": rawJSON(`{ "sig": "a<b", "n": 1.0 }`)}
	h := newHost(func(int, *runtime.Request) (*runtime.Response, error) {
		call := rt.RunJSCall("return 1")
		call.ID, call.Arguments = "c", rawJSON("{\n\"code\": \"return 1\" }")
		return &runtime.Response{Finish: runtime.FinishCalls, Parts: []events.Part{
			{Type: events.PartReasoning, Text: "hm \xff", Provider: provider}, {Type: events.PartText}, {Type: events.PartToolCall, Call: &call, Provider: provider}}}, nil
	}, rt.Complete(`1`))
	finish(t, h)
	window, err := h.Store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second := h.Model.Requests()[1].Messages
	if diff := cmp.Diff(window[:len(second)], second); diff != "" {
		t.Errorf("the second request (-stored +request):\n%s", diff)
	}
}

func TestTheSinkIsToldTheWholeRedactedTextAfterTheCommit(t *testing.T) {
	text := func(parts ...string) rt.Step {
		return func(int, *runtime.Request) (*runtime.Response, error) {
			r := &runtime.Response{Finish: runtime.FinishStop}
			for _, p := range parts {
				r.Parts = append(r.Parts, events.Part{Type: events.PartText, Text: p})
			}
			return r, nil
		}
	}
	h := newHost(text("the password is hun", "ter2", "."), rt.Complete(`1`))
	h.Redactor.Secrets = []string{"hunter2"}
	committed := 0
	h.Ports = func(in *runtime.Input) {
		in.Sink = sinkFunc(func(revision uint64, text string) {
			committed = len(h.Store.Commits())
			h.Sink.Text(t.Context(), revision, text)
		})
	}
	finish(t, h)
	want := []rt.Said{{Revision: 2, Text: "the password is " + rt.Redacted + "."}}
	if diff := cmp.Diff(want, h.Sink.Said()); diff != "" || committed != 2 {
		t.Errorf("at commit %d the sink was told (-want +got):\n%s", committed, diff)
	}
}

type sinkFunc func(revision uint64, text string)

func (f sinkFunc) Text(_ context.Context, revision uint64, text string) { f(revision, text) }

func TestNothingIsSaidOfAResponseThatWasNotCommitted(t *testing.T) {
	h := newHost(rt.Text("hello"))
	h.Store.SaveFault = func(n int) rt.SaveFault { return map[int]rt.SaveFault{2: rt.SaveAnswerLost}[n] }
	stop(t, h)
	if said := h.Sink.Said(); len(said) > 0 {
		t.Errorf("the sink was told %+v", said)
	}
}

func TestNoSecretReachesTheModel(t *testing.T) {
	secrets := []string{"hunter2", "-----BEGIN KEY-----\nabc\"def\n-----END KEY-----", "4711471147114711"}
	key := secrets[1]
	quoted, err := events.Marshal(map[string]any{"key": key, key: []string{"x " + key}, "pin": 4711471147114711})
	if err != nil {
		t.Fatal(err)
	}
	h := newHost(
		rt.Call("run_js", fmt.Sprintf(`{"code":"leak","key":%s}`, quoted)),
		rt.RunJS("desk.book {}\nlog hunter2\nreturn"),
		rt.RunJS("throw hunter2"),
		rt.Call("get_calls", `{"calls":["hunter2"]}`),
		rt.Complete(`1`))
	h.Redactor.Secrets = secrets
	h.Backend.Answer = reply(string(quoted))
	h.Input.Definition.Instructions = "The password is hunter2."
	h.Input.Capabilities[0].Description = "Books with hunter2."
	h.Input.Subagents[0].Description = "Helps with hunter2."
	h.Input.Message = events.Text("task", events.RoleUser, "Use hunter2 and\n"+key)
	h.Input.Message.Parts = append(h.Input.Message.Parts, events.Part{Type: events.PartFile, File: &events.File{Ref: "r", Name: "hunter2.txt"}})
	h.Input.RecoveryNotice = "It was hunter2."
	finish(t, h)
	for i, r := range h.Model.Requests() {
		data, err := events.Marshal(r)
		if err != nil {
			t.Fatalf("request %d is not JSON any more: %v", i, err)
		}
		for _, secret := range []string{"hunter2", "BEGIN KEY", `abc\"def`, `abc\\\"def`, "4711471147114711"} {
			if strings.Contains(string(data), secret) {
				t.Errorf("request %d holds %q:\n%s", i, secret, rt.Render(r))
			}
		}
	}
	if len(h.Model.Requests()) != 5 {
		t.Errorf("there were %d requests", len(h.Model.Requests()))
	}
}

// joining is a PartsRedactor that removes all text of parts that hold a secret
// together.
type joining struct{ *rt.Redactor }

func (j joining) RedactParts(parts []events.Part) []events.Part {
	said := ""
	for _, p := range parts {
		said += p.Text
	}
	if j.Redact(said) == said {
		return parts
	}
	return []events.Part{{Type: events.PartText, Text: rt.Redacted}}
}

func TestNoSecretReachesTheModelInParts(t *testing.T) {
	h := newHost(rt.Complete(`1`))
	h.Redactor.Secrets = []string{"hunter2"}
	h.Input.Message = events.Text("task", events.RoleUser, "Use hun")
	h.Input.Message.Parts = append(h.Input.Message.Parts, events.Part{Type: events.PartText, Text: "ter2."})
	h.Ports = func(in *runtime.Input) { in.Redactor = joining{h.Redactor} }
	finish(t, h)
	want := []events.Part{{Type: events.PartText, Text: rt.Redacted}}
	if diff := cmp.Diff(want, h.Model.Requests()[0].Messages[0].Parts); diff != "" {
		t.Errorf("the model was sent (-want +got):\n%s", diff)
	}
}

func TestExactArgumentsReachTheController(t *testing.T) {
	h := newHost(rt.Call(spawn, `{"message":"use hunter2"}`), rt.Call("wait_calls", `{}`), rt.Complete(`1`))
	h.Redactor.Secrets = []string{"hunter2"}
	var got string
	h.Ports = func(in *runtime.Input) { in.Controller = spawnSpy{in.Controller, &got} }
	if _, err := h.Run(t.Context()); !errors.Is(err, runtime.ErrWaiting) {
		t.Fatal(err)
	}
	if got != `{"message":"use hunter2"}` {
		t.Errorf("the child was started with %s", got)
	}
}

type spawnSpy struct {
	runtime.Controller
	input *string
}

func (s spawnSpy) Spawn(ctx context.Context, callID, slug string, input rawJSON) (*runtime.AgentRunInfo, error) {
	*s.input = string(input)
	return s.Controller.Spawn(ctx, callID, slug, input)
}

func TestStepsAndTokensAreCountedWithTheResponse(t *testing.T) {
	h := newHost(rt.Text("hm"), rt.RunJS("return 1"), rt.Complete(`1`))
	finish(t, h)
	commits := h.Store.Commits()
	last := commits[len(commits)-1].Checkpoint
	if last.Steps != 3 || last.Usage != (events.Usage{Input: 300, Output: 30}) || h.Controller.Charges() != 3 {
		t.Errorf("%d steps, %+v, %d charges", last.Steps, last.Usage, h.Controller.Charges())
	}
}
