package handlers_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// putting stores a file in a namespace.
func putting(t *testing.T, api *handlers.API, namespace string, r handlers.PutFile) (string, error) {
	t.Helper()
	data, err := events.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := api.Handle(t.Context(), namespace, handlers.VerbFilePut, nil, data)
	if err != nil {
		return "", err
	}
	return answer.(handlers.PutFileAnswer).Ref, nil
}

// eachVault runs a test without encryption and with it.
func eachVault(t *testing.T, test func(t *testing.T, w *handlerstest.World, worker *handlerstest.Worker)) {
	for name, keys := range map[string][]handlers.WrappingKey{"plain": nil, "encrypted": {wrapping("k1")}} {
		t.Run(name, func(t *testing.T) {
			w := inMemory()
			w.Model.Respond = runtimetest.Script(completeShowing())
			worker := restart(t, w, keys...)
			apply(t, worker, agent())
			test(t, w, worker)
		})
	}
}

// failsToStart reports whether a start with a file is refused, for it leads to
// nothing.
func failsToStart(t *testing.T, worker *handlerstest.Worker, namespace, id, ref string) bool {
	t.Helper()
	start := withFiles(handlerstest.Start(id, "tester", "Look."), func(d *events.StartRun) {
		d.Files = []events.GivenFile{{Name: "plan.txt", MediaType: "text/plain", Ref: ref}}
	})
	_, err := worker.Dispatcher.Admit(t.Context(), namespace, &start)
	var refused *handlers.Rejection
	return errors.As(err, &refused) && refused.Reason == handlers.RejectFile
}

func TestASessionOfAnyNameLeavesUploadedFilesAlone(t *testing.T) {
	w := inMemory()
	w.Model.Respond = runtimetest.Script(completeShowing())
	worker := restart(t, w, wrapping("k1"))
	apply(t, worker, agent())
	api := &handlers.API{Host: worker.Dispatcher.Host}
	ref, err := putting(t, api, w.Namespace, handlers.PutFile{Data: []byte("four legs")})
	if err != nil {
		t.Fatal(err)
	}
	w.Send(withFiles(handlerstest.Start("1", "tester", "Look."), func(d *events.StartRun) { d.Session = "uploads" }))
	worker.Settle()
	if _, err := api.Handle(t.Context(), w.Namespace, handlers.VerbErase, nil, []byte(`{"session":"uploads"}`)); err != nil {
		t.Fatal(err)
	}
	kept := events.KeptKey(w.Namespace, "uploads").Session
	if _, err := api.Handle(t.Context(), w.Namespace, handlers.VerbErase, nil, []byte(`{"session":"`+kept+`"}`)); err == nil {
		t.Errorf("session.erase took %q", kept)
	}
	start := withFiles(handlerstest.Start("2", "tester", "Look."), func(d *events.StartRun) { d.Session = kept })
	if _, err := worker.Dispatcher.Admit(t.Context(), w.Namespace, &start); err == nil {
		t.Errorf("run.start took the session %q", kept)
	}
	if again, err := putting(t, api, w.Namespace, handlers.PutFile{Data: []byte("four legs")}); err != nil || again != ref {
		t.Errorf("the same file again is %q, %v", again, err)
	}
	if failsToStart(t, worker, w.Namespace, "3", ref) {
		t.Error("the uploaded file is gone")
	}
}

