package runtime_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestScenarios plays the scenarios of testdata. Each is a text archive:
//
//	definition.json, subagents.json, capabilities.json   the agent; optional
//	task          the message
//	model         the responses, one paragraph each: lines "text T",
//	              "call NAME ARGUMENTS", "script NAME", "finish REASON",
//	              "quote" (complete quoting every result)
//	scripts/NAME  the code of "script NAME"
//	backend       answers: "NAME = JSON", "NAME fails T", "NAME denied T",
//	              "NAME fatal T"
//	host          what the host does: see play.host
//
// and what must come of it: attempts, transcript, requests, dispatches. -update
// rewrites those.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 8 {
		t.Fatalf("found %d scenarios: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := playScenario(t, archive)
			if *update {
				if err := os.WriteFile(file, txtar.Format(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(txtar.Format(archive)), string(txtar.Format(got))); diff != "" {
				t.Errorf("the scenario came out differently (-golden +got):\n%s", diff)
			}
		})
	}
}

// play is one scenario under way.
type play struct {
	*testing.T
	host    *rt.Host
	files   map[string]string
	answers map[string]string // by capability
	parked  [][]string        // for each park, what the host does
	faults  map[string]rt.Fault
}

// playScenario returns the archive with what came of it.
func playScenario(t *testing.T, archive *txtar.Archive) *txtar.Archive {
	p := &play{T: t, files: make(map[string]string), answers: make(map[string]string), faults: make(map[string]rt.Fault)}
	out := &txtar.Archive{Comment: archive.Comment}
	for _, f := range archive.Files {
		p.files[f.Name] = string(f.Data)
		switch f.Name {
		case "attempts", "transcript", "requests", "dispatches":
		default:
			out.Files = append(out.Files, f)
		}
	}
	p.setUp()
	attempts := p.run()
	if err := p.host.Check(); err != nil {
		t.Error(err)
	}
	add := func(name, text string) { out.Files = append(out.Files, txtar.File{Name: name, Data: []byte(text)}) }
	add("attempts", attempts)
	add("transcript", rt.RenderMessages(p.host.Transcript()))
	add("requests", renderRequests(p.host.Model.Requests()))
	var dispatches strings.Builder
	for _, d := range p.host.Backend.Ledger() {
		fmt.Fprintf(&dispatches, "%s/%d %s %s\n", d.CallID, d.Index, d.Capability, d.Input)
	}
	add("dispatches", dispatches.String())
	return out
}

// run makes attempts until the run ends or an error is none of the scenario's.
func (p *play) run() string {
	counts := make(map[string]int)
	p.host.Plan = func(op rt.Op) rt.Fault {
		counts[op.Name]++
		return p.faults[fmt.Sprintf("%s %d", op.Name, counts[op.Name])]
	}
	var b strings.Builder
	for n := 1; n <= 10; n++ {
		result, err := p.host.Run(p.Context())
		var guard *runtime.GuardError
		switch {
		case err == nil:
			reply, err := events.Marshal(result.Reply)
			if err != nil {
				p.Fatal(err)
			}
			fmt.Fprintf(&b, "%d: completed %s\n", n, reply)
			return b.String()
		case errors.Is(err, runtime.ErrWaiting) && len(p.parked) > 0:
			fmt.Fprintf(&b, "%d: waiting\n", n)
			for _, words := range p.parked[0] {
				p.act(words)
			}
			p.parked = p.parked[1:]
			continue
		}
		fmt.Fprintf(&b, "%d: %v\n", n, err)
		if errors.As(err, &guard) || errors.Is(err, rt.ErrBudget) {
			return b.String()
		}
	}
	return b.String()
}

// renderRequests renders requests, each without the messages it shares with the
// one before.
func renderRequests(requests []*runtime.Request) string {
	var b strings.Builder
	var before *runtime.Request
	for i, r := range requests {
		fmt.Fprintf(&b, "request %d\n", i+1)
		shared := 0
		if before == nil {
			b.WriteString(rt.Render(&runtime.Request{System: r.System, Tools: r.Tools}))
		} else {
			for shared < min(len(before.Messages), len(r.Messages)) && reflect.DeepEqual(before.Messages[shared], r.Messages[shared]) {
				shared++
			}
			fmt.Fprintf(&b, "(%d messages as before)\n", shared)
		}
		b.WriteString(rt.RenderMessages(r.Messages[shared:]))
		before = r
	}
	return b.String()
}
