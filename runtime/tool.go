package runtime

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime/catalogue"
	"github.com/agentruntime/agentruntime/runtime/schema"
)

// The direct tools.
const (
	toolRunJS       = events.ToolRunJS
	toolComplete    = events.ToolComplete
	toolContinue    = events.ToolContinue
	toolGetCalls    = events.ToolGetCalls
	toolCancelCalls = events.ToolCancelCalls
	toolWaitCalls   = events.ToolWaitCalls
	spawnPrefix     = events.SpawnPrefix
	maxToolName     = 64 // the longest name that the large providers take
)

// controls are the tools that no script can call.
var controls = []string{toolRunJS, toolComplete, toolContinue, toolGetCalls, toolCancelCalls, toolWaitCalls}

// directTool is a tool the model calls directly: what it is told, and the
// schema its arguments must satisfy.
type directTool struct {
	Tool
	input *schema.Schema
	slug  string // of the child, for spawn tools

	capability *boundCapability // that the tool is, if it is one
}

// toolbox is the set of direct tools of one run.
type toolbox struct {
	list         []directTool
	capabilities map[string]*boundCapability
	catalogue    *catalogue.Catalogue // of the scripts
}

type boundCapability struct {
	*events.Capability
	input, output *schema.Schema // nil: any value
}

// newToolbox compiles every schema of a run. It is where an unsupported schema
// is refused, before any model work.
func newToolbox(in *Input) (*toolbox, error) {
	b := &toolbox{capabilities: make(map[string]*boundCapability, len(in.Capabilities))}
	for i := range in.Capabilities {
		c := &in.Capabilities[i]
		if _, twice := b.capabilities[c.Name]; twice {
			return nil, &InputError{"Capabilities", fmt.Sprintf("%s is given twice", c.Name)}
		}
		if err := catalogue.CheckCapability(c.Name); err != nil {
			return nil, &InputError{"Capabilities", err.Error()}
		}
		bound := &boundCapability{Capability: c}
		var err error
		if bound.input, err = compileOptional("capability "+c.Name+" input", c.Input); err != nil {
			return nil, err
		}
		if bound.output, err = compileOptional("capability "+c.Name+" output", c.Output); err != nil {
			return nil, err
		}
		b.capabilities[c.Name] = bound
	}
	if _, err := compileOptional("agent "+in.Definition.Slug+" output", in.Definition.Output); err != nil {
		return nil, err
	}
	scripts := slices.DeleteFunc(slices.Clone(in.Capabilities), func(c events.Capability) bool { return !c.InScripts() })
	if len(scripts) > catalogue.MaxCapabilities {
		return nil, &InputError{"Capabilities", fmt.Sprintf("are %d for scripts, more than %d", len(scripts), catalogue.MaxCapabilities)}
	}
	b.catalogue = catalogue.New(scripts)
	if err := b.addDirect(in); err != nil {
		return nil, err
	}
	return b, nil
}

func compileOptional(name string, doc json.RawMessage) (*schema.Schema, error) {
	if len(doc) == 0 {
		return nil, nil
	}
	return schema.Compile(name, doc)
}

// addDirect adds the direct tools. Those that deal with children are offered
// only to an agent that may have some.
func (b *toolbox) addDirect(in *Input) error {
	add := func(t Tool, slug string) error {
		s, err := schema.Compile("tool "+t.Name, t.InputSchema)
		if err == nil {
			b.list = append(b.list, directTool{Tool: t, input: s, slug: slug})
		}
		return err
	}
	describe := in.Describe() + "\n" + b.catalogue.Text()
	tools := []Tool{{toolRunJS, describe, json.RawMessage(`{"type":"object","properties":{"code":{"type":"string","minLength":1}},"required":["code"],"additionalProperties":false}`)}}
	if len(in.Subagents) > 0 {
		for _, t := range spawnTools(in.Subagents) {
			if err := add(t.Tool, t.slug); err != nil {
				return err
			}
		}
		tools = append(tools, childTools...)
	}
	if err := b.addCapabilities(in); err != nil {
		return err
	}
	tools = append(tools, Tool{toolComplete, completeDescription, completeSchema(in.Definition.Output)})
	for _, t := range tools {
		if err := add(t, ""); err != nil {
			return err
		}
	}
	return nil
}

