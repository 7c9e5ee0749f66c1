package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
)

func TestLog(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		eventstest.TestLog(t, func(*testing.T) events.Log { return &jetstream.Log{Conn: conn} })
	})
}

func TestAppender(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		eventstest.TestAppender(t, &jetstream.Log{Conn: conn})
	})
}

func TestAttend(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		eventstest.TestAttend(t, &jetstream.Log{Conn: conn})
	})
}

func TestBrokenProtocolsAreRefused(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		eventstest.TestMutants(t, &jetstream.Log{Conn: conn})
	})
}

// fact returns a sealed external fact.
func fact(key events.Key, id string, data []byte) *events.Event {
	e := &events.Event{ID: id, Source: "test", Type: events.FactPrefix + "message.received", Namespace: key.Namespace, Session: key.Session,
		Run: key.Session + "-00000001", DataContentType: "application/json", Data: data}
	(&events.Tip{}).Seal(e)
	return e
}

func TestALedgerStandsInTheShardOfItsRootRunsSession(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{Shards: 8})
	ledger := &jetstream.Log{Conn: conn, Family: jetstream.FamilyBudget}
	facts := &jetstream.Log{Conn: conn}
	for i := range 16 {
		session := events.Key{Namespace: "ns", Session: fmt.Sprintf("s%d", i)}
		root := events.Key{Namespace: "ns", Session: session.Session + "-00000001"}
		first, err := facts.Append(t.Context(), session, fact(session, "a", []byte(`1`)), 0)
		if err != nil {
			t.Fatal(err)
		}
		second, err := ledger.Append(t.Context(), root, fact(root, "a", []byte(`1`)), 0)
		if err != nil {
			t.Fatal(err)
		}
		if second != first+1 {
			t.Fatalf("the ledger's record is sequence %d of another shard than the session's fact %d", second, first)
		}
	}
	if _, err := ledger.Append(t.Context(), events.Key{Namespace: "ns", Session: "norun"}, fact(events.Key{}, "a", nil), 0); err == nil {
		t.Fatal("a ledger was opened for what is no run id")
	}
	for entry, err := range facts.Sessions(t.Context(), "ns") {
		if err != nil || strings.Contains(entry.Key.Session, "-") {
			t.Fatalf("the listing of sessions holds %s, %v", entry.Key, err)
		}
	}
}

func TestSessionsAreListedByNamespaceAcrossShards(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{Shards: 3})
	log := &jetstream.Log{Conn: conn}
	for _, ns := range []string{"one", "two"} {
		for i := range 10 {
			key := events.Key{Namespace: ns, Session: fmt.Sprintf("s%d", i)}
			for n := range 2 {
				if _, err := log.AppendUnfenced(t.Context(), key, fact(key, fmt.Sprint(n), []byte(`1`))); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for ns, want := range map[string]int{"": 20, "one": 10, "two": 10, "three": 0} {
		seen := map[events.Key]bool{}
		for entry, err := range log.Sessions(t.Context(), ns) {
			key := entry.Key
			if err != nil || entry.Facts != 2 {
				t.Fatalf("%d facts are listed of %s: %v", entry.Facts, key, err)
			}
			if ns != "" && key.Namespace != ns || seen[key] {
				t.Fatalf("namespace %q: unexpected %s", ns, key)
			}
			seen[key] = true
		}
		if len(seen) != want {
			t.Errorf("namespace %q: %d sessions are listed, want %d", ns, len(seen), want)
		}
	}
}

func TestABatchCutByItsSizeIsAPrefix(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{})
	log := &jetstream.Log{Conn: conn}
	key := events.Key{Namespace: "ns", Session: "s"}
	const n = 12
	data := []byte(`"` + strings.Repeat("x", 900<<10) + `"`)
	for i := range n {
		if _, err := log.AppendUnfenced(t.Context(), key, fact(key, fmt.Sprint(i), data)); err != nil {
			t.Fatal(err)
		}
	}
	var after uint64
	reads, seen := 0, 0
	for seen < n {
		records, err := log.Read(t.Context(), key, after, events.MaxRead)
		if err != nil || len(records) == 0 {
			t.Fatalf("read %d: %d records, %v", reads, len(records), err)
		}
		for _, r := range records {
			if r.ID != fmt.Sprint(seen) {
				t.Fatalf("record %d is %s", seen, r.ID)
			}
			seen++
			after = r.Sequence
		}
		reads++
	}
	if reads < 2 {
		t.Fatalf("%d reads took 11 MB", reads)
	}
}

// forged answers reads of AGENT_LOG_0 in the server's place.
func forged(t *testing.T, answer func(m *nats.Msg)) *jetstream.Log {
	t.Helper()
	conn := jetstreamtest.Connect(t, jetstreamtest.Server(t), jetstream.Layout{})
	sub, err := conn.NATS().Subscribe("$JS.API.DIRECT.GET.AGENT_LOG_0", answer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	return &jetstream.Log{Conn: conn, Timeout: 300 * time.Millisecond}
}

func respond(t *testing.T, m *nats.Msg, sequence, previous string, body string) {
	t.Helper()
	key := events.Key{Namespace: "ns", Session: "s"}
	header := nats.Header(fact(key, sequence, []byte(body)).Header())
	header["Nats-Sequence"] = []string{sequence}
	header["Nats-Last-Sequence"] = []string{previous}
	if err := m.RespondMsg(&nats.Msg{Header: header, Data: []byte(body)}); err != nil {
		t.Error(err)
	}
}

func TestALostMessageOfABatchIsNeverAHole(t *testing.T) {
	key := events.Key{Namespace: "ns", Session: "s"}
	eob := func(t *testing.T, m *nats.Msg, last string) {
		if err := m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"204"}, "Nats-Last-Sequence": {last}}}); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		name    string
		answer  func(t *testing.T, m *nats.Msg)
		records int
		err     error
	}{
		{"in the middle", func(t *testing.T, m *nats.Msg) {
			respond(t, m, "3", "0", "1")
			respond(t, m, "9", "5", "1")
			eob(t, m, "9")
		}, 1, nil},
		{"at the beginning", func(t *testing.T, m *nats.Msg) {
			respond(t, m, "9", "5", "1")
			eob(t, m, "9")
		}, 0, events.ErrUnanswered},
		{"all of them", func(t *testing.T, m *nats.Msg) { eob(t, m, "9") }, 0, events.ErrUnanswered},
		{"the end", func(t *testing.T, m *nats.Msg) { respond(t, m, "3", "0", "1") }, 1, nil},
		{"everything", func(*testing.T, *nats.Msg) {}, 0, events.ErrUnanswered},
		{"an error of the server", func(t *testing.T, m *nats.Msg) {
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"500"}}})
		}, 0, events.ErrUnanswered},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := forged(t, func(m *nats.Msg) { c.answer(t, m) })
			records, err := log.Read(t.Context(), key, 2, 10)
			if len(records) != c.records || !errors.Is(err, c.err) {
				t.Fatalf("Read = %d records, %v; want %d, %v", len(records), err, c.records, c.err)
			}
		})
	}
}

