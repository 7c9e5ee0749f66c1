package host

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/scripted"
)

// patience bounds every wait. A test that reaches it fails.
const patience = 30 * time.Second

// system is a NATS server and the connections of this process to it. The server
// can be started anew with the data it had.
type system struct {
	t      testing.TB
	folder string
	server *jetstream.Embedded
	conn   *jetstream.Conn
}

func newSystem(t testing.TB) *system {
	t.Helper()
	s := &system{t: t, folder: filepath.Join(t.TempDir(), "nats")}
	s.begin()
	t.Cleanup(func() { s.end() })
	return s
}

func (s *system) begin() {
	s.t.Helper()
	s.server = &jetstream.Embedded{StoreDir: s.folder}
	if err := s.server.Start(); err != nil {
		s.t.Fatal(err)
	}
	conn, err := s.server.Connect(jetstream.Config{Name: s.t.Name()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.conn = conn
	if err := conn.Provision(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *system) end() {
	s.conn.Close()
	s.server.Shutdown()
}

// stream opens a stream as an operator would.
func (s *system) stream(name string) natsjs.Stream {
	s.t.Helper()
	js, err := natsjs.New(s.conn.NATS())
	if err != nil {
		s.t.Fatal(err)
	}
	stream, err := js.Stream(s.t.Context(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	return stream
}

// purge loses everything that a stream holds.
func (s *system) purge(name string) {
	s.t.Helper()
	if err := s.stream(name).Purge(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// remove loses a stream as a whole.
func (s *system) remove(name string) {
	s.t.Helper()
	s.stream(name) // it is there
	if _, err := s.conn.NATS().Request("$JS.API.STREAM.DELETE."+name, nil, patience); err != nil {
		s.t.Fatal(err)
	}
}

// held returns how many messages a stream holds.
func (s *system) held(name string) uint64 {
	s.t.Helper()
	info, err := s.stream(name).Info(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return info.State.Msgs
}

// echo completes with what it was told.
const echo = "responses:\n  - calls: [{ name: complete, arguments: { kind: output, output: $message } }]\n"

// noScripts is for agents that run none.
type noScripts struct{}

// NewExecutor implements runtime.ExecutorFactory.
func (noScripts) Describe() string { return "Runs no script." }

func (noScripts) NewExecutor(context.Context) (runtime.Executor, error) {
	return nil, errors.New("there are no scripts here")
}

// journal is what a host has logged.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// String returns what was logged.
func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// host puts a host together that knows the agent echo.
func (s *system) host() (*Host, *journal) {
	s.t.Helper()
	model, err := scripted.Parse("echo", []byte(echo))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.hostOf("w", &Models{Scripts: map[string]*scripted.Model{"echo": model}}, events.AgentDefinition{Slug: "echo", Instructions: "Repeat.", Model: "scripted/echo"})
}

// hostOf puts a host together, for a worker of that name, that knows agents.
func (s *system) hostOf(worker string, models handlers.Models, agents ...events.AgentDefinition) (*Host, *journal) {
	s.t.Helper()
	var log journal
	h := New(Options{Conn: s.conn, Logger: slog.New(slog.NewTextHandler(&log, nil)), Meter: handlers.NoMeter{}, Redactor: handlers.NewSecrets([]string{"hunter2"}),
		Models: models, Executors: noScripts{}, Version: "1.0.0", Worker: worker + "//" + s.t.Name(), TTL: 2 * time.Second, Sweep: time.Hour})
	for _, a := range agents {
		if _, err := h.Apply(s.t.Context(), "default", &handlers.Version{Agent: a}); err != nil {
			s.t.Fatal(err)
		}
	}
	return h, &log
}

// run plays the host until stop is called, or the test ends.
func (s *system) run(h *Host) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx, context.Background()) }()
	<-h.Ready()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("the host ended: %v", err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

// command returns a command to start the agent echo.
func command(t testing.TB, id, message string) *events.Event {
	t.Helper()
	e, err := events.New(events.StartRun{Agent: "echo", Message: message})
	if err != nil {
		t.Fatal(err)
	}
	e.ID, e.Source = id, "/test"
	return &e
}

// told waits until a run's end is told and returns the ids of its public events
// from a sequence on.
func (s *system) told(run string, after uint64) []string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var ids []string
	for r, err := range (&jetstream.Public{Conn: s.conn}).Watch(ctx, jetstream.Filter{Run: run}, after) {
		if err != nil {
			s.t.Fatal(err)
		}
		ids = append(ids, r.ID)
		if r.Type == events.TypeFor[events.RunCompletedData]().Name {
			return ids
		}
	}
	s.t.Fatalf("waited %s for the end of run %s", patience, run)
	return nil
}

// settled waits until a shard's reactions have caught up.
func (s *system) settled(h *Host) {
	s.t.Helper()
	r := &jetstream.Reaction{Conn: s.conn, Name: reactionName}
	jetstreamtest.Eventually(s.t, "the reactions to be acknowledged", func() bool {
		floor, err := r.Acknowledged(s.t.Context())
		info, infoErr := s.stream("AGENT_LOG_0").Info(s.t.Context())
		return err == nil && infoErr == nil && floor == info.State.LastSeq
	})
}
