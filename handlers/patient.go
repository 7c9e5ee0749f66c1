package handlers

import (
	"context"
	"errors"

	"github.com/agentruntime/agentruntime/runtime"
)

// patient starts executors and tries again until the context ends. The call it
// is for has its predispatch committed: giving up would make its outcome
// unknown, although nothing was run.
type patient struct {
	runtime.ExecutorFactory
	host *Host
}

// NewExecutor implements runtime.ExecutorFactory.
func (p patient) NewExecutor(ctx context.Context) (runtime.Executor, error) {
	for pause := firstRetry; ; pause = min(2*pause, maxRetry) {
		e, err := p.ExecutorFactory.NewExecutor(ctx)
		if err == nil {
			return e, nil
		}
		p.host.Logger.Warn("a script executor did not start and is started again", "pause", pause, "error", err)
		if p.host.Pause(ctx, pause) != nil {
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
}
