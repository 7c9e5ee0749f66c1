package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// Input is everything one attempt of a run needs. All ports are required.
type Input struct {
	Definition  events.AgentDefinition
	Model       Model
	ModelName   string // of Model, as errors name it; empty: the first of Definition
	ModelLimits ModelLimits
	Store       Store
	Backend     Backend
	ExecutorFactory
	Controller Controller
	Sink       Sink
	Redactor   Redactor
	Estimator  Estimator

	// RunID prefixes the ids that the loop mints. It must be unique in the
	// session, and the same for every attempt of one run.
	RunID string

	// Message is the task of a fresh run. It is ignored when the run has a
	// checkpoint.
	Message events.Message

	// Subagents are the definitions of exactly the children that
	// Definition.Subagents names.
	Subagents []events.AgentDefinition

	// Capabilities is what scripts of this run may call.
	Capabilities []events.Capability

	// Stop, when closed, ends the attempt at the next point at which nothing
	// is under way: a call that is dispatched is made and its result
	// committed, and no other is dispatched. Run then returns ErrStopped.
	Stop <-chan struct{}

	// Inbox, when set, returns the messages for the run that are not part of
	// its transcript yet, each with an id of its own. It is asked at every
	// model boundary; what it returns is committed before the model is asked.
	Inbox func() []events.Message

	// Files, when set, keeps the bytes of files. Without it a model gets files
	// in words only, and nothing can be attached.
	Files Files

	// RecoveryNotice is told to the model with its next request, when set.
	RecoveryNotice string
}

// Result is what an attempt came to.
type Result struct {
	Reply   *events.Reply // of a run that has completed
	Waiting bool          // the run has parked; the error is ErrWaiting

	// CleanupError tells that an executor could not be torn down. It
	// changes nothing of the result: log it.
	CleanupError error
}

// Run drives a run from where its checkpoint stands until it completes, waits
// or cannot go on. Called again for the same run it goes on from the newest
// committed checkpoint; for a completed run it returns the reply and touches
// neither model, controller nor executor.
//
// The error is nil when Result.Reply is set, ErrWaiting (possibly joined with
// the CleanupError) when Result.Waiting is set, and otherwise the reason the
// attempt ended, in which case Result is nil and failures to tear down an
// executor are in the error's chain. An *InputError, a *schema.GateError or a
// *ContractError means that nothing was done; a *GuardError or an *OverflowError that
// the run must not go on; any other error that another attempt may succeed.
func Run(ctx context.Context, in Input) (*Result, error) {
	l, err := newLoop(&in)
	if err != nil {
		return nil, err
	}
	err = l.run(ctx)
	switch {
	case err == nil:
		return &Result{Reply: l.checkpoint.Reply, CleanupError: l.cleanup}, nil
	case errors.Is(err, ErrWaiting):
		return &Result{Waiting: true, CleanupError: l.cleanup}, errors.Join(err, l.cleanup)
	}
	return nil, errors.Join(err, l.cleanup)
}

// newLoop checks the input and compiles what does not depend on the
// checkpoint.
func newLoop(in *Input) (*loop, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	limits, err := limitsOf(&in.Definition.Limits)
	if err != nil {
		return nil, err
	}
	box, err := newToolbox(in)
	if err != nil {
		return nil, err
	}
	contract, err := ContractHash(&in.Definition, in.Subagents, in.Capabilities)
	if err != nil {
		return nil, err
	}
	l := &loop{in: in, box: box, contract: contract, limits: limits, dispatched: -1}
	l.base = in.Estimator.Request(l.requestOf(nil))
	return l, nil
}

func (in *Input) check() error {
	for _, port := range []struct {
		name  string
		given bool
	}{
		{"Model", in.Model != nil}, {"Store", in.Store != nil}, {"Backend", in.Backend != nil},
		{"ExecutorFactory", in.ExecutorFactory != nil}, {"Controller", in.Controller != nil}, {"Sink", in.Sink != nil}, {"Redactor", in.Redactor != nil},
		{"Estimator", in.Estimator != nil},
	} {
		if !port.given {
			return &InputError{port.name, "is missing; every port must be given"}
		}
	}
	if in.RunID == "" {
		return &InputError{"RunID", "is empty; ids that the loop mints derive from it"}
	}
	if in.Definition.Slug == "" {
		return &InputError{"Definition.Slug", "is empty"}
	}
	if in.ModelLimits.ContextTokens <= 0 {
		return &InputError{"ModelLimits.ContextTokens", "must be given: the model's context window in tokens"}
	}
	if in.ModelLimits.OutputTokens < 0 || in.ModelLimits.OutputTokens >= in.ModelLimits.ContextTokens {
		return &InputError{"ModelLimits.OutputTokens", "must be at least 0 and less than ContextTokens"}
	}
	var given []string
	for _, s := range in.Subagents {
		given = append(given, s.Slug)
	}
	wanted := slices.Clone(in.Definition.Subagents)
	slices.Sort(given)
	slices.Sort(wanted)
	if !slices.Equal(given, wanted) {
		return &InputError{"Subagents", fmt.Sprintf("are [%s], but the definition names [%s]", strings.Join(given, " "), strings.Join(wanted, " "))}
	}
	if len(slices.Compact(wanted)) != len(given) {
		return &InputError{"Subagents", "name one agent twice"}
	}
	return nil
}

// Empty reports whether a message says nothing.
func isEmpty(m *events.Message) bool {
	return !slices.ContainsFunc(m.Parts, func(p events.Part) bool {
		return p.Type == events.PartFile && p.File != nil || p.Type == events.PartText && strings.TrimSpace(p.Text) != ""
	})
}

// loopContract names the behaviour of the loop that a checkpoint depends on.
// It changes when a checkpoint of the old one cannot be carried on.
const loopContract = "1"

// ContractHash identifies what a run was begun with: the loop's own contract,
// the definition, its children and its capabilities. A checkpoint is resumed
// only under the same one. The order of subagents and capabilities does not
// count.
func ContractHash(d *events.AgentDefinition, subagents []events.AgentDefinition, capabilities []events.Capability) (string, error) {
	subagents = slices.SortedFunc(slices.Values(subagents), func(a, b events.AgentDefinition) int { return strings.Compare(a.Slug, b.Slug) })
	capabilities = slices.SortedFunc(slices.Values(capabilities), func(a, b events.Capability) int { return strings.Compare(a.Name, b.Name) })
	data, err := events.Marshal(struct {
		Loop         string                   `json:"loop"`
		Definition   *events.AgentDefinition  `json:"definition"`
		Subagents    []events.AgentDefinition `json:"subagents,omitempty"`
		Capabilities []events.Capability      `json:"capabilities,omitempty"`
	}{loopContract, d, subagents, capabilities})
	if err != nil {
		return "", &InputError{"Definition", "cannot be encoded: " + err.Error()}
	}
	hash, err := events.HashJSON(data)
	if err != nil {
		return "", &InputError{"Definition", err.Error()}
	}
	return hash, nil
}

// resumable refuses a checkpoint of another version or contract.
func (l *loop) resumable(c *projector.Checkpoint) error {
	if c.Version != projector.CheckpointVersion || c.ContractHash != l.contract {
		return &ContractError{l.in.RunID, c.Version, projector.CheckpointVersion, c.ContractHash, l.contract}
	}
	return nil
}
