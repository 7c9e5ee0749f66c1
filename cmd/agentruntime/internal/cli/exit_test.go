package cli

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// plainServer starts a NATS server without JetStream.
func plainServer(t *testing.T) (url string) {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server is not ready")
	}
	return s.ClientURL()
}

// aRun has the form of a run's id.
const aRun = "s1-00000000"

// asking are the verbs that a worker answers.
var asking = [][]string{
	{"run", "start", "echo", "-m", "go"}, {"run", "start", "echo", "-m", "go", "--wait"}, {"run", "continue", "s1", "-m", "go"},
	{"run", "continue", "s1", "-m", "go", "--wait"}, {"run", "get", aRun}, {"run", "list"}, {"run", "watch", aRun}, {"run", "events", aRun},
	{"run", "tree", aRun}, {"run", "cancel", aRun}, {"run", "cancel", aRun, "--wait"}, {"run", "message", aRun, "-m", "go"}, {"run", "retry", aRun}, {"run", "retry", aRun, "--wait"},
	{"run", "wait", aRun}, {"budget", "show", aRun}, {"budget", "topup", aRun, "--steps", "1"},
	{"call", "list", "--open"}, {"call", "settle", aRun, "call_1", "--result", "true"},
	{"call", "list", "--unknown"}, {"call", "list", "--unknown", "--run", aRun}, {"call", "resolve", aRun, "c", "0", "--as", "done"},
	{"agents", "apply", "--agents", "testdata/agents", "--capabilities", "testdata/capabilities"}, {"agents", "list"},
}

// both runs a check with either form of output: errors are lines in both.
func both(t *testing.T, args []string, check func(t *testing.T, args []string)) {
	t.Helper()
	for _, form := range []string{"text", "json"} {
		t.Run(strings.Join(args, " ")+" as "+form, func(t *testing.T) {
			check(t, append(append([]string{}, args...), "-o", form))
		})
	}
}

func TestWithoutNATSEveryVerbThatNeedsItExitsWith3(t *testing.T) {
	for _, args := range append(asking, []string{"doctor"}, []string{"provision"}, []string{"rebuild"}, []string{"serve", "--metrics", "off"}) {
		both(t, args, func(t *testing.T, args []string) {
			call(t, append(args, "-s", "nats://127.0.0.1:1")...).fails(t, exitUnreachable, "nats://127.0.0.1:1", "is the server running")
		})
	}
}

func TestWithoutAWorkerEveryVerbThatNeedsOneExitsWith3(t *testing.T) {
	url := natsServer(t).ClientURL()
	for _, args := range asking {
		both(t, args, func(t *testing.T, args []string) {
			call(t, append(args, "-s", url)...).fails(t, exitUnreachable, "no worker answers at "+url, "agentruntime dev", "agentruntime serve")
		})
	}
}

func TestWithoutJetStreamEveryVerbThatNeedsItExitsWith3(t *testing.T) {
	url := plainServer(t)
	for _, args := range append(asking, []string{"doctor"}, []string{"provision"}, []string{"rebuild"}, []string{"serve", "--metrics", "off"}) {
		both(t, args, func(t *testing.T, args []string) {
			call(t, append(args, "-s", url, "--timeout", "50ms")...).fails(t, exitUnreachable)
		})
	}
	call(t, "provision", "-s", url, "--timeout", "50ms").fails(t, exitUnreachable, "is JetStream enabled")
}

