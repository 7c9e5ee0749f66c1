package jetstream_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
)

func TestAReactionSeesEveryFactUntilItIsAcknowledged(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		ctx := within(t)
		log := &jetstream.Log{Conn: conn}
		const n = 300
		pending := map[string]uint64{}
		reactions := make(map[int]*jetstream.Reaction)
		counts := make(map[int]int)
		for k := range conn.Layout().Shards {
			reactions[k] = &jetstream.Reaction{Conn: conn, Name: "settle", Shard: k, Wait: time.Second}
		}
		for i := range n {
			key := events.Key{Namespace: "ns", Session: fmt.Sprintf("s%d", i%7)}
			e := fact(key, fmt.Sprint(i), []byte(`"data"`))
			sequence, err := log.AppendUnfenced(ctx, key, e)
			if err != nil {
				t.Fatal(err)
			}
			pending[e.ID] = sequence
			counts[events.Shard(key, conn.Layout().Shards)]++
		}
		for k, reaction := range reactions {
			dropped := false
			for left := counts[k]; left > 0; {
				f, err := reaction.Next(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if f.Deliveries == 1 && !dropped {
					dropped = true // the first one is not acknowledged, and comes again
					continue
				}
				if pending[f.ID] != f.Sequence || f.Shard != k || f.Data != nil || f.Key().Check() != nil {
					t.Fatalf("unexpected %+v", f)
				}
				delete(pending, f.ID)
				left--
				if err := f.Ack(); err != nil {
					t.Fatal(err)
				}
			}
			jetstreamtest.Eventually(t, "the position to reach the end", func() bool {
				position, err := reaction.Acknowledged(ctx)
				return err == nil && position >= configs(t, conn)[fmt.Sprintf("AGENT_LOG_%d", k)].State.LastSeq
			})
		}
		if len(pending) != 0 {
			t.Fatalf("%d facts were never handed out", len(pending))
		}
	})
}

func TestAReactionIsRewound(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{})
	ctx := within(t)
	log := &jetstream.Log{Conn: conn}
	key := events.Key{Namespace: "ns", Session: "s"}
	for i := range 5 {
		if _, err := log.AppendUnfenced(ctx, key, fact(key, fmt.Sprint(i), []byte(`1`))); err != nil {
			t.Fatal(err)
		}
	}
	reaction := &jetstream.Reaction{Conn: conn, Name: "publish"}
	take := func(want uint64) {
		t.Helper()
		f, err := reaction.Next(ctx)
		if err != nil || f.Sequence != want {
			t.Fatalf("Next = %+v, %v; want sequence %d", f.Sequence, err, want)
		}
		if err := f.Ack(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(5) {
		take(i + 1)
	}
	if err := reaction.Rewind(ctx, 3); err != nil {
		t.Fatal(err)
	}
	for i := uint64(3); i <= 5; i++ {
		take(i)
	}
	// The name keeps its position for whoever comes next.
	if _, err := log.AppendUnfenced(ctx, key, fact(key, "last", []byte(`1`))); err != nil {
		t.Fatal(err)
	}
	take(6)
}

func TestAFactThatIsNoEventIsReported(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{})
	if _, err := raw(t, conn).Publish(t.Context(), "agent.log.0.ns.s", []byte("x")); err != nil {
		t.Fatal(err)
	}
	_, err := (&jetstream.Reaction{Conn: conn, Name: "settle"}).Next(within(t))
	var undecodable *jetstream.UndecodableError
	if !errors.As(err, &undecodable) || undecodable.Sequence != 1 {
		t.Fatalf("Next = %v", err)
	}
	if err := undecodable.Later(time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := (&jetstream.Log{Conn: conn}).Read(t.Context(), events.Key{Namespace: "ns", Session: "s"}, 0, 1); err == nil {
		t.Fatal("the log read what is no event")
	}
}
