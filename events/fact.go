package events

import (
	"encoding/json"
	"fmt"
	"time"
)

// Cause identifies what started a run: a command by its source and id, or a
// parent's call, whose source is the parent run and whose id is the call id.
// The same cause is the same run, for ever.
type Cause struct {
	Source string `json:"source"`
	ID     string `json:"id"`
	Body   string `json:"body"` // HashJSON of the command's data; another body under the same id is a conflict
}

// RunAdmitted opens a run in a session. It fixes for ever what the run may do
// and which version of the definition it is.
type RunAdmitted struct {
	Agent        string            `json:"agent"`
	Definition   string            `json:"definition"` // content hash of the pinned definition, its capabilities included
	Contract     string            `json:"contract"`   // contract hash the run must be resumed with
	Cause        Cause             `json:"cause"`
	Message      Message           `json:"message"` // the task; appended to the transcript by the first checkpoint
	Labels       map[string]string `json:"labels,omitempty"`
	Capabilities []string          `json:"capabilities,omitempty"` // granted names: the upper bound, for its descendants too
	Deadline     *time.Time        `json:"deadline,omitempty"`     // absolute; parked time counts
	Events       []string          `json:"events,omitempty"`       // call-level public events the definition asked for

	// Models are those that the definition names, the preferred one first.
	Models []string `json:"models,omitempty"`

	// Subagents pins the version of each child that the run may start, by
	// slug.
	Subagents map[string]string `json:"subagents,omitempty"`
	Depth     int               `json:"depth,omitempty"` // 0 for a root, its parent's plus one for a child

	// Budget is the run's own limit. Metered tells that it, or a run above
	// it, has one: its model requests are reserved on the ledger of the root.
	Budget  *Budget `json:"budget,omitempty"`
	Metered bool    `json:"metered,omitempty"`
	Hold    bool    `json:"hold,omitempty"` // out of budget the run parks until a top-up, instead of failing

	// SettleKey is the secret from which the tokens derive that settle the run's
	// deferred calls; absent when it has no such capability.
	SettleKey string `json:"settle_key,omitempty"`

	// Cancelled is set on a run that had been asked to stop before it was
	// admitted: it is admitted as cancelled.
	Cancelled *CancelRequested `json:"cancelled,omitempty"`
	// NoEgress tells that the definition of the run, or of one above it, forbids
	// egress after untrusted output was read. Untrusted tells that the run above it
	// had read some when it gave the task.
	NoEgress  bool `json:"no_egress,omitempty"`
	Untrusted bool `json:"untrusted,omitempty"`

	Retries string `json:"retries,omitempty"` // the failed run of the session that this one drives again
}

// Budget bounds what a run and everything below it may spend. A field of zero
// bounds nothing; at least one is positive.
type Budget struct {
	Steps        int64  `json:"steps,omitempty"`         // model requests
	InputTokens  int64  `json:"input_tokens,omitempty"`  // cached ones included
	OutputTokens int64  `json:"output_tokens,omitempty"` // reasoning included
	Timeout      string `json:"timeout,omitempty"`       // wall clock from admission on, parked time included, as a Go duration
}

// CommandAccepted records, at the session id derived from a command, where the
// command's effect went, so that the same command again finds it.
type CommandAccepted struct {
	Cause   Cause  `json:"cause"`
	Command string `json:"command"` // the command's type
	Session string `json:"session"`
	Run     string `json:"run"`
}

// SessionErased ends a session for ever: after it the session's key is dropped,
// and with it all that was encrypted. It is the one fact of a session that is
// never encrypted, and says nothing but that.
type SessionErased struct{}

// RunClaimed hands the session to a worker. The append is the fence.
type RunClaimed struct {
	Worker  string `json:"worker"`
	Resumes string `json:"resumes,omitempty"` // the reason of the park that it ends
}

// CheckpointCommitted advances the run by one revision.
type CheckpointCommitted struct {
	Delta  CheckpointDelta `json:"delta"`
	Opened []ChildCall     `json:"opened,omitempty"` // calls this commit dispatched that may start a child
	Told   []string        `json:"told,omitempty"`   // calls whose child's end this commit tells the model

	Untrusted bool `json:"untrusted,omitempty"` // one of these children had read untrusted output

	// Direct is the predispatch of a capability that the model calls itself, when
	// this commit dispatches one: its only callback, without the input, which is the
	// call's arguments.
	Direct *CallbacksRecorded `json:"direct,omitempty"`
}

