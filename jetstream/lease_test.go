package jetstream_test

import (
	"errors"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
)

func TestALeaseIsHeldRenewedAndReleased(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		ctx := t.Context()
		leases := &jetstream.Leases{Conn: conn, TTL: 10 * time.Second}
		key := events.Key{Namespace: "ns", Session: "s"}
		mine := jetstream.Lease{Worker: "w1", ClaimID: "c1", Epoch: 3}
		before, err := leases.Observe(ctx, key)
		if err != nil || before.Held || before.Revision != 0 {
			t.Fatalf("a lease nobody took: %+v, %v", before, err)
		}
		first, err := leases.Acquire(ctx, key, mine, before.Revision)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leases.Acquire(ctx, key, jetstream.Lease{Worker: "w2"}, before.Revision); !errors.Is(err, events.ErrConflict) {
			t.Fatalf("a second worker that saw nothing: %v", err)
		}
		second, err := leases.Renew(ctx, key, mine, first)
		if err != nil || second <= first {
			t.Fatalf("Renew = %d, %v", second, err)
		}
		seen, err := leases.Observe(ctx, key)
		if err != nil || !seen.Held || seen.Lease != mine || seen.Revision != second {
			t.Fatalf("Observe = %+v, %v", seen, err)
		}
		// Another worker takes it over; the old holder learns it at its
		// next renewal and cannot release what is not its own.
		theirs := jetstream.Lease{Worker: "w2", ClaimID: "c2", Epoch: 4}
		third, err := leases.Acquire(ctx, key, theirs, seen.Revision)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leases.Renew(ctx, key, mine, second); !errors.Is(err, events.ErrConflict) {
			t.Fatalf("the old holder renewed: %v", err)
		}
		if err := leases.Release(ctx, key, second); err != nil {
			t.Fatal(err)
		}
		if seen, err := leases.Observe(ctx, key); err != nil || seen.Lease != theirs {
			t.Fatalf("Observe = %+v, %v", seen, err)
		}
		if err := leases.Release(ctx, key, third); err != nil {
			t.Fatal(err)
		}
		after, err := leases.Observe(ctx, key)
		if err != nil || after.Held {
			t.Fatalf("a released lease: %+v, %v", after, err)
		}
		if _, err := leases.Acquire(ctx, key, mine, after.Revision); err != nil {
			t.Fatalf("acquire after a release: %v", err)
		}
	})
}

func TestALeaseThatIsNotRenewedEnds(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		leases := &jetstream.Leases{Conn: conn, TTL: time.Second}
		key := events.Key{Namespace: "ns", Session: "s"}
		revision, err := leases.Acquire(t.Context(), key, jetstream.Lease{Worker: "w"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		// A renewal keeps the TTL.
		if _, err := leases.Renew(t.Context(), key, jetstream.Lease{Worker: "w"}, revision); err != nil {
			t.Fatal(err)
		}
		jetstreamtest.Eventually(t, "the lease to end", func() bool {
			seen, err := leases.Observe(t.Context(), key)
			return err == nil && !seen.Held
		})
	})
}

func TestDeathsWhileLoadingAreCounted(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{})
	leases := &jetstream.Leases{Conn: conn}
	late := &jetstream.Leases{Conn: conn, TTL: time.Nanosecond} // to which every note is old
	key := events.Key{Namespace: "ns", Session: "s"}
	begin := func(l *jetstream.Leases, worker string, want int) {
		t.Helper()
		if deaths, err := l.BeginLoading(t.Context(), key, worker); err != nil || deaths != want {
			t.Fatalf("worker %s begins after %d deaths, %v; want %d", worker, deaths, err, want)
		}
	}
	end := func(worker string, loaded bool) {
		t.Helper()
		if err := leases.EndLoading(t.Context(), key, worker, loaded); err != nil {
			t.Fatal(err)
		}
	}
	begin(leases, "a", 0)
	begin(leases, "b", 0) // a may be loading right now
	begin(late, "b", 1)   // a left its note long ago
	begin(late, "c", 2)
	end("c", false) // an error is no death
	begin(late, "d", 2)
	end("d", true)
	begin(late, "e", 0)
	if seen, err := leases.Observe(t.Context(), key); err != nil || seen.Held {
		t.Fatalf("the marker looks like a lease: %+v, %v", seen, err)
	}
}
