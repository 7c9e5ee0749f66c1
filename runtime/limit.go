package runtime

import (
	"fmt"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

// The defaults of events.Limits.
const (
	DefaultRepeatedCalls  = 8
	DefaultSilentAnswers  = 3
	DefaultCallsPerAnswer = 64

	DefaultRejectedCompletions = 5

	// DefaultScriptConcurrent is an executor's, unless it was told another.
	DefaultScriptConcurrent = 8
)

// The most that a definition may give to its scripts.
const (
	MaxScriptCallbacks  = 100_000
	MaxScriptConcurrent = 256
	MaxScriptBytes      = 4 << 20
)

// limits are a definition's limits with their defaults filled in.
type limits struct {
	guards
	script ScriptLimits
	calls  int
}

func limitsOf(d *events.Limits) (limits, error) {
	l := limits{guards{
		repeated: orDefault(d.RepeatedCalls, DefaultRepeatedCalls),
		silent:   orDefault(d.SilentAnswers, DefaultSilentAnswers),
		rejected: orDefault(d.RejectedCompletions, DefaultRejectedCompletions),
	}, ScriptLimits{Callbacks: d.ScriptCallbacks, Concurrent: d.ScriptConcurrent, Output: d.ScriptOutput, Logs: d.ScriptLogs}, orDefault(d.CallsPerAnswer, DefaultCallsPerAnswer)}
	if d.ScriptTimeout != "" {
		var err error
		if l.script.Timeout, err = time.ParseDuration(d.ScriptTimeout); err != nil || l.script.Timeout <= 0 {
			return l, &InputError{"Definition.Limits.ScriptTimeout", "must be a positive duration such as 30s"}
		}
	}
	if d.ScriptCallbacks < 0 || d.ScriptConcurrent < 0 || d.ScriptOutput < 0 || d.ScriptLogs < 0 ||
		d.ScriptCallbacks > MaxScriptCallbacks || d.ScriptConcurrent > MaxScriptConcurrent || max(d.ScriptOutput, d.ScriptLogs) > MaxScriptBytes {
		return l, &InputError{"Definition.Limits", fmt.Sprintf("a script may have at most %d callbacks, %d of them at once, and %d bytes of output and of logs",
			MaxScriptCallbacks, MaxScriptConcurrent, MaxScriptBytes)}
	}
	if d.RepeatedCalls < 0 || d.SilentAnswers < 0 || d.RejectedCompletions < 0 || d.CallsPerAnswer < 0 {
		return l, &InputError{"Definition.Limits", "must not be negative"}
	}
	return l, nil
}

func orDefault(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}
