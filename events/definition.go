package events

import "encoding/json"

// AgentDefinition describes one agent. A run is admitted with one version of
// it and keeps that version to its end.
type AgentDefinition struct {
	Slug         string          `json:"slug"`
	Description  string          `json:"description,omitempty"`
	Instructions string          `json:"instructions"`
	Model        string          `json:"model,omitempty"`  // provider/name, for example openai/gpt-5
	Models       []string        `json:"models,omitempty"` // in place of Model: the preferred one, and those asked when it cannot be
	Input        json.RawMessage `json:"input,omitempty"`  // JSON Schema of the task's input
	Output       json.RawMessage `json:"output,omitempty"` // JSON Schema of the output; absent: any value
	Subagents    []string        `json:"subagents,omitempty"`
	Capabilities []string        `json:"capabilities,omitempty"`
	Budget       *Budget         `json:"budget,omitempty"`    // of each run and everything below it
	OnBudget     OnBudget        `json:"on_budget,omitempty"` // what happens when it is spent; fail
	Limits       Limits          `json:"limits,omitzero"`
	Events       []string        `json:"events,omitempty"` // public call-level events asked for: call_dispatched, call_settled
}

// ModelNames returns the models that the definition names, the preferred one
// first.
func (d *AgentDefinition) ModelNames() []string {
	if len(d.Models) > 0 {
		return d.Models
	}
	return []string{d.Model}
}

// OnBudget says what becomes of a run whose budget is spent.
type OnBudget string

// The choices.
const (
	OnBudgetFail OnBudget = "fail" // it fails
	OnBudgetHold OnBudget = "hold" // it parks until the budget is topped up
)

// Limits bound one run. Zero is the default that the field names.
type Limits struct {
	Timeout             string `json:"timeout,omitempty"`              // wall clock of the run as a Go duration; absent: none
	ScriptTimeout       string `json:"script_timeout,omitempty"`       // wall clock of one script; the worker's default, 30s
	ScriptCallbacks     int    `json:"script_callbacks,omitempty"`     // calls of capabilities that one script may make; 1000
	ScriptConcurrent    int    `json:"script_concurrent,omitempty"`    // of them at once, the others wait; 8
	ScriptOutput        int    `json:"script_output,omitempty"`        // bytes of the JSON that a script returns; 256 KiB
	ScriptLogs          int    `json:"script_logs,omitempty"`          // bytes of a script's console output; 64 KiB
	RepeatedCalls       int    `json:"repeated_calls,omitempty"`       // identical calls in a row before the run fails; 8
	SilentAnswers       int    `json:"silent_answers,omitempty"`       // answers without a call in a row before the run fails; 3
	RejectedCompletions int    `json:"rejected_completions,omitempty"` // completions in a row that are not accepted before the run fails; 5
	CallsPerAnswer      int    `json:"calls_per_answer,omitempty"`     // calls in one response; 64
	ContextTokens       int64  `json:"context_tokens,omitempty"`       // the model's context window; the model's own by default
	OutputTokens        int64  `json:"output_tokens,omitempty"`        // tokens one response may have; the provider's default

	// Once the run, one before it in its session, or a child whose end it was told
	// has read what an untrusted capability answered, those marked egress are
	// refused. It holds for everything below the run.
	NoEgressAfterUntrusted bool `json:"no_egress_after_untrusted,omitempty"`
}

// Effect says what a repeated call of a capability does.
type Effect string

// The effect classes.
const (
	EffectRead       Effect = "read"       // changes nothing
	EffectIdempotent Effect = "idempotent" // repeating with the same key changes nothing more
	EffectWrite      Effect = "write"      // each call counts
)

// Repeatable reports whether a call with the same idempotency key may be made
// again when it is not known what became of it.
func (e Effect) Repeatable() bool { return e == EffectRead || e == EffectIdempotent }

// Capability is something a script can call: a name, exact schemas and one
// route to the service that does the work.
type Capability struct {
	Name        string          `json:"name"` // dotted, for example desk.book
	Description string          `json:"description,omitempty"`
	Input       json.RawMessage `json:"input,omitempty"`  // JSON Schema; absent: any value
	Output      json.RawMessage `json:"output,omitempty"` // JSON Schema; absent: any value
	Effect      Effect          `json:"effect"`
	Timeout     string          `json:"timeout,omitempty"` // Go duration; 30s

	Egress    bool              `json:"egress,omitempty"`    // it lets data out of the system
	Untrusted bool              `json:"untrusted,omitempty"` // what it answers was written by people who are not trusted
	Limits    *CapabilityLimits `json:"limits,omitempty"`    // of all its calls in a namespace
	Route     Route             `json:"route"`

	// Expose says who calls it: scripts, the model as a tool of its own, or both;
	// script when empty.
	Expose Expose `json:"expose,omitempty"`
	// Deferred lets the service answer that it has accepted the call, and settle
	// it later with the command call.settle; the run parks meanwhile. Only a
	// capability that is exposed as a tool alone may be deferred.
	Deferred bool `json:"deferred,omitempty"`
	// SettleWithin bounds how long the run waits for a deferred call, as a Go
	// duration; absent: to the run's deadline.
	SettleWithin string `json:"settle_within,omitempty"`
	// Status, of a write, is asked after an interruption what became of the
	// callback with a key.
	Status *Route `json:"status,omitempty"`
}

// CapabilityLimits bound the calls of a capability in one namespace, over all
// workers. A field of zero bounds nothing; at least one is positive.
type CapabilityLimits struct {
	Concurrent int `json:"concurrent,omitempty"` // under way at a time
	PerMinute  int `json:"per_minute,omitempty"` // begun
}

// Expose says who may call a capability.
type Expose string

// The choices.
const (
	ExposeScript Expose = "script"
	ExposeTool   Expose = "tool"
	ExposeBoth   Expose = "both"
)

// IsTool reports whether the model calls the capability directly.
func (c *Capability) IsTool() bool { return c.Expose == ExposeTool || c.Expose == ExposeBoth }

// InScripts reports whether scripts may call the capability.
func (c *Capability) InScripts() bool { return c.Expose != ExposeTool }

// Route says where a capability is served. Exactly one field is set.
type Route struct {
	NATS *NATSRoute `json:"nats,omitempty"`
	MCP  *MCPRoute  `json:"mcp,omitempty"`
	HTTP *HTTPRoute `json:"http,omitempty"`
}

// NATSRoute is a plain request-reply subject.
type NATSRoute struct {
	Subject string `json:"subject"`
}

// MCPRoute is a tool of an MCP server. The worker's configuration says what the
// server is.
type MCPRoute struct {
	Server     string `json:"server"`               // its name in the configuration
	Tool       string `json:"tool"`                 // its name at the server
	Structured bool   `json:"structured,omitempty"` // the answer is the structured content of the tool's result; absent: {"content": [...]}, its content blocks
}

// HTTPRoute is an HTTP endpoint. A placeholder {name} in the path or the query of
// its URL stands for the input's member of that name, percent-encoded; what is
// left of the input is the JSON body of a POST, PUT or PATCH. ${name} in the value
// of a header stands for a secret of the worker's configuration.
type HTTPRoute struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
}