// ChildCall is a call that starts a child run, with the ids that the child has
// once it is admitted: they derive from the call.
type ChildCall struct {
	CallID  string `json:"call_id"`
	Agent   string `json:"agent"`
	Session string `json:"session"`
	Run     string `json:"run"`
}

// WindowCompacted replaces the context window; the facts before it remain.
type WindowCompacted struct {
	Window []Message `json:"window"`
}

// RunParked closes the claim until a dependency settles or the deadline comes.
type RunParked struct {
	CallID       string     `json:"call_id"`
	Dependencies []string   `json:"dependencies,omitempty"` // run ids
	Any          bool       `json:"any,omitempty"`          // one dependency is enough
	Messages     bool       `json:"messages,omitempty"`     // a message wakes it too
	Deadline     *time.Time `json:"deadline,omitempty"`
	Raises       uint64     `json:"raises,omitempty"` // top-ups that the ledger had when it refused
	Budget       string     `json:"budget,omitempty"` // run whose budget is spent
	Spent        string     `json:"spent,omitempty"`  // what of it: steps, input_tokens or output_tokens
	Reason       string     `json:"reason"`
	Note         string     `json:"note,omitempty"`       // redacted, bounded, for people: what the provider said
	Failed       int        `json:"failed,omitempty"`     // see RunReleased
	Since        *time.Time `json:"since,omitempty"`      // when the provider began to fail
	Capability   string     `json:"capability,omitempty"` // whose service has accepted the call CallID
}

// Awaits says in a few words that n children are waited for.
func (p *RunParked) Awaits(n int) string {
	switch {
	case n == 1:
		return "1 child"
	case p.Any:
		return fmt.Sprintf("any of %d children", n)
	}
	return fmt.Sprintf("all of %d children", n)
}

// Reasons of a park.
const (
	ParkChildren = "children" // waits for children, possibly for a message or a time-out as well
	ParkMessage  = "message"  // waits for a message only
	ParkBudget   = "budget"   // the ledger refused a request; a top-up wakes it
	ParkCall     = "call"     // a service has accepted a deferred call; its answer wakes it
	ParkProvider = "provider" // the model's provider asked to be asked later; its time wakes it
)

// ModelSwitched makes the run ask another one of its models, for the rest of it.
type ModelSwitched struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Reason string `json:"reason"`
	Note   string `json:"note,omitempty"` // redacted, bounded, for people: what the provider said
}

// Reasons of a switch.
const (
	SwitchDenied      = "denied"      // the provider does not take the key, or the policy of the namespace does not allow the model
	SwitchNotFound    = "not_found"   // it does not have the model
	SwitchUnavailable = "unavailable" // it has failed, or asked for patience, for too long
)

// RunReleased closes the claim without a reason to wait: the worker is going
// away, or leaves the run to others for a while.
type RunReleased struct {
	Reason string `json:"reason"`
	Failed int    `json:"failed,omitempty"` // model requests under the claim that the provider answered and that led to no response
}

// RunCompleted is the checkpoint that ends a run with a reply.
type RunCompleted struct {
	Delta CheckpointDelta `json:"delta"`
}

// Failure reasons.
const (
	FailureAborted  = "aborted"  // the loop stopped on a typed error
	FailureDeadline = "deadline" // the run's deadline passed
	FailureBudget   = "budget"   // the budget of the run, or of one above it, is spent
	FailurePoison   = "poison"   // claims died at one revision without a typed error
	FailureDenied   = "denied"   // the policy of the namespace does not allow the agent or its model any more
	FailureContract = "contract" // the binary's contract or definition differs from the admitted one
)

// RunFailed ends a run without a reply.
type RunFailed struct {
	Reason string `json:"reason"`
	Error  string `json:"error"` // redacted, bounded, for people
	Usage  Usage  `json:"usage"`
	Steps  int    `json:"steps"`

	Calls []ClosedCall `json:"calls,omitempty"` // of agents that tell of their calls (events)
}

// RunCancelled ends a run because somebody asked for it.
type RunCancelled struct {
	Reason string `json:"reason"`
	Usage  Usage  `json:"usage"`
	Steps  int    `json:"steps"`

	Calls []ClosedCall `json:"calls,omitempty"` // of agents that tell of their calls (events)
}

