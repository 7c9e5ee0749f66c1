package handlers_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// wrapping is a key of the configuration.
func wrapping(id string) handlers.WrappingKey {
	return handlers.WrappingKey{ID: id, Secret: [handlers.KeySize]byte([]byte(events.Derive(handlers.KeySize, "wrapping", id)))}
}

// stored returns the facts of a session as the log has them.
func stored(t *testing.T, w *handlerstest.World, session string) []events.Record {
	t.Helper()
	records, err := eventstest.All(t.Context(), w.Log, events.Key{Namespace: w.Namespace, Session: session})
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// verified demands that the facts of a session verify without any key.
func verified(t *testing.T, w *handlerstest.World, session string) {
	t.Helper()
	if _, err := events.Verify(stored(t, w, session)); err != nil {
		t.Errorf("session %s does not verify: %v", session, err)
	}
}

// restart starts a worker whose keys are these.
func restart(t *testing.T, w *handlerstest.World, keys ...handlers.WrappingKey) *handlerstest.Worker {
	t.Helper()
	w.Wrapping = keys
	return w.Start(t.Context(), nil)
}

// sessionOf is the session of the world's first command.
func sessionOf(w *handlerstest.World) string {
	s, _ := events.SessionOf(runOf(w.Namespace, "1"))
	return s
}

// tale is a run that says the word walrus wherever a run can say something.
func tale(t *testing.T) (*handlerstest.World, *handlerstest.Worker) {
	t.Helper()
	w, worker := started(t, agent("desk.book"), runtimetest.RunJS("desk.book {\"what\":\"walrus\"}\nreturn \"walrus\""), runtimetest.Complete(`"walrus"`))
	return w, worker
}

func TestNothingThatASessionSaysStandsPlainInTheLog(t *testing.T) {
	w, _ := tale(t)
	restart(t, w, wrapping("k1")).Settle()
	run := runOf("ns", "1")
	completed(t, w, run)
	for _, r := range stored(t, w, sessionOf(w)) {
		if r.Encryption != "aes-256-gcm/k1" {
			t.Errorf("%s is encrypted as %q", r.Type, r.Encryption)
		}
		if bytes.Contains(r.Data, []byte("walrus")) || bytes.Contains(r.Data, []byte(`"delta":`)) || bytes.Contains(r.Data, []byte(`"agent":`)) {
			t.Errorf("%s is stored as %q", r.Type, r.Data)
		}
	}
	verified(t, w, sessionOf(w))
}

func TestATreeUnderEncryptionSurvivesKillsAndLostAppends(t *testing.T) {
	s := trees[0]
	prepare := s.Prepare
	s.Prepare = func(w *handlerstest.World) {
		w.Wrapping = []handlers.WrappingKey{wrapping("k2"), wrapping("k1")}
		if prepare != nil {
			prepare(w)
		}
	}
	handlerstest.CrashEverywhere(t, s, !slow, inMemory) // no call of this tree can be unknown
}

func TestAnOlderKeyStillUnwrapsAndTheNewestWraps(t *testing.T) {
	w, _ := tale(t)
	restart(t, w, wrapping("k1")).Settle()
	worker := restart(t, w, wrapping("k2"), wrapping("k1"))
	w.Send(handlerstest.Start("2", "tester", "Go."))
	w.Send(handlerstest.Continue("3", sessionOf(w), "On."))
	w.Model.Respond = runtimetest.Complete(`1`)
	worker.Settle()
	completed(t, w, runOf("ns", "2"))
	second, _ := events.SessionOf(runOf("ns", "2"))
	for session, want := range map[string]string{sessionOf(w): "aes-256-gcm/k1", second: "aes-256-gcm/k2"} {
		if all := stored(t, w, session); all[len(all)-1].Encryption != want || len(fold(t, w, session).Runs) == 0 {
			t.Errorf("session %s ends with a fact encrypted as %q", session, all[len(all)-1].Encryption)
		}
	}
	if n := len(fold(t, w, sessionOf(w)).Runs); n != 2 {
		t.Errorf("the session has %d runs", n)
	}
}

func TestAWorkerWithoutTheKeyPutsTheSessionBack(t *testing.T) {
	for name, keys := range map[string][]handlers.WrappingKey{"no key": nil, "another key": {wrapping("k2")}, "the wrong key": {{ID: "k1", Secret: wrapping("k2").Secret}}} {
		t.Run(name, func(t *testing.T) {
			w, _ := started(t, agent("desk.book"), runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.Complete(`1`))
			w.Wrapping = []handlers.WrappingKey{wrapping("k1")}
			first := w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
				return eventstest.None, a.Type == factCommitted && a.Nth == 2
			})
			first.Settle()
			facts := len(stored(t, w, sessionOf(w)))
			worker := restart(t, w, keys...)
			key := events.Key{Namespace: "ns", Session: sessionOf(w)}
			var missing *handlers.KeyError
			if err := worker.Dispatcher.Carry(t.Context(), key); !errors.As(err, &missing) || missing.Key != key {
				t.Errorf("Carry = %v", err)
			}
			worker.Settle()
			if _, err := worker.Dispatcher.GetRun(t.Context(), "ns", runOf("ns", "1")); !errors.As(err, &missing) {
				t.Errorf("GetRun = %v", err)
			}
			if _, pending := w.Items(); len(stored(t, w, sessionOf(w))) != facts || len(pending) == 0 {
				t.Errorf("%d facts became %d, and %d work items are left", facts, len(stored(t, w, sessionOf(w))), len(pending))
			}
			restart(t, w, wrapping("k1")).Settle()
			completed(t, w, runOf("ns", "1"))
		})
	}
}

