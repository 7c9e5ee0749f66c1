package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

var png = []byte("\x89PNG\r\n\x1a\nbytes of a picture")

// withFiles gives a host a store of files and a model that takes images, PDFs
// and text.
func withFiles(h *rt.Host) *rt.Files {
	files := &rt.Files{}
	h.Input.Files = files
	h.Input.ModelLimits.Files = runtime.FileLimits{Types: []string{"image/*", "application/pdf", "text/*", "application/json"}}
	return files
}

// giveFile stores a file and makes it part of the task.
func giveFile(t *testing.T, h *rt.Host, files *rt.Files, name string, data []byte) string {
	t.Helper()
	ref, err := files.Put(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	h.Input.Message.Parts = append(slices.Clone(h.Input.Message.Parts), runtime.NewFile(h.Redactor, ref, name, "", data))
	return ref
}

func TestFilesOfTheTaskGoWithEveryRequest(t *testing.T) {
	h := newHost(rt.RunJS("return 1"), rt.Complete(`1`))
	files := withFiles(h)
	ref := giveFile(t, h, files, "chart.png", png)
	finish(t, h)
	for i, r := range h.Model.Requests() {
		if diff := cmp.Diff(map[string][]byte{ref: png}, r.Files); diff != "" {
			t.Errorf("request %d (-want +got):\n%s", i, diff)
		}
	}
	if n := files.Opened(); n != 1 {
		t.Errorf("the file was opened %d times in one attempt", n)
	}
	data, err := events.Marshal(h.Store.Commits())
	if err != nil || bytes.Contains(data, []byte("bytes of a picture")) {
		t.Errorf("the bytes are committed (%v)", err)
	}
}

func TestAModelThatTakesNoFilesIsToldOfThem(t *testing.T) {
	for name, change := range map[string]func(*rt.Host){
		"no store": func(h *rt.Host) { h.Input.Files = nil },
		"no types": func(h *rt.Host) { h.Input.ModelLimits.Files.Types = nil },
		"others":   func(h *rt.Host) { h.Input.ModelLimits.Files.Types = []string{"audio/*", "image/jpeg"} },
	} {
		h := newHost(rt.Complete(`1`))
		files := withFiles(h)
		giveFile(t, h, files, "chart.png", png)
		change(h)
		finish(t, h)
		r := h.Model.Requests()[0]
		if len(r.Files) > 0 || r.Messages[0].Parts[1].File == nil || files.Opened() > 0 {
			t.Errorf("%s: got %v and %d reads", name, r.Files, files.Opened())
		}
	}
}

func TestTheOldestFilesGoFirst(t *testing.T) {
	const size = 1000
	for _, tt := range []struct {
		name   string
		limit  func(*runtime.ModelLimits)
		shown  []int // of four files
		reason string
	}{
		{"all fit", func(l *runtime.ModelLimits) { l.Files.MaxTotal = 4 * size }, []int{0, 1, 2, 3}, ""},
		{"two fit", func(l *runtime.ModelLimits) { l.Files.MaxTotal = 3*size - 1 }, []int{2, 3}, "room for newer files"},
		{"the context holds three", func(l *runtime.ModelLimits) { l.ContextTokens = 2 * 3 * 1600 }, []int{1, 2, 3}, "room for newer files"},
		{"none fits", func(l *runtime.ModelLimits) { l.Files.MaxFile = size - 1 }, nil, "at most 999 bytes"},
		{"images have their own limit", func(l *runtime.ModelLimits) { l.Files.MaxFile, l.Files.MaxImage = 1, size }, []int{0, 1, 2, 3}, ""},
	} {
		h := newHost(rt.Complete(`1`))
		files := withFiles(h)
		tt.limit(&h.Input.ModelLimits)
		var refs []string
		for i := range 4 {
			data := append(slices.Clone(png[:8]), bytes.Repeat([]byte{byte(i)}, size-8)...)
			refs = append(refs, giveFile(t, h, files, fmt.Sprintf("%d.png", i), data))
		}
		finish(t, h)
		r := h.Model.Requests()[0]
		var shown []int
		for i, ref := range refs {
			part := r.Messages[0].Parts[i+1]
			if len(r.Files[ref]) == size {
				shown = append(shown, i)
			} else if part.File != nil || !strings.Contains(part.Text, fmt.Sprintf("%d.png", i)) || !strings.Contains(part.Text, tt.reason) {
				t.Errorf("%s: in place of file %d stands %+v", tt.name, i, part)
			}
		}
		if !slices.Equal(shown, tt.shown) || len(r.Files) != len(tt.shown) {
			t.Errorf("%s: shown are %v of %d, want %v", tt.name, shown, len(r.Files), tt.shown)
		}
		if stored := h.Transcript()[0].Parts; stored[1].File == nil {
			t.Errorf("%s: the transcript lost its reference: %+v", tt.name, stored[1])
		}
	}
}

func TestAFileOfTheTaskGoesBeforeOneOfANewerResult(t *testing.T) {
	h := newHost(rt.RunJS("attach new.txt newer words"), rt.Complete(`1`))
	files := withFiles(h)
	old := giveFile(t, h, files, "old.txt", []byte("older words"))
	h.Input.ModelLimits.Files.MaxTotal = 15
	finish(t, h)
	first, second := h.Model.Requests()[0], h.Model.Requests()[1]
	if len(first.Files[old]) == 0 || len(second.Files) != 1 || len(second.Files[old]) > 0 {
		t.Errorf("the model was sent %v and then %v", first.Files, second.Files)
	}
}

func TestAFileThatIsGoneIsToldAndTheRunGoesOn(t *testing.T) {
	h := newHost(rt.Complete(`1`))
	files := withFiles(h)
	gone, kept := giveFile(t, h, files, "gone.png", png), giveFile(t, h, files, "kept.txt", []byte("words"))
	files.Set(gone, nil)
	finish(t, h)
	requests := h.Model.Requests()
	if len(requests) != 1 {
		t.Fatalf("there were %d requests", len(requests))
	}
	parts := requests[0].Messages[0].Parts
	if !strings.Contains(parts[1].Text, "gone.png") || !strings.Contains(parts[1].Text, "it is gone") || string(requests[0].Files[kept]) != "words" {
		t.Errorf("the model was sent %+v and %v", parts, requests[0].Files)
	}
}

func TestADamagedFileIsReportedAndNeverSent(t *testing.T) {
	h := newHost(rt.Complete(`1`))
	files := withFiles(h)
	ref := giveFile(t, h, files, "chart.png", png)
	files.Set(ref, []byte("something else"))
	var damaged *runtime.FileDamagedError
	if err := stop(t, h); !errors.As(err, &damaged) || damaged.File.Ref != ref || !strings.Contains(err.Error(), "chart.png") {
		t.Errorf("got %v", err)
	}
	if n := len(h.Model.Requests()); n > 0 {
		t.Errorf("the model was asked %d times", n)
	}
}

func TestTextIsRedactedAndOtherFilesAreNot(t *testing.T) {
	h := newHost(rt.RunJS("attach made.txt it is hunter2 again"), rt.Complete(`1`))
	h.Redactor.Secrets = []string{"hunter2"}
	files := withFiles(h)
	text := giveFile(t, h, files, "hunter2.json", []byte(`{"password":"hunter2"}`))
	binary := append(slices.Clone(png), "hunter2"...)
	picture := giveFile(t, h, files, "chart.png", binary)
	finish(t, h)
	r := h.Model.Requests()[1]
	if bytes.Contains(r.Files[text], []byte("hunter2")) || len(r.Files[text]) == 0 || !bytes.Equal(r.Files[picture], binary) {
		t.Errorf("the model was sent %q", r.Files)
	}
	if name := r.Messages[0].Parts[1].File.Name; strings.Contains(name, "hunter2") {
		t.Errorf("the name is %q", name)
	}
	attached := h.Transcript()[2].Parts[0].Result.Parts[1].File
	if stored := files.Get(attached.Ref); bytes.Contains(stored, []byte("hunter2")) || int64(len(stored)) != attached.Size {
		t.Errorf("what the script attached is stored as %q", stored)
	}
}

func TestWhatIsAttachedIsPartOfTheResultWhateverBecomesOfTheScript(t *testing.T) {
	h := newHost(rt.RunJS("attach ../a/one.csv 1,2\nattach one.csv 1,2\ndesk.book {}\nthrow enough"), rt.Complete(`1`))
	files := withFiles(h)
	h.Backend.Answer = func(_ context.Context, c *runtime.Callback) (rawJSON, error) {
		return rawJSON(`{"made":true}`), c.Attach(runtime.Attachment{Name: "chart", MediaType: "image/png", Data: png})
	}
	finish(t, h)
	result := h.Transcript()[2].Parts[0].Result
	if result.Outcome != events.OutcomeError || len(result.Parts) != 3 {
		t.Fatalf("the result is %+v", result)
	}
	one, chart := result.Parts[1].File, result.Parts[2].File
	if one.Name != "one.csv" || one.MediaType != "text/csv" || string(files.Get(one.Ref)) != "1,2" || chart.Name != "chart" || chart.MediaType != "image/png" || chart.Size != int64(len(png)) {
		t.Errorf("attached are %+v and %+v", one, chart)
	}
	if r := h.Model.Requests()[1]; !bytes.Equal(r.Files[chart.Ref], png) || string(r.Files[one.Ref]) != "1,2" {
		t.Errorf("the model was sent %v", r.Files)
	}
}

func TestWhatACallAttachesIsBounded(t *testing.T) {
	many := strings.Repeat("attach a.txt %d\n", runtime.MaxAttachments+1)
	var n []any
	for i := range runtime.MaxAttachments + 1 {
		n = append(n, i)
	}
	h := newHost(rt.RunJS(fmt.Sprintf(many, n...)), rt.RunJS("desk.book {}"), rt.Complete(`1`))
	withFiles(h)
	h.Backend.Answer = func(_ context.Context, c *runtime.Callback) (rawJSON, error) {
		big := make([]byte, runtime.MaxAttachment)
		if err := c.Attach(runtime.Attachment{Name: "big", Data: append(big, 0)}); err == nil {
			t.Error("a file over the bound was taken")
		}
		if err := c.Attach(runtime.Attachment{Name: "big", Data: big}); err != nil {
			t.Error(err)
		}
		return nil, c.Attach(runtime.Attachment{Name: "bigger", Data: big})
	}
	finish(t, h)
	wantResult(t, h, "call_0_0", events.OutcomeError, "at most 16 files")
	wantResult(t, h, "call_1_0", events.OutcomeError, "together")
	if parts := h.Transcript()[2].Parts[0].Result.Parts; len(parts) != 1+runtime.MaxAttachments {
		t.Errorf("%d parts were kept", len(parts))
	}
}

func TestAHostWithoutFilesTakesNoAttachment(t *testing.T) {
	h := newHost(rt.RunJS("attach a.txt words"), rt.Complete(`1`))
	finish(t, h)
	wantResult(t, h, "call_0_0", events.OutcomeError, "keeps no files")
}

func TestAFileThatCannotBeStoredIsNeverReferredTo(t *testing.T) {
	h := newHost(rt.RunJS("attach a.txt words"), rt.Complete(`1`))
	h.Input.Files = brokenFiles{}
	if err := stop(t, h); !strings.Contains(err.Error(), "a.txt") {
		t.Errorf("got %v", err)
	}
	for _, m := range h.Transcript() {
		if m.Role == events.RoleTool {
			t.Errorf("a result was committed: %+v", m)
		}
	}
}

type brokenFiles struct{}

func (brokenFiles) Put(context.Context, []byte) (string, error)        { return "", errClosed }
func (brokenFiles) Open(context.Context, *events.File) ([]byte, error) { return nil, errClosed }

func TestAMediaTypeIsNotBelievedAgainstTheBytes(t *testing.T) {
	for _, tt := range []struct{ said, name, data, want string }{
		{"", "a.png", string(png), "image/png"}, {"image/png", "x", "no picture", "application/octet-stream"}, {"IMAGE/PNG; q=1", "x", string(png), "image/png"},
		{"", "a.pdf", "%PDF-1.7", "application/pdf"}, {"", "a.pdf", "words", "application/octet-stream"}, {"", "README", "words", "text/plain"},
		{"", "README", "\xff\xfe", "application/octet-stream"}, {"text/csv", "t", "\xff", "application/octet-stream"}, {"nonsense", "a.CSV", "1,2", "text/csv"},
		{"", "a.jpeg", "\xff\xd8\xff\xe0", "image/jpeg"}, {"audio/ogg", "", "OggS", "audio/ogg"},
	} {
		if got := runtime.MediaType(tt.said, tt.name, []byte(tt.data)); got != tt.want {
			t.Errorf("%q %q %q: got %s, want %s", tt.said, tt.name, tt.data, got, tt.want)
		}
	}
}

func TestFilesCountInTheEstimateOfARequest(t *testing.T) {
	h := newHost(rt.Complete(`1`))
	withFiles(h)
	part := runtime.NewFile(&rt.Redactor{}, "r", "big.txt", "", bytes.Repeat([]byte("word"), 2000))
	r := &runtime.Request{Messages: []events.Message{{ID: "m", Role: events.RoleUser, Parts: []events.Part{part}}}}
	words := h.Estimator.Request(r)
	r.Files = map[string][]byte{"r": nil}
	if n := h.Estimator.Request(r) - words; n != runtime.FileTokens(part.File) || n != 2000 {
		t.Errorf("the file counts as %d tokens, want 2000", n)
	}
}
