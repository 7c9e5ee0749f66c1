package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime/schema"
)

// CapabilityTools returns the tools that are capabilities, by name: those that
// the model calls directly. The name of one is its capability's with underscores
// for dots; names that are taken are told apart by a number, in the order of the
// sorted capability names.
func CapabilityTools(subagents []events.AgentDefinition, capabilities []events.Capability) map[string]*events.Capability {
	used := make(map[string]bool)
	for _, name := range controls {
		used[name] = true
	}
	for _, t := range spawnTools(subagents) {
		used[t.Name] = true
	}
	sorted := make([]*events.Capability, 0, len(capabilities))
	for i := range capabilities {
		if capabilities[i].IsTool() {
			sorted = append(sorted, &capabilities[i])
		}
	}
	slices.SortFunc(sorted, func(a, b *events.Capability) int { return strings.Compare(a.Name, b.Name) })
	tools := make(map[string]*events.Capability, len(sorted))
	for _, c := range sorted {
		base := sanitize(c.Name)
		if strings.HasPrefix(base, spawnPrefix) {
			base = "call_" + base // only agents are spawned
		}
		name := distinct(base, used)
		used[name] = true
		tools[name] = c
	}
	return tools
}

// ToolName returns the name that a capability wants as a tool, and whether that is
// free: neither one of the runtime's own tools nor one that starts an agent.
func ToolName(capability string) (name string, free bool) {
	name = distinct(sanitize(capability), nil)
	return name, !slices.Contains(controls, name) && !strings.HasPrefix(name, spawnPrefix)
}

// distinct returns a tool name that is not used: the base, cut to what providers
// take, or the base with the first number that is free.
func distinct(base string, used map[string]bool) string {
	name := base[:min(len(base), maxToolName)]
	for n := 2; used[name]; n++ {
		suffix := fmt.Sprintf("_%d", n)
		name = base[:min(len(base), maxToolName-len(suffix))] + suffix
	}
	return name
}

// addCapabilities adds the tools that are capabilities.
func (b *toolbox) addCapabilities(in *Input) error {
	tools := CapabilityTools(in.Subagents, in.Capabilities)
	names := make([]string, 0, len(tools))
	for name := range tools {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		c := tools[name]
		input := c.Input
		if len(input) == 0 {
			input = json.RawMessage(`{"type":"object"}`)
		}
		if !IsToolInput(input) {
			return &InputError{"Capabilities", fmt.Sprintf("%s is exposed as a tool, so its input schema must have the type object", c.Name)}
		}
		s, err := schema.Compile("tool "+name, input)
		if err != nil {
			return err
		}
		about := c.Description
		if c.Deferred {
			about += " The answer may take long; the run waits for it."
		}
		b.list = append(b.list, directTool{Tool: Tool{name, strings.TrimSpace(about), input}, input: s, capability: b.capabilities[c.Name]})
	}
	return nil
}

// IsToolInput reports whether a schema can be that of a tool's arguments, which
// providers want to be an object.
func IsToolInput(doc json.RawMessage) bool {
	var s struct {
		Type json.RawMessage `json:"type"`
	}
	return json.Unmarshal(doc, &s) == nil && string(s.Type) == `"object"`
}

// isDirect reports whether a tool is a capability.
func (b *toolbox) isDirect(name string) bool {
	t := b.find(name)
	return t != nil && t.capability != nil
}

