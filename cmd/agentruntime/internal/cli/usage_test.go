package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentruntime/agentruntime/events"
)

// A variable that is not set must not turn a flag off: run list --agent "$UNSET"
// would list everything.
func TestAnEmptyValueOfAFlagIsAWrongUsage(t *testing.T) {
	flags := 0
	walk((&app{}).root(), func(cmd *cobra.Command) {
		if cmd.HasSubCommands() || cmd.Name() == "help" {
			return
		}
		cmd.InheritedFlags() // so that those of the root are there
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains([]string{"string", "stringArray", "stringSlice"}, f.Value.Type()) {
				return
			}
			flags++
			for _, value := range []string{"", " "} {
				args := append(strings.Fields(cmd.CommandPath())[1:], taken[cmd.Name()]...)
				call(t, append(args, "--"+f.Name+"="+value)...).fails(t, exitUsage, "--"+f.Name+" is empty: give it a value, or leave it out")
			}
		})
	})
	if flags < 300 {
		t.Errorf("%d flags were tried", flags)
	}
}

// taken are the arguments of the commands that take some.
var taken = map[string][]string{
	"start": {"echo"}, "continue": {"s1"}, "retry": {aRun}, "message": {aRun}, "cancel": {aRun}, "get": {aRun}, "tree": {aRun}, "wait": {aRun}, "watch": {aRun},
	"events": {aRun}, "show": {aRun}, "topup": {aRun}, "settle": {aRun, "call_1"}, "resolve": {aRun, "call_1", "0"}, "erase": {"s1"},
}

func TestHelpOfACommandIsItsHelp(t *testing.T) {
	for _, path := range []string{"", "run", "run start", "serve"} {
		args := strings.Fields(path)
		if got, want := call(t, append([]string{"help"}, args...)...).ok(t), call(t, append(args, "--help")...).ok(t); got != want {
			t.Errorf("help %s is\n%s\nand not\n%s", path, got, want)
		}
	}
	// It needs no configuration.
	callIn(t, variables{"AGENTRUNTIME_CONFIG": "none"}, "", "help", "run").ok(t)
}

func TestAFactOfADeferredCallSaysWhatItIsAbout(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	until := since.Add(time.Hour)
	for _, test := range []struct {
		payload any
		says    string
	}{
		{events.RunParked{CallID: "call_1", Reason: events.ParkCall, Capability: "desk.approve", Deadline: &until}, "run.parked            waits for the answer of desk.approve to call call_1, or the time 2026-01-02T04:04:05Z"},
		{events.RunParked{CallID: "call_1", Reason: events.ParkCall, Capability: "desk.approve"}, "run.parked            waits for the answer of desk.approve to call call_1"},
		{events.CallAnswered{ID: "1", CallID: "call_1", Output: []byte(`{"approved":true}`), By: "/desk"}, `call.answered         call_1 by /desk: {"approved":true}`},
		{events.CallAnswered{ID: "1", CallID: "call_1", Error: "the owner\nsaid no", By: "/desk"}, "call.answered         call_1 by /desk: error: the owner said no"},
	} {
		e, err := events.New(test.payload)
		if err != nil {
			t.Fatal(err)
		}
		e.Time = since
		if got := describeFact(&e, since); !strings.HasSuffix(got, "s  "+test.says) {
			t.Errorf("%q, want %q", got, test.says)
		}
	}
}