func TestASessionWhoseKeyIsLostIsNeverAnEmptyOne(t *testing.T) {
	w, _ := tale(t)
	restart(t, w, wrapping("k1")).Settle()
	facts := len(stored(t, w, sessionOf(w)))
	w.SessionKeys.Lose()
	worker := restart(t, w, wrapping("k1"))
	w.Send(handlerstest.Start("1", "tester", "Go."))
	worker.Settle()
	var missing *handlers.KeyError
	if _, err := worker.Dispatcher.Latest(t.Context(), events.Key{Namespace: "ns", Session: sessionOf(w)}); !errors.As(err, &missing) {
		t.Errorf("Latest = %v", err)
	}
	if n := len(stored(t, w, sessionOf(w))); n != facts {
		t.Errorf("%d facts became %d", facts, n)
	}
	verified(t, w, sessionOf(w))
}

func TestEncryptionSwitchedOnLaterLeavesOldFactsReadable(t *testing.T) {
	w, worker := tale(t)
	worker.Settle()
	plain := len(stored(t, w, sessionOf(w)))
	w.Model.Respond = runtimetest.Complete(`"again"`)
	worker = restart(t, w, wrapping("k1"))
	w.Send(handlerstest.Continue("2", sessionOf(w), "On."))
	worker.Settle()
	for i, r := range stored(t, w, sessionOf(w)) {
		if (r.Encryption == "") != (i < plain) {
			t.Errorf("fact %d of %d plain ones is encrypted as %q", i, plain, r.Encryption)
		}
	}
	if s := fold(t, w, sessionOf(w)); len(s.Runs) != 2 || string(s.Runs[1].Checkpoint.Reply.Output) != `"again"` {
		t.Errorf("the session has %d runs", len(s.Runs))
	}
	verified(t, w, sessionOf(w))
	var refused *handlers.Rejection
	if err := worker.Dispatcher.Erase(t.Context(), "ns", sessionOf(w)); !errors.As(err, &refused) || refused.Reason != handlers.RejectNotEncrypted {
		t.Errorf("Erase = %v", err)
	}
}

