package jetstream_test

import (
	"errors"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
)

func TestASessionHasOneKeyAndOnceErasedNone(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		ctx := within(t)
		keys := &jetstream.Keys{Conn: conn}
		one, never := events.Key{Namespace: "ns", Session: "one"}, events.Key{Namespace: "ns", Session: "never"}
		if _, err := keys.Get(ctx, one); !errors.Is(err, events.ErrNotFound) {
			t.Fatalf("Get = %v", err)
		}
		if err := keys.Create(ctx, one, []byte("first")); err != nil {
			t.Fatal(err)
		}
		if err := keys.Create(ctx, one, []byte("second")); !errors.Is(err, events.ErrConflict) {
			t.Errorf("a second key: %v", err)
		}
		if got, err := keys.Get(ctx, one); err != nil || string(got) != "first" {
			t.Errorf("Get = %q, %v", got, err)
		}
		for range 2 {
			for _, key := range []events.Key{one, never} {
				if err := keys.Erase(ctx, key); err != nil {
					t.Fatal(err)
				}
				if got, err := keys.Get(ctx, key); !errors.Is(err, events.ErrErased) {
					t.Errorf("Get = %q, %v", got, err)
				}
				if err := keys.Create(ctx, key, []byte("third")); !errors.Is(err, events.ErrConflict) {
					t.Errorf("a key after the end: %v", err)
				}
			}
		}
		// The markers are all that is left.
		if s := configs(t, conn)["KV_AGENT_KEYS"].State; s.Msgs != 2 {
			t.Errorf("the bucket holds %d messages", s.Msgs)
		}
	})
}

func TestARemovedObjectIsGoneAndMayComeBack(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		ctx := within(t)
		objects := &jetstream.Objects{Conn: conn}
		data := make([]byte, 300<<10)
		ref, err := objects.Put(ctx, data)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := objects.Remove(ctx, ref); err != nil {
				t.Fatal(err)
			}
			if _, err := objects.Get(ctx, ref); !errors.Is(err, events.ErrNotFound) {
				t.Errorf("Get = %v", err)
			}
		}
		again, err := objects.Put(ctx, data)
		if err != nil || again != ref {
			t.Fatalf("Put = %s, %v", again, err)
		}
		if got, err := objects.Get(ctx, ref); err != nil || len(got) != len(data) {
			t.Errorf("Get = %d bytes, %v", len(got), err)
		}
		other, err := objects.Put(ctx, []byte("never removed"))
		if err != nil {
			t.Fatal(err)
		}
		if err := objects.Remove(ctx, ref); err != nil {
			t.Fatal(err)
		}
		if _, err := objects.Get(ctx, other); err != nil {
			t.Errorf("another object: %v", err)
		}
		snapshots, key := &jetstream.Snapshots{Conn: conn}, events.Key{Namespace: "ns", Session: "s"}
		if err := snapshots.Put(ctx, key, []byte("one")); err != nil {
			t.Fatal(err)
		}
		if err := snapshots.Remove(ctx, key); err != nil {
			t.Fatal(err)
		}
		jetstreamtest.Eventually(t, "the snapshot to be gone on every replica", func() bool {
			_, err := snapshots.Get(ctx, key)
			return errors.Is(err, events.ErrNotFound)
		})
	})
}
