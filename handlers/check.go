package handlers

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/schema"
)

// FieldError reports a definition that cannot be used.
type FieldError struct {
	Definition string // "agent x" or "capability y"
	Field      string // as in the file, for example limits.timeout
	Reason     string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s: %s: %s", e.Definition, e.Field, e.Reason)
}

// Check reports everything that is wrong with a version, joined; each error is
// a *FieldError.
func (v *Version) Check() error {
	errs := []error{checkAgent(&v.Agent)}
	var names []string
	for i := range v.Capabilities {
		errs = append(errs, CheckCapability(&v.Capabilities[i]))
		names = append(names, v.Capabilities[i].Name)
	}
	for _, name := range v.Agent.Capabilities {
		if !slices.Contains(names, name) {
			errs = append(errs, &FieldError{"agent " + v.Agent.Slug, "capabilities", fmt.Sprintf("there is no capability %q", name)})
		}
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) || !slices.Contains(v.Agent.Capabilities, name) {
			errs = append(errs, &FieldError{"agent " + v.Agent.Slug, "capabilities", fmt.Sprintf("%q is given twice, or is given and not named", name)})
		}
	}
	if err := CheckTogether(v.Capabilities); err != nil {
		errs = append(errs, &FieldError{"agent " + v.Agent.Slug, "capabilities", err.Error()})
	}
	return errors.Join(errs...)
}

// CallEvents are the public call-level events that a definition may ask for.
var CallEvents = []string{"call_dispatched", "call_settled"}

func checkAgent(d *events.AgentDefinition) error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, &FieldError{"agent " + d.Slug, field, fmt.Sprintf(format, args...)})
	}
	if err := events.CheckSession(d.Slug); err != nil {
		wrong("slug", "must be 1 to %d characters of A-Z a-z 0-9 _ - and start with a letter or a digit", events.MaxNameLength)
	}
	if strings.TrimSpace(d.Instructions) == "" {
		wrong("instructions", "must not be empty")
	}
	checkModels(d, wrong)
	for _, s := range []struct {
		field string
		doc   []byte
	}{{"input", d.Input}, {"output", d.Output}} {
		if len(s.doc) > 0 {
			if _, err := schema.Compile(s.field, s.doc); err != nil {
				wrong(s.field, "%v", err)
			}
		}
	}
	for _, name := range d.Events {
		if !slices.Contains(CallEvents, name) {
			wrong("events", "%q is none of %s", name, strings.Join(CallEvents, ", "))
		}
	}
	for field, value := range map[string]string{"limits.timeout": d.Limits.Timeout, "limits.script_timeout": d.Limits.ScriptTimeout} {
		if !isDuration(value) {
			wrong(field, "%q must be a positive duration such as 30s", value)
		}
	}
	for field, n := range map[string]int64{"limits.repeated_calls": int64(d.Limits.RepeatedCalls), "limits.silent_answers": int64(d.Limits.SilentAnswers),
		"limits.rejected_completions": int64(d.Limits.RejectedCompletions), "limits.calls_per_answer": int64(d.Limits.CallsPerAnswer), "limits.context_tokens": d.Limits.ContextTokens, "limits.output_tokens": d.Limits.OutputTokens} {
		if n < 0 {
			wrong(field, "must not be negative")
		}
	}
	checkScripts(&d.Limits, wrong)
	checkTree(d, wrong)
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// checkScripts checks the limits of one script.
func checkScripts(l *events.Limits, wrong func(field, format string, args ...any)) {
	for _, n := range []struct {
		field      string
		value, max int
	}{
		{"limits.script_callbacks", l.ScriptCallbacks, runtime.MaxScriptCallbacks}, {"limits.script_concurrent", l.ScriptConcurrent, runtime.MaxScriptConcurrent},
		{"limits.script_output", l.ScriptOutput, runtime.MaxScriptBytes}, {"limits.script_logs", l.ScriptLogs, runtime.MaxScriptBytes},
	} {
		if n.value < 0 || n.value > n.max {
			wrong(n.field, "must be from 1 to %d", n.max)
		}
	}
}

// maxModels is how many models a definition may name.
const maxModels = 8

func checkModels(d *events.AgentDefinition, wrong func(field, format string, args ...any)) {
	field := "model"
	switch {
	case len(d.Models) > 0 && d.Model != "":
		wrong("models", "is given beside model: leave one of them out")
		return
	case len(d.Models) == 0 && d.Model == "":
		wrong("model", "is missing: give a provider and a name, such as openai/gpt-5, or several as models")
		return
	case len(d.Models) > maxModels:
		wrong("models", "are %d, more than %d", len(d.Models), maxModels)
		return
	case len(d.Models) > 0:
		field = "models"
	}
	for i, model := range d.ModelNames() {
		provider, name, ok := strings.Cut(model, "/")
		switch {
		case !ok || provider == "" || name == "":
			wrong(field, "%q must be a provider and a name, such as openai/gpt-5", bounded(model, maxNamed))
		case slices.Contains(d.ModelNames()[:i], model):
			wrong(field, "%q is named twice", bounded(model, maxNamed))
		}
	}
}

