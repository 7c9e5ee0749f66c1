package jetstream_test

import (
	"errors"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
)

func TestAKeyOfANamespaceIsKeptBesideThoseOfSessionsAndNeverErased(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		ctx := within(t)
		keys := &jetstream.Keys{Conn: conn}
		kept, session := events.KeptKey("ns", "uploads"), events.Key{Namespace: "ns", Session: "uploads"}
		for _, key := range []events.Key{kept, session} {
			if err := keys.Create(ctx, key, []byte(key.Session)); err != nil {
				t.Fatal(err)
			}
		}
		if err := keys.Erase(ctx, session); err != nil {
			t.Fatal(err)
		}
		if err := keys.Erase(ctx, kept); err == nil {
			t.Error("the key of no session was erased")
		}
		if got, err := keys.Get(ctx, kept); err != nil || string(got) != kept.Session {
			t.Errorf("Get = %q, %v", got, err)
		}
		if _, err := keys.Get(ctx, session); !errors.Is(err, events.ErrErased) {
			t.Errorf("Get = %v", err)
		}
	})
}
