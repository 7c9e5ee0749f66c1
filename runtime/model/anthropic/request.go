package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wire"
)

// params maps a request. It fails for what the port does not allow to be sent.
//
// Up to four blocks end a cached prefix, which is all that the API allows: the
// tools, the instructions, and the newest two turns of the user. Of these, the
// last but one is where the request before ended, and so is found in the cache
// however long the turn after it is and whatever only this request ends with.
func (m *Model) params(r *runtime.Request) (sdk.MessageNewParams, error) {
	p := sdk.MessageNewParams{Model: m.config.Name, MaxTokens: m.config.OutputTokens}
	if r.MaxOutputTokens > 0 {
		p.MaxTokens = r.MaxOutputTokens
	}
	if m.config.Temperature != nil {
		p.Temperature = param.NewOpt(*m.config.Temperature)
	}
	p.OutputConfig.Effort = sdk.OutputConfigEffort(m.config.Effort)
	if !blank(r.System) {
		p.System = []sdk.TextBlockParam{{Text: r.System, CacheControl: sdk.NewCacheControlEphemeralParam()}}
	}
	for _, t := range r.Tools {
		tool, err := m.tool(t)
		if err != nil {
			return p, fmt.Errorf("tool %s: %w", t.Name, err)
		}
		p.Tools = append(p.Tools, tool)
	}
	if n := len(p.Tools); n > 0 {
		p.Tools[n-1].OfTool.CacheControl = sdk.NewCacheControlEphemeralParam()
	}
	for i := range r.Messages {
		role, blocks, err := mapMessage(&r.Messages[i], r.Files)
		if err != nil {
			return p, fmt.Errorf("message %s: %w", r.Messages[i].ID, err)
		}
		p.Messages = join(p.Messages, role, blocks)
	}
	switch {
	case m.config.ThinkingTokens > 0:
		if mayThink(p.Messages) {
			// As the client's own type it prints a warning for some models.
			p.Thinking = param.Override[sdk.ThinkingConfigParamUnion](map[string]any{"type": "enabled", "budget_tokens": m.config.ThinkingTokens})
		}
	case m.config.Thinking != "":
		p.Thinking = param.Override[sdk.ThinkingConfigParamUnion](map[string]any{"type": m.config.Thinking})
	}
	marks := 2
	for i, turn := range slices.Backward(p.Messages) {
		if turn.Role != sdk.MessageParamRoleUser {
			continue
		}
		// The API wants the results of calls before all else.
		slices.SortStableFunc(p.Messages[i].Content, func(a, b sdk.ContentBlockParamUnion) int { return rank(a) - rank(b) })
		if marks--; marks >= 0 {
			*turn.Content[len(turn.Content)-1].GetCacheControl() = sdk.NewCacheControlEphemeralParam()
		}
	}
	return p, nil
}

// mayThink reports whether the API takes thinking with a budget after these
// turns. A turn of the model whose calls are answered must then begin with its
// thinking, and none can be made up: not for what another model wrote, not for
// what was written while thinking was off, and not for what went without its
// signature. The model then goes on as it began, without.
func mayThink(turns []sdk.MessageParam) bool {
	n := len(turns)
	answered := func(b sdk.ContentBlockParamUnion) bool { return b.OfToolResult != nil }
	if n < 2 || !slices.ContainsFunc(turns[n-1].Content, answered) {
		return true
	}
	begun, _ := turns[n-2].Content[0].Overrides()
	block, _ := begun.(json.RawMessage)
	var first wire.Fields
	return json.Unmarshal(block, &first) == nil && isThinking(first)
}

func isThinking(block wire.Fields) bool {
	kind := block.String("type")
	return kind == "thinking" || kind == "redacted_thinking"
}

func rank(b sdk.ContentBlockParamUnion) int {
	if b.OfToolResult != nil {
		return 0
	}
	return 1
}

// blank reports whether the API would refuse a text block.
func blank(text string) bool { return strings.TrimSpace(text) == "" }

// tool sends the schema as it is: the API takes any JSON Schema of an object.
func (m *Model) tool(t runtime.Tool) (sdk.ToolUnionParam, error) {
	schema := bytes.TrimSpace(t.InputSchema)
	switch {
	case len(schema) == 0:
		schema = []byte(`{"type":"object","properties":{}}`)
	case !json.Valid(schema) || schema[0] != '{':
		return sdk.ToolUnionParam{}, fmt.Errorf("the input schema is no JSON object")
	}
	tool := sdk.ToolParam{Name: t.Name, InputSchema: param.Override[sdk.ToolInputSchemaParam](json.RawMessage(wire.Valid(schema)))}
	if t.Description != "" {
		tool.Description = param.NewOpt(t.Description)
	}
	if m.config.Strict && wire.Strict(schema) {
		tool.Strict = param.NewOpt(true)
	}
	return sdk.ToolUnionParam{OfTool: &tool}, nil
}

