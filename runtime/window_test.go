package runtime

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// drawWindow draws a window with earlier messages, a task and steps of parallel
// calls with any outcomes, and returns where the task stands.
func drawWindow(t *rapid.T) (window []events.Message, task int) {
	sizes := rapid.SampledFrom([]int{0, 1, prunedResult - 1, prunedResult, 5000})
	outcome := rapid.SampledFrom([]events.Outcome{events.OutcomeOK, events.OutcomeError, events.OutcomeDenied, events.OutcomeSkipped, events.OutcomeUnknown})
	add := func(m events.Message) { window = append(window, m) }
	said := func() { add(events.Text(fmt.Sprint("u", len(window)), events.RoleUser, "said")) }
	steps := func(most int) {
		for range rapid.IntRange(0, most).Draw(t, "steps") {
			m := events.Text(fmt.Sprint("a", len(window)), events.RoleAssistant, "thinking")
			for i := range rapid.IntRange(0, 3).Draw(t, "calls") {
				call := events.ToolCall{ID: fmt.Sprintf("c%d_%d", len(window), i), Name: "run_js", Arguments: []byte(`{}`)}
				m.Parts = append(m.Parts, events.Part{Type: events.PartToolCall, Call: &call})
			}
			add(m)
			for _, call := range m.Calls() {
				r := projector.ResultMessage(&call, outcome.Draw(t, "outcome"), strings.Repeat("ä", sizes.Draw(t, "size")))
				if rapid.Bool().Draw(t, "file") {
					r.Parts[0].Result.Parts = append(r.Parts[0].Result.Parts, events.Part{Type: events.PartFile, File: &events.File{Ref: "f"}})
				}
				add(r)
			}
			if len(m.Calls()) == 0 || rapid.Bool().Draw(t, "mail") {
				said()
			}
		}
	}
	if rapid.Bool().Draw(t, "continued") {
		said()
		steps(3)
	}
	task = len(window)
	add(events.Text("task", events.RoleUser, "the task"))
	if rapid.Bool().Draw(t, "mail first") {
		said()
	}
	steps(7)
	return window, task
}

// invalid says what is wrong with a window that is sent.
func invalid(window []events.Message) error {
	seen := make(map[string]bool)
	var open []string
	for _, m := range window {
		if seen[m.ID] {
			return fmt.Errorf("%s stands twice", m.ID)
		}
		seen[m.ID] = true
		for _, p := range m.Parts {
			if p.Result == nil {
				continue
			}
			if m.Role != events.RoleTool || len(open) == 0 || open[0] != p.Result.CallID || len(p.Result.Parts) == 0 {
				return fmt.Errorf("%s is not the next result of %v", m.ID, open)
			}
			open = open[1:]
		}
		if m.Role != events.RoleTool && len(open) > 0 {
			return fmt.Errorf("%s comes before the results of %v", m.ID, open)
		}
		for _, c := range m.Calls() {
			open = append(open, c.ID)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("%v have no result", open)
	}
	return nil
}

func TestAnyCutLeavesAValidWindowWithTheTask(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window, task := drawWindow(t)
		before := fmt.Sprintf("%+v", window)
		steps := rapid.IntRange(1, 9).Draw(t, "kept")
		if at := taskIn(window, "task"); at != task {
			t.Fatalf("the task is found at %d, it stands at %d", at, task)
		}
		kept := keptFrom(window, task, steps)
		if kept <= task || keptFrom(window, task, steps+1) > kept || responsesIn(window[kept:]) > steps {
			t.Fatalf("%d steps begin at %d of %d, the task stands at %d", steps, kept, len(window), task)
		}
		once := pruned(window, kept)
		if err := invalid(once); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(pruned(once, kept), once) {
			t.Error("pruning twice is not pruning once")
		}
		for i := range once {
			same := reflect.DeepEqual(once[i], window[i])
			if large := window[i].Role == events.RoleTool && textBytes(window[i].Parts[0].Result.Parts) >= prunedResult; i >= kept || !large {
				if !same {
					t.Errorf("message %d of %d is pruned, kept from %d", i, len(window), kept)
				}
				continue
			}
			r, was := once[i].Parts[0].Result, window[i].Parts[0].Result
			if same || textBytes(r.Parts) >= prunedResult || r.Outcome != was.Outcome || len(r.Parts) != len(was.Parts) || !strings.Contains(r.Parts[0].Text, fmt.Sprintf("%d bytes. The call's outcome was %s", textBytes(was.Parts), was.Outcome)) {
				t.Errorf("a result was pruned to %+v", r)
			}
		}
		away := old(once, task, kept)
		summary := events.Text(fmt.Sprintf("%s%d-x", summaryPrefix, responsesIn(away)), events.RoleUser, "what was")
		short := summarized(once, task, kept, summary)
		if err := invalid(short); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(short[0], window[task]) || !reflect.DeepEqual(short[2:], window[kept:]) && len(window) > kept || responsesIn(short) != responsesIn(window) {
			t.Errorf("summarized:\n%v\nof\n%v", short, window)
		}
		if again := keptFrom(short, 0, steps); !reflect.DeepEqual(short[again:], window[kept:]) && responsesIn(window[kept:]) > 0 {
			t.Error("another cut keeps other steps")
		}
		if fmt.Sprintf("%+v", window) != before {
			t.Error("the window itself was changed")
		}
	})
}

func TestWhatIsCutOutOfATextIsCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, n := rapid.String().Draw(t, "text"), rapid.IntRange(0, 40).Draw(t, "most")
		got := cutMiddle(text, n)
		if len(text) <= n && got != text || len(text) > n && (!strings.Contains(got, "bytes were left out") || len(got) > n+50 || strings.ToValidUTF8(got, "") != got) {
			t.Errorf("%q cut to %d is %q", text, n, got)
		}
	})
}

func TestAReportedUsageCorrectsLaterEstimates(t *testing.T) {
	for _, c := range []struct{ estimate, input, want int64 }{
		{100, 0, 0}, {0, 5, 0}, {100, 50, 100}, {100, 150, 150}, {1000, 1001, 101}, {10, 1 << 62, maxScale},
	} {
		if got := scaleOf(c.estimate, events.Usage{Input: c.input, Cached: c.input}); got != c.want {
			t.Errorf("an estimate of %d and an input of %d give %d, want %d", c.estimate, c.input, got, c.want)
		}
	}
}
