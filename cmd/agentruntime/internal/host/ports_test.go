package host

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
)

const ttl = 2 * time.Second

var session = events.Key{Namespace: "default", Session: "s"}

func lease(worker string, epoch uint64) handlers.Lease {
	return handlers.Lease{Worker: worker, Claim: "claim of " + worker, Epoch: epoch}
}

// holder demands whose entry stands there; "" is nobody's.
func holder(t *testing.T, l *leases, worker string) {
	t.Helper()
	o, err := l.Observe(t.Context(), session)
	if err != nil || o.Held != (worker != "") || o.Lease.Worker != worker {
		t.Fatalf("the entry is %+v, %v; want that of %q", o, err, worker)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestALaterClaimTakesTheLeaseAndTheEarlierOneLosesIt(t *testing.T) {
	conn, ctx := newSystem(t).conn, t.Context()
	first, second := newLeases(conn, ttl), newLeases(conn, ttl)
	a, b := lease("a", 1), lease("b", 2)
	must(t, first.Take(ctx, session, a))
	must(t, first.Renew(ctx, session, a))
	must(t, second.Take(ctx, session, b))
	holder(t, first, "b")

	for range 2 {
		if err := first.Renew(ctx, session, a); !errors.Is(err, handlers.ErrLeaseLost) || !strings.Contains(err.Error(), "worker b") {
			t.Errorf("the earlier claim renewed: %v", err)
		}
	}
	if err := first.Take(ctx, session, a); !errors.Is(err, handlers.ErrLeaseLost) {
		t.Errorf("the earlier claim took the lease back: %v", err)
	}
	must(t, first.Release(ctx, session, a))
	holder(t, first, "b")

	must(t, second.Renew(ctx, session, b))
	must(t, second.Release(ctx, session, b))
	holder(t, first, "")
	must(t, first.Take(ctx, session, lease("c", 3)))
	holder(t, second, "c")
}

func TestARenewalWhoseAnswerWasLostIsNoLossOfTheLease(t *testing.T) {
	conn, ctx := newSystem(t).conn, t.Context()
	l, a := newLeases(conn, ttl), lease("a", 1)
	must(t, l.Take(ctx, session, a))
	// It is stored, and this process never hears of it.
	_, err := l.Leases.Renew(ctx, session, entry(a), l.revision(a.Claim))
	must(t, err)
	if err := l.Renew(ctx, session, a); err == nil || errors.Is(err, handlers.ErrLeaseLost) {
		t.Errorf("the renewal after it: %v, want an error that leaves the lease open", err)
	}
	must(t, l.Renew(ctx, session, a))
	must(t, l.Release(ctx, session, a))
	holder(t, l, "")
}

func TestALeaseThatWasLostWithItsBucketIsWrittenAgain(t *testing.T) {
	s := newSystem(t)
	l, a := newLeases(s.conn, ttl), lease("a", 1)
	must(t, l.Take(t.Context(), session, a))
	s.purge("KV_AGENT_LEASES")
	if err := l.Renew(t.Context(), session, a); errors.Is(err, handlers.ErrLeaseLost) {
		t.Errorf("an entry that is gone counts as taken: %v", err)
	}
	must(t, l.Renew(t.Context(), session, a))
	holder(t, l, "a")
}

func TestALeaseThatCannotBeReachedIsNeitherTakenNorLost(t *testing.T) {
	s := newSystem(t)
	l, a := newLeases(s.conn, ttl), lease("a", 1)
	must(t, l.Take(t.Context(), session, a))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for what, err := range map[string]error{"take": l.Take(ctx, session, lease("b", 2)), "renew": l.Renew(ctx, session, a)} {
		if err == nil || errors.Is(err, handlers.ErrLeaseLost) {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, l.Renew(t.Context(), session, a))
	if err := l.Take(t.Context(), events.Key{Namespace: "a.b", Session: "s"}, a); err == nil {
		t.Error("a key that can be no subject has a lease")
	}
}

// watched is a lease that is watched, on the clock of the test.
type watched struct {
	*system
	*leases
	end func()
}

func watch(t *testing.T) *watched {
	t.Helper()
	s := newSystem(t)
	w := &watched{system: s, leases: newLeases(s.conn, ttl)}
	if silent := w.silent("any"); silent != 0 {
		t.Errorf("a watch that does not run has seen %s of silence", silent)
	}
	w.begin()
	return w
}

// begin starts to watch and returns when the watch is whole.
func (w *watched) begin() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.leases.watch.Run(ctx) }()
	w.end = func() { cancel(); <-done }
	w.t.Cleanup(w.end)
	w.reach("any", time.Nanosecond)
}

func (w *watched) silent(claim string) time.Duration {
	w.t.Helper()
	d, err := w.Silent(w.t.Context(), session, claim)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// reach waits until a claim has been silent for a time.
func (w *watched) reach(claim string, silence time.Duration) {
	w.t.Helper()
	jetstreamtest.Eventually(w.t, "silence", func() bool { return w.silent(claim) >= silence })
}

// notLonger demands that the silence does not exceed the time since an event.
func (w *watched) notLonger(claim string, since time.Time) {
	w.t.Helper()
	if silent, passed := w.silent(claim), time.Since(since); silent > passed {
		w.t.Errorf("silent for %s, %s after the renewal", silent, passed)
	}
}

func TestSilenceIsCountedFromTheLastRenewal(t *testing.T) {
	w, a := watch(t), lease("a", 1)
	before := time.Now()
	must(t, w.Take(t.Context(), session, a))
	w.notLonger(a.Claim, before)
	for range 3 {
		w.reach(a.Claim, ttl/8)
		before = time.Now()
		must(t, w.Renew(t.Context(), session, a))
		w.notLonger(a.Claim, before)
	}
	// A holder that is silent for a whole TTL has not renewed for one.
	w.reach(a.Claim, ttl)
	if passed := time.Since(before); passed < ttl {
		t.Errorf("a TTL of silence was seen %s after a renewal", passed)
	}
}

// The watch sees a renewal a moment after it is stored, and may miss it: the
// leader is asked.
func TestARenewalThatTheWatchHasNotSeenCountsAsMadeNow(t *testing.T) {
	w, a := watch(t), lease("a", 1)
	must(t, w.Take(t.Context(), session, a))
	for range 10 {
		w.reach(a.Claim, ttl/40)
		before := time.Now()
		must(t, w.Renew(t.Context(), session, a))
		w.notLonger(a.Claim, before)
	}
}

// A claim whose holder has not yet written its entry, or never will, is waited
// out as well: the time before it was heard of is no silence of it.
func TestAClaimWithoutALeaseIsSilentSinceItIsAskedAbout(t *testing.T) {
	w, a := watch(t), lease("a", 1)
	must(t, w.Take(t.Context(), session, a))
	w.reach(a.Claim, ttl/4)
	before := time.Now()
	w.notLonger("another claim", before)
	w.reach("another claim", ttl)
	if passed := time.Since(before); passed < ttl {
		t.Errorf("a TTL of silence was seen %s after the claim was first heard of", passed)
	}
}

func TestAWatchThatBeginsAnewCountsAnew(t *testing.T) {
	w, a := watch(t), lease("a", 1)
	must(t, w.Take(t.Context(), session, a))
	w.reach(a.Claim, ttl/4)
	w.end()
	if silent := w.silent(a.Claim); silent != 0 {
		t.Errorf("a watch that has ended has seen %s of silence", silent)
	}
	before := time.Now()
	w.begin()
	w.notLonger(a.Claim, before)
	w.reach(a.Claim, ttl)
	if passed := time.Since(before); passed < ttl {
		t.Errorf("a TTL of silence was seen %s after the watch began", passed)
	}
}

func TestAWatchThatLostItsServerCountsAnew(t *testing.T) {
	w, a := watch(t), lease("a", 1)
	nc := w.conn.NATS()
	w.reach(a.Claim, ttl/4)
	before := time.Now()
	must(t, nc.ForceReconnect())
	jetstreamtest.Eventually(t, "the connection to stand again", func() bool { return nc.Stats().Reconnects > 0 && nc.IsConnected() })
	must(t, w.Take(t.Context(), session, a)) // wakes the watch, which sees that it was interrupted
	w.reach(a.Claim, time.Nanosecond)
	w.notLonger(a.Claim, before)
}

func TestWhatIsAbsentHasTheHandlersNames(t *testing.T) {
	s, ctx := newSystem(t), t.Context()
	if data, err := (snapshots{&jetstream.Snapshots{Conn: s.conn}}).Get(ctx, session); data != nil || err != nil {
		t.Errorf("no snapshot: %q, %v", data, err)
	}
	if names, err := (definitions{&jetstream.Definitions{Conn: s.conn}}).Names(ctx, "default"); len(names) != 0 || names == nil || err != nil {
		t.Errorf("no definitions: %v, %v", names, err)
	}
	if _, err := (services{s.conn}).Request(ctx, "svc.nobody", nil, nil); !errors.Is(err, handlers.ErrNoService) || !strings.Contains(err.Error(), "svc.nobody") {
		t.Errorf("no service: %v", err)
	}
	stop, err := s.conn.Answer("svc.refuses", func([]byte) ([]byte, error) { return nil, errors.New("not on Sundays") })
	must(t, err)
	defer stop()
	var refused *handlers.ServiceError
	if _, err := (services{s.conn}).Request(ctx, "svc.refuses", nil, nil); !errors.As(err, &refused) || refused.Code != "400" || refused.Description != "not on Sundays" {
		t.Errorf("a refusal: %v", err)
	}
}
