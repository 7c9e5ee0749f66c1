package cli

import (
	"regexp"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/handlers"
)

func TestRunsAreWaitedForUntilAllHaveEnded(t *testing.T) {
	d := develop(t, t.TempDir())
	held := d.gate(t)
	var runs []string
	var gates []*nats.Msg
	for _, id := range []string{"one", "two"} {
		runs = append(runs, d.start(t, "waits", "-m", "go", "--id", id).Run)
		gates = append(gates, <-held)
	}
	wait := begin(t, variables{}, nil, "run", "wait", runs[1], runs[0], runs[1], "-o", "json", "-s", d.url)
	wait.err.await(t, "waiting for 2 of 2 runs")
	for i, m := range gates {
		if err := m.Respond([]byte(`"passed"`)); err != nil {
			t.Fatal(err)
		}
		wait.err.await(t, []string{"1 of 2: run ", "2 of 2: run "}[i]+runs[i]+" has completed")
	}
	if code := wait.exit(t); code != exitOK {
		t.Errorf("exit %d: %s", code, &wait.err)
	}
	golden(t, "wait", wait.out.String())

	failed := d.start(t, "breaks", "-m", "go").Run
	d.call(t, "run", "watch", failed)
	r := d.call(t, "run", "wait", runs[0], failed)
	r.failsAfter(t, exitFailed, runs[0], failed, "completed", "failed", "missing.script.yaml", "run "+failed+" did not complete")
	other := d.start(t, "breaks", "-m", "go").Run
	d.call(t, "run", "watch", other)
	d.call(t, "run", "wait", other, runs[0], failed).failsAfter(t, exitFailed, runs[0], "2 of 3 runs did not complete: "+other+", "+failed)
	if list := readAll[[]handlers.RunDetail](t, d.call(t, "run", "wait", failed, "-o", "json").exits(t, exitFailed).out); len(list) != 1 || len(list[0]) != 1 {
		t.Errorf("waited for %+v", list)
	}
}

func TestAWaitThatEndsBeforeItsRunsDoSaysSo(t *testing.T) {
	d := develop(t, t.TempDir())
	held := d.gate(t)
	run := d.start(t, "waits", "-m", "go").Run
	request := <-held
	r := d.call(t, "run", "wait", run, "--within", "50ms")
	r.failsAfter(t, exitFailed, "50ms are over: 1 of 1 runs had not ended: "+run)
	wait := begin(t, variables{}, nil, "run", "wait", run, "-s", d.url)
	wait.err.await(t, "waiting for 1 of 1 runs")
	wait.stop()
	if code := wait.exit(t); code != exitInterrupted || !regexp.MustCompile("stopped waiting: 1 of 1 runs had not ended").MatchString(wait.err.String()) {
		t.Errorf("exit %d: %s", code, &wait.err)
	}
	if err := request.Respond([]byte(`"passed"`)); err != nil {
		t.Fatal(err)
	}
	demand(t, d.call(t, "run", "wait", run, "--within", "30s").exits(t, exitOK).out, "completed", `"passed"`)
}
