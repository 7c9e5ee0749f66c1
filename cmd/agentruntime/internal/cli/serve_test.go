package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
)

// readiness asks a worker whether it is ready, and returns the status and what
// it says.
func readiness(t *testing.T, address string) (status int, says string) {
	t.Helper()
	answer, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// natsServer starts a NATS server without a worker.
func natsServer(t *testing.T) *jetstream.Embedded {
	t.Helper()
	e := &jetstream.Embedded{StoreDir: filepath.Join(t.TempDir(), "nats"), Listen: "127.0.0.1:0"}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Shutdown)
	return e
}

// beginServe starts a worker and returns when it runs, with the address of its
// metrics and its configuration.
func beginServe(t *testing.T, url string) (worker *process, metrics, config, data string) {
	t.Helper()
	folder := t.TempDir()
	data = filepath.Join(folder, "data")
	config = write(t, "layout: { shards: 1 }\nworker: { data: "+data+", grace: 1s }\n", folder, "config.yaml")
	worker = begin(t, variables{}, nil, "serve", "-s", url, "--config", config, "--metrics", "127.0.0.1:0", "--scripts", "testdata/agents")
	worker.err.await(t, `"swept the log"`)
	return worker, worker.err.await(t, `"metrics":"([^"]+)"`)[1], config, data
}

func TestServeWorksForOthersUntilItIsStopped(t *testing.T) {
	url := natsServer(t).ClientURL()
	worker, metrics, config, data := beginServe(t, url)
	if status, says := readiness(t, metrics); status != http.StatusOK {
		t.Errorf("/readyz: %d %s", status, says)
	}
	call(t, "agents", "apply", "-s", url, "--agents", "testdata/agents", "--capabilities", "testdata/capabilities").ok(t)
	demand(t, call(t, "run", "start", "echo", "-m", "go", "--wait", "-s", url).ok(t), `{"said":"go"}`)
	r := call(t, "serve", "-s", url, "--config", config, "--metrics", "off")
	r.fails(t, exitFailed, data, "in use by another process")

	worker.stop()
	if code := worker.exit(t); code != exitOK || worker.out.String() != "" {
		t.Errorf("exit %d, standard output %s", code, &worker.out)
	}
	for line := range strings.Lines(spoken(worker.err.String())) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a log line is not JSON: %s", line)
		}
	}
	demand(t, worker.err.String(), "the worker has stopped")
	if _, err := os.Stat(filepath.Join(data, "worker-id")); err != nil {
		t.Error(err)
	}
}

func TestAWorkerKeepsTheListUnlessItMayNot(t *testing.T) {
	url := natsServer(t).ClientURL()
	config := write(t, "layout: { shards: 1 }\n", t.TempDir(), "config.yaml")
	begins := func(env variables, args ...string) *process {
		w := begin(t, env, nil, append([]string{"serve", "-s", url, "--config", config, "--metrics", "off"}, args...)...)
		w.err.await(t, `"swept the log"`)
		return w
	}
	for _, w := range []*process{begins(variables{}, "--list=false"), begins(variables{"AGENTRUNTIME_LIST": "false"}, "--sweep", "1s")} {
		jetstreamtest.Eventually(t, "the worker to answer", func() bool { return call(t, "agents", "list", "-s", url).code == exitOK })
		call(t, "run", "list", "-s", url, "--timeout", "200ms").fails(t, exitUnreachable, "no worker keeps it")
		w.stop()
		w.exit(t)
	}
	begins(variables{"AGENTRUNTIME_LIST": "false"}, "--list")
	jetstreamtest.Eventually(t, "the list", func() bool { return call(t, "run", "list", "-s", url).code == exitOK })
}

func TestATreeGrowsAsLargeAsIsConfigured(t *testing.T) {
	d := begin(t, variables{"AGENTRUNTIME_TREE_WIDTH": "1"}, nil, "dev", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--metrics", "off", "--agents", "testdata/family", "--capabilities", "testdata/capabilities")
	dev := &development{process: d, url: d.out.await(t, `NATS +(nats://\S+)`)[1]}
	d.out.await(t, "Stop with Ctrl-C")
	run := dev.start(t, "parent", "-m", "go").Run
	jetstreamtest.Eventually(t, "the second child to be refused", func() bool {
		out := dev.call(t, "run", "events", run).ok(t)
		return strings.Contains(out, "result spawn_child ok") && strings.Contains(out, "result spawn_child error")
	})
	dev.call(t, "run", "cancel", run, "--wait").exits(t, exitOK)
}

func TestAWorkerWithoutNATSIsNotReadyAndStopsWhenItIsTold(t *testing.T) {
	e := natsServer(t)
	worker, metrics, _, _ := beginServe(t, e.ClientURL())
	e.Shutdown()
	jetstreamtest.Eventually(t, "the worker to be not ready", func() bool {
		status, says := readiness(t, metrics)
		return status == http.StatusServiceUnavailable && strings.Contains(says, "NATS is lost")
	})
	worker.stop()
	if code := worker.exit(t); code != exitOK {
		t.Errorf("exit %d: %s", code, &worker.err)
	}
}

func TestSettingsThatWouldBreakAGuaranteeAreRefused(t *testing.T) {
	url := natsServer(t).ClientURL()
	call(t, "provision", "-s", url, "--config", write(t, "layout: { shards: 1 }\n", t.TempDir(), "config.yaml")).ok(t)
	other := write(t, "layout: { shards: 8 }\n", t.TempDir(), "config.yaml")
	call(t, "serve", "-s", url, "--metrics", "off", "--config", other).fails(t, exitFailed, "AGENT_LOG_0", "shards is 1, must be 8", "configure this process")
}
