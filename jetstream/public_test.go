package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
)

func publicEvent(t *testing.T, session, id string, payload any) *events.Event {
	t.Helper()
	e, err := events.New(payload)
	if err != nil {
		t.Fatal(err)
	}
	e.ID, e.Source, e.Namespace, e.Session, e.Run = id, "test", "ns", session, session+"-00000001"
	return &e
}

func TestPublicEventsAreStoredOnceAndWatched(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		ctx := within(t)
		public := &jetstream.Public{Conn: conn}
		for i := range 6 {
			session := fmt.Sprintf("s%d", i%2)
			e := publicEvent(t, session, fmt.Sprint(i), events.RunStartedData{Session: session})
			for range 2 {
				if err := public.Publish(ctx, e, events.Position{Shard: 0, Sequence: uint64(i + 1)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		rejected := publicEvent(t, "", "r", events.RunRejectedData{Reason: "no"})
		rejected.Session, rejected.Run = "", ""
		if err := public.Publish(ctx, rejected, events.Position{}); err != nil {
			t.Fatal(err)
		}
		if end, err := public.End(ctx); err != nil || end != 7 {
			t.Fatalf("End = %d, %v", end, err)
		}
		for _, c := range []struct {
			filter jetstream.Filter
			after  uint64
			want   []string
		}{
			{jetstream.Filter{}, 0, []string{"0", "1", "2", "3", "4", "5", "r"}},
			{jetstream.Filter{}, 5, []string{"5", "r"}},
			{jetstream.Filter{Namespace: "ns", Session: "s1"}, 0, []string{"1", "3", "5"}},
			{jetstream.Filter{Type: "run.rejected"}, 0, []string{"r"}},
			{jetstream.Filter{Run: "s0-00000001"}, 2, []string{"2", "4"}},
		} {
			watch, stop := context.WithCancel(ctx)
			var got []string
			for record, err := range public.Watch(watch, c.filter, c.after) {
				if err != nil {
					t.Fatal(err)
				}
				if got = append(got, record.ID); len(got) == len(c.want) {
					stop()
				}
			}
			stop()
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("Watch(%+v, %d) = %v, want %v", c.filter, c.after, got, c.want)
			}
		}
	})
}

func TestTheLastPublishedPositionOfEachShardIsFound(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{Shards: 3})
	ctx := within(t)
	public := &jetstream.Public{Conn: conn}
	if positions, err := public.Positions(ctx); err != nil || len(positions) != 0 {
		t.Fatalf("Positions of an empty stream = %v, %v", positions, err)
	}
	publish := func(shard int, sequence uint64) {
		t.Helper()
		e := publicEvent(t, "s", fmt.Sprint(shard, "-", sequence), events.RunStartedData{})
		if err := public.Publish(ctx, e, events.Position{Shard: shard, Sequence: sequence}); err != nil {
			t.Fatal(err)
		}
	}
	publish(1, 4)
	publish(0, 1)
	for i := range uint64(2 * events.MaxRead) {
		publish(0, i+2)
	}
	positions, err := public.Positions(ctx)
	if err != nil || len(positions) != 2 || positions[0] != 2*events.MaxRead+1 || positions[1] != 4 {
		t.Fatalf("Positions = %v, %v", positions, err)
	}
}

func TestAWatchGoesOnWhenServersAreLost(t *testing.T) {
	cluster := jetstreamtest.NewCluster(t)
	conn := jetstreamtest.Open(t, cluster, jetstream.Layout{Shards: 1, Replicas: 3})
	ctx := within(t)
	watch, stop := context.WithCancel(ctx)
	defer stop()
	public := &jetstream.Public{Conn: conn}
	const n = 30
	published := make(chan error, 1)
	go func() {
		published <- func() error {
			for i := range n {
				switch i {
				case 10:
					cluster.StepDown("AGENT_EVENTS")
				case 20:
					cluster.Kill(cluster.LeaderOf("AGENT_EVENTS"))
				}
				e := publicEvent(t, "s", fmt.Sprint(i), events.RunStartedData{})
				err := public.Publish(ctx, e, events.Position{})
				for errors.Is(err, events.ErrUnanswered) && ctx.Err() == nil {
					err = public.Publish(ctx, e, events.Position{})
				}
				if err != nil {
					return err
				}
			}
			return nil
		}()
	}()
	seen := map[string]bool{}
	for record, err := range public.Watch(watch, jetstream.Filter{}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if seen[record.ID] = true; len(seen) == n {
			stop()
		}
	}
	if err := <-published; err != nil || len(seen) != n {
		t.Fatalf("%d of %d events were seen; the publisher: %v", len(seen), n, err)
	}
}
