package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"go.yaml.in/yaml/v3"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/cli"
	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/host"
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/scripted"
)

const deploy = "../../deploy"

// The roles of the shipped accounts.
const (
	provisioner = "provisioner"
	worker      = "worker"
	capability  = "capability"
	operator    = "operator"
	application = "application"
)

var roles = []string{provisioner, worker, capability, operator, application}

// patience bounds every wait. A test that reaches it fails.
const patience = 60 * time.Second

// system is the shipped configuration, running.
type system struct {
	t       *testing.T
	url     string
	layout  jetstream.Layout
	servers []*server.Server
}

// setPasswords gives every role a password that is its name, spelt longer.
func setPasswords(t *testing.T) {
	for _, role := range append(slices.Clone(roles), "route") {
		t.Setenv("NATS_"+strings.ToUpper(role)+"_PASSWORD", passwordOf(role))
	}
}

func passwordOf(role string) string { return "secret-of-" + role }

// load reads a shipped configuration and moves it to where a test may be.
func load(t *testing.T, file, node string) *server.Options {
	t.Helper()
	t.Setenv("NATS_NODE", node)
	o, err := server.ProcessConfigFile(filepath.Join(deploy, "nats", file))
	if err != nil {
		t.Fatalf("load %s: %v", file, err)
	}
	if !o.SyncAlways {
		t.Errorf("%s: an acknowledged message is not on the disk: sync_interval is not always", file)
	}
	if o.ServerName != node {
		t.Errorf("%s: the server is called %q, want the name in NATS_NODE, %q", file, o.ServerName, node)
	}
	o.Host, o.Port, o.HTTPPort = "127.0.0.1", server.RANDOM_PORT, 0
	o.StoreDir, o.NoSigs, o.NoLog = t.TempDir(), true, true
	return o
}

// single starts single.conf.
func single(t *testing.T) *system {
	setPasswords(t)
	s := &system{t: t, layout: jetstream.Layout{Shards: 8, Replicas: 1}}
	s.start([]*server.Options{load(t, "single.conf", "node")})
	return s
}

// cluster starts cluster.conf three times.
func cluster(t *testing.T) *system {
	setPasswords(t)
	ports, routes := freePorts(t, 3), []string{}
	for _, port := range ports {
		routes = append(routes, fmt.Sprintf("%q", fmt.Sprintf("nats-route://route:%s@127.0.0.1:%d", passwordOf("route"), port)))
	}
	t.Setenv("NATS_ROUTES", "["+strings.Join(routes, ", ")+"]")
	var all []*server.Options
	for i, port := range ports {
		o := load(t, "cluster.conf", "node-"+strconv.Itoa(i+1))
		if len(o.Routes) != 3 {
			t.Fatalf("cluster.conf: %d routes, want those of NATS_ROUTES", len(o.Routes))
		}
		o.Cluster.Host, o.Cluster.Port = "127.0.0.1", port
		all = append(all, o)
	}
	s := &system{t: t, layout: jetstream.Layout{Shards: 8, Replicas: 3}}
	s.start(all)
	return s
}

func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func (s *system) start(all []*server.Options) {
	s.t.Helper()
	for _, o := range all {
		node, err := server.NewServer(o)
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { node.Shutdown(); node.WaitForShutdown() })
		node.Start()
		s.servers = append(s.servers, node)
	}
	for _, node := range s.servers {
		if !node.ReadyForConnections(patience) {
			s.t.Fatal("a server of the shipped configuration does not serve")
		}
	}
	s.url = s.servers[0].ClientURL()
}

// client is a connection of one role. What the server refuses it arrives in
// refused.
type client struct {
	*jetstream.Conn
	t       *testing.T
	role    string
	refused chan string
}

