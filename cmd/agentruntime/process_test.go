package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/cli"
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream"
)

// asProgram makes the test binary the program itself.
const asProgram = "AGENTRUNTIME_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(cli.Main(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// lease is the time to live of the leases in these tests, and margin how much
// later than promised a takeover may be on a busy machine.
const (
	lease  = 3 * time.Second
	margin = 15 * time.Second
)

// site is a NATS server with agents, and the processes that serve it.
type site struct {
	t      *testing.T
	server *jetstream.Embedded
	conn   *jetstream.Conn
	folder string // of agents and configuration
	store  string // of the server
}

// newSite starts a server and applies an agent whose script calls two
// capabilities, one after the other.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, folder: t.TempDir(), store: t.TempDir()}
	s.server = &jetstream.Embedded{StoreDir: filepath.Join(s.store, "nats"), Listen: "127.0.0.1:0"}
	if err := s.server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.server.Shutdown)
	conn, err := jetstream.Connect(jetstream.Config{Servers: s.server.ClientURL(), Layout: jetstream.Layout{Shards: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	s.conn = conn
	s.write("config.yaml", fmt.Sprintf("worker: { lease: %s }\nlayout: { shards: 1 }\nmetrics: \"off\"\n", lease))
	s.write("agents/tester.yaml", "instructions: Test.\nmodel: scripted/tester\ncapabilities: [desk.book, desk.free]\n")
	s.write("agents/tester.script.yaml", `responses:
  - calls: [{ name: run_js, arguments: { code: "const a = await desk.book({}); const b = await desk.free({}); return [a, b]" } }]
  - calls: [{ name: complete, arguments: { kind: output, output: $results } }]
`)
	for _, name := range []string{"desk.book", "desk.free"} {
		s.write("capabilities/"+name+".yaml", "effect: write\ntimeout: 60s\nroute: { nats: { subject: svc."+name+" } }\n")
	}
	return s
}

func (s *site) write(name, text string) {
	s.t.Helper()
	file := filepath.Join(s.folder, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// request is one request that reached a capability.
type request struct {
	subject, epoch, key string
}

// serve answers the capabilities: answer is called for each request, after it
// was written down.
func (s *site) serve(answer func(m *nats.Msg)) func() []request {
	s.t.Helper()
	var mu sync.Mutex
	var ledger []request
	_, err := s.conn.NATS().Subscribe("svc.>", func(m *nats.Msg) {
		mu.Lock()
		ledger = append(ledger, request{m.Subject, m.Header.Get(handlers.HeaderEpoch), m.Header.Get(handlers.HeaderKey)})
		mu.Unlock()
		go answer(m)
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return func() []request {
		mu.Lock()
		defer mu.Unlock()
		return append([]request{}, ledger...)
	}
}

// serveWhenTold answers the capabilities once goOn is closed; inCall tells of
// each request that waits.
func (s *site) serveWhenTold() (ledger func() []request, inCall, goOn chan struct{}) {
	s.t.Helper()
	inCall, goOn = make(chan struct{}, 8), make(chan struct{})
	ledger = s.serve(func(m *nats.Msg) {
		inCall <- struct{}{}
		<-goOn
		_ = m.Respond([]byte(`"booked"`))
	})
	return ledger, inCall, goOn
}

// process is one worker process.
type process struct {
	*exec.Cmd
	done chan struct{}
}

// start starts a worker process and returns when it runs.
func (s *site) start(args ...string) *process {
	s.t.Helper()
	args = append([]string{"serve", "-s", s.server.ClientURL(), "--config", filepath.Join(s.folder, "config.yaml"), "--scripts", filepath.Join(s.folder, "agents")}, args...)
	p := &process{exec.Command(os.Args[0], args...), make(chan struct{})}
	p.Env = append(os.Environ(), asProgram+"=1")
	out, err := p.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = p.Process.Kill(); <-p.done })
	running := make(chan struct{})
	var once sync.Once
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			s.t.Log(lines.Text())
			if strings.Contains(lines.Text(), "swept the log") {
				once.Do(func() { close(running) })
			}
		}
		_ = p.Wait()
		close(p.done)
	}()
	select {
	case <-running:
	case <-p.done:
		s.t.Fatal("the worker ended before it ran")
	case <-time.After(margin):
		s.t.Fatal("the worker does not run")
	}
	return p
}

// run runs one verb and reads its JSON answer. A request may reach a frozen
// worker and is then made again.
func (s *site) run(answer any, args ...string) {
	s.t.Helper()
	var out, errOut bytes.Buffer
	for try := 1; ; try++ {
		out.Reset()
		cmd := exec.Command(os.Args[0], append(args, "-s", s.server.ClientURL(), "-o", "json")...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		cmd.Stdout, cmd.Stderr = &out, &errOut
		err := cmd.Run()
		if err == nil {
			break
		}
		if cmd.ProcessState.ExitCode() != 3 || try == 5 {
			s.t.Fatalf("%v: %v: %s", args, err, errOut.String())
		}
	}
	if err := json.Unmarshal(out.Bytes(), answer); err != nil {
		s.t.Fatalf("%v printed %s: %v", args, out.String(), err)
	}
}

// begin applies the agents and starts a run.
func (s *site) begin() string {
	s.t.Helper()
	var applied, admitted any
	s.run(&applied, "agents", "apply", "--agents", filepath.Join(s.folder, "agents"), "--capabilities", filepath.Join(s.folder, "capabilities"))
	s.run(&admitted, "run", "start", "tester", "-m", "Go.")
	return admitted.(map[string]any)["run"].(string)
}

// await waits for a run's end and returns it.
func (s *site) await(run string) handlers.RunDetail {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), lease+2*margin)
	defer cancel()
	for r, err := range (&jetstream.Public{Conn: s.conn}).Watch(ctx, jetstream.Filter{Run: run}, 0) {
		if err != nil {
			s.t.Fatal(err)
		}
		if strings.HasSuffix(r.Type, ".completed") || strings.HasSuffix(r.Type, ".failed") {
			var d handlers.RunDetail
			s.run(&d, "run", "get", run)
			return d
		}
	}
	s.t.Fatalf("run %s has not ended", run)
	return handlers.RunDetail{}
}

// renewed returns when the session's lease was renewed last.
func (s *site) renewed(run string) time.Time {
	s.t.Helper()
	session, err := events.SessionOf(run)
	if err != nil {
		s.t.Fatal(err)
	}
	js, err := s.conn.NATS().JetStream()
	if err != nil {
		s.t.Fatal(err)
	}
	m, err := js.GetLastMsg("KV_AGENT_LEASES", "$KV.AGENT_LEASES.default."+session)
	if err != nil {
		s.t.Fatal(err)
	}
	return m.Time
}

func TestAKilledWorkersRunIsTakenOverAndItsEffectIsUnknown(t *testing.T) {
	s := newSite(t)
	inCall := make(chan struct{}, 8)
	ledger := s.serve(func(*nats.Msg) { inCall <- struct{}{} }) // the service never answers
	first := s.start()
	run := s.begin()
	<-inCall
	second := s.start()
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.done
	last := s.renewed(run)
	d := s.await(run)
	took := d.Ended.Sub(last)
	t.Logf("taken over and completed %s after the last renewal; the lease is %s", took, lease)
	if took > lease+2*time.Second+margin {
		t.Errorf("the takeover took %s", took)
	}
	if d.Reply == nil || strings.Count(string(d.Reply.Output), "Unknown outcome") != 1 {
		t.Errorf("the reply is %+v", d.Reply)
	}
	if requests := ledger(); len(requests) != 1 {
		t.Errorf("the service was called %d times: %v", len(requests), requests)
	}
	s.stop(second)
}

// stop ends a worker as a deploy does.
func (s *site) stop(p *process) {
	s.t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(handlers.DefaultGrace + margin):
		s.t.Fatal("the worker does not stop")
	}
	if code := p.ProcessState.ExitCode(); code != 0 {
		s.t.Errorf("the worker exited with %d", code)
	}
}