func TestARefusalExitsWith1AndItsReason(t *testing.T) {
	d := develop(t, t.TempDir())
	held := d.gate(t)
	admitted := d.start(t, "waits", "-m", "go", "--session", "busy")
	session, run := admitted.Session, admitted.Run
	request := <-held
	broken := filepath.Dir(write(t, "model: x\n", t.TempDir(), "broken.yaml"))
	for _, test := range []struct {
		reason string
		args   []string
	}{
		{"unknown_agent: namespace default has no agent", []string{"run", "start", "nobody", "-m", "go"}},
		{"unknown_agent: namespace other has no agent", []string{"run", "start", "echo", "-m", "go", "-n", "other"}},
		{"unknown_agent: namespace default has no agent", []string{"run", "start", "nobody", "-m", "go", "--wait"}},
		{"invalid_input", []string{"run", "start", "reports", "--input", `{"month": 1}`}},
		{"session_exists", []string{"run", "start", "echo", "-m", "go", "--session", session}},
		{"unknown_session", []string{"run", "continue", "nowhere", "-m", "go"}},
		{"session_busy", []string{"run", "continue", session, "-m", "go"}},
		{"session_busy", []string{"run", "continue", session, "-m", "go", "--wait"}},
		{"unknown_run: there is no run " + aRun, []string{"run", "get", aRun}},
		{"unknown_run: there is no run " + aRun, []string{"run", "watch", aRun}},
		{"unknown_run: there is no run " + aRun, []string{"run", "events", aRun}},
		{"unknown_run: there is no run " + aRun, []string{"run", "tree", aRun}},
		{"unknown_run: there is no run " + aRun, []string{"run", "wait", aRun}},
		{"unknown_run: there is no run " + aRun, []string{"budget", "show", aRun}},
		{"unknown_run: there is no run " + aRun, []string{"run", "cancel", aRun}},
		{"unknown_run: there is no run " + aRun, []string{"run", "cancel", aRun, "--wait"}},
		{"unknown_run: there is no run " + aRun, []string{"run", "message", aRun, "-m", "go"}},
		{"unknown_run: there is no run " + aRun, []string{"run", "retry", aRun}},
		{"unknown_run: there is no run " + aRun, []string{"budget", "topup", aRun, "--steps", "1"}},
		{"session_busy", []string{"run", "retry", run}},
		{"no_budget", []string{"budget", "topup", run, "--steps", "1"}},
		{"instructions", []string{"agents", "check", "--agents", broken}},
		{"instructions", []string{"agents", "apply", "--agents", broken}},
	} {
		both(t, test.args, func(t *testing.T, args []string) {
			r := d.call(t, args...)
			if strings.HasPrefix(test.args[0], "agents") {
				if r.code != exitFailed || r.out != "" || !strings.Contains(r.err, test.reason) {
					t.Errorf("exit %d, printed %s%s", r.code, r.out, r.err)
				}
				return
			}
			r.fails(t, exitFailed, test.reason)
		})
	}
	if err := request.Respond([]byte(`"passed"`)); err != nil {
		t.Fatal(err)
	}
}

