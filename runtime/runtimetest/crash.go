package runtimetest

import (
	"errors"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// Scenario is a run to be disturbed at every point.
type Scenario struct {
	// New returns a fresh world. Two worlds must play alike: the same
	// operations in the same order until a fault.
	New func(t testing.TB) *Host

	// Parked is called after an attempt has parked, and brings about what
	// the run waits for. It may be called again for the same park. When nil,
	// every child is settled.
	Parked func(h *Host)
}

// Report says what CrashEverywhere did.
type Report struct {
	Operations int // of the undisturbed run
	Saves      int // of them
	Points     int // disturbed runs: operations times faults
	Unknown    int // disturbed runs that lost the outcome of a call
}

// maxReported is how many broken runs are reported before giving up.
const maxReported = 5

// CrashEverywhere runs a scenario undisturbed, and then once for each of its
// operations and each fault, recovering until the run ends. Whatever happened,
//
//   - the run ends as the undisturbed one, except for exactly the calls whose
//     outcome must be unknown: a run_js, get_calls or cancel_calls that the
//     fault caught between its predispatch and its result;
//   - every call has one result, directly after its assistant message and in
//     order, and every message stands in the transcript once;
//   - no callback is dispatched twice;
//   - revisions go up from 1 by one;
//   - a crash charges at most one more model request, those that a provider
//     refuses as too large apart;
//   - a window that replaces another is a valid transcript with the task and the
//     newest step;
//   - as long as nothing is unknown, the model sees the very requests of the
//     undisturbed run;
//   - every executor is closed once, and before the next commit;
//   - a run that has completed gives the same reply again and touches nothing.
func CrashEverywhere(t *testing.T, s Scenario) Report {
	t.Helper()
	calm := s.run(t, 0, Works)
	if err := calm.check(nil); err != nil {
		t.Fatalf("the undisturbed run: %v", err)
	}
	ops := calm.host.Ops()[:calm.operations]
	report := Report{Operations: len(ops)}
	broken := 0
	for _, op := range ops {
		if op.Name == OpSave {
			report.Saves++
		}
		for _, fault := range Faults {
			if !fault.kills() && op.Name == OpText {
				continue // a sink has no way to fail
			}
			disturbed := s.run(t, op.N, fault)
			disturbed.unknown = lostCalls(ops, op.N, fault)
			report.Points++
			report.Unknown += disturbed.unknown
			if err := disturbed.check(calm); err != nil {
				t.Errorf("%s, %s: %v", op, fault, err)
				if broken++; broken == maxReported {
					t.Fatal("too many broken runs")
				}
			}
		}
	}
	t.Logf("%d crash points: %d operations, %d of them saves; %d lost the outcome of a call", report.Points, report.Operations, report.Saves, report.Unknown)
	return report
}

// course is one run of a scenario, from its first attempt to its end.
type course struct {
	host       *Host
	operations int    // until the end
	crashes    int    // attempts that a fault ended
	unknown    int    // calls whose outcome must be unknown
	reply      string // as JSON
	failure    string
	problems   []error
}

// run drives the scenario to its end with one fault at operation n.
func (s Scenario) run(t *testing.T, n int, fault Fault) *course {
	t.Helper()
	c := &course{host: s.New(t)}
	c.host.Plan = func(op Op) Fault {
		switch {
		case op.N == n:
			return fault
		case op.N > maxOperations:
			return KilledFirst // a loop that would go on for ever
		}
		return Works
	}
	// An attempt ends the run, parks or meets the one fault.
	for range maxAttempts {
		result, err := c.host.Run(t.Context())
		switch {
		case errors.Is(err, runtime.ErrWaiting):
			if result == nil || !result.Waiting {
				c.problems = append(c.problems, errors.New("an attempt that waits has no result that says so"))
			}
			s.parked(c.host)
			continue
		case errors.Is(err, ErrKilled), errors.Is(err, ErrInjected):
			c.crashes++
			continue
		case err != nil:
			c.failure = err.Error()
		default:
			c.reply = jsonOf(result.Reply)
		}
		c.operations = len(c.host.Ops())
		if err == nil {
			c.replay(t)
		}
		return c
	}
	c.problems = append(c.problems, errors.New("the run does not come to an end"))
	return c
}

// More than any scenario needs.
const (
	maxAttempts   = 50   // parks and crashes
	maxOperations = 5000 // of all attempts
)

func (s Scenario) parked(h *Host) {
	if s.Parked != nil {
		s.Parked(h)
		return
	}
	h.Controller.SettleAll()
}

// replay runs a completed run once more.
func (c *course) replay(t *testing.T) {
	t.Helper()
	result, err := c.host.Run(t.Context())
	switch {
	case err != nil:
		c.problems = append(c.problems, errors.Join(errors.New("running the completed run again"), err))
	case jsonOf(result.Reply) != c.reply:
		c.problems = append(c.problems, errors.New("running the completed run again gives another reply: "+jsonOf(result.Reply)))
	}
	for _, op := range c.host.Ops()[c.operations:] {
		if op.Name != OpLoadCheckpoint {
			c.problems = append(c.problems, errors.New("running the completed run again touches "+op.String()))
		}
	}
}

// lostCalls computes from the undisturbed run how many outcomes a fault at
// operation n must lose: one when it ends the attempt while a call that is never
// repeated stands between its predispatch and its result.
func lostCalls(ops []Op, n int, fault Fault) int {
	under := ""
	for _, op := range ops {
		if op.N > n || op.N == n && fault.first() {
			break
		}
		if op.Name == OpSave {
			under = op.Under
		}
	}
	if ops[n-1].Name == OpClose && !fault.kills() {
		return 0 // a failed teardown ends nothing
	}
	switch under {
	case "run_js", "get_calls", "cancel_calls":
		return 1
	}
	return 0
}

func jsonOf(v any) string {
	data, err := events.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