func TestAFileMayBeginLikeAnything(t *testing.T) {
	eachVault(t, func(t *testing.T, w *handlerstest.World, worker *handlerstest.Worker) {
		for i, data := range []string{"\x89agentruntime aes-256-gcm\n\x1a and more than a nonce of it", "agentruntime file of ns\nwords", "sealed-"} {
			w.Send(withFiles(handlerstest.Start(string(rune('a'+i)), "tester", "Look."), func(d *events.StartRun) {
				d.Files = []events.GivenFile{{Name: "a.txt", MediaType: "image/heic", Data: []byte(data)}}
			}))
			worker.Settle()
		}
		for _, key := range w.Keys() {
			s, _, err := w.Session(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			run := s.Current()
			if run.State != projector.StateCompleted {
				t.Fatalf("the run is %s: %s", run.State, failure(*run))
			}
			f := run.Admitted.Message.Parts[1].File
			if got, err := worker.Dispatcher.Host.FilesOf(key).Open(t.Context(), f); err != nil || int64(len(got)) != f.Size {
				t.Errorf("%+v opens to %q, %v", f, got, err)
			}
		}
	})
}

func TestAnEncryptedFileThatDoesNotOpenIsDamagedAndNoOutage(t *testing.T) {
	w := inMemory()
	host := restart(t, w, wrapping("k1")).Dispatcher.Host
	one, two := events.Key{Namespace: "ns", Session: "one"}, events.Key{Namespace: "ns", Session: "two"}
	for _, key := range []events.Key{one, two} {
		if _, err := host.FilesOf(key).Put(t.Context(), []byte("walrus")); err != nil {
			t.Fatal(err)
		}
	}
	foreign, err := host.FilesOf(two).Put(t.Context(), []byte("walrus"))
	if err != nil {
		t.Fatal(err)
	}
	name, err := host.Objects.Put(t.Context(), []byte("no encrypted bytes of anybody"))
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{foreign, "sealed-" + name} {
		var damaged *runtime.FileDamagedError
		if got, err := host.FilesOf(one).Open(t.Context(), &events.File{Name: "a", Ref: ref}); !errors.As(err, &damaged) {
			t.Errorf("%s opens to %q, %v", ref, got, err)
		}
	}
}

func TestOnlyWhatWasStoredAsAFileOfTheNamespaceIsOne(t *testing.T) {
	eachVault(t, func(t *testing.T, w *handlerstest.World, worker *handlerstest.Worker) {
		api := &handlers.API{Host: worker.Dispatcher.Host}
		w.Send(handlerstest.Start("1", "tester", strings.Repeat("walrus ", 40_000)))
		w.Send(handlerstest.Start("2", "nobody", "agentruntime file of another\n"+strings.Repeat("walrus ", 40_000)))
		worker.Settle()
		answer, err := api.Handle(t.Context(), w.Namespace, handlers.VerbEvents, nil, []byte(`{"run":"`+runOf(w.Namespace, "1")+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		data, err := events.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, found := bytes.Cut(data, []byte(`"dataref":"`))
		payload, _, _ := strings.Cut(string(rest), `"`)
		if !found || len(w.Buried) != 1 {
			t.Fatalf("the world has no payload (%t) or no letter (%d)", found, len(w.Buried))
		}
		var letter struct{ DataRef string }
		if err := json.Unmarshal(w.Buried[0].Data, &letter); err != nil {
			t.Fatal(err)
		}
		own, err := putting(t, api, "another", handlers.PutFile{Data: []byte("four legs")})
		if err != nil {
			t.Fatal(err)
		}
		bare := func(ref string) string { return ref[strings.LastIndexByte(ref, '-')+1:] }
		for _, ref := range []string{payload, "file-" + payload, "sealed-" + payload, letter.DataRef, "file-" + bare(letter.DataRef), "sealed-" + bare(letter.DataRef), own, bare(own), "file-" + bare(own) + "x"} {
			if !failsToStart(t, worker, w.Namespace, "start "+ref, ref) {
				t.Errorf("a run is given %s", ref)
			}
			if got, err := putting(t, api, w.Namespace, handlers.PutFile{Pieces: []string{ref}}); err == nil {
				t.Errorf("a piece of a file is %s: %s", ref, got)
			}
			if got, err := putting(t, api, "another", handlers.PutFile{Pieces: []string{ref}}); (err == nil) != (ref == own) {
				t.Errorf("a piece of a file of another namespace is %s: %s, %v", ref, got, err)
			}
		}
	})
}

func TestAnAnswersReferenceLeadsToFilesOfItsNamespaceAlone(t *testing.T) {
	w, worker := started(t, agent("desk.draw"), runtimetest.RunJS("desk.draw {}\nreturn"), runtimetest.CompleteQuoting())
	api := &handlers.API{Host: worker.Dispatcher.Host}
	ref, err := putting(t, api, "another", handlers.PutFile{Data: []byte("four legs")})
	if err != nil {
		t.Fatal(err)
	}
	w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
		return events.Marshal(map[string]any{"$attachments": []handlers.AnsweredFile{{Name: "plan.txt", Ref: ref}}})
	}
	worker.Settle()
	if run := only(t, w); run.State != projector.StateCompleted || !strings.Contains(string(run.Checkpoint.Reply.Output), "plan.txt") {
		t.Errorf("the run is %s: %s", run.State, run.Checkpoint.Reply.Output)
	}
}

func TestALargeRefusedCommandIsEncryptedWhereItIsKept(t *testing.T) {
	w := inMemory()
	worker := restart(t, w, wrapping("k1"))
	w.Send(handlerstest.Start("big", "nobody", strings.Repeat("walrus ", 50_000)))
	worker.Settle()
	if len(w.Buried) != 1 {
		t.Fatalf("%d letters were buried", len(w.Buried))
	}
	var letter struct{ DataRef string }
	if err := json.Unmarshal(w.Buried[0].Data, &letter); err != nil || len(w.Object(letter.DataRef)) == 0 {
		t.Fatalf("the letter is %.200s", w.Buried[0].Data)
	}
	w.EachObject(func(data []byte) {
		if bytes.Contains(data, []byte("walrus")) {
			t.Errorf("%d bytes of a command stand plain in the object store", len(data))
		}
	})
}
