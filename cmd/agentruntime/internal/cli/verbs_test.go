package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/projector"
)

// demand reports which of the words an output lacks.
func demand(t *testing.T, out string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(out, word) {
			t.Errorf("the output does not say %q:\n%s", word, out)
		}
	}
}

func TestAnEmptyServiceIsListedAsEmptyLists(t *testing.T) {
	d := develop(t, t.TempDir(), "--agents", t.TempDir())
	if out := d.call(t, "run", "list", "-o", "json").ok(t); strings.TrimSpace(out) != "[]" {
		t.Errorf("no runs are listed as %s", out)
	}
	if out := d.call(t, "agents", "list", "-o", "json").ok(t); strings.TrimSpace(out) != "{}" {
		t.Errorf("no agents are listed as %s", out)
	}
	for _, verb := range []string{"check", "apply"} {
		if out := d.call(t, "agents", verb, "--agents", t.TempDir(), "-o", "json").ok(t); strings.TrimSpace(out) != "[]" {
			t.Errorf("%s of no agents prints %s", verb, out)
		}
	}
	demand(t, d.call(t, "run", "list").ok(t), "RUN", "AGENT", "STATE", "STARTED", "STEPS", "REASON")
	demand(t, d.call(t, "agents", "list").ok(t), "AGENT", "VERSION")
}

func TestRunsAreStartedShownAndContinued(t *testing.T) {
	d := develop(t, t.TempDir())
	first := d.start(t, "asks", "-m", "Book a desk", "-l", "team=finance", "-l", "day=Monday")
	demand(t, d.call(t, "run", "watch", first.Run).ok(t), "run.started", "run.completed", "asks: Which floor?")

	second := read[handlers.Admission](t, d.call(t, "run", "continue", first.Session, "-m", "The third", "-o", "json").ok(t))
	if second.Session != first.Session || second.Run == first.Run {
		t.Errorf("%+v continues %+v", second, first)
	}
	d.call(t, "run", "watch", second.Run).ok(t)
	demand(t, d.call(t, "run", "continue", first.Session, "-m", "The fourth").ok(t), "run      "+first.Session+"-", "session  "+first.Session)

	got := d.get(t, first.Run)
	if got.Run != first.Run || got.Session != first.Session || got.Agent != "asks" || got.State != projector.StateCompleted || got.Root != first.Run ||
		got.Reply == nil || got.Reply.Question != "Which floor?" || got.Labels["team"] != "finance" || got.Labels["day"] != "Monday" || got.Steps != 1 {
		t.Errorf("run %+v, reply %+v", got, got.Reply)
	}
	demand(t, d.call(t, "run", "get", first.Run).ok(t), "run      "+first.Run, "session  "+first.Session, "agent    asks", "state    completed", "started  ", "steps    1", "reply    asks: Which floor?")
}

func TestATaskComesFromFlagsFilesAndStandardInput(t *testing.T) {
	d := develop(t, t.TempDir())
	file := write(t, ` {"month": "2026-02"} `, t.TempDir(), "input.json")
	for _, test := range []struct {
		in, want string
		args     []string
	}{
		{"", "It is down", []string{"echo", "-m", "It is down"}},
		{"  It is\ndown \n", "It is\ndown", []string{"echo", "--message", "-"}},
		{"", "The task's input, as JSON:\n" + `{"month":"2026-01"}`, []string{"reports", "--input", `{"month":"2026-01"}`}},
		{"", "The task's input, as JSON:\n" + `{"month":"2026-02"}`, []string{"reports", "--input-file", file}},
	} {
		out := callIn(t, variables{}, test.in, append([]string{"run", "start", "-o", "json", "-s", d.url}, test.args...)...).ok(t)
		run := read[handlers.Admission](t, out).Run
		d.call(t, "run", "watch", run).ok(t)
		var said struct{ Said string }
		if got := d.get(t, run); json.Unmarshal(got.Reply.Output, &said) != nil || said.Said != test.want {
			t.Errorf("%v: the task was %q, want %q", test.args, said.Said, test.want)
		}
	}
}

