package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
)

// within bounds a test that waits for messages.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestAHintIsHandedOutUntilItIsAcknowledged(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		ctx := within(t)
		work := &jetstream.Work{Conn: conn, TTL: time.Second}
		hint := events.Hint{Key: events.Key{Namespace: "ns", Session: "s"}, Sequence: 7}
		if err := work.Publish(ctx, hint); err != nil {
			t.Fatal(err)
		}
		for delivery := uint64(1); delivery <= 3; delivery++ {
			item, err := work.Next(ctx)
			if err != nil || item.Hint != hint || item.Deliveries != delivery {
				t.Fatalf("delivery %d: %+v, %v", delivery, item, err)
			}
			switch delivery {
			case 1: // the worker dies: the item comes back after the TTL
			case 2:
				if err := item.InProgress(); err != nil {
					t.Fatal(err)
				}
				if err := item.Later(time.Millisecond); err != nil {
					t.Fatal(err)
				}
			case 3:
				if err := item.Ack(); err != nil {
					t.Fatal(err)
				}
			}
		}
		jetstreamtest.Eventually(t, "the queue to be empty", func() bool { return configs(t, conn)["AGENT_WORK"].State.Msgs == 0 })
	})
}

func TestEveryHintOfASessionIsKept(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{})
	ctx := within(t)
	work := &jetstream.Work{Conn: conn}
	key := events.Key{Namespace: "ns", Session: "s"}
	for n := range 3 {
		if err := work.Publish(ctx, events.Hint{Key: key, Sequence: uint64(n)}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 3 {
		item, err := work.Next(ctx)
		if err != nil || item.Sequence != uint64(n) {
			t.Fatalf("hint %d: %+v, %v", n, item, err)
		}
		if err := item.Ack(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAForeignHintIsTakenAsFarAsItGoes(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{})
	for _, subject := range []string{"agent.work.ns.-no", "agent.work.ns.s"} {
		if err := conn.NATS().Publish(subject, []byte("no json")); err != nil {
			t.Fatal(err)
		}
	}
	item, err := (&jetstream.Work{Conn: conn}).Next(within(t))
	if err != nil || item.Key != (events.Key{Namespace: "ns", Session: "s"}) || item.Sequence != 0 {
		t.Fatalf("Next = %+v, %v", item, err)
	}
}

func TestALostQueueIsSaidAndWorksAgainOnceMade(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{})
	ctx := within(t)
	work := &jetstream.Work{Conn: conn}
	hint := events.Hint{Key: events.Key{Namespace: "ns", Session: "s"}}
	if err := work.Publish(ctx, hint); err != nil {
		t.Fatal(err)
	}
	if _, err := work.Next(ctx); err != nil {
		t.Fatal(err)
	}
	if err := raw(t, conn).DeleteStream(ctx, "AGENT_WORK"); err != nil {
		t.Fatal(err)
	}
	if _, err := work.Next(ctx); !errors.Is(err, events.ErrNotFound) {
		t.Fatalf("Next = %v", err)
	}
	if err := conn.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	if err := work.Publish(ctx, hint); err != nil {
		t.Fatal(err)
	}
	if item, err := work.Next(ctx); err != nil || item.Hint != hint {
		t.Fatalf("Next = %+v, %v", item, err)
	}
}

func TestWorkersShareTheQueueAcrossLostServers(t *testing.T) {
	cluster := jetstreamtest.NewCluster(t)
	conn := jetstreamtest.Open(t, cluster, jetstream.Layout{Shards: 1, Replicas: 3})
	ctx := within(t)
	work := &jetstream.Work{Conn: conn, TTL: time.Second}
	const n = 40
	publish := func(i int) {
		hint := events.Hint{Key: events.Key{Namespace: "ns", Session: fmt.Sprintf("s%d", i)}}
		for {
			err := work.Publish(ctx, hint)
			if err == nil {
				return
			}
			if !errors.Is(err, events.ErrUnanswered) {
				t.Error(err)
				return
			}
		}
	}
	seen := make(chan string)
	for range 3 {
		go func() {
			mine := &jetstream.Work{Conn: conn, TTL: time.Second}
			for {
				item, err := mine.Next(ctx)
				if err != nil {
					return
				}
				if item.Ack() == nil {
					select {
					case seen <- item.Key.Session:
					case <-ctx.Done():
						return
					}
				}
			}
		}()
	}
	go func() {
		for i := range n {
			switch i {
			case 10:
				cluster.StepDown("AGENT_WORK")
			case 20:
				cluster.Kill(cluster.LeaderOf("AGENT_WORK"))
			}
			publish(i)
		}
	}()
	sessions := map[string]bool{}
	for len(sessions) < n {
		select {
		case s := <-seen:
			sessions[s] = true
		case <-ctx.Done():
			t.Fatalf("%d of %d hints were handed out", len(sessions), n)
		}
	}
}

func TestACommandComesAsItWasSent(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		ctx := within(t)
		commands := &jetstream.Commands{Conn: conn}
		command, err := events.New(events.StartRun{Agent: "a", Message: "hello"})
		if err != nil {
			t.Fatal(err)
		}
		command.ID, command.Source = "1", "/shop"
		if err := commands.Publish(ctx, "ns", &command); err != nil {
			t.Fatal(err)
		}
		foreign := nats.NewMsg("agent.cmd.other.run.do.what")
		foreign.Header.Set("Nats-Msg-Id", "x")
		foreign.Data = []byte("anything")
		if err := conn.NATS().PublishMsg(foreign); err != nil {
			t.Fatal(err)
		}
		first, err := commands.Next(ctx)
		if err != nil || first.Namespace != "ns" || first.Name != "run.start" || first.Sequence != 1 {
			t.Fatalf("Next = %+v, %v", first, err)
		}
		got, err := events.Decode(first.Header, first.Data)
		if err != nil || got.Source != command.Source || string(got.Data) != string(command.Data) {
			t.Fatalf("Decode = %+v, %v", got, err)
		}
		second, err := commands.Next(ctx)
		if err != nil || second.Namespace != "other" || second.Name != "run.do.what" || string(second.Data) != "anything" {
			t.Fatalf("Next = %+v, %v", second, err)
		}
		for _, c := range []jetstream.Command{first, second} {
			if err := c.Ack(); err != nil {
				t.Fatal(err)
			}
		}
		if err := commands.Publish(ctx, "ns", &events.Event{Type: "dev.agentruntime.run.completed"}); err == nil {
			t.Fatal("a public event was published as a command")
		}
	})
}