func (s *system) connect(role string) *client {
	s.t.Helper()
	conn, err := jetstream.Connect(jetstream.Config{Servers: s.url, Name: role, User: role, Password: passwordOf(role),
		InboxPrefix: "_INBOX_" + role, Layout: s.layout})
	if err != nil {
		s.t.Fatalf("connect as %s: %v", role, err)
	}
	s.t.Cleanup(conn.Close)
	c := &client{conn, s.t, role, make(chan string, 1000)}
	conn.NATS().SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.refused <- err.Error() })
	return c
}

// mayNotPublish fails the test unless the server refuses the subject.
func (c *client) mayNotPublish(subject string) {
	c.t.Helper()
	if err := c.NATS().Publish(subject, nil); err != nil {
		c.t.Fatal(err)
	}
	c.awaitRefusal("Publish to " + strconv.Quote(subject))
}

// mayNotSubscribe fails the test unless the server refuses the subject.
func (c *client) mayNotSubscribe(subject string) {
	c.t.Helper()
	if _, err := c.NATS().SubscribeSync(subject); err != nil {
		c.t.Fatal(err)
	}
	c.awaitRefusal("Subscription to " + strconv.Quote(subject))
}

// awaitRefusal waits for the server's word on what was just sent. After the
// server has answered a ping, a refusal can only be on its way to the handler.
func (c *client) awaitRefusal(what string) {
	c.t.Helper()
	if err := c.NATS().Flush(); err != nil {
		c.t.Fatal(err)
	}
	select {
	case got := <-c.refused:
		if !strings.Contains(strings.ToLower(got), strings.ToLower(what)) {
			c.t.Errorf("%s: refused %q, want a refusal of %s", c.role, got, what)
		}
	case <-time.After(5 * time.Second):
		c.t.Errorf("%s: may do what it must not: %s", c.role, what)
	}
}

// wasNeverRefused fails the test if the server has refused the role anything.
func (c *client) wasNeverRefused() {
	c.t.Helper()
	if err := c.NATS().Flush(); err != nil {
		c.t.Fatal(err)
	}
	select {
	case got := <-c.refused:
		c.t.Errorf("%s lacks a permission: %s", c.role, got)
	default:
	}
}

// provision makes the streams, and the consumer of the application, as
// deploy/README.md tells an operator to.
func (s *system) provision(ctx context.Context) {
	s.t.Helper()
	c := s.connect(provisioner)
	if err := c.Provision(ctx); err != nil {
		s.t.Fatal(err)
	}
	js, err := natsjs.New(c.NATS())
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := js.CreateConsumer(ctx, "AGENT_EVENTS", natsjs.ConsumerConfig{Durable: application,
		FilterSubject: "agent.event.default.>", AckPolicy: natsjs.AckExplicitPolicy, MaxDeliver: -1}); err != nil {
		s.t.Fatal(err)
	}
	c.wasNeverRefused()
	for _, subject := range []string{"agent.log.0.default.s", "agent.cmd.default.run.start", "agent.event.default.run_completed.s.r", "agent.api.default.run.list", "svc.a"} {
		c.mayNotPublish(subject)
	}
	c.mayNotSubscribe("agent.>")
}

// The shipped settings are tried as they stand, each role with the work it does
// and with the work it must not be able to do.
func TestShippedNATSSettingsLetEachRoleDoItsWorkAndNoMore(t *testing.T) {
	for name, start := range map[string]func(*testing.T) *system{"single.conf": single, "cluster.conf": cluster} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s := start(t)
			s.provision(ctx)
			w := s.connect(worker)
			runHost(ctx, w)
			s.operate(ctx)
			s.apply(ctx)
			s.askCapability(ctx, w)
			s.settleLater(ctx)
			w.keepsWhatAHostKeeps(ctx)
			w.wasNeverRefused()
			w.stays()
			s.useAsOperator()
		})
	}
}

// script ends a run at its first step.
const script = `{"responses": [{"calls": [{"name": "complete", "arguments": {"kind": "output", "output": "done"}}]}]}`

// asks calls desk.approve first.
const asks = `{"responses": [{"calls": [{"name": "desk_approve", "arguments": {}}]}, {"calls": [{"name": "complete", "arguments": {"kind": "output", "output": "done"}}]}]}`