func TestTheListOfRunsIsAnArrayOfObjectsTheNewestFirst(t *testing.T) {
	d := develop(t, t.TempDir())
	var runs []string
	for _, agent := range []string{"echo", "breaks", "asks"} {
		run := d.start(t, agent, "-m", "go").Run
		d.call(t, "run", "watch", run)
		runs = append([]string{run}, runs...)
	}
	d.lists(t, 3, "--state", "completed,failed")
	list := read[[]map[string]any](t, d.call(t, "run", "list", "-o", "json").ok(t))
	for i, want := range []struct{ agent, state, reason string }{{"asks", "completed", ""}, {"breaks", "failed", "aborted"}, {"echo", "completed", ""}} {
		got := list[i]
		for _, field := range []string{"run", "session", "agent", "state", "parent", "root", "started", "reason"} {
			if _, is := got[field].(string); !is {
				t.Errorf("run %d: %s is %#v, want a string", i, field, got[field])
			}
		}
		if got["run"] != runs[i] || got["root"] != runs[i] || got["agent"] != want.agent || got["state"] != want.state || got["reason"] != want.reason {
			t.Errorf("run %d: %v, want %v", i, got, want)
		}
		if _, err := time.Parse(time.RFC3339Nano, got["started"].(string)); err != nil {
			t.Error(err)
		}
	}
	if got := read[[]projector.Summary](t, d.call(t, "run", "list", "--limit", "2", "-o", "json").exits(t, exitOK).out); len(got) != 2 || got[0].Run != runs[0] {
		t.Errorf("two runs: %+v", got)
	}
	out := d.call(t, "run", "list").ok(t)
	demand(t, out, runs...)
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 4 || !strings.HasPrefix(lines[1], runs[0]) {
		t.Errorf("the list:\n%s", out)
	}
}

func TestTheSameIdIsTheSameRun(t *testing.T) {
	d := develop(t, t.TempDir())
	first := d.start(t, "echo", "-m", "go", "--id", "X")
	d.call(t, "run", "watch", first.Run).ok(t)
	if second := d.start(t, "echo", "-m", "go", "--id", "X"); second != first {
		t.Errorf("the same command started %+v and %+v", first, second)
	}
	// Waiting for it shows what was told before.
	demand(t, d.call(t, "run", "start", "echo", "-m", "go", "--id", "X", "--wait").ok(t), "run "+first.Run, "run.started", `{"said":"go"}`)
	d.call(t, "run", "start", "echo", "-m", "other", "--id", "X").fails(t, exitFailed, "id_conflict")
	d.lists(t, 1)
}

func TestWaitingShowsProgressAndEndsAsTheRunDoes(t *testing.T) {
	d := develop(t, t.TempDir())
	demand(t, d.call(t, "run", "start", "echo", "-m", "go", "--wait").ok(t), "run.started", "run.text", "I repeat it.", "run.completed", `{"said":"go"}`)
	lines := readAll[watchLine](t, d.call(t, "run", "start", "echo", "-m", "go", "--wait", "-o", "json").ok(t))
	if types := typesOf(t, lines); !slices.Equal(types, []string{"run.started", "run.text", "run.completed"}) {
		t.Errorf("events %v", types)
	}
	for _, args := range [][]string{nil, {"-o", "json"}} {
		r := d.call(t, append([]string{"run", "start", "breaks", "-m", "go", "--wait"}, args...)...)
		if r.code != exitFailed {
			t.Errorf("exit %d after a run that failed", r.code)
		}
		demand(t, r.out, "run.failed", "missing.script.yaml")
		demand(t, r.err, "did not complete", "agentruntime run events")
	}
	session := d.start(t, "asks", "-m", "go", "--session", "mine").Session
	d.call(t, "run", "continue", session, "-m", "go", "--wait")
	demand(t, d.call(t, "run", "continue", session, "-m", "again", "--wait").ok(t), "asks: Which floor?")
}

func typesOf(t *testing.T, lines []watchLine) []string {
	t.Helper()
	var types []string
	for _, l := range lines {
		e := decode(t, l.Event)
		types = append(types, strings.TrimPrefix(e.Type, events.TypePrefix))
	}
	return types
}

