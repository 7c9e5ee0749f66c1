package runtime_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

const exitSecret = "abcd/hunter2-secret-of-some-length"

// withSecret returns a host that redacts exitSecret.
func withSecret(steps ...rt.Step) *rt.Host {
	h := newHost(steps...)
	h.Redactor.Secrets = []string{exitSecret}
	return h
}

// unseen checks that no request holds a piece of a secret.
func unseen(t *testing.T, h *rt.Host, piece string) {
	t.Helper()
	for i, r := range h.Model.Requests() {
		data, err := events.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if k := strings.Index(string(data), piece); k >= 0 {
			t.Errorf("request %d holds a secret: …%s…", i, data[max(0, k-150):min(len(data), k+60)])
		}
	}
}

func TestWhatAProviderKeepsGoesOutOnlyWithoutASecret(t *testing.T) {
	think := func(step int, r *runtime.Request) (*runtime.Response, error) {
		resp, err := rt.RunJS("return 1")(step, r)
		if err != nil {
			return nil, err
		}
		kept := func(text string) map[string]json.RawMessage {
			return map[string]json.RawMessage{"anthropic": json.RawMessage(`{"type":"thinking","thinking":"` + text + `","signature":"sig"}`), "other": json.RawMessage(`{"id":"kept"}`)}
		}
		resp.Parts = append([]events.Part{
			{Type: events.PartReasoning, Text: "clean", Provider: kept("clean")},
			{Type: events.PartText, Text: "cites", Provider: kept(strings.ReplaceAll(exitSecret, "/", `\/`))},
			{Type: events.PartReasoning, Text: "I saw " + exitSecret, Provider: kept("I saw it")},
		}, resp.Parts...)
		return resp, nil
	}
	h := withSecret(think, rt.Complete(`1`))
	finish(t, h)
	unseen(t, h, "hunter2")
	requests := h.Model.Requests()
	parts := requests[len(requests)-1].Messages[1].Parts
	if len(parts[0].Provider) != 2 {
		t.Errorf("of clean thinking %v is left", parts[0].Provider)
	}
	if _, ok := parts[1].Provider["anthropic"]; ok || len(parts[1].Provider) != 1 {
		t.Errorf("of a part with a secret in one record %v is left", parts[1].Provider)
	}
	if len(parts[2].Provider) != 0 {
		t.Errorf("thinking whose text was changed keeps %v", parts[2].Provider)
	}
}

func TestNamesAndMediaTypesOfFilesAreRedactedWhileTheyAreWhole(t *testing.T) {
	for _, name := range []string{strings.Repeat("a", 200-25) + exitSecret, "x/dir-" + exitSecret, exitSecret} {
		h := withSecret(rt.Complete(`1`))
		files := withFiles(h)
		ref, err := files.Put(t.Context(), png)
		if err != nil {
			t.Fatal(err)
		}
		h.Input.Message.Parts = append(h.Input.Message.Parts, runtime.NewFile(h.Redactor, ref, name, "image/png", png), runtime.NewFile(h.Redactor, ref, "a.bin", "application/"+exitSecret, png),
			events.Part{Type: events.PartFile, File: &events.File{Ref: ref, Name: "old", MediaType: "application/" + exitSecret, Size: 3}})
		finish(t, h)
		unseen(t, h, "hunter2")
		unseen(t, h, "aaaaabcd")
	}
	if got := runtime.MediaType("image/"+strings.Repeat("x", 250), "a.txt", []byte("text")); got != "text/plain" {
		t.Errorf("an endless media type becomes %q", got)
	}
}

func TestAToolsNameThatIsASecretIsRedacted(t *testing.T) {
	h := withSecret(rt.Calls(rt.ToolCall(exitSecret, `{}`)), rt.Complete(`1`))
	finish(t, h)
	unseen(t, h, "hunter2")
	requests := h.Model.Requests()
	call := requests[len(requests)-1].Messages[1].Parts[0].Call
	if call == nil || call.Name != "_redacted_" {
		t.Errorf("the call is %+v", call)
	}
}