// noScripts refuses to run a script: no run of these tests has one.
type noScripts struct{}

func (noScripts) Describe() string { return "Runs no script." }

func (noScripts) NewExecutor(context.Context) (runtime.Executor, error) {
	return nil, errors.New("no scripts here")
}

// runHost runs a worker's host until the test ends.
func runHost(ctx context.Context, w *client) {
	w.t.Helper()
	if err := w.Provision(ctx); err != nil { // as serve does; nothing is missing
		w.t.Fatal(err)
	}
	if _, err := w.Check(ctx); err != nil {
		w.t.Fatal(err)
	}
	models := map[string]*scripted.Model{}
	for name, text := range map[string]string{"once": script, "asks": asks} {
		model, err := scripted.Parse(name, []byte(text))
		if err != nil {
			w.t.Fatal(err)
		}
		models[name] = model
	}
	h := host.New(host.Options{Conn: w.Conn, Logger: slog.New(slog.NewTextHandler(w.t.Output(), nil)), Meter: handlers.NoMeter{}, Redactor: handlers.Secrets{},
		Models: &host.Models{Scripts: models}, Version: "1.0.0", Worker: "worker",
		Executors: noScripts{}})
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- h.Run(life, life) }()
	w.t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			w.t.Errorf("the host ended: %v", err)
		}
	})
	<-h.Ready()
}

// operate applies the agent and follows what follows, as the command line does.
func (s *system) operate(ctx context.Context) {
	s.t.Helper()
	o := s.connect(operator)
	definition, err := json.Marshal(handlers.Version{Agent: events.AgentDefinition{Slug: "once", Instructions: "Answer.", Model: "scripted/once"}})
	if err != nil {
		s.t.Fatal(err)
	}
	o.ask(ctx, "agent.api.default.agents.apply", definition)
	if _, err := o.Check(ctx); err != nil {
		s.t.Errorf("an operator cannot look at the settings: %v", err)
	}
	o.wasNeverRefused()
}

// ask makes one request, again while nobody serves it yet.
func (c *client) ask(ctx context.Context, subject string, data []byte) []byte {
	c.t.Helper()
	answer, err := c.Request(ctx, subject, nil, data)
	for errors.Is(err, jetstream.ErrNoService) && ctx.Err() == nil { // servers tell each other in a moment
		answer, err = c.Request(ctx, subject, nil, data)
	}
	if err != nil {
		c.t.Fatalf("%s: %v", c.role, err)
	}
	return answer
}

// apply is the application of namespace default: it starts a run, reads the
// completion from its consumer and live, and gets nothing else.
func (s *system) apply(ctx context.Context) {
	t := s.t
	a := s.connect(application)
	live, err := a.NATS().SubscribeSync("agent.event.default.run_completed.>")
	if err != nil {
		t.Fatal(err)
	}
	// The answer to a command must not end up where its sender says. The
	// server would append it to the log.
	if err := a.NATS().PublishMsg(&nats.Msg{Subject: "agent.cmd.default.run.start", Reply: "agent.log.0.default.victim", Data: []byte("no event")}); err != nil {
		t.Fatal(err)
	}
	if err := a.NATS().PublishMsg(&nats.Msg{Subject: "agent.api.default.run.list", Reply: "agent.log.0.default.victim"}); err != nil {
		t.Fatal(err)
	}
	start, err := events.New(events.StartRun{Agent: "once", Message: "Do it."})
	if err != nil {
		t.Fatal(err)
	}
	start.ID, start.Source = "first", "/test"
	if err := (&jetstream.Commands{Conn: a.Conn}).Publish(ctx, "default", &start); err != nil {
		t.Fatalf("start a run as the application: %v", err)
	}
	js, err := natsjs.New(a.NATS())
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := js.Consumer(ctx, "AGENT_EVENTS", application)
	if err != nil {
		t.Fatalf("read events as the application: %v", err)
	}
	for completed := false; !completed; {
		m, err := consumer.Next(natsjs.FetchContext(ctx))
		if err != nil {
			t.Fatalf("wait for the completion as the application: %v", err)
		}
		if strings.HasPrefix(m.Subject(), "agent.event.default.run_failed.") {
			t.Fatalf("the run failed: %s", m.Data())
		}
		completed = strings.HasPrefix(m.Subject(), "agent.event.default.run_completed.")
		if err := m.DoubleAck(ctx); err != nil {
			t.Fatalf("acknowledge an event as the application: %v", err)
		}
	}
	if _, err := live.NextMsgWithContext(ctx); err != nil {
		t.Errorf("the completion did not arrive live: %v", err)
	}
	jetstreamtest.Eventually(t, "the application to be shown the list of runs", func() bool {
		answer, err := a.NATS().RequestWithContext(ctx, "agent.api.default.run.list", nil)
		return err == nil && answer.Header.Get(micro.ErrorCodeHeader) == ""
	})
	a.wasNeverRefused()
	victim := events.Key{Namespace: "default", Session: "victim"}
	for shard := range s.layout.Shards {
		if list := s.subjectsOf(ctx, "AGENT_LOG_"+strconv.Itoa(shard)); slices.ContainsFunc(list, func(subject string) bool { return strings.HasSuffix(subject, victim.Session) }) {
			t.Error("an application has made the server append an answer to the log")
		}
	}
	a.mayNotReachOthers()
}

