package gemini

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"google.golang.org/genai"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// The roles of contents. The responses of functions are a user's.
const (
	roleUser  = "user"
	roleModel = "model"
)

type content struct {
	Role  string            `json:"role"`
	Parts []json.RawMessage `json:"parts"`
}

type declaration struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parametersJsonSchema,omitempty"`
}

type tool struct {
	Declarations []declaration `json:"functionDeclarations"`
}

// request maps a request. It fails for what the port does not allow to be sent.
func (m *Model) request(r *runtime.Request) (*genai.GenerateContentConfig, error) {
	contents, err := mapMessages(r.Messages, r.Files)
	if err != nil {
		return nil, err
	}
	tools, err := mapTools(r.Tools)
	if err != nil {
		return nil, err
	}
	config := &genai.GenerateContentConfig{
		MaxOutputTokens:       int32(min(r.MaxOutputTokens, math.MaxInt32)),
		AutomaticContinuation: genai.Ptr(false),
		HTTPOptions: &genai.HTTPOptions{
			RetryOptions: &genai.HTTPRetryOptions{Attempts: genai.Ptr[int32](1)},
			ExtrasRequestProvider: func(body map[string]any) map[string]any {
				body["contents"] = contents
				if len(tools) > 0 {
					body["tools"] = tools
				}
				return body
			},
		},
	}
	if r.System != "" {
		config.SystemInstruction = genai.NewContentFromText(r.System, genai.RoleUser)
	}
	if m.config.Temperature != nil {
		config.Temperature = genai.Ptr(float32(*m.config.Temperature))
	}
	if m.config.Thoughts || m.config.Thinking != "" || m.config.ThinkingTokens > 0 {
		config.ThinkingConfig = &genai.ThinkingConfig{IncludeThoughts: m.config.Thoughts, ThinkingBudget: m.thinkingBudget()}
	}
	return config, nil
}

// thinkingBudget is nil for the model's default, 0 for none, and -1 for as much
// as the model finds right.
func (m *Model) thinkingBudget() *int32 {
	switch {
	case m.config.Thinking == "off":
		return genai.Ptr[int32](0)
	case m.config.Thinking == "adaptive":
		return genai.Ptr[int32](-1)
	case m.config.ThinkingTokens > 0:
		return genai.Ptr(int32(min(m.config.ThinkingTokens, math.MaxInt32)))
	}
	return nil
}

func mapTools(tools []runtime.Tool) ([]tool, error) {
	if len(tools) == 0 {
		return nil, nil
	}
	var all tool
	for _, t := range tools {
		var schema fields
		if len(t.InputSchema) > 0 && (json.Unmarshal(t.InputSchema, &schema) != nil || schema == nil) {
			return nil, fmt.Errorf("tool %s: the input schema is no JSON object", t.Name)
		}
		all.Declarations = append(all.Declarations, declaration{t.Name, t.Description, t.InputSchema})
	}
	return []tool{all}, nil
}

// window builds the contents of a request: roles alternate, none is empty, and
// the responses to a content's calls are together in the next one.
type window struct {
	contents []content
	calls    []openCall // of the newest content, until they have their responses
	files    map[string][]byte
	shown    []json.RawMessage // files of the responses to the calls
}

type openCall struct {
	id, name string
	wireID   json.RawMessage // of the API; nil: it gave none
	response json.RawMessage
}

func mapMessages(messages []events.Message, files map[string][]byte) ([]content, error) {
	w := window{contents: []content{}, files: files}
	for i := range messages {
		if err := w.add(&messages[i]); err != nil {
			return nil, fmt.Errorf("message %s: %w", messages[i].ID, err)
		}
	}
	if err := w.respond(); err != nil {
		return nil, err
	}
	return w.contents, nil
}

func (w *window) add(m *events.Message) error {
	if m.Role == events.RoleTool {
		return w.addResults(m)
	}
	if err := w.respond(); err != nil {
		return err
	}
	switch m.Role {
	case events.RoleUser:
		return w.addUser(m)
	case events.RoleAssistant:
		return w.addModel(m)
	}
	return fmt.Errorf("unknown role %q", m.Role)
}

