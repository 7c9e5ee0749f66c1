package handlers

import (
	"context"
	"fmt"
	"iter"

	"github.com/agentruntime/agentruntime/events"
)

// Sessions lists the sessions of the log, from the log.
type Sessions interface {
	Sessions(ctx context.Context, namespace string) iter.Seq2[events.Key, error]
}

// Sweep looks at every session of the log and hints each one that has something
// to do. Hints may be lost, so each worker sweeps when it starts. It returns
// how many sessions it saw and how many it hinted.
func (h *Host) Sweep(ctx context.Context, sessions Sessions) (seen, hinted int, err error) {
	for key, err := range sessions.Sessions(ctx, "") {
		if err != nil {
			return seen, hinted, fmt.Errorf("sweep: %w", err)
		}
		seen++
		s, _, err := h.load(ctx, key, 0)
		if err != nil {
			if ctx.Err() != nil {
				return seen, hinted, ctx.Err()
			}
			h.Logger.Error("the sweep cannot read a session", "session", key.String(), "error", err)
			continue
		}
		if !s.Runnable() {
			continue
		}
		if err := h.hint(ctx, s); err != nil {
			return seen, hinted, fmt.Errorf("sweep: hint session %s: %w", key, err)
		}
		hinted++
	}
	return seen, hinted, nil
}
