package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

// invoke runs one direct tool other than complete. An error stops the attempt;
// what is only the call's failure is an outcome. With again the call was left
// dispatched by an earlier attempt.
func (l *loop) invoke(ctx context.Context, call *events.ToolCall, again bool) (outcome, error) {
	if call.Name == toolRunJS {
		return l.runJS(ctx, call)
	}
	if tool := l.box.find(call.Name); tool != nil && tool.capability != nil {
		return l.direct(ctx, call, tool.capability, again)
	}
	value, err := l.control(ctx, call)
	if err != nil {
		return toolError(ctx, err)
	}
	text, err := events.Marshal(value)
	if err != nil {
		return outcome{}, fmt.Errorf("encode the result of %s: %w", call.Name, err)
	}
	return outcome{kind: events.OutcomeOK, text: string(text)}, nil
}

// control carries out a call about children.
func (l *loop) control(ctx context.Context, call *events.ToolCall) (any, error) {
	var args struct {
		Session  string   `json:"session"`
		Prompt   string   `json:"prompt"`
		Calls    []string `json:"calls"`
		Mode     string   `json:"mode"`
		Timeout  string   `json:"timeout"`
		Messages bool     `json:"messages"`
	}
	tool := l.box.find(call.Name)
	if tool == nil {
		return nil, fmt.Errorf("there is no tool %q", call.Name)
	}
	if tool.slug != "" {
		return l.in.Controller.Spawn(ctx, call.ID, tool.slug, call.Arguments)
	}
	if err := json.Unmarshal(call.Arguments, &args); err != nil {
		return nil, err
	}
	switch call.Name {
	case toolContinue:
		return l.in.Controller.Continue(ctx, call.ID, args.Session, args.Prompt)
	case toolGetCalls:
		return l.in.Controller.Get(ctx, args.Calls)
	case toolCancelCalls:
		return l.in.Controller.Cancel(ctx, args.Calls)
	}
	request := WaitRequest{Calls: args.Calls, Any: args.Mode == "any", Messages: args.Messages}
	if args.Timeout != "" {
		timeout, err := time.ParseDuration(args.Timeout)
		if err != nil || timeout <= 0 {
			return nil, fmt.Errorf("timeout %q is not a positive duration such as 30s", args.Timeout)
		}
		request.Timeout = timeout
	}
	return l.in.Controller.Wait(ctx, call.ID, request)
}

// runJS runs one script in a realm of its own, which is gone when the result is
// returned.
func (l *loop) runJS(ctx context.Context, call *events.ToolCall) (o outcome, err error) {
	var args struct {
		Code string `json:"code"`
	}
	if err := json.Unmarshal(call.Arguments, &args); err != nil {
		return toolError(ctx, err)
	}
	executor, err := l.in.NewExecutor(ctx)
	if err != nil {
		return outcome{}, fmt.Errorf("start a script executor: %w", err)
	}
	attempt := ctx
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	host := l.callbacks(attempt, call.ID, stop)
	defer func() {
		l.untrusted = host.hasRead()
		if err := executor.Close(); err != nil {
			l.cleanup = errors.Join(l.cleanup, fmt.Errorf("close the executor of call %s: %w", call.ID, err))
		}
	}()
	result, err := executor.Execute(ctx, &Script{Code: args.Code, Bindings: l.box.catalogue.Bindings(), Call: host.serve, Attach: host.attach, Limits: l.limits.script})
	var failed *ScriptError
	aborted := ctx.Err() != nil || err != nil && !errors.As(err, &failed)
	recordErr := host.finish(attempt, aborted)
	if fatal := host.stopped(); fatal != nil {
		return outcome{}, fatal
	}
	if !aborted && recordErr == nil {
		if err := l.keepFiles(ctx, host); err != nil {
			return outcome{}, err
		}
	}
	switch {
	case recordErr != nil && !aborted:
		return outcome{}, fmt.Errorf("record the callbacks of call %s: %w", call.ID, recordErr)
	case ctx.Err() != nil:
		return outcome{}, errors.Join(context.Cause(ctx), err)
	case errors.As(err, &failed):
		explain := host.explain(failed)
		return outcome{kind: host.outcome(failed), text: explain(math.MaxInt), brief: explain}, nil
	case err != nil:
		return outcome{}, fmt.Errorf("run the script of call %s: %w", call.ID, err)
	}
	return scriptOutcome(result)
}

func scriptOutcome(r *ScriptResult) (outcome, error) {
	value := r.Value
	if len(value) == 0 {
		value = json.RawMessage(`null`)
	}
	text, err := events.Marshal(struct {
		Value json.RawMessage `json:"value"`
		Logs  []string        `json:"logs,omitempty"`
	}{value, r.Logs})
	if err != nil {
		return outcome{kind: events.OutcomeError, text: "The script's value is not JSON: " + err.Error()}, nil
	}
	return outcome{kind: events.OutcomeOK, text: string(text)}, nil
}
