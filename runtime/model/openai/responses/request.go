package openairesponses

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/openai/openai-go/v3/packages/param"
	sdk "github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wire"
)

// params maps a request. It fails for what the port does not allow to be sent.
func (m *Model) params(r *runtime.Request) (sdk.ResponseNewParams, error) {
	p := sdk.ResponseNewParams{
		Model:     m.config.Name,
		Store:     param.NewOpt(false),
		Reasoning: shared.ReasoningParam{Effort: shared.ReasoningEffort(m.config.Effort), Summary: shared.ReasoningSummary(m.config.Summary)},
	}
	if !m.config.NoReasoning {
		p.Include = []sdk.ResponseIncludable{sdk.ResponseIncludableReasoningEncryptedContent}
	}
	if m.config.Temperature != nil {
		p.Temperature = param.NewOpt(*m.config.Temperature)
	}
	if r.MaxOutputTokens > 0 {
		p.MaxOutputTokens = param.NewOpt(r.MaxOutputTokens)
	}
	if r.System != "" {
		p.Instructions = param.NewOpt(r.System)
	}
	input := sdk.ResponseInputParam{}
	for i := range r.Messages {
		items, err := mapMessage(&r.Messages[i], r.Files)
		if err != nil {
			return p, fmt.Errorf("message %s: %w", r.Messages[i].ID, err)
		}
		input = append(input, items...)
	}
	p.Input.OfInputItemList = input
	for _, t := range r.Tools {
		tool, err := mapTool(t)
		if err != nil {
			return p, fmt.Errorf("tool %s: %w", t.Name, err)
		}
		p.Tools = append(p.Tools, tool)
	}
	return p, nil
}

// mapTool sends the schema as it is. Strict is the API's default, so it is said
// when a schema does not conform.
func mapTool(t runtime.Tool) (sdk.ToolUnionParam, error) {
	schema := bytes.TrimSpace(t.InputSchema)
	switch {
	case len(schema) == 0:
		schema = []byte(`{"type":"object","properties":{}}`)
	case !json.Valid(schema) || schema[0] != '{':
		return sdk.ToolUnionParam{}, errors.New("the input schema is no JSON object")
	}
	strict := json.RawMessage("false")
	if wire.Strict(schema) {
		strict = json.RawMessage("true")
	}
	// The client's own type would take the schema apart and sort it.
	tool := wire.Fields{"parameters": wire.Valid(schema), "strict": strict}.With("type", "function").With("name", t.Name)
	if t.Description != "" {
		tool = tool.With("description", t.Description)
	}
	return param.Override[sdk.ToolUnionParam](tool.JSON()), nil
}

type inputItem = sdk.ResponseInputItemUnionParam

func raw(f wire.Fields) inputItem { return param.Override[inputItem](f.JSON()) }

func mapMessage(m *events.Message, files map[string][]byte) ([]inputItem, error) {
	switch m.Role {
	case events.RoleUser:
		return mapUser(m.Parts, files)
	case events.RoleTool:
		return mapResults(m.Parts, files)
	case events.RoleAssistant:
		return mapAssistant(m.Parts)
	}
	return nil, fmt.Errorf("unknown role %q", m.Role)
}

func mapUser(parts []events.Part, files map[string][]byte) ([]inputItem, error) {
	texts, err := wire.Words(parts...)
	if err != nil {
		return nil, err
	}
	var content sdk.ResponseInputMessageContentListParam
	for i, text := range texts {
		if text != "" {
			content = append(content, sdk.ResponseInputContentParamOfInputText(text))
		}
		for _, f := range mapFiles(files, parts[i]) {
			content = append(content, param.Override[sdk.ResponseInputContentUnionParam](f.JSON()))
		}
	}
	if len(content) == 0 {
		content = append(content, sdk.ResponseInputContentParamOfInputText("[empty message]"))
	}
	return []inputItem{sdk.ResponseInputItemParamOfMessage(content, sdk.EasyInputMessageRoleUser)}, nil
}

func mapResults(parts []events.Part, files map[string][]byte) ([]inputItem, error) {
	var items []inputItem
	for _, p := range parts {
		r, text, err := wire.Result(p)
		if err != nil {
			return nil, err
		}
		output := wire.Fields{}.With("type", "function_call_output").With("call_id", r.CallID).With("output", text)
		if contents := mapFiles(files, r.Parts...); len(contents) > 0 {
			data, err := events.Marshal(append([]wire.Fields{inputText(text)}, contents...))
			if err != nil {
				return nil, err
			}
			output = output.WithJSON("output", data)
		}
		items = append(items, raw(output))
	}
	return items, nil
}

// mapAssistant leaves out reasoning that nothing follows. Such a response was
// cut, and the API takes no reasoning without what it led to.
func mapAssistant(parts []events.Part) (items []inputItem, err error) {
	end := 0
	for len(parts) > 0 {
		f, n, err := nextItem(parts)
		if err != nil {
			return nil, err
		}
		parts = parts[n:]
		if f == nil {
			continue
		}
		items = append(items, raw(f))
		if f.String("type") != "reasoning" {
			end = len(items)
		}
	}
	return items[:end], nil
}

// nextItem returns the item that begins with the first of the parts, and how
// many of them it holds; none for parts that say nothing to the API.
func nextItem(parts []events.Part) (f wire.Fields, n int, err error) {
	p := parts[0]
	kept, err := wire.Kept(p, Provider)
	if err != nil {
		return nil, 0, err
	}
	switch {
	case p.Type == events.PartReasoning:
		return thought(kept), 1, nil
	case p.Type == events.PartToolCall && p.Call != nil:
		arguments := wire.Arguments(p.Call.Arguments)
		if arguments == "" {
			arguments = "{}"
		}
		return kept.With("type", "function_call").With("call_id", p.Call.ID).With("name", p.Call.Name).With("arguments", arguments), 1, nil
	case p.Type == events.PartText && kept["item"] != nil:
		return message(kept["item"], parts)
	}
	words, err := wire.Words(p)
	if err != nil || words[0] == "" {
		return nil, 1, err
	}
	return wire.Fields{}.With("type", "message").With("role", "assistant").With("content", words[0]), 1, nil
}

// thought returns an item that is handed back as it came: not that of another
// provider, and not reasoning that only the API's own store would know.
func thought(kept wire.Fields) wire.Fields {
	kind := kept.String("type")
	if kind == "" || kind == "reasoning" && kept.String("encrypted_content") == "" {
		return nil
	}
	return kept
}

// message puts the item together again that the first parts were contents of.
func message(header json.RawMessage, parts []events.Part) (f wire.Fields, n int, err error) {
	if err := json.Unmarshal(header, &f); err != nil {
		return nil, 0, fmt.Errorf("the item that the adapter keeps on a part: %w", err)
	}
	var contents []json.RawMessage
	for _, p := range parts {
		kept, err := wire.Kept(p, Provider)
		if err != nil {
			return nil, 0, err
		}
		if p.Type != events.PartText || !bytes.Equal(kept["item"], header) {
			break
		}
		var content wire.Fields
		if err := json.Unmarshal(kept["content"], &content); err != nil {
			return nil, 0, fmt.Errorf("the content that the adapter keeps on a part: %w", err)
		}
		field, ok := textField[content.String("type")]
		if !ok {
			return nil, 0, fmt.Errorf("the adapter keeps the unknown content %q on a part", content.String("type"))
		}
		contents = append(contents, content.With(field, p.Text).JSON())
		n++
	}
	data, err := events.Marshal(contents)
	if err != nil {
		return nil, 0, err
	}
	return f.With("type", "message").WithJSON("content", data), n, nil
}
