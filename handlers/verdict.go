package handlers

import (
	"errors"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/schema"
)

// verdict is what an attempt's end means for the run.
type verdict int

const (
	settled    verdict = iota // the run has completed
	parked                    // the run waits, and the claim is closed
	failed                    // the run cannot go on
	expired                   // the run's deadline has passed
	stopped                   // this process ends; the run goes on elsewhere
	lost                      // somebody else may be at work: say and do nothing more
	cancelled                 // somebody asked the run to stop
	overdrawn                 // a budget is spent
	delayed                   // the provider asks for more patience than a worker has
	reconsider                // the decision was overtaken: it is made again at once
	refused                   // this binary must not carry the run on; another may
	again                     // the infrastructure failed; the same claim tries again
)

// judge classifies the error of an attempt. The order matters: a fence
// outranks everything, and what ended the context outranks what failed because
// of it.
func judge(err error) verdict {
	var (
		guard  *runtime.GuardError
		large  *runtime.OverflowError
		input  *runtime.InputError
		stale  *RevisionError
		damage *events.DamageError
		schema *schema.GateError
		model  *runtime.ModelError
		other  *runtime.ContractError
		order  *projector.SuccessionError
		budget *BudgetError
		later  *runtime.LaterError
		most   *RequestsError
		file   *runtime.FileDamagedError
	)
	switch {
	case err == nil:
		return settled
	case errors.Is(err, events.ErrFenced), errors.Is(err, events.ErrUnresolved), errors.Is(err, events.ErrClaimClosed),
		errors.Is(err, ErrLeaseLost), errors.As(err, &stale), errors.As(err, &damage):
		return lost
	case errors.Is(err, runtime.ErrWaiting):
		return parked
	case errors.Is(err, errCancelled):
		return cancelled
	case errors.Is(err, errReconsider):
		return reconsider
	case errors.As(err, &budget):
		return overdrawn
	case errors.As(err, &most), errors.As(err, &file):
		return failed
	case errors.Is(err, errDeadline):
		return expired
	case errors.Is(err, runtime.ErrStopped), errors.Is(err, errDraining):
		return stopped
	case errors.As(err, &other):
		return refused
	case errors.As(err, &later):
		return delayed
	case isDenied(err), errors.As(err, &guard), errors.As(err, &large), errors.As(err, &input), errors.As(err, &schema), errors.As(err, &order),
		errors.As(err, &model) && model.Class == runtime.ClassInvalid && model.Status != 0:
		return failed
	}
	return again
}
