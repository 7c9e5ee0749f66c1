package cli

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/projector"
)

func TestDevOnceShowsItsSamplesComplete(t *testing.T) {
	out := call(t, "dev", "--once", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0").ok(t)
	for _, want := range []string{"agentruntime " + version(), "nats://127.0.0.1:", "/metrics", "namespace  default", "agent hello-triage",
		"run.admitted", "run.claimed", "call run_js", "result run_js ok", "run.completed", `completed in 2 steps: {"category":"outage","priority":1,`,
		"agent trip-planner", "trip-planner ", "leg-booker 1 ", "leg-booker 3 ", "call spawn_leg_booker", "run.parked            waits for all of 3 children", "asks: Where in town",
		"call continue_agent", "asks: Both trains", `The answer is "Mia Lopes"`, `completed in 1 steps: {"name":"Mia Lopes","legs":[`, `"booked":"By the river, with breakfast"`} {
		if !strings.Contains(out, want) {
			t.Errorf("the output does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "Ctrl-C") {
		t.Errorf("it invites to go on although it ends:\n%s", out)
	}
}

func TestDevOnceForProgramsPrintsFactsAndNothingElse(t *testing.T) {
	out := call(t, "dev", "--once", "-o", "json", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--metrics", "off").ok(t)
	facts := readAll[handlers.FactAnswer](t, out)
	if lines := strings.Count(out, "\n"); lines != len(facts) {
		t.Errorf("%d lines hold %d facts", lines, len(facts))
	}
	var last events.Event
	for _, f := range facts {
		last = decode(t, f.Event)
	}
	completed := 0
	for _, f := range facts {
		if e := decode(t, f.Event); e.Type == events.TypeFor[events.RunCompleted]().Name {
			completed++
		}
	}
	if completed != 7 {
		t.Errorf("%d runs completed, want the ticket's, the trip's two and its children's four", completed)
	}
	if want := events.TypeFor[events.RunCompleted]().Name; last.Type != want {
		t.Errorf("the last fact is %s, want %s", last.Type, want)
	}
}

func TestDevTakesADataFolderThatItHasUsed(t *testing.T) {
	data := t.TempDir()
	for range 2 {
		call(t, "dev", "--once", "--data", data, "--listen", "127.0.0.1:0", "--metrics", "off").ok(t)
	}
}

func TestDevSaysInOneLineWhyItCannotStart(t *testing.T) {
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	folder := t.TempDir()
	file := write(t, "a file", folder, "file")
	broken := filepath.Dir(write(t, "instructions: x\nmodle: scripted/x\n", folder, "broken", "broken.yaml"))
	inUse := t.TempDir()
	develop(t, inUse)
	for name, test := range map[string]struct {
		code  int
		args  []string
		words []string
	}{
		"the port is in use":                     {exitFailed, []string{"--listen", used.Addr().String()}, []string{used.Addr().String(), "in use", "choose another port with --listen"}},
		"the port is in use, for programs":       {exitFailed, []string{"--listen", used.Addr().String(), "-o", "json"}, []string{"in use"}},
		"the address is none":                    {exitUsage, []string{"--listen", "4222"}, []string{"--listen", "4222", "127.0.0.1:4222"}},
		"the port of the metrics is in use":      {exitFailed, []string{"--metrics", used.Addr().String()}, []string{used.Addr().String(), "--metrics"}},
		"the address of the metrics is none":     {exitUsage, []string{"--metrics", "on"}, []string{"metrics", "on", "127.0.0.1:9464"}},
		"the data folder is a file":              {exitFailed, []string{"--data", file}, []string{file, "choose another folder"}},
		"the data folder is below a file":        {exitFailed, []string{"--data", filepath.Join(file, "data")}, []string{file, "choose another folder"}},
		"the data folder is in use":              {exitFailed, []string{"--data", inUse}, []string{inUse, "in use by another process"}},
		"an agent file is broken":                {exitFailed, []string{"--agents", broken}, []string{"broken.yaml:2", "modle", "model"}},
		"the agents folder is missing":           {exitUsage, []string{"--agents", filepath.Join(folder, "none")}, []string{"none", "no such folder"}},
		"the capabilities folder is missing":     {exitUsage, []string{"--agents", "testdata/agents", "--capabilities", filepath.Join(folder, "none")}, []string{"none", "no such folder"}},
		"capabilities are given without agents":  {exitUsage, []string{"--capabilities", "testdata/capabilities"}, []string{"--agents"}},
		"a single run is asked of given agents":  {exitUsage, []string{"--once", "--agents", "testdata/agents"}, []string{"--once", "--agents"}},
		"an argument is given that dev has none": {exitUsage, []string{"agents"}, []string{"dev --help"}},
	} {
		t.Run(name, func(t *testing.T) {
			defaults := []string{"dev", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"}
			call(t, append(defaults, test.args...)...).fails(t, test.code, test.words...)
		})
	}
}

func TestDevStopsWhenItIsTold(t *testing.T) {
	for _, args := range [][]string{nil, {"-o", "text", "--agents", "testdata/agents", "--capabilities", "testdata/capabilities"}} {
		d := begin(t, variables{}, nil, append([]string{"dev", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--metrics", "off"}, args...)...)
		d.out.await(t, "Ctrl-C")
		d.stop()
		if code := d.exit(t); code != exitOK || spoken(d.err.String()) != "" {
			t.Errorf("exit %d, standard error %s", code, d.err.String())
		}
	}
}

// gate serves the capability of the agent waits: each request is held until the
// test answers it.
func (d *development) gate(t *testing.T) <-chan *nats.Msg {
	t.Helper()
	held := make(chan *nats.Msg, 16)
	if _, err := d.connect(t).ChanSubscribe("svc.gate.pass", held); err != nil {
		t.Fatal(err)
	}
	return held
}

func (d *development) start(t *testing.T, args ...string) handlers.Admission {
	t.Helper()
	return read[handlers.Admission](t, d.call(t, append(append([]string{"run", "start"}, args...), "-o", "json")...).ok(t))
}

func (d *development) get(t *testing.T, run string) handlers.RunDetail {
	t.Helper()
	return read[handlers.RunDetail](t, d.call(t, "run", "get", run, "-o", "json").ok(t))
}

func TestACallUnderWayEndsBeforeDevDoes(t *testing.T) {
	data := t.TempDir()
	d := develop(t, data)
	held := d.gate(t)
	run := d.start(t, "waits", "-m", "go").Run
	request := <-held
	d.stop()
	if err := request.Respond([]byte(`"passed"`)); err != nil {
		t.Fatal(err)
	}
	if code := d.exit(t); code != exitOK {
		t.Fatalf("exit %d, standard error %s", code, d.err.String())
	}
	// Another one carries on after the call, which has its outcome.
	d = develop(t, data)
	d.call(t, "run", "watch", run).ok(t)
	if got := d.get(t, run); got.State != projector.StateCompleted || !strings.Contains(string(got.Reply.Output), "passed") {
		t.Errorf("run %+v, reply %+v", got, got.Reply)
	}
}

func TestASecondDevCarriesOnWhatAKilledOneHadBegun(t *testing.T) {
	data := t.TempDir()
	d := develop(t, data)
	held := d.gate(t)
	run := d.start(t, "waits", "-m", "go").Run
	<-held
	d.kill()
	d.exit(t)
	d = develop(t, data)
	held = d.gate(t)
	d.call(t, "run", "watch", run).ok(t)
	got := d.get(t, run)
	if got.State != projector.StateCompleted {
		t.Fatalf("the run is %s: %s", got.State, got.Error)
	}
	select {
	case m := <-held:
		t.Errorf("the script was run again: request %v", m.Header)
	default:
	}
	claims := 0
	for _, f := range readAll[handlers.FactAnswer](t, d.call(t, "run", "events", run, "-o", "json").ok(t)) {
		if strings.Contains(string(f.Event), events.TypeFor[events.RunClaimed]().Name) {
			claims++
		}
	}
	if claims != 2 {
		t.Errorf("the run was claimed %d times, want once by each dev", claims)
	}
}

func TestEditedFilesCountForNewRunsOnly(t *testing.T) {
	agents := t.TempDir()
	agent := func(said string) {
		write(t, "instructions: Say.\nmodel: scripted/waits\ncapabilities: [gate.pass]\noutput: { const: "+said+" }\n", agents, "says.yaml")
	}
	agent("passed")
	write(t, "responses:\n  - calls: [{ name: run_js, arguments: { code: \"return await gate.pass({})\" } }]\n  - calls: [{ name: complete, arguments: { kind: output, output: $result/value } }]\n", agents, "waits.script.yaml")
	d := develop(t, t.TempDir(), "--agents", agents, "--capabilities", "testdata/capabilities")
	held := d.gate(t)
	before := d.start(t, "says", "-m", "go").Run
	request := <-held

	write(t, "instructions: Say.\n", agents, "says.yaml")
	d.err.await(t, `not reloaded: .*says.yaml.*model`)
	agent("other")
	d.out.await(t, "reloaded; agents: 1")
	versions := read[map[string]string](t, d.call(t, "agents", "list", "-o", "json").ok(t))

	after := d.start(t, "says", "-m", "go").Run
	next := <-held
	for m, answer := range map[*nats.Msg]string{request: `"passed"`, next: `"other"`} {
		if err := m.Respond([]byte(answer)); err != nil {
			t.Fatal(err)
		}
	}
	definitions := make(map[string]bool)
	for run, want := range map[string]string{before: `"passed"`, after: `"other"`} {
		d.call(t, "run", "watch", run).ok(t)
		if got := d.get(t, run); got.Reply == nil || string(got.Reply.Output) != want {
			t.Errorf("run %s: %+v, want reply %s", run, got, want)
		}
		definitions[admitted(t, d, run).Definition] = true
	}
	if len(definitions) != 2 || !definitions[versions["says"]] {
		t.Errorf("versions %v, listed %v", definitions, versions)
	}
}

func admitted(t *testing.T, d *development, run string) events.RunAdmitted {
	t.Helper()
	facts := readAll[handlers.FactAnswer](t, d.call(t, "run", "events", run, "-o", "json").ok(t))
	e := decode(t, facts[0].Event)
	a, err := events.PayloadOf[events.RunAdmitted](&e)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A context that has ended is the signal that came before anything else.
func TestDevThatIsStoppedAtItsStartEnds(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var out, errOut terminal
	if code := run(ctx, t.Context(), []string{"dev", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--metrics", "off"}, variables{}.get, nil, &out, &errOut); code != exitOK || errOut.String() != "" {
		t.Errorf("exit %d, standard error %s", code, &errOut)
	}
}