// isDuration accepts an absent or a positive duration.
func isDuration(s string) bool {
	if s == "" {
		return true
	}
	d, err := time.ParseDuration(s)
	return err == nil && d > 0
}

// CheckCapability reports everything that is wrong with a capability, joined;
// each error is a *FieldError.
func CheckCapability(c *events.Capability) error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, &FieldError{"capability " + c.Name, field, fmt.Sprintf(format, args...)})
	}
	checkName(c, wrong)
	for _, s := range []struct {
		field string
		doc   []byte
	}{{"input", c.Input}, {"output", c.Output}} {
		if len(s.doc) > 0 {
			if _, err := schema.Compile(s.field, s.doc); err != nil {
				wrong(s.field, "%v", err)
			}
		}
	}
	switch c.Effect {
	case events.EffectRead, events.EffectIdempotent, events.EffectWrite:
	default:
		wrong("effect", "%q is none of read, idempotent, write", c.Effect)
	}
	if !isDuration(c.Timeout) {
		wrong("timeout", "%q must be a positive duration such as 30s", c.Timeout)
	}
	checkExposure(c, wrong)
	checkRoute(c, wrong)
	checkStatus(c, wrong)
	if l := c.Limits; l != nil && (l.Concurrent < 0 || l.PerMinute < 0 || *l == (events.CapabilityLimits{})) {
		wrong("limits", "must have concurrent or per_minute, and neither negative")
	}
	return errors.Join(errs...)
}

// inquiryInput is what an inquiry is made with.
var inquiryInput = json.RawMessage(`{"type":"object","properties":{"key":{"type":"string"}},"required":["key"]}`)

// checkStatus checks the route that tells what became of a callback.
func checkStatus(c *events.Capability, wrong func(field, format string, args ...any)) {
	if c.Status == nil {
		return
	}
	if c.Effect != events.EffectWrite {
		wrong("status", "is for a write: nobody asks what became of a read, and what is idempotent is sent again")
	}
	asked := events.Capability{Name: c.Name, Effect: events.EffectRead, Route: *c.Status, Input: inquiryInput}
	checkRoute(&asked, func(field, format string, args ...any) {
		wrong("status"+strings.TrimPrefix(field, "route"), format, args...)
	})
	if mcp := c.Status.MCP; mcp != nil && !mcp.Structured {
		wrong("status.mcp.structured", "must be true: what became of a callback is told as structured content")
	}
}

// maxCapabilityName bounds the name of a capability, in bytes.
const maxCapabilityName = 100

func isCapabilityName(name string) bool {
	if name == "" || len(name) > maxCapabilityName {
		return false
	}
	for word := range strings.SplitSeq(name, ".") {
		for i, r := range word {
			letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_'
			if !letter && (i == 0 || r < '0' || r > '9') {
				return false
			}
		}
		if word == "" {
			return false
		}
	}
	return true
}

// isLiteralSubject accepts a subject that a request can be sent to and that is
// not one of the service's own.
func isLiteralSubject(s string) bool {
	if s == "" || strings.HasPrefix(s, "$") || strings.HasPrefix(s, "agent.") || strings.HasPrefix(s, "_INBOX.") || strings.ContainsAny(s, " \t\r\n*>") {
		return false
	}
	return !strings.HasPrefix(s, ".") && !strings.HasSuffix(s, ".") && !strings.Contains(s, "..")
}

// checkTree checks what a definition says of children and budgets.
func checkTree(d *events.AgentDefinition, wrong func(field, format string, args ...any)) {
	for i, slug := range d.Subagents {
		if events.CheckSession(slug) != nil {
			wrong("subagents", "%q can be no agent's name", bounded(slug, maxNamed))
		}
		if slices.Contains(d.Subagents[:i], slug) {
			wrong("subagents", "%q is named twice", slug)
		}
	}
	b := d.Budget
	switch d.OnBudget {
	case "", events.OnBudgetFail:
	case events.OnBudgetHold:
		if !counts(b) {
			wrong("on_budget", "hold needs a budget of steps or tokens; a time-out cannot be topped up")
		}
	default:
		wrong("on_budget", "%q is none of fail, hold", d.OnBudget)
	}
	if b == nil {
		return
	}
	for field, n := range map[string]int64{"budget.steps": b.Steps, "budget.input_tokens": b.InputTokens, "budget.output_tokens": b.OutputTokens} {
		if n < 0 {
			wrong(field, "must not be negative; 0 is unlimited")
		}
		if n > maxBudget {
			wrong(field, "must be at most %d; 0 is unlimited", int64(maxBudget))
		}
	}
	if !isDuration(b.Timeout) {
		wrong("budget.timeout", "%q must be a positive duration such as 30s", b.Timeout)
	}
	if b.Steps <= 0 && b.InputTokens <= 0 && b.OutputTokens <= 0 && b.Timeout == "" {
		wrong("budget", "must limit something: steps, input_tokens, output_tokens or timeout; leave it out for no limit")
	}
}