var childTools = []Tool{
	{toolContinue, "Starts a new run in the session of a child that has ended, for example to answer its question.",
		json.RawMessage(`{"type":"object","properties":{"session":{"type":"string","minLength":1},"prompt":{"type":"string","minLength":1}},"required":["session","prompt"],"additionalProperties":false}`)},
	{toolGetCalls, "Tells where calls of this run stand.",
		json.RawMessage(`{"type":"object","properties":{"calls":{"type":"array","items":{"type":"string"}}},"required":["calls"],"additionalProperties":false}`)},
	{toolWaitCalls, "Waits until calls have settled: all of them, or any one. Without calls it waits for every open one. With messages, a message to this run ends the wait too.",
		json.RawMessage(`{"type":"object","properties":{"calls":{"type":"array","items":{"type":"string"}},"mode":{"enum":["all","any"]},"timeout":{"type":"string","pattern":"^[0-9.]+(ms|s|m|h)([0-9.]+(ms|s|m|h))*$"},"messages":{"type":"boolean"}},"additionalProperties":false}`)},
	{toolCancelCalls, "Asks calls of this run to stop.",
		json.RawMessage(`{"type":"object","properties":{"calls":{"type":"array","items":{"type":"string"}}},"required":["calls"],"additionalProperties":false}`)},
}

// spawnTools names one tool a child. Slugs that sanitize to one name are told
// apart by a number, in the order of the sorted slugs.
func spawnTools(children []events.AgentDefinition) []directTool {
	sorted := slices.Clone(children)
	slices.SortFunc(sorted, func(a, b events.AgentDefinition) int { return strings.Compare(a.Slug, b.Slug) })
	used := make(map[string]bool, len(sorted))
	tools := make([]directTool, 0, len(sorted))
	for _, c := range sorted {
		base := spawnPrefix + sanitize(c.Slug)
		name := distinct(base, used)
		used[name] = true
		input := c.Input
		if len(input) == 0 {
			input = json.RawMessage(`{"type":"object","properties":{"message":{"type":"string","minLength":1}},"required":["message"],"additionalProperties":false}`)
		}
		tools = append(tools, directTool{Tool: Tool{name, strings.TrimSpace("Starts the agent " + c.Slug + ". " + c.Description), input}, slug: c.Slug})
	}
	return tools
}

// ChildOf tells whether a call starts a child run: the slug of the agent that it
// spawns, or the session that continue_agent names. It says nothing about
// whether the run may.
func ChildOf(subagents []events.AgentDefinition, call *events.ToolCall) (slug, session string, ok bool) {
	if call.Name == toolContinue {
		var args struct {
			Session string `json:"session"`
		}
		err := json.Unmarshal(call.Arguments, &args)
		return "", args.Session, err == nil
	}
	if !strings.HasPrefix(call.Name, spawnPrefix) {
		return "", "", false
	}
	for _, t := range spawnTools(subagents) {
		if t.Name == call.Name {
			return t.slug, "", true
		}
	}
	return "", "", false
}

// IsWait reports whether a call waits for children or messages: its result is a
// function of what has come by the commit that holds it.
func IsWait(call *events.ToolCall) bool { return call.Name == toolWaitCalls }

// sanitize replaces what a tool name cannot hold.
func sanitize(slug string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, slug)
}

// find returns the tool with that name, or nil.
func (b *toolbox) find(name string) *directTool {
	for i := range b.list {
		if b.list[i].Name == name {
			return &b.list[i]
		}
	}
	return nil
}

// refusal says why a call must not be dispatched, or nothing.
func (b *toolbox) refusal(call *events.ToolCall) string {
	tool := b.find(call.Name)
	if tool == nil {
		return fmt.Sprintf("There is no tool %q.", call.Name)
	}
	if err := tool.input.Validate(call.Arguments); err != nil {
		return "The arguments do not fit the tool's schema: " + err.Error()
	}
	return ""
}

// tools returns what the model is told.
func (b *toolbox) tools() []Tool {
	list := make([]Tool, len(b.list))
	for i, t := range b.list {
		list[i] = t.Tool
	}
	return list
}
