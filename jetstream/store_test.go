package jetstream_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
)

func TestDefinitionsKeepEveryVersion(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		ctx := within(t)
		definitions := &jetstream.Definitions{Conn: conn}
		put := func(namespace, slug, body string) string {
			t.Helper()
			hash, err := definitions.Put(ctx, namespace, slug, []byte(body))
			if err != nil {
				t.Fatal(err)
			}
			return hash
		}
		first := put("ns", "a", "one")
		second := put("ns", "a", "two")
		other := put("ns", "b", "one")
		put("else", "c", "three")
		if other != first || second == first {
			t.Fatalf("hashes: %s, %s, %s", first, second, other)
		}
		for hash, body := range map[string]string{first: "one", second: "two"} {
			if got, err := definitions.Get(ctx, "ns", hash); err != nil || string(got) != body {
				t.Errorf("Get(%s) = %q, %v", hash, got, err)
			}
		}
		if _, err := definitions.Get(ctx, "else", first); !errors.Is(err, events.ErrNotFound) {
			t.Errorf("another namespace's version: %v", err)
		}
		if _, err := definitions.Latest(ctx, "ns", "c"); !errors.Is(err, events.ErrNotFound) {
			t.Errorf("another namespace's name: %v", err)
		}
		list, err := definitions.List(ctx, "ns")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]jetstream.Version{{Slug: "a", Hash: second}, {Slug: "b", Hash: first}}, list); diff != "" {
			t.Error(diff)
		}
		if put("ns", "a", "one") != first {
			t.Error("the same bytes have another hash")
		}
		if hash, err := definitions.Latest(ctx, "ns", "a"); err != nil || hash != first {
			t.Errorf("Latest = %s, %v", hash, err)
		}
	})
}

func TestAChangedDefinitionIsReported(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{})
	definitions := &jetstream.Definitions{Conn: conn}
	hash, err := definitions.Put(t.Context(), "ns", "a", []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raw(t, conn).Publish(t.Context(), "$KV.AGENT_DEFINITIONS.ns.version."+hash, []byte("two")); err != nil {
		t.Fatal(err)
	}
	var damaged *jetstream.DamagedError
	if _, err := definitions.Get(t.Context(), "ns", hash); !errors.As(err, &damaged) {
		t.Fatalf("Get = %v", err)
	}
}

func TestObjectsAreNamedByWhatTheyAre(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		ctx := within(t)
		objects := &jetstream.Objects{Conn: conn}
		for _, size := range []int{0, 1, 300 << 10, 3 << 20} {
			data := bytes.Repeat([]byte{'x'}, size)
			hash, err := objects.Put(ctx, data)
			if err != nil {
				t.Fatal(err)
			}
			again, err := objects.Put(ctx, data)
			if err != nil || again != hash {
				t.Fatalf("the second Put = %s, %v", again, err)
			}
			got, err := objects.Get(ctx, hash)
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("Get = %d bytes, %v", len(got), err)
			}
		}
		if _, err := objects.Get(ctx, strings.Repeat("0", 64)); !errors.Is(err, events.ErrNotFound) {
			t.Errorf("Get of what was never stored = %v", err)
		}
		if _, err := objects.Get(ctx, "../x"); !errors.Is(err, events.ErrNotFound) {
			t.Errorf("Get of a name that is no hash = %v", err)
		}
	})
}

func TestAnObjectCanBeReadByOtherTools(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{})
	store, err := raw(t, conn).ObjectStore(t.Context(), "AGENT_OBJECTS")
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 1, 128 << 10, 300 << 10} {
		data := bytes.Repeat([]byte{'x'}, size)
		hash, err := (&jetstream.Objects{Conn: conn}).Put(t.Context(), data)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := store.GetBytes(t.Context(), hash); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("the client library reads %d of %d bytes, %v", len(got), size, err)
		}
	}
}

func TestAnObjectIsStoredOnceByMany(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		ctx := within(t)
		data := bytes.Repeat([]byte("0123456789"), 100<<10)
		const writers = 5
		done := make(chan error, writers)
		for range writers {
			go func() {
				objects := &jetstream.Objects{Conn: conn}
				hash, err := objects.Put(ctx, data)
				if err == nil {
					_, err = objects.Get(ctx, hash)
				}
				done <- err
			}()
		}
		for range writers {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := configs(t, conn)["OBJ_AGENT_OBJECTS"].State.Msgs; n != 9 {
			t.Errorf("8 chunks and an entry became %d messages", n)
		}
	})
}

