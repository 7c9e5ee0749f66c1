package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
	"github.com/agentruntime/agentruntime/projector"
)

// lists runs run list until it shows that many runs: the list may be a moment
// old.
func (d *development) lists(t *testing.T, runs int, args ...string) []handlers.Row {
	t.Helper()
	var rows []handlers.Row
	args = append([]string{"run", "list", "-o", "json"}, args...)
	jetstreamtest.Eventually(t, fmt.Sprintf("%d runs in %v", runs, args), func() bool {
		rows = read[[]handlers.Row](t, d.call(t, args...).ok(t))
		return len(rows) == runs
	})
	return rows
}

func TestTheListIsFiltered(t *testing.T) {
	d := family(t)
	listens := d.start(t, "listens", "-m", "go", "--id", "listens", "-l", "team=finance", "-l", "day=Monday").Run
	d.parked(t, listens)
	spent := d.start(t, "spent", "-m", "go", "--id", "spent", "-l", "team=finance").Run
	d.call(t, "run", "wait", spent).exits(t, exitFailed)
	parent, _, _ := d.open(t, "parent")
	tree := read[handlers.TreeNode](t, d.call(t, "run", "tree", parent, "-o", "json").ok(t))
	children := []string{tree.Children[0].Run, tree.Children[1].Run}
	slices.Sort(children)
	for _, test := range []struct {
		args []string
		want []string
	}{
		{nil, append([]string{listens, spent, parent}, children...)},
		{[]string{"--state", "parked"}, []string{listens, parent}},
		{[]string{"--state", "failed,running"}, append([]string{spent}, children...)},
		{[]string{"--state", "failed", "--state", "parked"}, []string{listens, spent, parent}},
		{[]string{"--agent", "child"}, children},
		{[]string{"-l", "team=finance"}, []string{listens, spent}},
		{[]string{"--label", "team=finance", "--label", "day=Monday"}, []string{listens}},
		{[]string{"--newer-than", "1h"}, append([]string{listens, spent, parent}, children...)},
		{[]string{"--older-than", "1h"}, nil},
		{[]string{"--parent", parent}, children},
		{[]string{"--root", parent, "--all"}, append([]string{parent}, children...)},
		{[]string{"--reason", "budget"}, []string{spent}},
		{[]string{"--stuck"}, nil},
	} {
		var got []string
		for _, row := range d.lists(t, len(test.want), test.args...) {
			got = append(got, row.Run)
		}
		slices.Sort(got)
		slices.Sort(test.want)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", test.args, diff)
		}
	}
	text := d.call(t, "run", "list").ok(t)
	demand(t, text, "message: waits for a message", "children: waits for all of 2 children (0 settled)", "budget", "waits for its worker")
}

func TestPagesAreFollowedAsFarAsIsWanted(t *testing.T) {
	page := func(first, n int, next string) handlers.ListAnswer {
		a := handlers.ListAnswer{Runs: []handlers.Row{}, Next: next}
		for i := range n {
			a.Runs = append(a.Runs, handlers.Row{Summary: projector.Summary{Run: fmt.Sprintf("s%d-00000000", first+i)}})
		}
		return a
	}
	for _, test := range []struct {
		args  []string
		asked []string // after and limit of each request
		rows  int
		tells string
	}{
		{nil, []string{" 1000"}, 1000, "--after 1000 goes on"},
		{[]string{"--limit", "2"}, []string{" 2"}, 2, "--after 2 goes on"},
		{[]string{"--limit", "1500"}, []string{" 1000", "1000 500"}, 1500, "--after 1500 goes on"},
		{[]string{"--limit", "2", "--after", "2499"}, []string{"2499 2"}, 1, ""},
		{[]string{"--all"}, []string{" 1000", "1000 1000", "2000 1000"}, 2500, ""},
	} {
		var asked []string
		url := answering(t, func(_ string, request []byte) any {
			var f handlers.Filter
			if err := json.Unmarshal(request, &f); err != nil {
				return err.Error()
			}
			asked = append(asked, fmt.Sprintf("%s %d", f.After, f.Limit))
			first := 0
			fmt.Sscan(f.After, &first)
			if n := min(f.Limit, 2500-first); first+n < 2500 {
				return page(first, n, fmt.Sprint(first+n))
			} else {
				return page(first, n, "")
			}
		})
		r := call(t, append([]string{"run", "list", "-o", "json", "-s", url}, test.args...)...).exits(t, exitOK)
		rows := read[[]handlers.Row](t, r.out)
		if !slices.Equal(asked, test.asked) || len(rows) != test.rows || !strings.HasSuffix(rows[len(rows)-1].Run, "-00000000") {
			t.Errorf("%v: asked %q for %d runs, want %q for %d", test.args, asked, len(rows), test.asked, test.rows)
		}
		if test.tells == "" && r.err != "" || !strings.Contains(r.err, test.tells) {
			t.Errorf("%v: standard error %q", test.args, r.err)
		}
	}
}

