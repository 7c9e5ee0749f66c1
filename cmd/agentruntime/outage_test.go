package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/jetstream"
)

// TestAnOutageOfNATSFailsNoRun takes the server away in the middle of a call,
// for longer than a lease lives, and brings it back.
func TestAnOutageOfNATSFailsNoRun(t *testing.T) {
	away := 2 * lease
	if os.Getenv("AGENTRUNTIME_SLOW") != "" {
		away = time.Minute
	}
	s := newSite(t)
	ledger, inCall, goOn := s.serveWhenTold()
	worker := s.start()
	run := s.begin()
	<-inCall
	address := s.server.ClientURL()[len("nats://"):]
	s.server.Shutdown()
	if err := events.Sleep(t.Context(), away); err != nil {
		t.Fatal(err)
	}
	again := &jetstream.Embedded{StoreDir: filepath.Join(s.store, "nats"), Listen: address}
	if err := again.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.Shutdown)
	s.server = again
	close(goOn)
	d := s.await(run)
	if d.State != "completed" {
		t.Errorf("the run is %s: %s", d.State, d.Error)
	}
	seen := make(map[string]bool)
	for _, r := range ledger() {
		if seen[r.key] {
			t.Errorf("the service was called twice for %s", r.key)
		}
		seen[r.key] = true
	}
	s.facts(run)
	s.stop(worker)
}
