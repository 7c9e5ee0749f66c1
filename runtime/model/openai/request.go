package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wire"
)

// params maps a request. It fails for what the port does not allow to be sent.
func (m *Model) params(r *runtime.Request) (sdk.ChatCompletionNewParams, error) {
	p := sdk.ChatCompletionNewParams{
		Model:         m.config.Name,
		StreamOptions: sdk.ChatCompletionStreamOptionsParam{IncludeUsage: sdk.Bool(true)},
	}
	if r.MaxOutputTokens > 0 {
		if m.config.LegacyMaxTokens {
			p.MaxTokens = sdk.Int(r.MaxOutputTokens)
		} else {
			p.MaxCompletionTokens = sdk.Int(r.MaxOutputTokens)
		}
	}
	p.ReasoningEffort = shared.ReasoningEffort(m.config.Effort)
	if m.config.Temperature != nil {
		p.Temperature = sdk.Float(*m.config.Temperature)
	}
	if r.System != "" {
		p.Messages = append(p.Messages, sdk.SystemMessage(r.System))
	}
	var shown []sdk.ChatCompletionContentPartUnionParam // files of the newest results
	show := func() {
		if len(shown) > 0 {
			p.Messages, shown = append(p.Messages, sdk.UserMessage(shown)), nil
		}
	}
	for i := range r.Messages {
		m := &r.Messages[i]
		if m.Role != events.RoleTool {
			show()
		}
		messages, err := mapMessage(m, r.Files)
		if err != nil {
			return p, fmt.Errorf("message %s: %w", m.ID, err)
		}
		p.Messages = append(p.Messages, messages...)
		shown = append(shown, mapResultFiles(m, r.Files)...)
	}
	show()
	for _, t := range r.Tools {
		tool, err := mapTool(t)
		if err != nil {
			return p, fmt.Errorf("tool %s: %w", t.Name, err)
		}
		p.Tools = append(p.Tools, tool)
	}
	return p, nil
}

func mapMessage(m *events.Message, files map[string][]byte) ([]sdk.ChatCompletionMessageParamUnion, error) {
	var message sdk.ChatCompletionMessageParamUnion
	var err error
	switch m.Role {
	case events.RoleUser:
		message, err = mapUser(m, files)
	case events.RoleAssistant:
		message, err = mapAssistant(m)
	case events.RoleTool:
		return mapResults(m)
	default:
		err = fmt.Errorf("unknown role %q", m.Role)
	}
	return []sdk.ChatCompletionMessageParamUnion{message}, err
}

func mapUser(m *events.Message, files map[string][]byte) (sdk.ChatCompletionMessageParamUnion, error) {
	texts, err := wire.Words(m.Parts...)
	if err != nil || len(texts) < 2 && len(wire.Files(files, m.Parts...)) == 0 {
		return sdk.UserMessage(strings.Join(texts, "")), err
	}
	var content []sdk.ChatCompletionContentPartUnionParam
	for i, text := range texts {
		content = append(append(content, sdk.TextContentPart(text)), mapFiles(files, m.Parts[i])...)
	}
	return sdk.UserMessage(content), nil
}

func mapAssistant(m *events.Message) (sdk.ChatCompletionMessageParamUnion, error) {
	var message sdk.ChatCompletionAssistantMessageParam
	var texts, refusals []string
	var details []json.RawMessage
	for _, p := range m.Parts {
		k, err := keptIn(p)
		if err != nil {
			return sdk.ChatCompletionMessageParamUnion{}, err
		}
		switch {
		case p.Type == events.PartReasoning:
			details = append(details, k.ReasoningDetails...)
		case p.Type == events.PartToolCall && p.Call != nil:
			message.ToolCalls = append(message.ToolCalls, mapCall(p.Call, k))
		case p.Type == events.PartText && k.Refusal:
			refusals = append(refusals, p.Text)
		default:
			words, err := wire.Words(p)
			if err != nil {
				return sdk.ChatCompletionMessageParamUnion{}, err
			}
			texts = append(texts, words...)
		}
	}
	if len(refusals) > 0 {
		message.Refusal = sdk.String(strings.Join(refusals, "\n\n"))
	}
	if len(texts) > 0 || len(refusals) == 0 && len(message.ToolCalls) == 0 {
		message.Content.OfString = sdk.String(strings.Join(texts, "\n\n"))
	}
	if len(details) > 0 {
		message.SetExtraFields(map[string]any{"reasoning_details": details})
	}
	return sdk.ChatCompletionMessageParamUnion{OfAssistant: &message}, nil
}

func keptIn(p events.Part) (kept, error) {
	var k kept
	data, ok := p.Provider[Provider]
	if !ok {
		return k, nil
	}
	if err := json.Unmarshal(data, &k); err != nil {
		return k, fmt.Errorf("what the adapter keeps on a part: %w", err)
	}
	return k, nil
}

func mapCall(c *events.ToolCall, k kept) sdk.ChatCompletionMessageToolCallUnionParam {
	call := sdk.ChatCompletionMessageFunctionToolCallParam{
		ID: c.ID,
		Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{
			Name: c.Name, Arguments: wire.Arguments(c.Arguments),
		},
	}
	if k.ExtraContent != nil {
		call.SetExtraFields(map[string]any{"extra_content": k.ExtraContent})
	}
	return sdk.ChatCompletionMessageToolCallUnionParam{OfFunction: &call}
}

func mapResults(m *events.Message) ([]sdk.ChatCompletionMessageParamUnion, error) {
	var messages []sdk.ChatCompletionMessageParamUnion
	for _, p := range m.Parts {
		r, text, err := wire.Result(p)
		if err != nil {
			return nil, err
		}
		messages = append(messages, sdk.ToolMessage(text, r.CallID))
	}
	return messages, nil
}

// refused are the keywords that OpenAI takes at any level but the top.
var refused = []string{"oneOf", "anyOf", "allOf", "enum", "not"}

// mapTool sends a copy of the schema that OpenAI accepts: at its top an object
// with properties and without the refused keywords, below unchanged. The tool
// itself checks its arguments against the whole schema.
func mapTool(t runtime.Tool) (sdk.ChatCompletionToolUnionParam, error) {
	schema := map[string]json.RawMessage{}
	if len(t.InputSchema) > 0 {
		if err := json.Unmarshal(t.InputSchema, &schema); err != nil {
			return sdk.ChatCompletionToolUnionParam{}, fmt.Errorf("the input schema is no JSON object: %w", err)
		}
	}
	parameters := shared.FunctionParameters{"properties": json.RawMessage("{}")}
	for keyword, value := range schema {
		parameters[keyword] = value
	}
	for _, keyword := range refused {
		delete(parameters, keyword)
	}
	parameters["type"] = "object"
	function := shared.FunctionDefinitionParam{Name: t.Name, Parameters: parameters}
	if t.Description != "" {
		function.Description = param.NewOpt(t.Description)
	}
	return sdk.ChatCompletionFunctionTool(function), nil
}
