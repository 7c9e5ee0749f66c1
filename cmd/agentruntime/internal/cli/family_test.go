package cli

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
	"github.com/agentruntime/agentruntime/projector"
)

// family is dev with agents that have children and budgets.
func family(t *testing.T) *development {
	t.Helper()
	return develop(t, t.TempDir(), "--agents", "testdata/family", "--capabilities", "testdata/capabilities")
}

// changing is what differs from one run of a test to the next, or with what
// models are told of their tools.
var changing = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]+"|(?:"worker": )"[^"]*"|(?:"(?:input|output)": )\d+`)

// golden compares what a verb printed with a file. Ids are the same each time,
// since they derive from the commands' ids.
func golden(t *testing.T, name, out string) {
	t.Helper()
	file := "testdata/" + name + ".golden"
	got := changing.ReplaceAllStringFunc(out, func(s string) string {
		if field, _, named := strings.Cut(s, ": "); named && !strings.HasPrefix(s, `"2`) {
			return field + ": …"
		}
		return `"TIME"`
	})
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update rewrites it):\n%s", file, diff)
	}
}

// parked waits until a run waits for something.
func (d *development) parked(t *testing.T, run string) {
	t.Helper()
	jetstreamtest.Eventually(t, "run "+run+" to be parked", func() bool { return d.get(t, run).State == projector.StateParked })
}