func TestAWrongCommandLineExitsWith2BeforeAnythingIsAsked(t *testing.T) {
	file := write(t, `{"month": `, t.TempDir(), "input.json")
	for _, test := range []struct {
		word string
		args []string
	}{
		{"unknown command", []string{"bogus"}},
		{"unknown flag: --bogus; see agentruntime run list --help", []string{"run", "list", "--bogus"}},
		{"see agentruntime run list --help", []string{"run", "list", "--limit", "many"}},
		{"see agentruntime run --help", []string{"run", "bogus"}},
		{"see agentruntime agents --help", []string{"agents", "bogus"}},
		{"AGENT", []string{"run", "start", "-m", "go"}},
		{"AGENT", []string{"run", "start", "one", "two", "-m", "go"}},
		{"SESSION", []string{"run", "continue", "-m", "go"}},
		{"RUN", []string{"run", "get"}},
		{"RUN", []string{"run", "watch"}},
		{"RUN", []string{"run", "events"}},
		{"see agentruntime run list --help", []string{"run", "list", "all"}},
		{"see agentruntime version --help", []string{"version", "please"}},
		{"run", []string{"run", "get", "nonsense"}},
		{"run", []string{"run", "watch", "nonsense"}},
		{"run", []string{"run", "events", "nonsense"}},
		{"RUN", []string{"run", "tree"}},
		{"run", []string{"run", "tree", "nonsense"}},
		{"see agentruntime run wait --help", []string{"run", "wait"}},
		{"run", []string{"run", "wait", aRun, "nonsense"}},
		{"--within -1s: must be positive", []string{"run", "wait", aRun, "--within", "-1s"}},
		{"--within 0s: must be positive", []string{"run", "wait", aRun, "--within", "0s"}},
		{"RUN", []string{"run", "cancel"}},
		{"run", []string{"run", "cancel", "nonsense", "--wait"}},
		{"run", []string{"run", "message", "nonsense", "-m", "go"}},
		{"--message", []string{"run", "message", aRun}},
		{"standard input is empty", []string{"run", "message", aRun, "-m", "-"}},
		{"run", []string{"run", "retry", "nonsense"}},
		{"label", []string{"run", "retry", aRun, "-l", "team"}},
		{"see agentruntime budget --help", []string{"budget", "bogus"}},
		{"run", []string{"budget", "show", "nonsense"}},
		{"run", []string{"budget", "topup", "nonsense", "--steps", "1"}},
		{"--input-tokens", []string{"budget", "topup", aRun}},
		{"--open", []string{"call", "list"}},
		{"RUN CALL", []string{"call", "settle", aRun}},
		{"exactly one of --result and --error", []string{"call", "settle", aRun, "call_1"}},
		{"is not JSON", []string{"call", "settle", aRun, "call_1", "--result", "yes"}},
		{"none below zero", []string{"budget", "topup", aRun, "--steps", "1", "--output-tokens", "-1"}},
		{"--state: \"done\" is no state; known are pending", []string{"run", "list", "--state", "failed,done"}},
		{"--agent", []string{"run", "list", "--agent", "a b"}},
		{"--older-than: \"2 days\" is no age", []string{"run", "list", "--older-than", "2 days"}},
		{"--newer-than", []string{"run", "list", "--newer-than", "-1h"}},
		{"--parent", []string{"run", "list", "--parent", "nonsense"}},
		{"--root", []string{"run", "list", "--root", "nonsense"}},
		{"--limit", []string{"run", "list", "--limit", "-1"}},
		{"--all", []string{"run", "list", "--limit", "5", "--all"}},
		{"label", []string{"run", "list", "-l", "team"}},
		{"--message", []string{"run", "start", "echo"}},
		{"--message", []string{"run", "start", "echo", "-m", "go", "--input", "{}"}},
		{"--message", []string{"run", "start", "echo", "--input", "{}", "--input-file", file}},
		{"--message", []string{"run", "continue", "s1"}},
		{"not JSON", []string{"run", "start", "echo", "--input", "{month: 1}"}},
		{"not JSON", []string{"run", "start", "echo", "--input-file", file}},
		{"read the input", []string{"run", "start", "echo", "--input-file", file + ".none"}},
		{"label", []string{"run", "start", "echo", "-m", "go", "-l", "team"}},
		{"standard input is empty", []string{"run", "start", "echo", "-m", "-"}},
		{"text or json", []string{"run", "list", "-o", "xml"}},
		{"namespace", []string{"run", "list", "-n", "a.b"}},
		{"positive", []string{"run", "list", "--timeout", "0s"}},
		{`--timeout "soon": must be a duration`, []string{"run", "list", "--timeout", "soon"}},
		{"cannot be read", []string{"run", "list", "--config", file + ".none"}},
		{"config.yaml:1: nats.sever: is not a field; did you mean server?", []string{"run", "list", "--config", write(t, "nats: { sever: x }\n", t.TempDir(), "config.yaml")}},
		{"--agents", []string{"agents", "check"}},
		{"--agents", []string{"agents", "apply"}},
		{"no such folder", []string{"agents", "check", "--agents", file + ".none"}},
		{"it is a file", []string{"agents", "check", "--agents", file}},
		{"it is a file", []string{"agents", "apply", "--agents", "testdata/agents", "--capabilities", file}},
		{"write it as 127.0.0.1:9464, or off", []string{"serve", "--metrics", "on"}},
		{"--sweep 1ms: must be at least 1s", []string{"serve", "--sweep", "1ms"}},
		{"--sweep 0s: must be at least 1s", []string{"serve", "--sweep", "0s"}},
		{"--scripts " + file + ".none: there is no such folder", []string{"serve", "--scripts", file + ".none"}},
		{`there is no command "nonsense"`, []string{"help", "nonsense"}},
		{`there is no command "run nonsense"`, []string{"help", "run", "nonsense"}},
		{`--after "x": must be a whole number, 0 or more; see agentruntime run watch --help`, []string{"run", "watch", aRun, "--after", "x"}},
		{`--steps "x": must be a whole number; see`, []string{"budget", "topup", aRun, "--steps", "x"}},
		{`--list "x": must be true or false; see`, []string{"serve", "--list=x"}},
		{`--within "x": must be a duration such as 30s or 5m; see`, []string{"run", "wait", aRun, "--within", "x"}},
		{`--label "": must be key=value; see`, []string{"run", "list", "-l", ""}},
		{`--label "team": must be key=value; see`, []string{"run", "list", "-l", "team"}},
		{"CALL is empty", []string{"call", "resolve", aRun, "", "0", "--as", "done"}},
		{"CALL is empty", []string{"call", "settle", aRun, " ", "--result", "true"}},
		{"SESSION is empty", []string{"run", "continue", "", "-m", "go"}},
		{"AGENT is empty", []string{"run", "start", "", "-m", "go"}},
		{`AGENT "a b" can be no agent's name`, []string{"run", "start", "a b", "-m", "go"}},
		{`--agent "a b" can be no agent's name`, []string{"call", "list", "--open", "--agent", "a b"}},
		{`session "a b"`, []string{"run", "start", "echo", "-m", "go", "--session", "a b"}},
		{`session "a b"`, []string{"run", "continue", "a b", "-m", "go"}},
		{"at most 16 files, not 17", append([]string{"run", "start", "echo", "-m", "go"}, slices.Repeat([]string{"--file", file}, 17)...)},
		{"at most 16 files, not 17", append([]string{"run", "message", aRun, "-m", "go"}, slices.Repeat([]string{"--file", file}, 17)...)},
		{"read the file", []string{"run", "continue", "s1", "-m", "go", "--file", file + ".none"}},
		{"is a folder", []string{"run", "message", aRun, "-m", "go", "--file", t.TempDir()}},
		{"--label: a run has at most", []string{"run", "start", "echo", "-m", "go", "-l", "a=" + strings.Repeat("b", 5000)}},
		{"--label: a run has at most", []string{"run", "retry", aRun, "-l", "a=" + strings.Repeat("b", 5000)}},
		{"must be a JSON object", []string{"run", "start", "echo", "--input", "[1]"}},
		{"nats.server: must be URLs", []string{"run", "list", "-s", "foo bar"}},
		{"no such file", []string{"agents", "check", "--agents", "testdata/agents", "--capabilities", "testdata/capabilities", "--policy", file + ".none"}},
	} {
		call(t, test.args...).fails(t, exitUsage, test.word)
	}
	long := strings.Repeat("a", maxMessage+1)
	callIn(t, variables{}, long, "run", "start", "echo", "-m", "-").fails(t, exitUsage, fmt.Sprint(maxMessage))
}