func TestAChangedObjectIsReported(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{})
	objects := &jetstream.Objects{Conn: conn}
	for name, change := range map[string]func(js natsjs.JetStream, subject string) error{
		"changed": func(js natsjs.JetStream, subject string) error {
			_, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Header: nats.Header{"Nats-Rollup": {"sub"}, "Agent-Chunk": {"0"}}, Data: []byte("other")})
			return err
		},
		"cut at the front": func(js natsjs.JetStream, subject string) error {
			stream, err := js.Stream(t.Context(), "OBJ_AGENT_OBJECTS")
			if err != nil {
				return err
			}
			return stream.Purge(t.Context(), natsjs.WithPurgeSubject(subject), natsjs.WithPurgeKeep(1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			size := 1
			if name != "changed" {
				size = 200 << 10
			}
			hash, err := objects.Put(t.Context(), bytes.Repeat([]byte{'x'}, size))
			if err != nil {
				t.Fatal(err)
			}
			if err := change(raw(t, conn), "$O.AGENT_OBJECTS.C."+hash); err != nil {
				t.Fatal(err)
			}
			var damaged *jetstream.DamagedError
			if _, err := objects.Get(t.Context(), hash); !errors.As(err, &damaged) {
				t.Fatalf("Get = %v", err)
			}
		})
	}
}

func TestSnapshotsAreReplaced(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		ctx := within(t)
		snapshots := &jetstream.Snapshots{Conn: conn}
		key := events.Key{Namespace: "ns", Session: "s"}
		if _, err := snapshots.Get(ctx, key); !errors.Is(err, events.ErrNotFound) {
			t.Fatalf("Get = %v", err)
		}
		for _, data := range []string{"one", "two"} {
			if err := snapshots.Put(ctx, key, []byte(data)); err != nil {
				t.Fatal(err)
			}
			jetstreamtest.Eventually(t, "the snapshot on every replica", func() bool {
				got, err := snapshots.Get(ctx, key)
				return err == nil && string(got) == data
			})
		}
	})
}

func TestDeadLettersAreKeptWithTheirReason(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		ctx := within(t)
		dead := &jetstream.Dead{Conn: conn}
		letter := jetstream.Letter{
			Namespace: "ns", Reason: "schema", Detail: "line one\nline two: ä", Subject: "agent.cmd.ns.run.start",
			Header: map[string][]string{"ce-id": {"1"}, "Nats-TTL": {"1s"}, "Nats-Expected-Last-Sequence": {"99"}, "X-Other": {"no"}, "Traceparent": {"t"}},
			Data:   []byte("not json"),
		}
		for range 2 {
			if err := dead.Put(ctx, letter); err != nil {
				t.Fatal(err)
			}
		}
		large := letter
		large.Namespace, large.Header = "other", map[string][]string{"ce-x": {strings.Repeat("x", 60<<10)}}
		large.Detail = strings.Repeat("ä", 5000)
		if err := dead.Put(ctx, large); err != nil {
			t.Fatal(err)
		}
		var got []jetstream.Letter
		jetstreamtest.Eventually(t, "the letters on every replica", func() bool {
			var err error
			if got, err = dead.List(ctx, "", 0, 10); err != nil {
				t.Fatal(err)
			}
			return len(got) == 2
		})
		if got[0].Time.IsZero() || got[0].Sequence != 1 {
			t.Errorf("letter: %+v", got[0])
		}
		want := letter
		want.Header = map[string][]string{"ce-id": {"1"}, "Traceparent": {"t"}}
		want.Sequence, want.Time = got[0].Sequence, got[0].Time
		if diff := cmp.Diff(want, got[0]); diff != "" {
			t.Error(diff)
		}
		if len(got[1].Header) != 0 || len(got[1].Detail) > 1100 || got[1].Namespace != "other" {
			t.Errorf("a letter with oversized headers: %d headers, %d bytes of detail", len(got[1].Header), len(got[1].Detail))
		}
		if only, err := dead.List(ctx, "other", 0, 10); err != nil || len(only) != 1 {
			t.Errorf("List of one namespace = %d, %v", len(only), err)
		}
	})
}

func TestASignalReachesWhoListens(t *testing.T) {
	conn := jetstreamtest.Connect(t, jetstreamtest.Server(t), jetstream.Layout{})
	signals := &jetstream.Signals{Conn: conn}
	key := events.Key{Namespace: "ns", Session: "s"}
	heard := make(chan struct{}, 1)
	stop, err := signals.Listen(key, func() { heard <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := signals.Send(events.Key{Namespace: "ns", Session: "other"}); err != nil {
		t.Fatal(err)
	}
	if err := signals.Send(key); err != nil {
		t.Fatal(err)
	}
	<-heard
	if len(heard) != 0 {
		t.Error("a signal for another session was heard")
	}
}