// ClosedCall is a call to which the end of its run gave its result.
type ClosedCall struct {
	ID      string  `json:"id"`
	Name    string  `json:"name"` // of the tool
	Outcome Outcome `json:"outcome"`
}

// ChildSettled tells a parent that a child has ended. The first per child
// counts.
type ChildSettled struct {
	CallID  string `json:"call_id"`
	Child   string `json:"child"`           // run id
	Outcome string `json:"outcome"`         // completed, failed or cancelled
	Reply   *Reply `json:"reply,omitempty"` // absent when it is long: the child's log has it
	Error   string `json:"error,omitempty"` // why it did not complete

	Untrusted bool `json:"untrusted,omitempty"` // it had read untrusted output
}

// CancelRequested asks a run to stop at its next commit.
type CancelRequested struct {
	Reason string `json:"reason"`
}

// TimerFired tells that the deadline of a wait, or of the run, has passed.
type TimerFired struct {
	CallID   string    `json:"call_id,omitempty"`
	Deadline time.Time `json:"deadline"`
}

// BudgetRaised tells a refused run to try again.
type BudgetRaised struct {
	Raises uint64 `json:"raises"` // top-ups that the ledger has now
}

// CallAnswered settles a deferred call: with the capability's output, or with an
// error. The first for a call counts.
type CallAnswered struct {
	ID     string          `json:"id"` // the fact's own, which tells who was first
	CallID string          `json:"call_id"`
	Output json.RawMessage `json:"output,omitempty"` // redacted; absent with an error
	Files  []AnsweredFile  `json:"files,omitempty"`  // that came with the output, as they are stored: redacted where they are text
	Error  string          `json:"error,omitempty"`  // redacted, bounded
	By     string          `json:"by"`               // the command's source, redacted
}

// MessageReceived hands a run under way a message, delivered to the model at
// the next boundary. Repeats are told by the message's id.
type MessageReceived struct {
	Message Message `json:"message"`
}

// CallState is where a call of the current response stands.
type CallState string

// The states of a call.
const (
	CallPending    CallState = "pending"    // stored, not dispatched
	CallDispatched CallState = "dispatched" // its predispatch checkpoint is committed
	CallSettled    CallState = "settled"    // its result is committed
)

// Call is one entry of the call journal: a tool call of the current response.
type Call struct {
	ToolCall
	State   CallState `json:"state"`
	Outcome Outcome   `json:"outcome,omitempty"` // once settled
	// Refusal is why the call must not be executed (its response was cut,
	// its arguments do not parse); it becomes the call's error.
	Refusal string `json:"refusal,omitempty"`
}

// CheckpointDelta is the difference between two checkpoints of one run, with
// the transcript append that is part of the same commit. Absent fields are
// unchanged.
type CheckpointDelta struct {
	Version  int          `json:"version,omitempty"`
	Contract string       `json:"contract,omitempty"`
	Revision uint64       `json:"revision"`
	Phase    string       `json:"phase,omitempty"`
	Steps    int          `json:"steps,omitempty"` // added
	Append   []Message    `json:"append,omitempty"`
	Calls    *[]Call      `json:"calls,omitempty"`    // the whole journal, when it is a new response's
	Settle   []CallChange `json:"settle,omitempty"`   // changed entries of the same response's journal
	UsedIDs  []string     `json:"used_ids,omitempty"` // added
	Usage    Usage        `json:"usage,omitzero"`     // added
	Task     string       `json:"task,omitempty"`
	Scale    int64        `json:"scale,omitempty"`
	Guard    *Guard       `json:"guard,omitempty"`
	Reply    *Reply       `json:"reply,omitempty"`
}

// CallChange advances one entry of the call journal.
type CallChange struct {
	Index   int       `json:"index"`
	ID      string    `json:"id,omitempty"`   // only of a call that is dispatched by this commit
	Name    string    `json:"name,omitempty"` // only of a call that is dispatched by this commit
	State   CallState `json:"state"`
	Outcome Outcome   `json:"outcome,omitempty"`
}

// Guard counts what a model must not do for ever.
type Guard struct {
	LastCall string `json:"last_call,omitempty"` // hash of the last call's name and canonical arguments
	Repeats  int    `json:"repeats,omitempty"`   // how often in a row it came
	Silent   int    `json:"silent,omitempty"`    // answers without a call in a row
	Rejected int    `json:"rejected,omitempty"`  // completions that were not accepted, without a call that succeeded between
}