func TestATimerFiresOnceItsTimeHasCome(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		ctx := within(t)
		timers := &jetstream.Timers{Conn: conn}
		run := func(s string) string { return s + "-00000001" }
		at := time.Now().Add(1500 * time.Millisecond)
		arm := func(session string, kind jetstream.TimerKind, call string, at time.Time) jetstream.Timer {
			timer := jetstream.Timer{Namespace: "ns", Run: run(session), Kind: kind, CallID: call, At: at}
			if err := timers.Arm(ctx, timer); err != nil {
				t.Fatal(err)
			}
			return timer
		}
		cancelled := arm("cancelled", jetstream.TimerWait, "c0", time.Now().Add(time.Second))
		arm("replaced", jetstream.TimerWait, "c2", time.Now().Add(time.Hour))
		arm("replaced", jetstream.TimerWait, "c1", time.Now().Add(time.Hour)) // of another call, replaces none
		want := map[string]jetstream.Timer{}
		for _, timer := range []jetstream.Timer{
			arm("replaced", jetstream.TimerWait, "c2", at),
			arm("replaced", jetstream.TimerDeadline, "", at),
			arm("late", jetstream.TimerWait, "c3", time.Now().Add(-time.Hour)),
		} {
			want[timer.Run+string(timer.Kind)] = timer
		}
		if err := timers.Cancel(ctx, cancelled); err != nil {
			t.Fatal(err)
		}
		if err := timers.Cancel(ctx, jetstream.Timer{Namespace: "ns", Run: run("never"), Kind: jetstream.TimerWait, CallID: "c0"}); err != nil {
			t.Fatalf("cancel without a timer: %v", err)
		}
		for len(want) > 0 {
			fired, err := timers.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			timer := want[fired.Run+string(fired.Kind)]
			if fired.CallID != timer.CallID || !fired.At.Equal(timer.At) || fired.Namespace != "ns" {
				t.Fatalf("%+v fired, want %+v", fired, timer)
			}
			if early := time.Until(timer.At); early > 0 {
				t.Errorf("%+v fired %s early", fired.Timer, early)
			}
			delete(want, fired.Run+string(fired.Kind))
			if err := fired.Ack(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestPendingTimersSurviveARestart(t *testing.T) {
	folder := t.TempDir()
	timer := jetstream.Timer{Namespace: "ns", Run: "s-00000001", Kind: jetstream.TimerWait, At: time.Now().Add(time.Second)}
	for i := range 2 {
		e := &jetstream.Embedded{StoreDir: folder}
		if err := e.Start(); err != nil {
			t.Fatal(err)
		}
		timers := &jetstream.Timers{Conn: jetstreamtest.Open(t, e, jetstream.Layout{})}
		if i == 0 {
			if err := timers.Arm(within(t), timer); err != nil {
				t.Fatal(err)
			}
		} else if fired, err := timers.Next(within(t)); err != nil || fired.Run != timer.Run {
			t.Fatalf("Next = %+v, %v", fired, err)
		}
		e.Shutdown()
	}
}
