package jetstream_test

import (
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
)

func TestARoleHasOneHolderUntilItIsReleasedOrNotRenewed(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		role := func(holder string) *jetstream.Role {
			return &jetstream.Role{Conn: conn, Name: "keeper", Holder: holder, TTL: time.Second}
		}
		hold := func(r *jetstream.Role, want bool) {
			t.Helper()
			if held, err := r.Hold(t.Context()); err != nil || held != want {
				t.Fatalf("%s holds the role: %t, %v; want %t", r.Holder, held, err, want)
			}
		}
		first, second := role("w1"), role("w2")
		hold(first, true)
		hold(second, false)
		hold(first, true)
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		hold(second, true)
		hold(first, false)
		hold(role("w2"), true) // the same process, which has forgotten
		next := role("w2, started again")
		next.Gone = func(holder string) bool { return holder == "w2" }
		hold(next, true)
		hold(second, false)
		jetstreamtest.Eventually(t, "the role to be free", func() bool {
			held, err := first.Hold(t.Context())
			return err == nil && held
		})
		hold(next, false)
		if err := next.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		hold(next, false)
		hold(first, true)
	})
}
