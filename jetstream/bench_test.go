package jetstream_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
)

// payload is about what one step of a run commits.
var payload = []byte(`"` + strings.Repeat("x", 2<<10) + `"`)

// BenchmarkAppend puts a fenced append beside a fenced publish of the same
// bytes through the client library, on the same server.
func BenchmarkAppend(b *testing.B) {
	conn := jetstreamtest.Open(b, jetstreamtest.Server(b), jetstream.Layout{})
	log := &jetstream.Log{Conn: conn}
	js, err := natsjs.New(conn.NATS())
	if err != nil {
		b.Fatal(err)
	}
	runs := 0
	key := func() events.Key {
		runs++
		return events.Key{Namespace: "bench", Session: fmt.Sprintf("s%d", runs)}
	}
	b.Run("Log", func(b *testing.B) {
		b.ReportAllocs()
		k, last := key(), uint64(0)
		e := fact(k, "a", payload)
		for b.Loop() {
			if last, err = log.Append(b.Context(), k, e, last); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("raw publish", func(b *testing.B) {
		b.ReportAllocs()
		k, last := key(), uint64(0)
		e := fact(k, "a", payload)
		m := &nats.Msg{Subject: "agent.log.0." + k.Namespace + "." + k.Session, Header: e.Header(), Data: e.Data}
		for b.Loop() {
			m.Header["Nats-Expected-Last-Subject-Sequence"] = []string{strconv.FormatUint(last, 10)}
			ack, err := js.PublishMsg(b.Context(), m)
			if err != nil {
				b.Fatal(err)
			}
			last = ack.Sequence
		}
	})
}

// BenchmarkRead reads a session of 256 facts at once.
func BenchmarkRead(b *testing.B) {
	conn := jetstreamtest.Open(b, jetstreamtest.Server(b), jetstream.Layout{})
	log := &jetstream.Log{Conn: conn}
	key := events.Key{Namespace: "bench", Session: "s"}
	for i := range events.MaxRead {
		if _, err := log.AppendUnfenced(b.Context(), key, fact(key, fmt.Sprint(i), payload)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		records, err := log.Read(b.Context(), key, 0, events.MaxRead)
		if err != nil || len(records) != events.MaxRead {
			b.Fatal(len(records), err)
		}
	}
}