func TestADeployMakesNoUnknown(t *testing.T) {
	s := newSite(t)
	ledger, inCall, goOn := s.serveWhenTold()
	first := s.start()
	run := s.begin()
	<-inCall
	second := s.start()
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	close(goOn) // the calls end within the grace
	<-first.done
	d := s.await(run)
	if d.Reply == nil || strings.Contains(string(d.Reply.Output), "Unknown") || d.State != "completed" {
		t.Errorf("the run is %s: %+v", d.State, d.Reply)
	}
	if requests := ledger(); len(requests) != 2 {
		t.Errorf("the services were called %d times: %v", len(requests), requests)
	}
	s.stop(second)
}

func TestAFrozenProcessIsFencedWhenItThaws(t *testing.T) {
	s := newSite(t)
	ledger, inCall, goOn := s.serveWhenTold()
	first := s.start()
	run := s.begin()
	<-inCall
	second := s.start()
	if err := first.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	d := s.await(run)
	if d.Reply == nil || strings.Count(string(d.Reply.Output), "Unknown outcome") != 1 {
		t.Errorf("the reply is %+v", d.Reply)
	}
	before := s.facts(run)
	close(goOn) // the answer waits for the frozen process
	if err := first.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.stop(first) // whatever it does after thawing, it has done by then
	if after := s.facts(run); after != before {
		t.Errorf("the thawed worker appended %d facts", after-before)
	}
	late := 0
	for _, r := range ledger()[1:] {
		late++
		if r.epoch != "1" {
			t.Errorf("a late request carries epoch %s", r.epoch)
		}
	}
	t.Logf("%d requests left the thawed process", late)
	if late > 1 {
		t.Errorf("%d requests left the thawed process: %v", late, ledger())
	}
	s.stop(second)
}

// facts counts the facts of a run's session.
func (s *site) facts(run string) int {
	s.t.Helper()
	key, err := events.KeyOfRun("default", run)
	if err != nil {
		s.t.Fatal(err)
	}
	records, err := (&jetstream.Log{Conn: s.conn}).Read(s.t.Context(), key, 0, events.MaxRead)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := events.Verify(records); err != nil {
		s.t.Error(err)
	}
	return len(records)
}