func TestAMessageThatNATSDoesNotTakeIsRefused(t *testing.T) {
	d := develop(t, t.TempDir())
	callIn(t, variables{}, strings.Repeat("a", maxMessage), "run", "start", "echo", "-m", "-", "-s", d.url).fails(t, exitFailed, "smaller")
}

func TestFlagsComeBeforeTheEnvironmentAndThatBeforeTheFile(t *testing.T) {
	file := write(t, "nats: { server: 'nats://127.0.0.1:3' }\n", t.TempDir(), "config.yaml")
	env := variables{"NATS_URL": "nats://127.0.0.1:2"}
	callIn(t, env, "", "run", "list", "--config", file, "-s", "nats://127.0.0.1:1").fails(t, exitUnreachable, "nats://127.0.0.1:1")
	callIn(t, env, "", "run", "list", "--config", file).fails(t, exitUnreachable, "nats://127.0.0.1:2")
	callIn(t, variables{"AGENTRUNTIME_CONFIG": file}, "", "run", "list").fails(t, exitUnreachable, "nats://127.0.0.1:3")
}

func TestNoSecretIsPrinted(t *testing.T) {
	for _, args := range [][]string{
		{"run", "list", "-s", "nats://me:hunter2@127.0.0.1:1"}, {"doctor", "-s", "nats://hunter2@127.0.0.1:1"},
		{"serve", "-s", "nats://127.0.0.1:1,nats://me:hunter2@127.0.0.1:2", "--metrics", "off"},
	} {
		r := call(t, args...)
		r.fails(t, exitUnreachable, "127.0.0.1:1")
		if strings.Contains(r.err, "hunter2") {
			t.Errorf("%v prints a secret: %s", args, r.err)
		}
	}
}
