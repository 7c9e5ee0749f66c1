package jetstream_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
)

// raw returns the client library's view, for changes an operator makes.
func raw(t *testing.T, conn *jetstream.Conn) natsjs.JetStream {
	t.Helper()
	js, err := natsjs.New(conn.NATS())
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func configs(t *testing.T, conn *jetstream.Conn) map[string]natsjs.StreamInfo {
	t.Helper()
	all := map[string]natsjs.StreamInfo{}
	list := raw(t, conn).ListStreams(t.Context())
	for info := range list.Info() {
		all[info.Config.Name] = *info
	}
	if list.Err() != nil {
		t.Fatal(list.Err())
	}
	return all
}

func TestProvisionTwiceChangesNothing(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		before := configs(t, conn)
		if want := 10 + conn.Layout().Shards; len(before) != want {
			t.Fatalf("%d streams were made, want %d", len(before), want)
		}
		if err := conn.Provision(t.Context()); err != nil {
			t.Fatal(err)
		}
		after := configs(t, conn)
		for name, info := range before {
			if !after[name].Created.Equal(info.Created) {
				t.Errorf("stream %s was created twice", name)
			}
		}
		findings, err := conn.Check(t.Context())
		if err != nil {
			t.Error(err)
		}
		if len(findings) < len(before) {
			t.Errorf("%d findings for %d streams", len(findings), len(before))
		}
	})
}

func TestOnlyTruthPaysForASync(t *testing.T) {
	synced := map[string]bool{"AGENT_COMMANDS": true, "AGENT_DEAD": true, "KV_AGENT_DEFINITIONS": true, "KV_AGENT_KEYS": true, "OBJ_AGENT_OBJECTS": true}
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		replicated := conn.Layout().Replicas > 1
		for name, info := range configs(t, conn) {
			c := info.Config
			durable := c.Storage == natsjs.FileStorage && c.PersistMode == natsjs.DefaultPersistMode
			onFile := replicated && (name == "AGENT_EVENTS" || name == "KV_AGENT_SNAPSHOTS")
			if want := synced[name] || strings.HasPrefix(name, "AGENT_LOG_") || onFile; durable != want {
				t.Errorf("stream %s: synced %t, want %t", name, durable, want)
			}
			if !replicated && c.Storage == natsjs.MemoryStorage {
				t.Errorf("stream %s would not survive a restart", name)
			}
		}
	})
}

func TestADriftedStreamIsRefused(t *testing.T) {
	for _, c := range []struct {
		name, stream, setting string
		change                func(*natsjs.StreamConfig)
	}{
		{"facts that age out", "AGENT_LOG_0", "max age", func(c *natsjs.StreamConfig) { c.MaxAge = 3600e9 }},
		{"facts pushed out", "AGENT_LOG_0", "max messages", func(c *natsjs.StreamConfig) { c.MaxMsgs = 5 }},
		{"old facts discarded", "AGENT_LOG_0", "discard", func(c *natsjs.StreamConfig) { c.Discard = natsjs.DiscardOld }},
		{"roll-up", "AGENT_LOG_0", "roll-up", func(c *natsjs.StreamConfig) { c.AllowRollup = true }},
		{"no direct get", "AGENT_LOG_0", "direct get", func(c *natsjs.StreamConfig) { c.AllowDirect = false }},
		{"other subjects", "AGENT_LOG_0", "subjects", func(c *natsjs.StreamConfig) { c.Subjects = []string{"agent.log.0.>"} }},
		{"metadata removed", "AGENT_LOG_0", "shards", func(c *natsjs.StreamConfig) { c.Metadata = nil }},
		{"timers that age out", "AGENT_TIMERS", "max age", func(c *natsjs.StreamConfig) { c.MaxAge = 3600e9 }},
		{"hints pushed out", "AGENT_WORK", "max messages per subject", func(c *natsjs.StreamConfig) { c.MaxMsgsPerSubject = 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{})
			config := configs(t, conn)[c.stream].Config
			c.change(&config)
			if _, err := raw(t, conn).UpdateStream(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			refused(t, conn, "stream "+c.stream, c.setting)
			if got := configs(t, conn)[c.stream].Config; got.MaxAge != config.MaxAge || got.Discard != config.Discard {
				t.Error("the stream was changed")
			}
		})
	}
}

// refused expects both provisioning and the start-up check to name the setting.
func refused(t *testing.T, conn *jetstream.Conn, where, name string) {
	t.Helper()
	_, checked := conn.Check(t.Context())
	for what, err := range map[string]error{"Provision": conn.Provision(t.Context()), "Check": checked} {
		var e *jetstream.SettingError
		if !errors.As(err, &e) || e.Where != where || e.Setting != name {
			t.Errorf("%s = %v; want a complaint about %s of %s", what, err, name, where)
		}
	}
}

