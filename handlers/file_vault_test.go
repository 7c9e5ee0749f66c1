package handlers_test

import (
	"bytes"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

func TestFilesAreEncryptedWithTheirSession(t *testing.T) {
	w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
	w.Model.Respond = runtimetest.Script(runtimetest.Complete(`"seen"`))
	worker := restart(t, w, wrapping("k1"))
	apply(t, worker, agent())
	api := &handlers.API{Host: worker.Dispatcher.Host}
	data, err := events.Marshal(handlers.PutFile{Data: []byte("walrus")})
	if err != nil {
		t.Fatal(err)
	}
	put, err := api.Handle(t.Context(), "ns", handlers.VerbFilePut, nil, data)
	if err != nil {
		t.Fatal(err)
	}
	stored := put.(handlers.PutFileAnswer).Ref
	start := func(id, session, ref string, data []byte) error {
		e, err := events.New(events.StartRun{Agent: "tester", Message: "Look.", Session: session, Files: []events.GivenFile{{Name: "a.txt", Ref: ref, Data: data}}})
		if err != nil {
			t.Fatal(err)
		}
		e.ID, e.Source = id, "/test"
		_, err = worker.Dispatcher.Admit(t.Context(), "ns", &e)
		return err
	}
	if err := start("1", "one", stored, nil); err != nil {
		t.Fatal(err)
	}
	if err := start("2", "two", "", []byte("walrus")); err != nil {
		t.Fatal(err)
	}
	refs := []string{stored}
	for _, session := range []string{"one", "two"} {
		s, _, err := w.Session(t.Context(), events.Key{Namespace: "ns", Session: session})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range s.Current().Admitted.Message.Parts {
			if p.File != nil {
				refs = append(refs, p.File.Ref)
			}
		}
	}
	if len(refs) != 3 || refs[0] == refs[1] || refs[1] == refs[2] {
		t.Errorf("the references are %v, want three", refs)
	}
	for _, ref := range refs {
		if raw := w.Object(ref); len(raw) == 0 || bytes.Contains(raw, []byte("walrus")) {
			t.Errorf("stored as %s is %q", ref, raw)
		}
	}
	if err := start("3", "three", refs[1], nil); err == nil {
		t.Error("a session was given the file of another one")
	}
	if err := start("4", "four", refs[0], nil); err != nil {
		t.Errorf("an uploaded file was not given to a second session: %v", err)
	}
}
