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
	Guard string // repeated_calls, silent_answers or rejected_completions
	Limit int
}

func (e *GuardError) Error() string {
	switch e.Guard {
	case GuardRepeatedCalls:
		return fmt.Sprintf("the model made the identical call more than %d times in a row", e.Limit)
	case GuardRejectedCompletions:
		return fmt.Sprintf("the model tried to complete %d times in a row in a way that is not accepted", e.Limit)
	default:
		return fmt.Sprintf("the model answered without a tool call more than %d times in a row", e.Limit)
	}
}

// The guards of GuardError.
const (
	GuardRepeatedCalls = "repeated_calls"
	GuardSilentAnswers = "silent_answers"

	GuardRejectedCompletions = "rejected_completions"
)

// OverflowError reports a conversation that does not fit the model, although
// everything that may be left out of it is. The run has failed.
type OverflowError struct {
	Tokens int64 // of the smallest request that is possible, or of the one that was refused; estimated
	Fits   int64 // tokens that a request may have
	Err    error // the provider's refusal, if it was one
}

func (e *OverflowError) Error() string {
	const advice = "give the agent a model with a larger context, a shorter task, or tools that return less"
	if e.Err != nil {
		return fmt.Sprintf("the provider refuses a request of about %d tokens, of which nothing more can be left out: set limits.context_tokens to what the model takes, or %s: %v", e.Tokens, advice, e.Err)
	}
	return fmt.Sprintf("the task and the newest step have about %d tokens with instructions and tools, and a request may have %d: %s", e.Tokens, e.Fits, advice)
}

func (e *OverflowError) Unwrap() error { return e.Err }