// subjectsOf lists a stream's subjects.
func (s *system) subjectsOf(ctx context.Context, stream string) (list []string) {
	s.t.Helper()
	js, err := natsjs.New(s.connect(provisioner).NATS())
	if err != nil {
		s.t.Fatal(err)
	}
	handle, err := js.Stream(ctx, stream)
	if err != nil {
		s.t.Fatal(err)
	}
	info, err := handle.Info(ctx, natsjs.WithSubjectFilter(">"))
	if err != nil {
		s.t.Fatal(err)
	}
	for subject := range info.State.Subjects {
		list = append(list, subject)
	}
	return list
}

func (c *client) mayNotReachOthers() {
	c.t.Helper()
	for _, subject := range []string{
		"agent.log.0.default.s", "agent.budget.0.default.s", "agent.work.default.s", "agent.dead.default.reason", "agent.signal.default.s",
		"agent.event.default.run_completed.s.r", "agent.timer.default.r.wait", "agent.fired.default.r.wait",
		"agent.cmd.other.run.start", "agent.api.other.run.list", "agent.api.default.session.erase",
		"agent.api.default.call.settle", "agent.api.default.call.resolve", "agent.cmd.default.call.resolve", "svc.a", "sample.a", "$KV.AGENT_KEYS.default.s", "$KV.AGENT_DEFINITIONS.default.latest.a",
		"$JS.API.STREAM.INFO.AGENT_LOG_0", "$JS.API.STREAM.MSG.GET.AGENT_EVENTS", "$JS.API.DIRECT.GET.AGENT_EVENTS",
		"$JS.API.CONSUMER.CREATE.AGENT_EVENTS", "$JS.API.CONSUMER.CREATE.AGENT_EVENTS.mine", "$JS.API.CONSUMER.CREATE.AGENT_EVENTS.mine.agent.event.default.>",
		"$JS.API.CONSUMER.DURABLE.CREATE.AGENT_EVENTS.mine", "$JS.API.CONSUMER.MSG.NEXT.AGENT_EVENTS.other", "$JS.API.CONSUMER.CREATE.AGENT_EVENTS.other.agent.event.other.>",
	} {
		c.mayNotPublish(subject)
	}
	c.mayNotChangeStreams("AGENT_EVENTS")
	for _, subject := range []string{">", "agent.>", "agent.event.>", "agent.event.other.>", "agent.log.>", "_INBOX.>", "_INBOX_worker.>", "_R_.>"} {
		c.mayNotSubscribe(subject)
	}
}