// put adds a part to the newest content, if that is of the role, or to a new
// one.
func (w *window) put(role string, part json.RawMessage) {
	if n := len(w.contents); n == 0 || w.contents[n-1].Role != role {
		w.contents = append(w.contents, content{Role: role})
	}
	newest := &w.contents[len(w.contents)-1]
	newest.Parts = append(newest.Parts, part)
}

func (w *window) addUser(m *events.Message) error {
	texts, err := textsOf(m.Parts)
	if err != nil {
		return err
	}
	for i, text := range texts {
		part, err := mapText(events.Part{Type: events.PartText, Text: text})
		if err != nil {
			return err
		}
		if part != nil {
			w.put(roleUser, part)
		}
		for _, file := range mapFiles(w.files, m.Parts[i]) {
			w.put(roleUser, file)
		}
	}
	return nil
}

func (w *window) addModel(m *events.Message) error {
	for _, p := range m.Parts {
		var part json.RawMessage
		var err error
		switch {
		case p.Type == events.PartToolCall && p.Call != nil:
			var call openCall
			part, call, err = mapCall(p, len(w.calls) == 0)
			w.calls = append(w.calls, call)
		case p.Type == events.PartText, p.Type == events.PartReasoning:
			part, err = mapText(p)
		default:
			var texts []string
			if texts, err = textsOf([]events.Part{p}); err == nil {
				part, err = mapText(events.Part{Type: events.PartText, Text: texts[0]})
			}
		}
		if err != nil {
			return err
		}
		if part != nil {
			w.put(roleModel, part)
		}
	}
	return nil
}

func (w *window) addResults(m *events.Message) error {
	for _, p := range m.Parts {
		if p.Type != events.PartToolResult || p.Result == nil {
			return fmt.Errorf("a part of type %q cannot stand here", p.Type)
		}
		call := w.waiting(p.Result.CallID)
		if call == nil {
			return fmt.Errorf("the result of %s is to no call of the message before it", p.Result.CallID)
		}
		var err error
		if call.response, err = mapResult(call, p.Result); err != nil {
			return err
		}
		w.shown = append(w.shown, mapFiles(w.files, p.Result.Parts...)...)
	}
	return nil
}

func (w *window) waiting(id string) *openCall {
	for i := range w.calls {
		if c := &w.calls[i]; c.id == id && c.response == nil {
			return c
		}
	}
	return nil
}

// respond puts the responses to the calls, in the order of the calls.
func (w *window) respond() error {
	for _, c := range w.calls {
		if c.response == nil {
			return fmt.Errorf("the call %s has no result", c.id)
		}
		w.put(roleUser, c.response)
	}
	for _, file := range w.shown {
		w.put(roleUser, file)
	}
	w.calls, w.shown = nil, nil
	return nil
}

// mapResult returns the response to a call. What a tool returned stays a text,
// even if that is JSON: the API would read a number of it as a double.
func mapResult(c *openCall, r *events.ToolResult) (json.RawMessage, error) {
	texts, err := textsOf(r.Parts)
	if err != nil {
		return nil, err
	}
	key, text := "output", strings.Join(texts, "\n")
	switch r.Outcome {
	case events.OutcomeOK:
	case events.OutcomeError:
		key = "error"
	default:
		key, text = "error", strings.TrimSpace("["+string(r.Outcome)+"] "+text)
	}
	response := map[string]any{"name": c.name, "response": map[string]string{key: text}}
	if c.wireID != nil {
		response["id"] = c.wireID
	}
	return events.Marshal(map[string]any{"functionResponse": response})
}

// textsOf returns each part in words.
func textsOf(parts []events.Part) ([]string, error) {
	var texts []string
	for _, p := range parts {
		switch {
		case p.Type == events.PartText:
			texts = append(texts, p.Text)
		case p.Type == events.PartFile && p.File != nil:
			texts = append(texts, runtime.Describe(p.File, ""))
		default:
			return nil, fmt.Errorf("a part of type %q cannot stand here", p.Type)
		}
	}
	return texts, nil
}