// direct carries out a call of a capability by the model itself. One that an
// earlier attempt dispatched is made again only when nobody knows what became of
// it and its effect allows.
func (l *loop) direct(ctx context.Context, call *events.ToolCall, c *boundCapability, again bool) (outcome, error) {
	host := &callbacks{loop: l, call: call.ID}
	journal, keeps := l.in.Store.(Journal)
	made := &Callback{CallID: call.ID, Capability: c.Capability, Input: call.Arguments, Attach: host.attach, Direct: true}
	var (
		output json.RawMessage
		known  bool
		err    error
	)
	if again {
		// An answer that counted outranks what an attempt took for the outcome.
		if output, known, err = l.recall(ctx, c, made); !known && err == nil && keeps {
			if o, err := l.recorded(ctx, journal, call.ID, c); o != nil || err != nil {
				return *cmp.Or(o, &outcome{}), err
			}
		}
	}
	if !known && err == nil {
		output, err = l.callOnce(ctx, c, made, again)
	}
	var typed *CallbackError
	l.untrusted = c.Untrusted && !saysNothing(err)
	done := doneOf(0, output, err)
	if err == nil && len(output) <= maxDirectResult {
		done.Result, done.Text, done.Size = output, "", 0
	}
	done.Attached = len(host.came(byScript))
	if keeps && c.Effect != events.EffectRead && !errors.Is(err, ErrWaiting) && !stops(ctx, err) && done.Outcome != events.OutcomeUnknown {
		l.untold = func(ctx context.Context) error {
			return journal.RecordCallbacks(ctx, &events.CallbacksRecorded{CallID: call.ID, Done: []events.CallbackDone{done}})
		}
	}
	switch {
	case errors.As(err, &typed) && typed.Outcome == events.OutcomeUnknown && c.Effect != events.EffectRead && ctx.Err() == nil:
		if err := l.recordOpen(ctx, call.ID, typed); err != nil {
			return outcome{}, err
		}
		return outcome{kind: events.OutcomeUnknown, text: "Unknown outcome. " + typed.Error()}, nil
	case err != nil:
		return toolError(ctx, err)
	}
	if err := l.keepFiles(ctx, host); err != nil {
		return outcome{}, err
	}
	for _, p := range l.attached[call.ID] {
		done.Files = append(done.Files, *p.File)
	}
	done.Attached = len(done.Files)
	if len(output) == 0 {
		return outcome{kind: events.OutcomeOK, text: c.Name + " says that the call was carried out, and tells no result."}, nil
	}
	return outcome{kind: events.OutcomeOK, text: string(output)}, nil
}

// maxDirectResult is the largest result of a call by the model itself that is
// recorded whole when the call's result is not committed, in bytes.
const maxDirectResult = 64 << 10

// recorded returns the outcome of a call that an earlier attempt came to know and
// could not commit the result of, or nil.
func (l *loop) recorded(ctx context.Context, journal Journal, callID string, c *boundCapability) (*outcome, error) {
	list, err := journal.Callbacks(ctx, callID)
	if err != nil {
		return nil, fmt.Errorf("read what became of call %s: %w", callID, err)
	}
	if len(list) != 1 || list[0].Done == nil || list[0].Done.Outcome == events.OutcomeUnknown {
		return nil, nil
	}
	if parts := projector.FilesOf(list); len(parts) > 0 {
		l.keep(callID, parts)
	}
	kind, text := projector.TellDirect(&list[0])
	l.untrusted = c.Untrusted
	return &outcome{kind: kind, text: text}, nil
}

// recall returns what the backend knows became of a call, if it does.
func (l *loop) recall(ctx context.Context, c *boundCapability, made *Callback) (output json.RawMessage, known bool, err error) {
	if r, ok := l.in.Backend.(Recaller); ok {
		if output, known, err = r.Recall(ctx, made); known || err != nil {
			output, err = c.checked(output, err)
		}
	}
	return output, known, err
}

// callOnce makes the call, unless what became of it is known or must stay open. It
// returns no output when the service says no more than that it is done.
func (l *loop) callOnce(ctx context.Context, c *boundCapability, made *Callback, again bool) (json.RawMessage, error) {
	if !again {
		return c.checked(l.in.Backend.Call(ctx, made))
	}
	made.Again = true
	if c.Effect.Repeatable() {
		return c.checked(l.callAgain(ctx, made))
	}
	why := workerStopped(c.Name)
	switch state, output, said, err := l.inquire(ctx, c, made); {
	case err != nil, state == StatusDone:
		return output, err
	case state == StatusNotDone:
		return nil, fmt.Errorf("%s was not carried out: the worker that was to call it stopped", c.Name)
	case said != "":
		why += "; " + said
	}
	return nil, stillUnknown(why)
}
