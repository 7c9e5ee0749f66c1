package runtime

import (
	"errors"
	"fmt"
)

// ErrWaiting accompanies a Result that is Waiting: the run has parked, and the
// host wakes it.
var ErrWaiting = errors.New("the run waits")

// ErrStopped means that the attempt ended because Input.Stop was closed. The
// run stands at its newest commit, with no call under way.
var ErrStopped = errors.New("the attempt was stopped")

// FatalToolError is an error of a controller or backend that stops the attempt
// instead of becoming a tool error. It is found in wrapped errors too.
type FatalToolError interface {
	error
	FatalToolError()
}

// DeniedError is a refusal for lack of authority. The call's outcome is denied.
type DeniedError struct {
	Reason string
}

func (e *DeniedError) Error() string { return "denied: " + e.Reason }

// InputError reports an Input that cannot be run. Nothing was done.
type InputError struct {
	Field  string
	Reason string
}

func (e *InputError) Error() string { return fmt.Sprintf("run input: %s: %s", e.Field, e.Reason) }

// ContractError reports a checkpoint of another contract: the definition, the
// capabilities or the loop itself are not those the run was begun with. The run
// is untouched and can be resumed with the right ones.
type ContractError struct {
	RunID                    string
	Version, BinaryVersion   int
	Contract, BinaryContract string
}

func (e *ContractError) Error() string {
	return fmt.Sprintf("run %s was begun under contract %s (checkpoint version %d), this attempt has contract %s (version %d): resume it with the definition and the release it was begun with",
		e.RunID, orNone(e.Contract), e.Version, e.BinaryContract, e.BinaryVersion)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// GuardError reports a model that would go on for ever. The run has failed.
type GuardError struct {
	Guard string // repeated_calls or silent_answers
	Limit int
}

func (e *GuardError) Error() string {
	switch e.Guard {
	case GuardRepeatedCalls:
		return fmt.Sprintf("the model made the identical call more than %d times in a row", e.Limit)
	default:
		return fmt.Sprintf("the model answered without a tool call more than %d times in a row", e.Limit)
	}
}

// The guards of GuardError.
const (
	GuardRepeatedCalls = "repeated_calls"
	GuardSilentAnswers = "silent_answers"
)