func TestAListThatIsBeingBuiltIsAskedForAgain(t *testing.T) {
	asked := 0
	url := answering(t, func(string, []byte) any {
		if asked++; asked < 3 {
			return &handlers.APIError{Code: handlers.CodeUnavailable, Message: "the list is being built"}
		}
		return handlers.ListAnswer{Runs: []handlers.Row{}}
	})
	if out := call(t, "run", "list", "-o", "json", "-s", url).ok(t); strings.TrimSpace(out) != "[]" || asked != 3 {
		t.Errorf("asked %d times: %s", asked, out)
	}
	asked = -1_000_000
	call(t, "run", "list", "--timeout", "50ms", "-s", url).fails(t, exitUnreachable, "run.list", "the list is being built")
}

func TestARowSaysWhatItsRunWaitsFor(t *testing.T) {
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	rows := []handlers.Row{
		{Summary: projector.Summary{Run: "s1-00000000", Agent: "a", State: projector.StateParked, Reason: events.ParkMessage, Wake: "a message", Started: started, Steps: 2}, Stuck: true},
		{Summary: projector.Summary{Run: "s2-00000000", Agent: "a", State: projector.StatePending, Wake: "the next free worker", Started: started}},
		{Summary: projector.Summary{Run: "s3-00000000", Agent: "long-name", State: projector.StateFailed, Reason: "budget", Started: started, Steps: 10}},
		{Summary: projector.Summary{Session: "s4", State: handlers.StateUnreadable, Reason: "damaged"}},
		{Summary: projector.Summary{Session: "s5", State: handlers.StateErased}},
	}
	url := answering(t, func(string, []byte) any { return handlers.ListAnswer{Runs: rows} })
	var lines []string
	for line := range strings.Lines(call(t, "run", "list", "-s", url).ok(t)) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"RUN AGENT STATE STARTED STEPS REASON",
		"s1-00000000 a parked 2026-01-02 03:04:05 2 STUCK: nothing will wake it; message: waits for a message",
		"s2-00000000 a pending 2026-01-02 03:04:05 0 waits for the next free worker",
		"s3-00000000 long-name failed 2026-01-02 03:04:05 10 budget",
		"session s4 unreadable - 0 damaged",
		"session s5 erased - 0",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	// A row without a run has nothing that only a run has.
	data := read[[]json.RawMessage](t, call(t, "run", "list", "-o", "json", "-s", url).ok(t))
	var last bytes.Buffer
	if err := json.Compact(&last, data[4]); err != nil || last.String() != `{"session":"s5","state":"erased"}` {
		t.Errorf("a session that was erased is %s, %v", data[4], err)
	}
}

func TestAListIsAskedForRunsWithUnknownEffects(t *testing.T) {
	var asked handlers.Filter
	url := answering(t, func(_ string, request []byte) any {
		if err := json.Unmarshal(request, &asked); err != nil {
			return err.Error()
		}
		return handlers.ListAnswer{Runs: []handlers.Row{}}
	})
	call(t, "run", "list", "--unknown", "-o", "json", "-s", url).ok(t)
	if !asked.Unknown {
		t.Errorf("asked %+v", asked)
	}
}