func TestWhatIsTheOperatorsIsLeft(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{})
	for name, change := range map[string]func(*natsjs.StreamConfig){
		"AGENT_EVENTS": func(c *natsjs.StreamConfig) { c.MaxAge = 3600e9; c.MaxBytes = 1 << 30 },
		"AGENT_LOG_0":  func(c *natsjs.StreamConfig) { c.Description = "ours"; c.MaxBytes = 1 << 30 },
	} {
		config := configs(t, conn)[name].Config
		change(&config)
		if _, err := raw(t, conn).UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAnotherShardCountIsRefusedAndMakesNothing(t *testing.T) {
	for _, shards := range []int{1, 3} {
		server := jetstreamtest.Server(t)
		jetstreamtest.Open(t, server, jetstream.Layout{Shards: 2})
		conn := jetstreamtest.Connect(t, server, jetstream.Layout{Shards: shards})
		before := len(configs(t, conn))
		refused(t, conn, "stream AGENT_LOG_0", "shards")
		if after := len(configs(t, conn)); after != before {
			t.Errorf("%d streams became %d", before, after)
		}
	}
}

func TestAnAsynchronousLogIsRefused(t *testing.T) {
	server := jetstreamtest.Server(t)
	conn := jetstreamtest.Open(t, server, jetstream.Layout{})
	js := raw(t, conn)
	config := configs(t, conn)["AGENT_LOG_0"].Config
	if err := js.DeleteStream(t.Context(), config.Name); err != nil {
		t.Fatal(err)
	}
	config.PersistMode = natsjs.AsyncPersistMode
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	refused(t, conn, "stream AGENT_LOG_0", "persist mode")
}

func TestALostShardIsNotMadeAnew(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{Shards: 2})
	log := &jetstream.Log{Conn: conn}
	key := events.Key{Namespace: "ns", Session: "s"}
	if _, err := log.Append(t.Context(), key, fact(key, "a", []byte(`1`)), 0); err != nil {
		t.Fatal(err)
	}
	for name, info := range configs(t, conn) {
		if strings.HasPrefix(name, "AGENT_LOG_") && info.State.LastSeq == 0 {
			if err := raw(t, conn).DeleteStream(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	var missing *jetstream.MissingShardError
	if err := conn.Provision(t.Context()); !errors.As(err, &missing) {
		t.Fatalf("Provision = %v", err)
	}
}

func TestAMissingHintStreamIsMadeAnew(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{})
	if err := raw(t, conn).DeleteStream(t.Context(), "AGENT_WORK"); err != nil {
		t.Fatal(err)
	}
	if err := conn.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestProvisioningRacesEndWell(t *testing.T) {
	server := jetstreamtest.Server(t)
	done := make(chan error, 4)
	for range cap(done) {
		conn := jetstreamtest.Connect(t, server, jetstream.Layout{})
		go func() { done <- conn.Provision(context.Background()) }()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestAnExternalServersSyncIsUnverifiable(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.NewCluster(t), jetstream.Layout{Shards: 1, Replicas: 3})
	findings, err := conn.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if want := f.Setting == "sync_interval"; want != (f.Verdict == jetstream.Unverifiable) {
			t.Errorf("%s of %s is %s", f.Setting, f.Where, f.Verdict)
		}
	}
}

func TestReplicasThatAreNotThereAreSaidAtOnce(t *testing.T) {
	conn := jetstreamtest.Connect(t, jetstreamtest.Server(t), jetstream.Layout{Replicas: 3})
	err := conn.Provision(t.Context())
	if err == nil {
		t.Fatal("one server made three replicas")
	}
	oneLine(t, err, "AGENT_LOG_0", "3 replicas")
}

func TestANegativeLayoutIsRefused(t *testing.T) {
	if _, err := jetstreamtest.Server(t).Connect(jetstream.Config{Layout: jetstream.Layout{Shards: -1}}); err == nil {
		t.Fatal("connected")
	}
}

func TestTheStoredShardCountIsTakenWhereNoneIsConfigured(t *testing.T) {
	server := jetstreamtest.Server(t)
	jetstreamtest.Open(t, server, jetstream.Layout{Shards: 3})
	conn := jetstreamtest.Connect(t, server, jetstream.Layout{})
	if _, err := conn.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := conn.Provision(t.Context()); err != nil {
		t.Error(err)
	}
	if n := conn.Layout().Shards; n != 3 {
		t.Errorf("the layout has %d shards", n)
	}
}
