package runtime

import (
	"context"
	"encoding/json"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

// Controller is the host's side of budgets, children and completion. Every
// operation is scoped and authorized by the host; ids and arguments the model
// supplies are no authority. Errors become tool errors that the model reads,
// except those that are FatalToolError, which stop the attempt. Every
// implementation passes runtimetest.TestController.
type Controller interface {
	// BeforeModel durably reserves budget for one model request. Its error
	// ends the attempt.
	BeforeModel(ctx context.Context) error

	// Spawn starts a child run. It is idempotent by the parent run and
	// callID: the same call with the same input returns the same child, with
	// other input it is an error.
	Spawn(ctx context.Context, callID, slug string, input json.RawMessage) (*AgentRunInfo, error)

	// Continue starts a new run in a session that has ended, with the same
	// idempotency as Spawn.
	Continue(ctx context.Context, callID, session, prompt string) (*AgentRunInfo, error)

	// Get inspects owned calls.
	Get(ctx context.Context, calls []string) ([]AgentRunInfo, error)

	// Cancel asks owned calls to stop.
	Cancel(ctx context.Context, calls []string) ([]AgentRunInfo, error)

	// Wait returns what settled, or persists the dependencies and the
	// deadline and returns an error that is ErrWaiting. It is idempotent
	// by callID: called again after a park it keeps the first deadline.
	Wait(ctx context.Context, callID string, r WaitRequest) (*WaitResult, error)

	// Complete checks that the run may end with this reply. It must not make
	// the checkpoint unwritable: the run ends with the checkpoint's commit.
	// An identical repetition is accepted.
	Complete(ctx context.Context, reply *events.Reply) error
}

// AgentRunInfo is what a parent is told of a child run.
type AgentRunInfo struct {
	CallID  string        `json:"call_id"`
	Run     string        `json:"run"`
	Session string        `json:"session"`
	Agent   string        `json:"agent"`
	State   string        `json:"state"`
	Reply   *events.Reply `json:"reply,omitempty"`
	Error   string        `json:"error,omitempty"`
	Note    string        `json:"note,omitempty"` // for the model, for example that the reply was left out
}

// WaitRequest says what a run waits for.
type WaitRequest struct {
	Calls    []string      // none: every open one
	Any      bool          // one is enough
	Messages bool          // a message is enough too
	Timeout  time.Duration // 0: none
}

// WaitResult says what came of a wait.
type WaitResult struct {
	Settled  []AgentRunInfo `json:"settled"`
	Pending  []AgentRunInfo `json:"pending,omitempty"`
	TimedOut bool           `json:"timed_out,omitempty"`
	Messages int            `json:"messages,omitempty"` // that have come; they are delivered next

	// MorePending is how many are pending beyond those listed.
	MorePending int `json:"more_pending,omitempty"`

	// MoreSettled is how many have settled beyond those told: the next wait tells
	// of them.
	MoreSettled int `json:"more_settled,omitempty"`
}