// decode reads a structured CloudEvent.
func decode(t *testing.T, data []byte) events.Event {
	t.Helper()
	e, err := events.Decode(map[string][]string{"content-type": {"application/cloudevents+json"}}, data)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestAWatchGoesOnAfterADisconnect(t *testing.T) {
	d := develop(t, t.TempDir())
	run := d.start(t, "echo", "-m", "go").Run
	all := readAll[watchLine](t, d.call(t, "run", "watch", run, "-o", "json").ok(t))
	if len(all) != 3 {
		t.Fatalf("%d events", len(all))
	}
	for i, l := range all[:2] {
		after := fmt.Sprint(l.Sequence)
		rest := readAll[watchLine](t, d.call(t, "run", "watch", run, "--after", after, "-o", "json").ok(t))
		if !slices.Equal(typesOf(t, rest), typesOf(t, all[i+1:])) || rest[0].Sequence != all[i+1].Sequence {
			t.Errorf("after %s come %v", after, typesOf(t, rest))
		}
	}
	// After the last one there is nothing, which is soon known of a run that
	// has ended.
	last := fmt.Sprint(all[2].Sequence)
	if out := d.call(t, "run", "watch", run, "--after", last, "--timeout", "200ms").ok(t); out != "" {
		t.Errorf("after the last event comes %s", out)
	}
	failed := d.start(t, "breaks", "-m", "go").Run
	d.call(t, "run", "watch", failed)
	d.call(t, "run", "watch", failed, "--after", "1000000", "--timeout", "200ms").fails(t, exitFailed, failed, "did not complete")
}

func TestAWatchShowsAnEventThatWasToldTwiceOnce(t *testing.T) {
	d := develop(t, t.TempDir())
	held := d.gate(t)
	run := d.start(t, "waits", "-m", "go").Run
	request := <-held
	watch := begin(t, variables{}, nil, "run", "watch", run, "-o", "json", "-s", d.url)
	watch.out.await(t, `run\.started`)
	nc := d.connect(t)
	message, err := nc.Request("$JS.API.DIRECT.GET.AGENT_EVENTS", []byte(`{"seq": 1}`), patience)
	if err != nil {
		t.Fatal(err)
	}
	again := nats.NewMsg(message.Header.Get("Nats-Subject"))
	again.Data = message.Data
	for name, values := range message.Header {
		if strings.HasPrefix(strings.ToLower(name), "ce-") || strings.EqualFold(name, "content-type") {
			again.Header[name] = values
		}
	}
	stored, err := nc.RequestMsg(again, patience)
	if err != nil || !strings.Contains(string(stored.Data), `"seq":2`) {
		t.Fatalf("the event was not told again: %v, %s", err, stored.Data)
	}
	if err := request.Respond([]byte(`"passed"`)); err != nil {
		t.Fatal(err)
	}
	if code := watch.exit(t); code != exitOK {
		t.Errorf("exit %d: %s", code, &watch.err)
	}
	if types := typesOf(t, readAll[watchLine](t, watch.out.String())); !slices.Equal(types, []string{"run.started", "run.completed"}) {
		t.Errorf("events %v", types)
	}
}

func TestAWatchThatIsInterruptedSaysThatTheRunHasNotEnded(t *testing.T) {
	d := develop(t, t.TempDir())
	held := d.gate(t)
	run := d.start(t, "waits", "-m", "go").Run
	request := <-held
	watch := begin(t, variables{}, nil, "run", "watch", run, "-s", d.url)
	watch.out.await(t, `run\.started`)
	watch.stop()
	if code := watch.exit(t); code != exitInterrupted || !strings.Contains(watch.err.String(), "had not ended") {
		t.Errorf("exit %d: %s", code, &watch.err)
	}
	if err := request.Respond([]byte(`"passed"`)); err != nil {
		t.Fatal(err)
	}
	d.call(t, "run", "watch", run).ok(t)
}

func TestTheFactsOfARunArePrintedFromASequenceOn(t *testing.T) {
	d := develop(t, t.TempDir())
	run := d.start(t, "echo", "-m", "go").Run
	d.call(t, "run", "watch", run).ok(t)
	facts := readAll[handlers.FactAnswer](t, d.call(t, "run", "events", run, "-o", "json").ok(t))
	var types []string
	for i, f := range facts {
		e := decode(t, f.Event)
		types = append(types, strings.TrimPrefix(e.Type, events.FactPrefix))
		if e.Run != run || i > 0 && f.Sequence <= facts[i-1].Sequence {
			t.Errorf("fact %d: sequence %d of run %s", i, f.Sequence, e.Run)
		}
	}
	if len(types) < 3 || types[0] != "run.admitted" || types[1] != "run.claimed" || types[len(types)-1] != "run.completed" {
		t.Errorf("facts %v", types)
	}
	rest := readAll[handlers.FactAnswer](t, d.call(t, "run", "events", run, "-o", "json", "--after", fmt.Sprint(facts[1].Sequence)).ok(t))
	if len(rest) != len(facts)-2 || rest[0].Sequence != facts[2].Sequence {
		t.Errorf("%d of %d facts come after the second", len(rest), len(facts))
	}
	text := d.call(t, "run", "events", run).ok(t)
	demand(t, text, "+0.000s  run.admitted", `task "go"`, `text "I repeat it."`, "call complete", `{"said":"go"}`)
	if lines := strings.Count(text, "\n"); lines != len(facts) {
		t.Errorf("%d lines tell %d facts", lines, len(facts))
	}
}

func TestAgentsAreCheckedAppliedAndListed(t *testing.T) {
	folders := []string{"--agents", "testdata/agents", "--capabilities", "testdata/capabilities"}
	checked := read[[]appliedAgent](t, call(t, append([]string{"agents", "check", "-o", "json"}, folders...)...).ok(t))
	if len(checked) != 5 || checked[4].Agent != "waits" || !slices.Equal(checked[4].Capabilities, []string{"gate.pass"}) || checked[0].Capabilities == nil {
		t.Errorf("checked %+v", checked)
	}
	demand(t, call(t, append([]string{"agents", "check"}, folders...)...).ok(t), "nothing is wrong", "5")

	d := develop(t, t.TempDir(), "--agents", t.TempDir())
	applied := read[[]appliedAgent](t, d.call(t, append([]string{"agents", "apply", "-o", "json"}, folders...)...).ok(t))
	listed := read[map[string]string](t, d.call(t, "agents", "list", "-o", "json").ok(t))
	for _, a := range applied {
		if a.Version == "" || listed[a.Agent] != a.Version {
			t.Errorf("applied %+v, listed %v", a, listed)
		}
	}
	if len(applied) != 5 || len(listed) != 5 {
		t.Errorf("applied %d, listed %d", len(applied), len(listed))
	}
	for _, out := range []string{d.call(t, "agents", "list").ok(t), d.call(t, append([]string{"agents", "apply"}, folders...)...).ok(t)} {
		demand(t, out, "AGENT", "VERSION", "waits", listed["waits"])
	}
	if other := read[map[string]string](t, d.call(t, "agents", "list", "-n", "other", "-o", "json").ok(t)); len(other) != 0 {
		t.Errorf("another namespace has %v", other)
	}
}

func TestASubagentOfAnotherFolderIsAllowedWhenThatIsSaid(t *testing.T) {
	folder := t.TempDir()
	write(t, "instructions: x\nmodel: scripted/echo\nsubagents: [echo]\n", folder, "asks-echo.yaml")
	d := develop(t, t.TempDir())
	for _, verb := range []string{"check", "apply"} {
		args := []string{"agents", verb, "--agents", folder, "-o", "json"}
		d.call(t, args...).fails(t, exitFailed, "asks-echo.yaml:3: subagents[0]", `no agent "echo"`, "--allow-missing-subagents")
		if list := read[[]appliedAgent](t, d.call(t, append(args, "--allow-missing-subagents")...).ok(t)); len(list) != 1 || list[0].Agent != "asks-echo" {
			t.Errorf("%s: %+v", verb, list)
		}
	}
	d.call(t, "run", "start", "asks-echo", "-m", "go", "--wait").ok(t)
}

func TestEveryMistakeOfAFileHasItsLine(t *testing.T) {
	folder := t.TempDir()
	write(t, "instructions: x\nmodel: a/b\ncolour: red\nsize: 5\n", folder, "one.yaml")
	write(t, "instructions: x\n", folder, "two.yaml")
	r := call(t, "agents", "check", "--agents", folder)
	if r.code != exitFailed || r.out != "" || strings.Count(r.err, "\n") != 3 {
		t.Errorf("exit %d:\n%s%s", r.code, r.out, r.err)
	}
	demand(t, r.err, "one.yaml:3: colour", "one.yaml:4: size", "two.yaml", "model")
}

func TestDoctorLooksAtADevelopmentServer(t *testing.T) {
	d := develop(t, t.TempDir())
	list := read[[]diagnosis](t, d.call(t, "doctor", "-o", "json").ok(t))
	verdicts := make(map[jetstream.Verdict]int)
	for _, one := range list {
		verdicts[one.Verdict]++
		if one.What == "" || one.Detail == "" {
			t.Errorf("diagnosis %+v", one)
		}
	}
	// An outside connection cannot see whether the server syncs.
	if verdicts[jetstream.Wrong] != 0 || verdicts[jetstream.Unverifiable] != 1 || verdicts[jetstream.Right] < 10 {
		t.Errorf("verdicts %v in %+v", verdicts, list)
	}
	demand(t, d.call(t, "doctor").ok(t), "right         server: version", "unverifiable  server: sync_interval", "stream AGENT_LOG_0", "workers: one answers; namespace default has 5 agents", "scripts on this machine")
}

func TestDoctorTellsWhichProvidersHaveTheirKeysAndShowsNone(t *testing.T) {
	d, folder := develop(t, t.TempDir()), t.TempDir()
	key := write(t, "hunter2-file\n", folder, "key")
	configured := write(t, "providers:\n  claude: { kind: anthropic, key_file: "+key+" }\n  other: { kind: openai, key_env: OTHER }\n  local: { kind: openai_compatible, base_url: 'http://127.0.0.1:11434/v1' }\n", folder, "config.yaml")
	out := callIn(t, variables{"OPENAI_API_KEY": "hunter2-env"}, "", "doctor", "-s", d.url, "--config", configured).ok(t)
	demand(t, out, "right         provider claude on this machine: kind anthropic; its key is there, from "+key,
		"right         provider openai on this machine: kind openai; its key is there, from OPENAI_API_KEY",
		"right         provider gemini on this machine: kind gemini; not in use: GEMINI_API_KEY is not set",
		"right         provider local on this machine: kind openai_compatible at http://127.0.0.1:11434/v1; asked without a key",
		"unverifiable  provider other on this machine: kind openai; it has no key here: OTHER is not set")
	if strings.Contains(out, "hunter2") {
		t.Errorf("doctor shows a key:\n%s", out)
	}
	missing := write(t, "providers: { claude: { kind: anthropic, key_file: "+filepath.Join(folder, "gone")+" } }\n", folder, "missing.yaml")
	d.call(t, "doctor", "--config", missing).failsAfter(t, exitFailed, "wrong         provider claude", "no such file", "settings are wrong")
	for _, args := range [][]string{{"serve", "-s", d.url}, {"dev", "--data", filepath.Join(folder, "data")}} {
		call(t, append(args, "--config", missing)...).fails(t, exitUsage, "providers.claude.key_file", "no such file")
	}
}

func TestDoctorTellsOfSecretsServersAndThePolicy(t *testing.T) {
	d, folder := develop(t, t.TempDir()), t.TempDir()
	key := write(t, "hunter2-file\n", folder, "key")
	policy := write(t, "namespaces: { default: { agents: ['*'] } }\n", folder, "policy.yaml")
	configured := write(t, "policy: "+policy+"\nsecrets:\n  there: { key_env: THERE, hosts: [api.example.com] }\n  filed: { key_file: "+key+" }\n  away: { key_env: AWAY }\nmcp:\n  closed: { url: 'http://127.0.0.1:1/mcp', headers: { Authorization: 'Bearer ${there}' } }\n  keyless: { command: [server], env: { KEY: '${away}' } }\nhttp: { allow: [127.0.0.1] }\n", folder, "config.yaml")
	r := callIn(t, variables{"THERE": "hunter2-env"}, "", "doctor", "-s", d.url, "--config", configured)
	r.failsAfter(t, exitFailed, "1 settings are wrong")
	demand(t, r.out, "right         secret there on this machine: it is there, from THERE, and HTTP routes may take it to api.example.com",
		"right         secret filed on this machine: it is there, from "+key,
		"unverifiable  secret away on this machine: AWAY is not set",
		"wrong         MCP server closed from this machine", "unverifiable  MCP server keyless from this machine: it was not asked", "AWAY is not set",
		"right         policy "+policy+": it rules the namespaces default")
	if strings.Contains(r.out+r.err, "hunter2") {
		t.Errorf("doctor shows a secret:\n%s%s", r.out, r.err)
	}
	broken := write(t, "policy: "+write(t, "namespace: {}\n", folder, "broken.yaml")+"\nsecrets: { filed: { key_file: "+filepath.Join(folder, "gone")+" } }\n", folder, "other.yaml")
	r = d.call(t, "doctor", "--config", broken)
	r.failsAfter(t, exitFailed, "2 settings are wrong")
	demand(t, r.out, "wrong         secret filed", "no such file", "wrong         policy ", "namespace")
}

func TestDoctorTellsWhichKeysOfTheEncryptionAreThereAndShowsNone(t *testing.T) {
	d, folder := develop(t, t.TempDir()), t.TempDir()
	key := strings.Repeat("ab", 32)
	configured := write(t, "encryption:\n  keys:\n    - { id: there, key_env: THERE }\n    - { id: filed, key_file: "+write(t, key+"\n", folder, "key")+" }\n    - { id: away, key_env: AWAY }\n    - { id: short, key_env: SHORT }\n    - { id: gone, key_file: "+filepath.Join(folder, "gone")+" }\n", folder, "config.yaml")
	r := callIn(t, variables{"THERE": key, "SHORT": "hunter2-short"}, "", "doctor", "-s", d.url, "--config", configured)
	r.failsAfter(t, exitFailed, "2 settings are wrong")
	demand(t, r.out, "right         encryption key there on this machine: it is there, from THERE",
		"right         encryption key filed on this machine: it is there, from "+folder,
		"unverifiable  encryption key away on this machine: AWAY is not set",
		"wrong         encryption key short on this machine: the key must be 32 random bytes",
		"wrong         encryption key gone on this machine", "no such file")
	if strings.Contains(r.out+r.err, key) || strings.Contains(r.out+r.err, "hunter2") {
		t.Errorf("doctor shows a key:\n%s%s", r.out, r.err)
	}
}

func TestDoctorFailsWhenSomethingIsWrong(t *testing.T) {
	url := natsServer(t).ClientURL()
	for _, args := range [][]string{nil, {"-o", "json"}} {
		r := call(t, append([]string{"doctor", "-s", url}, args...)...)
		if r.code != exitFailed {
			t.Errorf("exit %d", r.code)
		}
		demand(t, r.out, "AGENT_LOG_0", "wrong", "missing", "no worker answers")
		demand(t, r.err, "settings are wrong")
	}
	// A count that was configured is not replaced by the stored one.
	d := develop(t, t.TempDir())
	r := d.call(t, "doctor", "--config", write(t, "layout: { shards: 3 }\n", t.TempDir(), "config.yaml"))
	if r.code != exitFailed {
		t.Errorf("exit %d", r.code)
	}
	demand(t, r.out, "shards: is 1, must be 3")
}

func TestProvisionMakesWhatIsMissingAndChangesNothing(t *testing.T) {
	url, config := natsServer(t).ClientURL(), write(t, "layout: { shards: 1 }\n", t.TempDir(), "config.yaml")
	demand(t, call(t, "provision", "-s", url, "--config", config).ok(t), "1 shards, 1 replicas")
	if p := read[provisioned](t, call(t, "provision", "-s", url, "--config", config, "-o", "json").ok(t)); p != (provisioned{1, 1}) {
		t.Errorf("provisioned %+v", p)
	}
	// A count that is left out is the stored one.
	if p := read[provisioned](t, call(t, "provision", "-s", url, "-o", "json").ok(t)); p != (provisioned{1, 1}) {
		t.Errorf("provisioned %+v", p)
	}
	other := write(t, "layout: { shards: 8 }\n", t.TempDir(), "config.yaml")
	call(t, "provision", "-s", url, "--config", other).fails(t, exitFailed, "AGENT_LOG_0", "shards is 1, must be 8", "configure this process with the stored one")
}

func TestVersionNamesTheProgramAndItsFormats(t *testing.T) {
	if v := read[versionInfo](t, call(t, "version", "-o", "json").ok(t)); v.Version != version() || v.Go == "" || v.Platform == "" || v.Checkpoint != projector.CheckpointVersion || v.Fold != projector.FoldVersion {
		t.Errorf("version %+v", v)
	}
	demand(t, call(t, "version").ok(t), "agentruntime "+version())
}
