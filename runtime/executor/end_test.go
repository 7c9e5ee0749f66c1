//go:build linux

package executor_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/runtime/executor"

	loop "github.com/agentruntime/agentruntime/runtime"
)

func TestCallbacksAreToldWhenTheirScriptEnds(t *testing.T) {
	for name, c := range map[string]struct{ script, configured, want time.Duration }{
		"its own bound": {9 * time.Second, 70 * time.Second, 9 * time.Second}, "the configured one": {0, 70 * time.Second, 70 * time.Second}, "the default": {0, 0, 30 * time.Second},
	} {
		began := time.Now()
		var end time.Time
		var known bool
		script := executor.Script{Code: "await ping()", Bindings: []string{"ping"}, Limits: loop.ScriptLimits{Timeout: c.script},
			Call: func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
				end, known = loop.ScriptEnd(ctx)
				return nil, nil
			}}
		if _, err := execute(t, newFactory(t, &executor.Factory{Warm: -1, Timeout: c.configured}), script); err != nil {
			t.Fatal(err)
		}
		if at := end.Sub(began); !known || at < c.want || at > c.want+time.Since(began) {
			t.Errorf("%s: told %s (%t), want %s", name, at, known, c.want)
		}
	}
}