// mayNotChangeStreams holds that a role cannot change a stream or what it
// holds.
func (c *client) mayNotChangeStreams(stream string) {
	c.t.Helper()
	for _, verb := range []string{"CREATE", "UPDATE", "DELETE", "PURGE", "SNAPSHOT", "RESTORE", "MSG.DELETE", "PEER.REMOVE", "LEADER.STEPDOWN"} {
		c.mayNotPublish("$JS.API.STREAM." + verb + "." + stream)
	}
}

// askCapability serves a capability and asks it as the worker does.
func (s *system) askCapability(ctx context.Context, w *client) {
	t := s.t
	c := s.connect(capability)
	for _, subject := range []string{"sample.desk.find", "svc.desk.find"} {
		if _, err := c.NATS().Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte(`{"found": true}`)) }); err != nil {
			t.Fatal(err)
		}
		if err := c.NATS().Flush(); err != nil {
			t.Fatal(err)
		}
		if got := w.ask(ctx, subject, []byte(`{}`)); string(got) != `{"found": true}` {
			t.Errorf("the capability answered %s", got)
		}
	}
	c.wasNeverRefused()
	for _, subject := range []string{"agent.event.default.run_completed.s.r", "agent.log.0.default.s", "agent.cmd.default.run.start", "agent.cmd.default.call.resolve", "agent.api.default.call.settle", "agent.api.default.run.list", "sample.desk.find", "$JS.API.INFO"} {
		c.mayNotPublish(subject)
	}
	c.mayNotChangeStreams("AGENT_EVENTS")
	for _, subject := range []string{">", "agent.event.>", "agent.api.>", "_INBOX.>", "_INBOX_worker.>"} {
		c.mayNotSubscribe(subject)
	}
}