func TestARequestUnderWayFailsWhenTheConnectionIsLost(t *testing.T) {
	server := jetstreamtest.Server(t)
	conn := jetstreamtest.Connect(t, server, jetstream.Layout{})
	asked := make(chan struct{})
	// Whoever takes the request keeps silent.
	if _, err := conn.NATS().Subscribe("$JS.API.DIRECT.GET.AGENT_LOG_0", func(*nats.Msg) { close(asked) }); err != nil {
		t.Fatal(err)
	}
	log := &jetstream.Log{Conn: conn, Timeout: time.Hour}
	done := make(chan error, 1)
	go func() {
		_, err := log.Read(context.Background(), events.Key{Namespace: "ns", Session: "s"}, 0, 1)
		done <- err
	}()
	<-asked
	server.Shutdown()
	if err := <-done; !errors.Is(err, events.ErrUnanswered) {
		t.Fatalf("Read = %v", err)
	}
}

func TestASessionSurvivesLeaderChangesAndLostServers(t *testing.T) {
	cluster := jetstreamtest.NewCluster(t)
	conn := jetstreamtest.Open(t, cluster, jetstream.Layout{Shards: 1, Replicas: 3})
	log := &jetstream.Log{Conn: conn, Timeout: time.Second}
	key := events.Key{Namespace: "ns", Session: "s"}
	var ids atomic.Int64
	appender := &events.Appender{Log: log, Pause: events.Sleep, NewID: func() string { return fmt.Sprint(ids.Add(1)) }}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const n = 60
	for i := range n {
		switch i {
		case 10, 20, 30:
			cluster.StepDown("AGENT_LOG_0")
		case 40:
			cluster.Kill(cluster.LeaderOf("AGENT_LOG_0"))
		}
		if _, err := appender.Notify(ctx, key, fact(key, fmt.Sprint("f", i), []byte(`1`))); err != nil {
			t.Fatalf("fact %d: %v", i, err)
		}
	}
	last, err := log.Last(ctx, key)
	for errors.Is(err, events.ErrUnanswered) {
		last, err = log.Last(ctx, key)
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for after := uint64(0); after < last; {
		records, err := log.Read(ctx, key, after, events.MaxRead)
		if err != nil && !errors.Is(err, events.ErrUnanswered) {
			t.Fatal(err)
		}
		for _, r := range records {
			seen[r.ID] = true
			after = r.Sequence
		}
	}
	if len(seen) != n {
		t.Fatalf("%d of %d acknowledged facts are there", len(seen), n)
	}
}
