// Package jetstreamtest runs NATS systems inside a test: one server, and a
// cluster of three. Both sync every message, as the shipped settings do.
// Fencing, leases and recovery are tested on both: what is sound on one server
// may not be on three.
package jetstreamtest

import (
	"context"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/jetstream"
)

// patience bounds every wait of this package. A test that reaches it fails.
const patience = 30 * time.Second

// Server starts a server without streams, which ends with the test.
func Server(t testing.TB) *jetstream.Embedded {
	t.Helper()
	e := &jetstream.Embedded{StoreDir: t.TempDir()}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Shutdown)
	return e
}

// Connector is what a Conn can be made to: an embedded server or a Cluster.
type Connector interface {
	Connect(jetstream.Config) (*jetstream.Conn, error)
}

// Connect connects with the layout, without making its streams. The connection
// ends with the test.
func Connect(t testing.TB, to Connector, layout jetstream.Layout) *jetstream.Conn {
	t.Helper()
	conn, err := to.Connect(jetstream.Config{Name: t.Name(), Layout: layout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// Open connects and makes the streams of the layout.
func Open(t testing.TB, to Connector, layout jetstream.Layout) *jetstream.Conn {
	t.Helper()
	conn := Connect(t, to, layout)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := conn.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	return conn
}

// Each runs the test on one server ("R1") and on three ("R3"), with streams
// made.
func Each(t *testing.T, test func(t *testing.T, conn *jetstream.Conn)) {
	t.Run("R1", func(t *testing.T) {
		test(t, Open(t, Server(t), jetstream.Layout{}))
	})
	t.Run("R3", func(t *testing.T) {
		test(t, Open(t, NewCluster(t), jetstream.Layout{Shards: 2, Replicas: 3}))
	})
}

// Eventually looks until ok. It is for what a server does in its own time and
// gives no sign of: an election, the end of a TTL.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited %s for %s", patience, what)
		}
	}
}