// settleLater serves a deferred capability, as a service that settles its calls
// itself and has no other right.
func (s *system) settleLater(ctx context.Context) {
	t := s.t
	c, o, a := s.connect(capability), s.connect(operator), s.connect(application)
	definition, err := json.Marshal(handlers.Version{
		Agent: events.AgentDefinition{Slug: "asker", Instructions: "Ask.", Model: "scripted/asks", Capabilities: []string{"desk.approve"}},
		Capabilities: []events.Capability{{Name: "desk.approve", Description: "Approves.", Effect: events.EffectWrite, Expose: events.ExposeTool, Deferred: true,
			Route: events.Route{NATS: &events.NATSRoute{Subject: "svc.desk.approve"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	o.ask(ctx, "agent.api.default.agents.apply", definition)
	ended, err := a.NATS().SubscribeSync("agent.event.default.run_completed.>")
	if err != nil {
		t.Fatal(err)
	}
	asked, err := c.NATS().SubscribeSync("svc.desk.approve")
	if err != nil {
		t.Fatal(err)
	}
	for _, nc := range []*client{a, c} {
		if err := nc.NATS().Flush(); err != nil {
			t.Fatal(err)
		}
	}
	a.ask(ctx, "agent.api.default.run.start", []byte(`{"agent":"asker","message":"Ask."}`))
	m, err := asked.NextMsgWithContext(ctx)
	if err != nil {
		t.Fatalf("wait for the request as the service: %v", err)
	}
	if err := m.Respond([]byte(`{"accepted": true}`)); err != nil {
		t.Fatal(err)
	}
	settle, err := events.New(events.SettleCall{Run: m.Header.Get(handlers.HeaderRun), Call: m.Header.Get(handlers.HeaderCall), Token: m.Header.Get(handlers.HeaderSettle), Output: json.RawMessage(`"yes"`)})
	if err != nil {
		t.Fatal(err)
	}
	settle.ID, settle.Source = "yes", "/desk"
	if err := (&jetstream.Commands{Conn: c.Conn}).Publish(ctx, "default", &settle); err != nil {
		t.Fatalf("settle a call as the service: %v", err)
	}
	if _, err := ended.NextMsgWithContext(ctx); err != nil {
		t.Errorf("the run did not complete after its call was settled: %v", err)
	}
	for _, nc := range []*client{a, c, o} {
		nc.wasNeverRefused()
	}
}

// keepsWhatAHostKeeps tries what a run of one step does not lead to.
func (c *client) keepsWhatAHostKeeps(ctx context.Context) {
	t, key := c.t, events.Key{Namespace: "default", Session: "kept"}
	try := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("a worker cannot %s: %v", what, err)
		}
	}
	objects := &jetstream.Objects{Conn: c.Conn}
	hash, err := objects.Put(ctx, []byte(strings.Repeat("large ", 100_000)))
	try("store an object", err)
	_, err = objects.Get(ctx, hash)
	try("read an object", err)

	snapshots := &jetstream.Snapshots{Conn: c.Conn}
	try("store a snapshot", snapshots.Put(ctx, key, []byte(`{}`)))

	keys := &jetstream.Keys{Conn: c.Conn}
	try("store a session's key", keys.Create(ctx, key, []byte("wrapped")))
	try("erase it", keys.Erase(ctx, key))

	timers := &jetstream.Timers{Conn: c.Conn}
	run := events.RunFor(key.Namespace, key.Session, "/test", "timer")
	timer := jetstream.Timer{Namespace: key.Namespace, Run: run, Kind: jetstream.TimerDeadline, At: time.Now()}
	try("arm a timer", timers.Arm(ctx, timer)) // the host takes it when it fires
	try("cancel a timer", timers.Cancel(ctx, timer))

	ledger := &jetstream.Log{Conn: c.Conn, Family: jetstream.FamilyBudget}
	entry, err := events.New(events.CommandAccepted{})
	try("make a ledger entry", err)
	entry.ID, entry.Source, entry.Namespace, entry.Session = "one", "/test", key.Namespace, run
	_, err = ledger.AppendUnfenced(ctx, events.Key{Namespace: key.Namespace, Session: run}, &entry)
	try("append to a ledger", err)

	reaction := &jetstream.Reaction{Conn: c.Conn, Name: "reactions", Shard: 0}
	try("rewind its reactions", reaction.Rewind(ctx, 1))
	signals := &jetstream.Signals{Conn: c.Conn}
	stop, err := signals.Listen(key, func() {})
	try("listen for signals", err)
	try("send a signal", signals.Send(key))
	if stop != nil {
		stop()
	}
	dead := &jetstream.Dead{Conn: c.Conn}
	try("put a dead letter", dead.Put(ctx, jetstream.Letter{Namespace: "default", Reason: "test", Subject: "s"}))
	for _, err := range (&jetstream.Log{Conn: c.Conn}).Sessions(ctx, "") {
		try("list sessions", err)
	}
	public := &jetstream.Public{Conn: c.Conn}
	_, err = public.Positions(ctx)
	try("find its position in the public events", err)
}

// stays holds that a worker cannot undo what it has written.
func (c *client) stays() {
	for _, stream := range []string{"AGENT_LOG_0", "AGENT_COMMANDS", "KV_AGENT_DEFINITIONS", "OBJ_AGENT_OBJECTS"} {
		c.mayNotChangeStreams(stream)
	}
	for _, subject := range []string{
		"agent.cmd.default.run.start", "agent.fired.default.r.wait", "agent.api.default.run.list", "$KV.OTHER.key",
		"$JS.API.CONSUMER.DELETE.AGENT_LOG_0.reactions", "$JS.API.CONSUMER.CREATE.AGENT_LOG_0.mine.agent.log.0.>", "$JS.API.CONSUMER.CREATE.AGENT_COMMANDS.mine", "$JS.API.CONSUMER.CREATE.AGENT_EVENTS.mine.agent.event.>",
	} {
		c.mayNotPublish(subject)
	}
	for _, subject := range []string{">", "agent.>", "_INBOX.>", "_INBOX_operator.>"} {
		c.mayNotSubscribe(subject)
	}
}

// useAsOperator holds that reading everything is not writing anything.
func (s *system) useAsOperator() {
	o := s.connect(operator)
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for _, err := range (&jetstream.Public{Conn: o.Conn}).Watch(ctx, jetstream.Filter{}, 0) {
		if err != nil {
			s.t.Errorf("an operator cannot watch: %v", err)
		}
		break
	}
	for entry, err := range (&jetstream.Log{Conn: o.Conn}).Sessions(ctx, "") {
		if err == nil {
			_, err = (&jetstream.Log{Conn: o.Conn}).Read(ctx, entry.Key, 0, 1)
		}
		if err != nil {
			s.t.Errorf("an operator cannot read the log: %v", err)
		}
	}
	o.wasNeverRefused()
	for _, subject := range []string{"agent.log.0.default.s", "agent.event.default.run_completed.s.r", "agent.work.default.s", "agent.dead.default.a", "svc.a", "$KV.AGENT_LEASES.default.s"} {
		o.mayNotPublish(subject)
	}
	o.mayNotChangeStreams("AGENT_LOG_0")
	o.mayNotPublish("$JS.API.CONSUMER.CREATE.AGENT_EVENTS.mine.agent.event.>")
	o.mayNotSubscribe("_INBOX.>")
}

// A server that lacks a password must not start with none.
func TestShippedNATSSettingsHaveNoPasswords(t *testing.T) {
	setPasswords(t)
	t.Setenv("NATS_NODE", "node")
	t.Setenv("NATS_ROUTES", `["nats-route://route:a@127.0.0.1:1"]`)
	for _, role := range append(slices.Clone(roles), "route") {
		variable := "NATS_" + strings.ToUpper(role) + "_PASSWORD"
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, "") // restores it at the end
			if err := os.Unsetenv(variable); err != nil {
				t.Fatal(err)
			}
			if _, err := server.ProcessConfigFile(filepath.Join(deploy, "nats", "cluster.conf")); err == nil {
				t.Errorf("cluster.conf is read without %s", variable)
			}
		})
	}
	for _, line := range regexp.MustCompile(`(?m)^\s*password:.*$`).FindAllString(readDeploy(t, "nats/accounts.conf"), -1) {
		if !regexp.MustCompile(`password: \$NATS_[A-Z]+_PASSWORD$`).MatchString(line) {
			t.Errorf("accounts.conf: a password does not come from the environment: %s", line)
		}
	}
}

func TestShippedNATSSettingsAdmitNobodyUnnamed(t *testing.T) {
	s := single(t)
	for _, o := range [][]nats.Option{nil, {nats.UserInfo(worker, "wrong")}, {nats.UserInfo("nobody", "")}} {
		if nc, err := nats.Connect(s.url, o...); err == nil {
			nc.Close()
			t.Error("a client without a role's password is admitted")
		}
	}
}

// readDeploy returns a shipped file.
func readDeploy(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// composition is what the tests look at of compose.yaml.
type composition struct {
	Services map[string]struct {
		Image       string
		Command     []string
		StopGrace   string `yaml:"stop_grace_period"`
		ReadOnly    bool   `yaml:"read_only"`
		Environment map[string]string
	}
}

func compose(t *testing.T) composition {
	t.Helper()
	var c composition
	if err := yaml.Unmarshal([]byte(readDeploy(t, "docker/compose.yaml")), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// A command line that is shipped is one that the program takes.
func TestShippedCommandLinesExist(t *testing.T) {
	var lines [][]string
	unit := readDeploy(t, "systemd/agentruntime.service")
	lines = append(lines, strings.Fields(regexp.MustCompile(`(?m)^ExecStart=\S+/agentruntime (.*)$`).FindStringSubmatch(unit)[1]))
	for _, name := range []string{"provision", "worker"} {
		lines = append(lines, compose(t).Services[name].Command)
	}
	for _, m := range regexp.MustCompile(`(?m)\./agentruntime (.*)$`).FindAllStringSubmatch(readDeploy(t, "README.md"), -1) {
		lines = append(lines, strings.Fields(m[1]))
	}
	if len(lines) != 5 {
		t.Errorf("found %d command lines, want those of the unit, the compose file (2) and the README (2)", len(lines))
	}
	for _, line := range lines {
		var out strings.Builder
		if code := cli.Main(append(slices.Clone(line), "--help"), func(string) string { return "" }, strings.NewReader(""), &out, &out); code != 0 {
			t.Errorf("agentruntime %s: %s", strings.Join(line, " "), out.String())
		}
	}
}

func TestShippedUnitContainsTheWorkerAndLetsItDrain(t *testing.T) {
	settings := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^([A-Za-z]+)=(.*)$`).FindAllStringSubmatch(readDeploy(t, "systemd/agentruntime.service"), -1) {
		settings[m[1]] = m[2]
	}
	for name, want := range map[string]string{
		"DynamicUser": "yes", "ProtectSystem": "strict", "NoNewPrivileges": "yes", "CapabilityBoundingSet": "",
		"Restart": "always", "KillSignal": "SIGTERM", "KillMode": "mixed", "StateDirectory": "agentruntime",
	} {
		if got, set := settings[name]; !set || got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"MemoryMax", "EnvironmentFile", "TasksMax"} {
		if settings[name] == "" {
			t.Errorf("%s is not set", name)
		}
	}
	longerThanGrace(t, "TimeoutStopSec", settings["TimeoutStopSec"]+"s")
}

// longerThanGrace holds that who stops a worker waits until it has drained.
func longerThanGrace(t *testing.T, what, setting string) {
	t.Helper()
	d, err := time.ParseDuration(setting)
	if err != nil || d < handlers.DefaultGrace+5*time.Second {
		t.Errorf("%s is %s, want clearly more than the grace of %s (%v)", what, setting, handlers.DefaultGrace, err)
	}
}

func TestShippedCompositionGivesEachProcessItsRole(t *testing.T) {
	c := compose(t)
	for _, node := range []string{"nats-1", "nats-2", "nats-3"} {
		s := c.Services[node]
		if s.Environment["NATS_NODE"] != node || !strings.Contains(s.Environment["NATS_ROUTES"], "@"+node+":") {
			t.Errorf("%s: NATS_NODE is %q, NATS_ROUTES %q", node, s.Environment["NATS_NODE"], s.Environment["NATS_ROUTES"])
		}
		if want := "nats:" + jetstream.MinServerVersion + "-alpine"; s.Image != want {
			t.Errorf("%s runs %s, want %s or a later one", node, s.Image, want)
		}
	}
	for name, role := range map[string]string{"provision": provisioner, "worker": worker} {
		e := c.Services[name].Environment
		if e["NATS_USER"] != role || e["NATS_INBOX_PREFIX"] != "_INBOX_"+role || !strings.Contains(e["NATS_PASSWORD"], "{NATS_"+strings.ToUpper(role)+"_PASSWORD:?") {
			t.Errorf("%s does not connect as %s with its own inbox and password: %v", name, role, e)
		}
	}
	for name, s := range c.Services {
		if !s.ReadOnly {
			t.Errorf("%s can write its own root", name)
		}
		for variable, value := range s.Environment {
			if strings.HasSuffix(variable, "_PASSWORD") && !strings.Contains(value, ":?") {
				t.Errorf("%s: %s may be empty", name, variable)
			}
		}
	}
	longerThanGrace(t, "stop_grace_period", c.Services["worker"].StopGrace)
}

func TestShippedImageHoldsOneStaticFile(t *testing.T) {
	text := readDeploy(t, "docker/Dockerfile")
	for _, want := range []string{"CGO_ENABLED=0 go build", "FROM scratch", "USER 65532:65532", "/etc/ssl/certs/ca-certificates.crt"} {
		if !strings.Contains(text, want) {
			t.Errorf("the Dockerfile lacks %q", want)
		}
	}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	needs := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(mod))[1]
	if !strings.Contains(text, "golang:"+needs+"-alpine") {
		t.Errorf("the Dockerfile does not build with Go %s, which go.mod names", needs)
	}
}
