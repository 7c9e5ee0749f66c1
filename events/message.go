package events

import (
	"encoding/json"
	"strings"
)

// Role says who a message is from.
type Role string

// The roles of a transcript. Instructions are no message: they are part of the
// definition and are sent with every request.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one entry of a transcript. Its parts keep the provider's order.
type Message struct {
	ID    string `json:"id"` // minted by the runtime, unique in the session
	Role  Role   `json:"role"`
	Parts []Part `json:"parts"`
}

// PartType tells which fields of a Part are used.
type PartType string

// The part types.
const (
	PartText       PartType = "text"
	PartReasoning  PartType = "reasoning"
	PartToolCall   PartType = "tool_call"
	PartToolResult PartType = "tool_result"
	PartFile       PartType = "file"
)

// Part is one piece of a message.
type Part struct {
	Type PartType `json:"type"`
	Text string   `json:"text,omitempty"` // text and reasoning

	Call   *ToolCall   `json:"call,omitempty"`
	Result *ToolResult `json:"result,omitempty"`
	File   *File       `json:"file,omitempty"`

	// Provider holds what an adapter needs to hand the part back unchanged
	// (signatures, item ids), by provider name.
	Provider map[string]json.RawMessage `json:"provider,omitempty"`
}

// ToolCall is a model's request to run a tool.
type ToolCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// Outcome says how a call ended.
type Outcome string

// The outcomes. Each call has exactly one.
const (
	OutcomeOK      Outcome = "ok"
	OutcomeError   Outcome = "error"
	OutcomeDenied  Outcome = "denied"
	OutcomeSkipped Outcome = "skipped"
	OutcomeUnknown Outcome = "unknown"
)

// The names of the direct tools. SpawnPrefix begins those that start a child.
const (
	ToolRunJS       = "run_js"
	ToolComplete    = "complete"
	ToolContinue    = "continue_agent"
	ToolGetCalls    = "get_calls"
	ToolCancelCalls = "cancel_calls"
	ToolWaitCalls   = "wait_calls"
	SpawnPrefix     = "spawn_"
)

// Redriven reports whether a control call whose outcome is not known is made
// again: the host makes it idempotent by its call id. The other controls are
// never repeated, and of a capability that is called directly its effect decides.
func Redriven(tool string) bool {
	return tool == ToolComplete || tool == ToolContinue || tool == ToolWaitCalls || strings.HasPrefix(tool, SpawnPrefix)
}

// ToolResult is the one result of a call.
type ToolResult struct {
	CallID  string  `json:"call_id"`
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	Parts   []Part  `json:"parts"` // text and file parts

	// Untrusted tells that it may hold what a capability answered whose output is
	// not trusted.
	Untrusted bool `json:"untrusted,omitempty"`
}

// File refers to stored bytes; a message never holds them itself. They are
// stored under their content hash before the fact that refers to them is
// appended, so that a reference in the log leads to them as long as the log's
// objects are kept.
type File struct {
	Ref       string `json:"ref"`
	MediaType string `json:"media_type"`
	Name      string `json:"name,omitempty"`
	Size      int64  `json:"size"` // bytes
}

// Text returns a message with one text part.
func Text(id string, role Role, text string) Message {
	return Message{ID: id, Role: role, Parts: []Part{{Type: PartText, Text: text}}}
}

// Calls returns the tool calls of a message in their order.
func (m *Message) Calls() []ToolCall {
	var calls []ToolCall
	for _, p := range m.Parts {
		if p.Type == PartToolCall && p.Call != nil {
			calls = append(calls, *p.Call)
		}
	}
	return calls
}

// Usage counts tokens as a provider reported them.
type Usage struct {
	Input     int64 `json:"input"`               // tokens sent, cached ones included
	Cached    int64 `json:"cached,omitempty"`    // of Input, read from the provider's cache
	Output    int64 `json:"output"`              // tokens generated, reasoning included
	Reasoning int64 `json:"reasoning,omitempty"` // of Output, not shown
}

// Add returns the sum of two usages.
func (u Usage) Add(v Usage) Usage {
	return Usage{u.Input + v.Input, u.Cached + v.Cached, u.Output + v.Output, u.Reasoning + v.Reasoning}
}

// ModelUsage is what one model was used for.
type ModelUsage struct {
	Model string `json:"model"` // as a definition names it
	Usage
}

// Cost is an amount of money. The amount is a decimal number, exact.
type Cost struct {
	Amount   string `json:"amount"`
	Currency string `json:"currency"`
}

// ReplyKind tells a result from a question.
type ReplyKind string

// The kinds of replies. Both finish the run.
const (
	ReplyOutput     ReplyKind = "output"
	ReplyNeedsInput ReplyKind = "needs_input"
)

// Reply is what a run ends with: an output that satisfies the definition's
// output schema, or a question.
type Reply struct {
	Kind     ReplyKind       `json:"kind"`
	Output   json.RawMessage `json:"output,omitempty"`
	Question string          `json:"question,omitempty"`
}