// join adds the blocks of a message. Messages of one role are one turn, and
// those without a block are none.
func join(turns []sdk.MessageParam, role sdk.MessageParamRole, blocks []sdk.ContentBlockParamUnion) []sdk.MessageParam {
	if len(blocks) == 0 {
		return turns
	}
	if n := len(turns); n > 0 && turns[n-1].Role == role {
		turns[n-1].Content = append(turns[n-1].Content, blocks...)
		return turns
	}
	return append(turns, sdk.MessageParam{Role: role, Content: blocks})
}

func mapMessage(m *events.Message, files map[string][]byte) (role sdk.MessageParamRole, blocks []sdk.ContentBlockParamUnion, err error) {
	switch m.Role {
	case events.RoleUser:
		blocks, err = mapUser(m.Parts, files)
		return sdk.MessageParamRoleUser, blocks, err
	case events.RoleTool:
		blocks, err = mapResults(m.Parts, files)
		return sdk.MessageParamRoleUser, blocks, err
	case events.RoleAssistant:
		blocks, err = mapAssistant(m.Parts)
		return sdk.MessageParamRoleAssistant, blocks, err
	}
	return "", nil, fmt.Errorf("unknown role %q", m.Role)
}

// mapUser never returns nothing: without its block, two turns of the model
// would follow each other.
func mapUser(parts []events.Part, files map[string][]byte) (blocks []sdk.ContentBlockParamUnion, err error) {
	texts, err := wire.Words(parts...)
	for i, text := range texts {
		if !blank(text) {
			blocks = append(blocks, sdk.NewTextBlock(text))
		}
		for _, f := range mapFiles(files, parts[i]) {
			blocks = append(blocks, sdk.ContentBlockParamUnion{OfImage: f.OfImage, OfDocument: f.OfDocument})
		}
	}
	if len(blocks) == 0 {
		blocks = append(blocks, sdk.NewTextBlock("[empty message]"))
	}
	return blocks, err
}

func mapResults(parts []events.Part, files map[string][]byte) (blocks []sdk.ContentBlockParamUnion, err error) {
	for _, p := range parts {
		r, text, err := wire.Result(p)
		if err != nil {
			return nil, err
		}
		result := sdk.ToolResultBlockParam{ToolUseID: r.CallID}
		if !blank(text) {
			result.Content = []sdk.ToolResultBlockParamContentUnion{{OfText: &sdk.TextBlockParam{Text: text}}}
		}
		result.Content = append(result.Content, mapFiles(files, r.Parts...)...)
		if r.Outcome != events.OutcomeOK {
			result.IsError = param.NewOpt(true)
		}
		blocks = append(blocks, sdk.ContentBlockParamUnion{OfToolResult: &result})
	}
	return blocks, nil
}

// mapAssistant leaves out thinking that nothing follows; the API takes none at
// the end of a turn.
func mapAssistant(parts []events.Part) (blocks []sdk.ContentBlockParamUnion, err error) {
	end := 0
	for _, p := range parts {
		kept, err := wire.Kept(p, Provider)
		if err != nil {
			return nil, err
		}
		var block wire.Fields
		switch {
		case p.Type == events.PartReasoning:
			block = thought(kept)
		case p.Type == events.PartToolCall && p.Call != nil:
			block = kept.With("type", "tool_use").With("id", p.Call.ID).With("name", p.Call.Name).WithJSON("input", input(p.Call.Arguments))
		default:
			words, err := wire.Words(p)
			if err != nil {
				return nil, err
			}
			if !blank(words[0]) {
				block = kept.With("type", "text").With("text", words[0])
			}
		}
		if block == nil {
			continue
		}
		blocks = append(blocks, param.Override[sdk.ContentBlockParamUnion](block.JSON()))
		if !isThinking(block) {
			end = len(blocks)
		}
	}
	return blocks[:end], nil
}

// thought returns a block that is handed back as it came: not that of another
// provider, and not one that was cut before its signature.
func thought(kept wire.Fields) wire.Fields {
	kind := kept.String("type")
	if kind == "" || kind == "thinking" && kept.String("signature") == "" {
		return nil
	}
	return kept
}

// input returns arguments as the object that the API wants. Anything else that
// the model wrote is the one member of an object.
func input(stored json.RawMessage) json.RawMessage {
	value := bytes.TrimSpace(wire.Valid(stored))
	switch {
	case len(value) == 0:
		return json.RawMessage(`{}`)
	case value[0] == '{' && json.Valid(value):
		return value
	case json.Valid(value):
		return wire.Fields{"arguments": value}.JSON()
	}
	return wire.Fields{}.With("arguments", string(value)).JSON()
}
