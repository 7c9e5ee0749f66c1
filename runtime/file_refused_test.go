package runtime_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

func TestOneFileThatCanNeverBeShownHidesNoOther(t *testing.T) {
	for _, tt := range []struct {
		name, file, reason string
		data               []byte
		limit              func(*runtime.ModelLimits)
	}{
		{"over what all may have", "large.png", "at most 2000 bytes together", append(slices.Clone(png), make([]byte, 3000)...), func(l *runtime.ModelLimits) { l.Files.MaxTotal = 2000 }},
		{"over half of the context", "large.txt", "at most 16000 together", []byte(strings.Repeat("word ", 20000)), func(l *runtime.ModelLimits) { l.ContextTokens = 32000 }},
	} {
		h := newHost(rt.Complete(`1`))
		files := withFiles(h)
		tt.limit(&h.Input.ModelLimits)
		small := giveFile(t, h, files, "small.png", png)
		giveFile(t, h, files, tt.file, tt.data)
		finish(t, h)
		r := h.Model.Requests()[0]
		if len(r.Files) != 1 || len(r.Files[small]) == 0 {
			t.Errorf("%s: %d files are shown, want small.png alone", tt.name, len(r.Files))
		}
		if said := r.Messages[0].Parts[2].Text; !strings.Contains(said, tt.file) || !strings.Contains(said, tt.reason) {
			t.Errorf("%s: in its place stands %q", tt.name, said)
		}
	}
}

// refusingFiles answers as a provider does that cannot read a file.
func refusingFiles(status int, answers rt.Step) rt.Step {
	return func(step int, r *runtime.Request) (*runtime.Response, error) {
		if len(r.Files) > 0 {
			return nil, &runtime.ModelError{Provider: "desk", Class: runtime.ClassInvalid, Status: status, Err: errors.New("could not process image")}
		}
		return answers(step, r)
	}
}

func TestAFileThatTheProviderRefusesIsLeftToWordsAndTheRunGoesOn(t *testing.T) {
	h := newHost()
	files := withFiles(h)
	giveFile(t, h, files, "broken.png", png)
	h.Model.Respond = refusingFiles(400, rt.Script(rt.RunJS("attach made.txt words"), rt.Complete(`1`)))
	finish(t, h)
	requests := h.Model.Requests()
	if len(requests) != 3 || len(requests[0].Files) != 1 {
		t.Fatalf("there were %d requests, the first with %d files", len(requests), len(requests[0].Files))
	}
	for i, r := range requests[1:] {
		if said := r.Messages[0].Parts[1].Text; len(r.Files) > 0 || !strings.Contains(said, "broken.png") || !strings.Contains(said, "refused") {
			t.Errorf("request %d has %d files and says %q", i+1, len(r.Files), said)
		}
	}
	if n := h.Controller.Charges(); n != len(requests) {
		t.Errorf("%d requests were reserved for %d", n, len(requests))
	}
	if stored := h.Transcript()[0].Parts[1]; stored.Type != events.PartFile {
		t.Errorf("the transcript lost its reference: %+v", stored)
	}
}

func TestWhatIsRefusedWithoutFilesTooFailsTheRun(t *testing.T) {
	for name, tt := range map[string]struct{ status, requests int }{
		"in words too": {400, 2}, "no such model": {404, 1}, "no answer of the provider": {0, 1},
	} {
		h := newHost()
		files := withFiles(h)
		giveFile(t, h, files, "broken.png", png)
		h.Model.Respond = func(int, *runtime.Request) (*runtime.Response, error) {
			return nil, &runtime.ModelError{Provider: "desk", Class: runtime.ClassInvalid, Status: tt.status, Err: errors.New("bad")}
		}
		var refused *runtime.ModelError
		if err := stop(t, h); !errors.As(err, &refused) || len(h.Model.Requests()) != tt.requests {
			t.Errorf("%s: %d requests, %v", name, len(h.Model.Requests()), err)
		}
	}
}