// A fact that was moved, or given another identity, does not open, though
// whoever moved it has made its hashes fit.
func TestAFactOpensOnlyWhereItWasWritten(t *testing.T) {
	ctx := t.Context()
	key, other := events.Key{Namespace: "ns", Session: "s"}, events.Key{Namespace: "ns", Session: "other"}
	for name, change := range map[string]func(e *events.Event) events.Key{
		"as it was":       func(*events.Event) events.Key { return key },
		"another id":      func(e *events.Event) events.Key { e.ID += "x"; return key },
		"another type":    func(e *events.Event) events.Key { e.Type = events.FactPrefix + "run.released"; return key },
		"another claim":   func(e *events.Event) events.Key { e.ClaimID += "x"; return key },
		"a revision":      func(e *events.Event) events.Key { e.Revision++; return key },
		"another session": func(e *events.Event) events.Key { return other },
		"a changed byte":  func(e *events.Event) events.Key { e.Data[len(e.Data)-1] ^= 1; return key },
		"cut off":         func(e *events.Event) events.Key { e.Data = e.Data[:5]; return key },
	} {
		w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
		h := restart(t, w, wrapping("k1")).Dispatcher.Host
		e, err := events.New(events.RunParked{Reason: events.ParkMessage, Note: "walrus"})
		if err != nil {
			t.Fatal(err)
		}
		e.ID, e.Source, e.ClaimID, e.Namespace, e.Session, e.Revision = "id", "/test", "c", "ns", "s", 3
		plain := e
		for _, k := range []events.Key{other, key} { // both sessions have a key
			if e = plain; h.Prepare(ctx, k, &e) != nil {
				t.Fatal("not prepared")
			}
		}
		e.Body = nil
		to := change(&e)
		if _, err := w.Log.Append(ctx, to, &e, 0); err != nil {
			t.Fatal(err)
		}
		records, err := h.Log.Read(ctx, to, 0, 1)
		var damage *events.DamageError
		if name == "as it was" {
			if err != nil || !bytes.Contains(records[0].Body, []byte("walrus")) {
				t.Errorf("%s: %v", name, err)
			}
		} else if !errors.As(err, &damage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whoever may append unfenced cannot stop a session with a fact that nobody can
// open.
func TestAnExternalFactThatDoesNotOpenSaysNothing(t *testing.T) {
	w, _ := tale(t)
	restart(t, w, wrapping("k1")).Settle()
	key := events.Key{Namespace: "ns", Session: sessionOf(w)}
	e, err := events.New(events.CancelRequested{Reason: "forged"})
	if err != nil {
		t.Fatal(err)
	}
	e.ID, e.Source, e.Namespace, e.Session, e.Run, e.Encryption = "forged", "/test", "ns", key.Session, runOf("ns", "1"), "aes-256-gcm/k1"
	(&events.Tip{}).Seal(&e)
	if _, err := w.Log.AppendUnfenced(t.Context(), key, &e); err != nil {
		t.Fatal(err)
	}
	if r := runIn(t, w, runOf("ns", "1")); r.State != projector.StateCompleted {
		t.Errorf("the run is %s", r.State)
	}
}

func TestASnapshotAndAnObjectOpenForTheirSessionAlone(t *testing.T) {
	ctx := t.Context()
	w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
	h := restart(t, w, wrapping("k1")).Dispatcher.Host
	one, two := events.Key{Namespace: "ns", Session: "one"}, events.Key{Namespace: "ns", Session: "two"}
	objects := func(key events.Key) handlers.SealedObjects {
		return handlers.SealedObjects{Objects: h.Objects, Vault: h.Vault, Key: key, Use: "file"}
	}
	ref, err := objects(one).Put(ctx, []byte("walrus"))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := objects(one).Put(ctx, []byte("walrus")); err != nil || again != ref {
		t.Errorf("the same object again is %s, not %s: %v", again, ref, err)
	}
	if other, err := objects(two).Put(ctx, []byte("walrus")); err != nil || other == ref {
		t.Errorf("another session's object is %s: %v", other, err)
	}
	if raw := w.Object(ref); len(raw) == 0 || bytes.Contains(raw, []byte("walrus")) {
		t.Errorf("stored is %q", raw)
	}
	if got, err := objects(one).Get(ctx, ref); err != nil || string(got) != "walrus" {
		t.Errorf("Get = %q, %v", got, err)
	}
	if got, err := objects(two).Get(ctx, ref); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("the other session has %q, %v", got, err)
	}
	plain, err := h.Objects.Put(ctx, []byte("plain"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.FilesOf(one).Open(ctx, &events.File{Ref: plain}); err != nil || string(got) != "plain" {
		t.Errorf("Open of an old plain one = %q, %v", got, err)
	}
	if got, err := objects(one).Get(ctx, plain); !errors.Is(err, events.ErrNotFound) {
		t.Errorf("an old reference from outside leads to %q, %v", got, err)
	}
	if err := h.Snapshots.Put(ctx, one, []byte("walrus")); err != nil {
		t.Fatal(err)
	}
	beneath := h.Snapshots.(handlers.SealedSnapshots).Snapshots
	raw, err := beneath.Get(ctx, one)
	if err != nil || bytes.Contains(raw, []byte("walrus")) {
		t.Errorf("stored is %q, %v", raw, err)
	}
	if err := beneath.Put(ctx, two, raw); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Snapshots.Get(ctx, two); err == nil {
		t.Errorf("another session's snapshot is %q", got)
	}
	if got, err := h.Snapshots.Get(ctx, one); err != nil || string(got) != "walrus" {
		t.Errorf("Get = %q, %v", got, err)
	}
	if err := beneath.Put(ctx, one, []byte("forged")); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Snapshots.Get(ctx, one); got != nil || err != nil {
		t.Errorf("a plain snapshot counts: %q, %v", got, err)
	}
}

func TestOfSeveralThatMakeASessionsKeyTheFirstWins(t *testing.T) {
	keys := &handlerstest.Keys{}
	key := events.Key{Namespace: "ns", Session: "s"}
	var making sync.WaitGroup
	texts := make([][]byte, 8)
	for i := range texts {
		making.Go(func() {
			v := &handlers.Vault{Keys: keys, Wrapping: []handlers.WrappingKey{wrapping("k")}, Random: rand.Reader, Now: time.Now}
			var err error
			if texts[i], err = v.SealBytes(t.Context(), key, "use", []byte("walrus")); err != nil {
				t.Error(err)
			}
		})
	}
	making.Wait()
	if n := len(slices.CompactFunc(texts, bytes.Equal)); n != 1 {
		t.Errorf("the session has %d keys", n)
	}
}

func TestNoNonceComesTwice(t *testing.T) {
	v := &handlers.Vault{Keys: &handlerstest.Keys{}, Wrapping: []handlers.WrappingKey{wrapping("k")}, Random: rand.Reader, Now: time.Now}
	seen := make(map[string]string)
	for _, session := range []string{"a", "b"} {
		for _, use := range []string{"one", "two"} {
			for n := range 1000 {
				text := fmt.Sprintf("%s %s %d", session, use, n)
				sealed, err := v.SealBytes(t.Context(), events.Key{Namespace: "ns", Session: session}, use, []byte(fmt.Sprint(n)))
				if err != nil {
					t.Fatal(err)
				}
				nonce := string(sealed[:12])
				if before := seen[nonce]; before != "" {
					t.Fatalf("%s and %s have one nonce", before, text)
				}
				seen[nonce] = text
			}
		}
	}
}

// What another process has erased is readable here for KeyTTL at most, and keys
// are looked up no oftener.
func TestAProcessForgetsAKeyAfterAWhile(t *testing.T) {
	keys, now := &handlerstest.Keys{}, time.Unix(0, 0)
	v := &handlers.Vault{Keys: keys, Wrapping: []handlers.WrappingKey{wrapping("k")}, Random: rand.Reader, Now: func() time.Time { return now }}
	key := events.Key{Namespace: "ns", Session: "s"}
	seal := func() error {
		_, err := v.SealBytes(t.Context(), key, "use", []byte("walrus"))
		return err
	}
	if err := seal(); err != nil {
		t.Fatal(err)
	}
	looks := keys.Looks
	if err := keys.Erase(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	now = now.Add(handlers.KeyTTL - 1)
	if err := seal(); err != nil || keys.Looks != looks {
		t.Errorf("within the time: %v, after %d more looks", err, keys.Looks-looks)
	}
	now = now.Add(1)
	if err := seal(); !errors.Is(err, events.ErrErased) {
		t.Errorf("after it: %v", err)
	}
}

func TestRunEventsShowsEncryptedFactsAsTheyWere(t *testing.T) {
	show := func(keys ...handlers.WrappingKey) []string {
		w, _ := tale(t)
		worker := restart(t, w, keys...)
		worker.Settle()
		api := handlers.API{Host: worker.Dispatcher.Host}
		answer, err := api.Handle(t.Context(), "ns", handlers.VerbEvents, nil, []byte(`{"run":"`+runOf("ns", "1")+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, e := range answer.(handlers.RunFactsAnswer).Events {
			decoded, err := events.Decode(map[string][]string{"Content-Type": {"application/cloudevents+json"}}, e.Event)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, decoded.Type+" "+fmt.Sprint(strings.Contains(string(decoded.Data), "walrus")))
		}
		return list
	}
	if diff := cmp.Diff(show(), show(wrapping("k1"))); diff != "" {
		t.Errorf("(-plain +encrypted):\n%s", diff)
	}
}

func TestAPayloadOverTheInlineLimitIsEncryptedWhereItIsStored(t *testing.T) {
	w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
	h := restart(t, w, wrapping("k1")).Dispatcher.Host
	key := events.Key{Namespace: "ns", Session: "s"}
	e, err := events.New(events.RunParked{Reason: events.ParkMessage, Note: strings.Repeat("walrus ", handlers.InlineLimit/7)})
	if err != nil {
		t.Fatal(err)
	}
	e.ID, e.Source = "id", "/test"
	if err := h.Prepare(t.Context(), key, &e); err != nil {
		t.Fatal(err)
	}
	if e.DataRef == "" || e.Data != nil || !bytes.Contains(e.Body, []byte("walrus")) {
		t.Fatalf("stored are %d bytes beside %q", len(e.Data), e.DataRef)
	}
	w.EachObject(func(data []byte) {
		if bytes.Contains(data, []byte("walrus")) {
			t.Error("the payload stands plain in the object store")
		}
	})
	if _, err := w.Log.Append(t.Context(), key, &e, 0); err != nil {
		t.Fatal(err)
	}
	records, err := h.Log.Read(t.Context(), key, 0, 1)
	if err != nil || !bytes.Equal(records[0].Body, e.Body) {
		t.Errorf("Read: %v", err)
	}
}

// BenchmarkAStepUnderEncryption compares what a fact of a step costs on its way
// into the log and out of it, in memory, with and without encryption.
func BenchmarkAStepUnderEncryption(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 256 << 10} {
		took := make(map[bool]time.Duration)
		for _, encrypted := range []bool{false, true} {
			b.Run(fmt.Sprintf("%dKiB/encrypted=%t", size>>10, encrypted), func(b *testing.B) {
				w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
				if encrypted {
					w.Wrapping = []handlers.WrappingKey{wrapping("k1")}
				}
				h := w.Start(b.Context(), nil).Dispatcher.Host
				key := events.Key{Namespace: "ns", Session: "s"}
				payload := events.RunParked{Reason: events.ParkMessage, Note: strings.Repeat("walrus ", size/7)}
				appender := &events.Appender{Log: h.Log, NewID: rand.Text, Pause: events.Sleep, Prepare: h.Prepare}
				state := &passing{}
				for b.Loop() {
					_, err := appender.Commit(b.Context(), key, state, func() (*events.Event, error) {
						e, err := events.New(payload)
						e.Source, e.Namespace, e.Session = "/test", "ns", "s"
						return &e, err
					})
					if err != nil {
						b.Fatal(err)
					}
					if records, err := h.Log.Read(b.Context(), key, state.at.Sequence-1, 1); err != nil || len(records) != 1 {
						b.Fatal(len(records), err)
					}
				}
				took[encrypted] = b.Elapsed() / time.Duration(b.N)
				if encrypted && took[false] > 0 {
					b.ReportMetric(float64(took[true])/float64(took[false]), "times-plain")
				}
			})
		}
	}
}

// passing is a state that takes any fact.
type passing struct{ at events.Tip }

// Tip implements events.State.
func (p *passing) Tip() events.Tip {
	p.at.Claim.Open = true
	return p.at
}

// Fold implements events.State.
func (p *passing) Fold(r *events.Record) error {
	p.at.Sequence = r.Sequence
	return nil
}
