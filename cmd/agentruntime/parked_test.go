package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
)

// gauge reads one figure of a worker's metrics, over all its labels.
func gauge(t *testing.T, address, name string) float64 {
	t.Helper()
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, found := range regexp.MustCompile(`(?m)^`+name+`(?:\{.*\})? (\S+)$`).FindAllSubmatch(page, -1) {
		value, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += value
	}
	return sum
}

// freePort returns an address that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Runs that wait hold no memory and no goroutine of a worker, whose process here
// holds nothing else: the server is the test's.
func TestParkedRunsCostAWorkerNothing(t *testing.T) {
	parked := 500
	if os.Getenv("AGENTRUNTIME_SLOW") != "" {
		parked = 10_000
	}
	s := newSite(t)
	metrics := freePort(t)
	s.write("config.yaml", fmt.Sprintf("worker: { lease: %s, data: %s }\nlayout: { shards: 1 }\nmetrics: %q\n", lease, filepath.Join(s.store, "worker"), metrics))
	s.write("agents/sleeper.yaml", "instructions: Sleep.\nmodel: scripted/sleeper\nsubagents: [sleeper]\n")
	s.write("agents/sleeper.script.yaml", `responses:
  - calls: [{ name: wait_calls, arguments: { messages: true } }]
  - calls: [{ name: complete, arguments: { kind: output, output: rested } }]
`)
	s.serve(func(m *nats.Msg) { _ = m.Respond([]byte(`"booked"`)) })
	s.start()
	s.begin() // applies the agents
	sleep := func(n int) string {
		e, err := events.New(events.StartRun{Agent: "sleeper", Message: "Sleep."})
		if err != nil {
			t.Fatal(err)
		}
		e.ID, e.Source = fmt.Sprint("sleep-", n), "/test"
		if err := (&jetstream.Commands{Conn: s.conn}).Publish(t.Context(), "default", &e); err != nil {
			t.Fatal(err)
		}
		return events.RunFor("default", events.SessionFor("default", e.Source, e.ID), e.Source, e.ID)
	}
	asleep := func(want int) {
		t.Helper()
		got := 0
		for deadline := time.Now().Add(margin + time.Duration(want)*20*time.Millisecond); got < want; {
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d runs are parked", got, want)
			}
			got = int(gauge(t, metrics, "agentruntime_parks_total"))
		}
	}
	const idle = 50
	for n := range idle {
		sleep(n)
	}
	asleep(idle)
	// What a collection left is half of what the next one begins at.
	live := func() float64 {
		return gauge(t, metrics, "go_memstats_next_gc_bytes")/2 + gauge(t, metrics, "go_memstats_stack_inuse_bytes")
	}
	goroutines, memory, resident := gauge(t, metrics, "go_goroutines"), live(), gauge(t, metrics, "process_resident_memory_bytes")
	var last string
	for n := range parked {
		last = sleep(idle + n)
	}
	asleep(idle + parked)
	jetstreamtest.Eventually(t, "the worker to have let go of the runs", func() bool {
		return gauge(t, metrics, "go_goroutines") < goroutines+20
	})
	grown := live() - memory
	t.Logf("%d parked runs: %.0f goroutines before, %.0f after; live memory grew by %.1f MB, resident memory by %.1f MB", parked, goroutines, gauge(t, metrics, "go_goroutines"),
		grown/1e6, (gauge(t, metrics, "process_resident_memory_bytes")-resident)/1e6)
	if grown > 20e6 {
		t.Errorf("%d parked runs made the worker grow by %.1f MB", parked, grown/1e6)
	}
	// What beginning them took goes back to the system once nothing is under way.
	began := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for wait := began.Add(2 * time.Minute); ; <-tick.C {
		above := gauge(t, metrics, "process_resident_memory_bytes") - resident
		if above <= 20e6 {
			t.Logf("%s later resident memory is %.1f MB above what it was", time.Since(began).Round(time.Second), above/1e6)
			break
		}
		if time.Now().After(wait) {
			t.Errorf("the worker's memory stays %.1f MB above what it was before the runs", above/1e6)
			break
		}
	}
	var answer any
	began = time.Now()
	s.run(&answer, "run", "message", last, "-m", "Good morning.")
	asleep(idle + parked + 1) // its script begins anew with each message, and waits again
	if took := time.Since(began); took > margin {
		t.Errorf("one run of many was woken after %s", took)
	}
	t.Logf("one of them was woken and waits again %s after it was sent a message by a process of its own", time.Since(began))
	var stuck []handlers.Row
	s.run(&stuck, "run", "list", "--stuck")
	if len(stuck) > 0 {
		t.Errorf("nothing will wake %+v", stuck)
	}
}
