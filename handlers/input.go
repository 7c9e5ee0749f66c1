package handlers

import (
	"context"
	"fmt"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/tokens"
)

// input builds what the loop is given.
func (a *attempt) input(run *projector.Run) (*runtime.Input, error) {
	name := run.Model()
	model, limits, err := a.d.Models.Model(name)
	if err != nil {
		return nil, fmt.Errorf("agent %s: model %s: %w", a.version.Agent.Slug, name, err)
	}
	if n := a.version.Agent.Limits.ContextTokens; n > 0 {
		limits.ContextTokens = n
	}
	if n := a.version.Agent.Limits.OutputTokens; n > 0 {
		limits.OutputTokens = n
	}
	own := *run
	return &runtime.Input{
		Definition: a.version.Agent, Subagents: a.version.Subagents, Model: metered{model, name, a.meter}, ModelName: name, ModelLimits: limits,
		Store: a.store, Controller: &controller{a.d.Host, a.hold, a.store, a.d.Tree, a.meter}, ExecutorFactory: patient{a.d.Executors, a.d.Host},
		Backend: &backend{host: a.d.Host, services: a.d.Services, carriers: a.d.Carriers, hold: a.hold, run: &own, key: a.store.session.Key, namespace: a.store.session.Key.Namespace, epoch: a.store.claim.Epoch, store: a.store, meter: a.meter,
			script: scriptTimeout(&a.version.Agent), authority: authority{store: a.store}},
		Sink: silentSink{}, Redactor: a.d.Redactor, Estimator: tokens.New(name),
		RunID: a.run, Message: run.Admitted.Message, Capabilities: a.version.Capabilities, Stop: a.d.stop,
		Files: files{a.d.Host, a.store.session.Key},
		Inbox: func() []events.Message { return a.current().Messages },
	}, nil
}

// silentSink is the loop's sink: people are told by the reactions, from what
// is committed.
type silentSink struct{}

// Text implements runtime.Sink.
func (silentSink) Text(context.Context, uint64, string) {}
