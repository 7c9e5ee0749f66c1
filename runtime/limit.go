package runtime

import (
	"time"

	"github.com/agentruntime/agentruntime/events"
)

// The defaults of events.Limits.
const (
	DefaultScriptTimeout  = 30 * time.Second
	DefaultRepeatedCalls  = 8
	DefaultSilentAnswers  = 3
	DefaultCallsPerAnswer = 64

	DefaultRejectedCompletions = 5
)

// limits are a definition's limits with their defaults filled in.
type limits struct {
	guards
	script time.Duration
	calls  int
}

func limitsOf(d *events.Limits) (limits, error) {
	l := limits{guards{
		repeated: orDefault(d.RepeatedCalls, DefaultRepeatedCalls),
		silent:   orDefault(d.SilentAnswers, DefaultSilentAnswers),
		rejected: orDefault(d.RejectedCompletions, DefaultRejectedCompletions),
	}, DefaultScriptTimeout, orDefault(d.CallsPerAnswer, DefaultCallsPerAnswer)}
	if d.ScriptTimeout != "" {
		var err error
		if l.script, err = time.ParseDuration(d.ScriptTimeout); err != nil || l.script <= 0 {
			return l, &InputError{"Definition.Limits.ScriptTimeout", "must be a positive duration such as 30s"}
		}
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
