package events

import (
	"encoding/json"
	"time"
)

// StartRun is the data of a run.start command. Exactly one of Input and
// Message is given.
type StartRun struct {
	Agent   string            `json:"agent"`
	Input   json.RawMessage   `json:"input,omitempty"`
	Message string            `json:"message,omitempty"`
	Files   []GivenFile       `json:"files,omitempty"`
	Session string            `json:"session,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
}

// GivenFile is a file that comes with a command: its bytes in the command, or
// the reference of what is stored already (see the API's file.put). A message
// holds references only: bytes are stored before the command takes effect.
type GivenFile struct {
	Name      string `json:"name"`
	MediaType string `json:"media_type,omitempty"` // by the name and the bytes, when empty
	Data      []byte `json:"data,omitempty"`       // base64
	Ref       string `json:"ref,omitempty"`        // exactly one of Data and Ref is given
}

// ContinueRun is the data of a run.continue command: a new run in a session
// whose last run has ended.
type ContinueRun struct {
	Session string            `json:"session"`
	Message string            `json:"message"`
	Files   []GivenFile       `json:"files,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
}

// RetryRun is the data of a run.retry command: a new run in the session of a
// run that has failed, which goes on from where that one stood.
type RetryRun struct {
	Run    string            `json:"run"`
	Labels map[string]string `json:"labels,omitempty"`
}

// CancelRun is the data of a run.cancel command: the run and everything below
// it are asked to stop.
type CancelRun struct {
	Run    string `json:"run"`
	Reason string `json:"reason,omitempty"`
}

// MessageRun is the data of a run.message command: a message to a run under
// way.
type MessageRun struct {
	Run     string      `json:"run"`
	Message string      `json:"message"`
	Files   []GivenFile `json:"files,omitempty"`
}

// TopUpBudget is the data of a budget.topup command: what is added to the
// limits of a run.
type TopUpBudget struct {
	Run          string `json:"run"`
	Steps        int64  `json:"steps,omitempty"`
	InputTokens  int64  `json:"input_tokens,omitempty"`
	OutputTokens int64  `json:"output_tokens,omitempty"`
}

// SettleCall is the data of a call.settle command: the answer to a deferred call,
// an output or an error. Over agent.api an operator needs no token.
type SettleCall struct {
	Run    string          `json:"run"`
	Call   string          `json:"call"`
	Token  string          `json:"token,omitempty"` // that came with the request
	Output json.RawMessage `json:"output,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// RunStartedData is the data of the public event run.started.
type RunStartedData struct {
	Run     string            `json:"run"`
	Session string            `json:"session"`
	Agent   string            `json:"agent"`
	Labels  map[string]string `json:"labels,omitempty"`
}

// RunTextData is the data of the public event run.text: what the model said
// between its calls, after the commit, whole and redacted.
type RunTextData struct {
	Run      string `json:"run"`
	Session  string `json:"session"`
	Revision uint64 `json:"revision"`
	Text     string `json:"text"`
}

// RunProgressData is the data of the public event run.progress: how a run gets on,
// for people.
type RunProgressData struct {
	Run     string     `json:"run"`
	Session string     `json:"session"`
	Phase   Phase      `json:"phase"`
	Reason  string     `json:"reason"`          // one stable word: of the park that began or ended
	Until   *time.Time `json:"until,omitempty"` // when a wait ends at the latest
	Model   string     `json:"model,omitempty"` // that is asked from now on, of a switch
	Note    string     `json:"note,omitempty"`  // what is known beyond the reason
}

// Phase is what a run has begun to do.
type Phase string

// The phases that are told of.
const (
	PhaseWaiting  Phase = "waiting"  // it has parked
	PhaseResumed  Phase = "resumed"  // a worker carries it on after a park
	PhaseSwitched Phase = "switched" // it asks another one of its models
	PhaseRetrying Phase = "retrying" // the same, after its provider asked to be asked later
)

// RunCompletedData is the data of the public event run.completed.
type RunCompletedData struct {
	Run     string `json:"run"`
	Session string `json:"session"`
	Agent   string `json:"agent"`
	Reply   Reply  `json:"reply"`
	Usage   Usage  `json:"usage"`
	Cost    *Cost  `json:"cost,omitempty"` // of Usage, where the prices are known
	Steps   int    `json:"steps"`
}

// RunFailedData is the data of the public events run.failed and run.cancelled.
type RunFailedData struct {
	Run     string `json:"run"`
	Session string `json:"session"`
	Agent   string `json:"agent"`
	Reason  string `json:"reason"`
	Error   string `json:"error,omitempty"`
	Usage   Usage  `json:"usage"`
	Cost    *Cost  `json:"cost,omitempty"` // of Usage, where the prices are known
	Steps   int    `json:"steps"`
}

// RunRejectedData is the data of the public event run.rejected: a command that
// was not carried out, and why.
type RunRejectedData struct {
	Command string `json:"command"` // the command's CloudEvents id, empty where it had none
	Source  string `json:"source"`
	Type    string `json:"type"`
	Reason  string `json:"reason"` // one stable word, for programs
	Error   string `json:"error"`  // for people
}

// CallData is the data of the public events call.dispatched and call.settled.
// It never holds arguments or results.
type CallData struct {
	Run     string  `json:"run"`
	Session string  `json:"session"`
	CallID  string  `json:"call_id"`
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome,omitempty"`
}