// open starts the parent and waits until its two children are at the gate.
func (d *development) open(t *testing.T, id string) (run string, gates []*nats.Msg, pass func()) {
	t.Helper()
	held := d.gate(t)
	run = d.start(t, "parent", "-m", "go", "--id", id).Run
	gates = []*nats.Msg{<-held, <-held}
	d.parked(t, run)
	return run, gates, func() {
		t.Helper()
		for _, m := range gates {
			if err := m.Respond([]byte(`"passed"`)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestATreeShowsARunAndEverythingBelowIt(t *testing.T) {
	d := family(t)
	run, _, pass := d.open(t, "tree")
	golden(t, "tree", d.call(t, "run", "tree", run, "-o", "json").ok(t))
	lines := strings.Split(d.call(t, "run", "tree", run).ok(t), "\n")
	for i, want := range []string{`^RUN +AGENT +STATE +STEPS +TOKENS +REASON$`, `^` + run + ` +parent +parked +2 +\d+\+\d+ +children: waits for all of 2 children \(0 settled\)$`,
		`^├─ \S+ +child +running +1 +\d+\+\d+ +waits for its worker$`, `^└─ \S+ +child +running `} {
		if !regexp.MustCompile(want).MatchString(lines[i]) {
			t.Errorf("line %q, want %s", lines[i], want)
		}
	}
	pass()
	d.call(t, "run", "watch", run).ok(t)
	tree := read[handlers.TreeNode](t, d.call(t, "run", "tree", run, "-o", "json").ok(t))
	if !tree.Settled || len(tree.Children) != 2 || tree.Runs != 3 || tree.Active != 0 {
		t.Errorf("the tree of a run that has ended: %+v", tree)
	}
	child := d.get(t, tree.Children[1].Run)
	demand(t, d.call(t, "run", "get", child.Run).ok(t), "parent   "+run, "root     "+run)
	demand(t, d.call(t, "run", "events", run).ok(t), "run.parked            waits for all of 2 children", "child.settled         "+child.Run+` has completed: "passed"`)
}

func TestAWatchShowsThatARunWaitsAndGoesOn(t *testing.T) {
	d := family(t)
	run, _, pass := d.open(t, "progress")
	watch := begin(t, variables{}, nil, "run", "watch", run, "-s", d.url)
	watch.out.await(t, `run\.progress +waiting: children\n`) // live
	pass()
	watch.out.await(t, `run\.progress +resumed: children\n`)
	if code := watch.exit(t); code != exitOK {
		t.Errorf("exit %d: %s", code, &watch.err)
	}
	all := readAll[watchLine](t, d.call(t, "run", "watch", run, "-o", "json").ok(t))
	want := []string{"run.started", "run.progress", "run.progress", "run.completed"}
	if diff := cmp.Diff(want, typesOf(t, all)); diff != "" {
		t.Fatalf("events (-want +got):\n%s", diff)
	}
	waiting := decode(t, all[1].Event)
	if p, err := events.PayloadOf[events.RunProgressData](&waiting); err != nil || p.Phase != events.PhaseWaiting || p.Reason != events.ParkChildren || p.Until != nil || p.Run != run {
		t.Errorf("the wait is told as %+v, %v", p, err)
	}
	rest := readAll[watchLine](t, d.call(t, "run", "watch", run, "--after", fmt.Sprint(all[1].Sequence), "-o", "json").ok(t))
	if diff := cmp.Diff(all[2:], rest); diff != "" {
		t.Errorf("after the wait (-want +got):\n%s", diff)
	}
}

func TestATreeIsDrawnWithItsGenerations(t *testing.T) {
	leaf := func(run string) handlers.TreeNode {
		return handlers.TreeNode{Summary: projector.Summary{Run: run, Agent: "a", State: projector.StateFailed, Reason: "aborted"}, Error: "aborted:\nit broke"}
	}
	middle, other := leaf("b"), leaf("d")
	middle.Children, other.Children = []handlers.TreeNode{leaf("c")}, []handlers.TreeNode{leaf("e")}
	other.State = handlers.StateNotStarted
	root := handlers.TreeNode{Summary: projector.Summary{Run: "a", State: projector.StateRunning}, Children: []handlers.TreeNode{middle, other}}
	var drawn []string
	for _, row := range treeRows(&root, "", "") {
		drawn = append(drawn, row[0])
	}
	if diff := cmp.Diff([]string{"a", "├─ b", "│  └─ c", "└─ d", "   └─ e"}, drawn); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
	if reason := treeRows(&root, "", "")[1][5]; reason != "aborted: it broke" {
		t.Errorf("reason %q", reason)
	}
}

func TestACancelledTreeIsWaitedForUntilNothingIsUnderWay(t *testing.T) {
	d := family(t)
	run, _, _ := d.open(t, "cancel")
	out := d.call(t, "run", "cancel", run, "--reason", "ordered twice", "--id", "enough", "--wait", "-o", "json").exits(t, exitOK).out
	tree := read[handlers.TreeNode](t, out)
	if !tree.Settled || tree.Run != run || tree.State != projector.StateCancelled || tree.Reason != "ordered twice" || tree.Runs != 3 || tree.Active != 0 {
		t.Errorf("tree %+v", tree)
	}
	d.call(t, "run", "watch", run).failsAfter(t, exitFailed, "run.cancelled", "did not complete")

	// A run that has ended is not cancelled, which is no failure.
	golden(t, "cancel", d.call(t, "run", "cancel", run, "-o", "json").ok(t))
	demand(t, d.call(t, "run", "cancel", run).ok(t), "run "+run+" had ended already: it has been cancelled")
	demand(t, d.call(t, "run", "cancel", run, "--wait").ok(t), "had ended already", "nothing is under way any more; runs in all: 3")
}

func TestHowManyRunsAreUnderWayIsToldWhenItChanges(t *testing.T) {
	node := func(state projector.State, active int) handlers.TreeNode {
		return handlers.TreeNode{Summary: projector.Summary{Run: aRun, State: state}, Runs: 3, Active: active, Settled: active == 0}
	}
	trees := []handlers.TreeNode{node(projector.StateParked, 3), node(projector.StateParked, 3), node(projector.StateParked, 2), node(projector.StateCancelled, 0)}
	url := answering(t, func(verb string, _ []byte) any {
		if verb == handlers.VerbCancel {
			return handlers.Admission{Run: aRun, Session: "s1"}
		}
		next := trees[0]
		trees = trees[1:]
		return next
	})
	r := call(t, "run", "cancel", aRun, "--wait", "-s", url).exits(t, exitOK)
	if want := "agentruntime: runs under way: 3\nagentruntime: runs under way: 2\n"; r.err != want {
		t.Errorf("standard error %q, want %q", r.err, want)
	}
	demand(t, r.out, "run "+aRun+" and everything below it are asked to stop", "nothing is under way any more; runs in all: 3")
}

func TestACancellationThatIsInterruptedSaysWhatIsUnderWay(t *testing.T) {
	url := answering(t, func(verb string, _ []byte) any {
		if verb == handlers.VerbCancel {
			return handlers.Admission{Run: aRun, Session: "s1"}
		}
		return handlers.TreeNode{Summary: projector.Summary{Run: aRun, State: projector.StateRunning}, Runs: 1, Active: 1}
	})
	cancel := begin(t, variables{}, nil, "run", "cancel", aRun, "--wait", "-s", url)
	cancel.err.await(t, "runs under way: 1")
	cancel.stop()
	if code := cancel.exit(t); code != exitInterrupted {
		t.Errorf("exit %d", code)
	}
	demand(t, cancel.err.String(), "was asked to stop", "agentruntime run tree "+aRun)
}

func TestATreeThatIsTooLargeToShowWasCancelledAllTheSame(t *testing.T) {
	url := answering(t, func(verb string, _ []byte) any {
		if verb == handlers.VerbCancel {
			return handlers.Admission{Run: aRun, Session: "s1"}
		}
		return &handlers.APIError{Code: handlers.RejectMalformed, Message: "the tree has more than 2000 runs"}
	})
	call(t, "run", "cancel", aRun, "--wait", "-o", "json", "-s", url).fails(t, exitFailed, "was asked to stop", "more than 2000 runs")
}

func TestACancellationThatIsNotWaitedForIsAskedFor(t *testing.T) {
	d := family(t)
	run, _, _ := d.open(t, "asked")
	demand(t, d.call(t, "run", "cancel", run, "--id", "X").ok(t), "run "+run+" and everything below it are asked to stop")
	d.call(t, "run", "cancel", run, "--id", "X", "--reason", "other").fails(t, exitFailed, "id_conflict")
	r := d.call(t, "run", "wait", run)
	if r.code != exitFailed {
		t.Errorf("exit %d after a run that was cancelled", r.code)
	}
	demand(t, r.out, "cancelled", "cancelled on request")
}

func TestAMessageReachesARunUnderWay(t *testing.T) {
	d := family(t)
	run := d.start(t, "listens", "-m", "go", "--id", "listens").Run
	d.parked(t, run)
	golden(t, "message", d.call(t, "run", "message", run, "-m", "Hello?", "--id", "hello", "-o", "json").ok(t))
	demand(t, d.call(t, "run", "wait", run).exits(t, exitOK).out, `"Hello?"`)
	demand(t, d.call(t, "run", "message", run, "-m", "Hello?", "--id", "hello").ok(t), "run "+run+" has the message")
	d.call(t, "run", "message", run, "-m", "Hello again").fails(t, exitFailed, "run_ended", "continue its session")
	callIn(t, variables{}, "From a file\n", "run", "message", run, "-m", "-", "-s", d.url).fails(t, exitFailed, "run_ended")
	demand(t, d.call(t, "run", "events", run).ok(t), `run.parked            waits for a message`, `message.received      "Hello?"`)
}

func TestAFailedRunIsDrivenAgain(t *testing.T) {
	d := family(t)
	first := d.start(t, "spent", "-m", "go", "--id", "spent", "-l", "team=finance")
	d.call(t, "run", "wait", first.Run).exits(t, exitFailed)
	if got := d.get(t, first.Run); got.Reason != events.FailureBudget {
		t.Fatalf("the run: %+v", got)
	}
	out := d.call(t, "run", "retry", first.Run, "--id", "again", "-o", "json").ok(t)
	golden(t, "retry", out)
	again := read[handlers.Admission](t, out)
	if again.Session != first.Session || again.Run == first.Run {
		t.Errorf("%+v drives %+v again", again, first)
	}
	demand(t, d.call(t, "run", "retry", first.Run, "--id", "again", "--wait").ok(t), "run "+again.Run, "run.completed", `"again"`)
	if got := d.get(t, again.Run); got.Labels["team"] != "finance" {
		t.Errorf("labels %v", got.Labels)
	}
	d.call(t, "run", "retry", again.Run).fails(t, exitFailed, "run_not_failed", "completed")
	d.call(t, "run", "retry", first.Run).fails(t, exitFailed, "run_not_failed")
}

func TestABudgetIsShownAndRaised(t *testing.T) {
	d := family(t)
	run := d.start(t, "held", "-m", "go", "--id", "held").Run
	d.parked(t, run)
	golden(t, "budget", d.call(t, "budget", "show", run, "-o", "json").ok(t))
	demand(t, d.call(t, "budget", "show", run).ok(t), "RUN", "LIMIT", "USED", "OPEN", "REFUSED", run, "1 steps", "its steps are spent")
	demand(t, d.call(t, "run", "get", run).ok(t), "parked", "waits    a top-up of the steps of run ")

	d.call(t, "budget", "topup", run, "--output-tokens", "10").fails(t, exitFailed, "no_budget", "output_tokens", "budget show")
	golden(t, "topup", d.call(t, "budget", "topup", run, "--steps", "1", "--id", "more", "-o", "json").ok(t))
	d.call(t, "run", "wait", run).exits(t, exitOK)
	demand(t, d.call(t, "budget", "topup", run, "--steps", "1", "--id", "more").ok(t), "run "+run+" may use more: 1 steps")
	demand(t, d.call(t, "budget", "show", run).ok(t), "2 steps")

	free := d.start(t, "echo", "-m", "go").Run
	d.call(t, "run", "watch", free).ok(t)
	demand(t, d.call(t, "budget", "show", free).ok(t), "has used nothing of a budget")
	d.call(t, "budget", "topup", free, "--steps", "1").fails(t, exitFailed, "no_budget")
}
