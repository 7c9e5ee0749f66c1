package runtime

import (
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// actionKind is what a run does next.
type actionKind int

const (
	actStart    actionKind = iota // commit the first checkpoint, with the task
	actDeliver                    // commit the messages that have come
	actModel                      // ask the model
	actDispatch                   // commit the predispatch of call
	actExecute                    // run call: its predispatch is committed
	actUnknown                    // commit that the outcome of call is not known
	actFail                       // a guard has been passed
	actFinish                     // the reply is committed
)

// action is one decision.
type action struct {
	kind  actionKind
	call  int         // index in the journal
	guard *GuardError // for actFail
}

// state is all that a decision may depend on.
type state struct {
	checkpoint *projector.Checkpoint
	// dispatched is the call whose predispatch this attempt committed and
	// which it has not run yet, or -1. A call that an earlier attempt left
	// dispatched may have run.
	dispatched int
	limits     guards
	mail       bool // messages have come that the transcript does not have
	// direct tells the tools that are capabilities: what becomes of a call of
	// one that an earlier attempt left dispatched is decided when it is looked at.
	direct func(tool string) bool
}

// guards are the limits on what a model repeats.
type guards struct{ repeated, silent, rejected int }

// next decides what a run does next. It is a function of the fold alone.
func next(s state) action {
	c := s.checkpoint
	switch {
	case c == nil:
		return action{kind: actStart}
	case c.Phase == projector.PhaseCompleted:
		return action{kind: actFinish}
	}
	// A guard is looked at when every call has its result: the transcript of a
	// failed run is whole.
	if g := s.limits.passed(c.Guard); g != nil && c.Phase == projector.PhaseModel {
		return action{kind: actFail, guard: g}
	}
	if c.Phase == projector.PhaseModel && s.mail {
		return action{kind: actDeliver}
	}
	if c.Phase == projector.PhaseModel {
		return action{kind: actModel}
	}
	for i, call := range c.Calls {
		switch call.State {
		case events.CallPending:
			return action{kind: actDispatch, call: i}
		case events.CallDispatched:
			if i != s.dispatched && !events.Redriven(call.Name) && !s.direct(call.Name) {
				return action{kind: actUnknown, call: i}
			}
			return action{kind: actExecute, call: i}
		}
	}
	return action{kind: actModel}
}

// passed returns the guard that a model has run into, or nil.
func (g guards) passed(seen events.Guard) *GuardError {
	switch {
	case seen.Repeats > g.repeated:
		return &GuardError{GuardRepeatedCalls, g.repeated}
	case seen.Silent > g.silent:
		return &GuardError{GuardSilentAnswers, g.silent}
	case seen.Rejected >= g.rejected:
		return &GuardError{GuardRejectedCompletions, g.rejected}
	}
	return nil
}
