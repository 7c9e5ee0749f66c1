package openairesponses_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/runtime/model/internal/wiretest"
)

type item map[string]any

func (i item) str(field string) string {
	s, _ := i[field].(string)
	return s
}

func (i item) list(field string) (out []item) {
	values, _ := i[field].([]any)
	for _, v := range values {
		v, _ := v.(map[string]any)
		out = append(out, v)
	}
	return out
}

// fields are what an item or a content of each type may hold.
var fields = map[string][]string{
	"message":              {"id", "role", "status", "phase", "content"},
	"reasoning":            {"id", "summary", "content", "encrypted_content", "status"},
	"function_call":        {"id", "call_id", "name", "arguments", "status"},
	"function_call_output": {"call_id", "output"},
	"input_text":           {"text"},
	"input_image":          {"image_url", "detail"},
	"input_file":           {"filename", "file_data"},
	"output_text":          {"text", "annotations", "logprobs"},
	"refusal":              {"refusal"},
}

// known refuses fields that there is no place for. A message of a user needs no
// type.
func (i item) known() error {
	kind := i.str("type")
	if kind == "" && i["role"] != nil {
		kind = "message"
	}
	may, ok := fields[kind]
	for field, value := range i {
		if field != "type" && !slices.Contains(may, field) || value == nil {
			ok = false
		}
	}
	if !ok {
		return fmt.Errorf("item %v", i)
	}
	return nil
}

// valid holds a request to the rules that the API answers with a 400 or 404 if
// it stores nothing.
func valid(body []byte) error {
	var r struct {
		Model         string
		Store, Stream *bool
		Input         []item
		Tools         []struct {
			Type, Name string
			Parameters map[string]any
			Strict     *bool
		}
	}
	if err := wiretest.Decode(body, &r); err != nil {
		return err
	}
	if r.Model == "" || r.Store == nil || *r.Store || r.Stream == nil || !*r.Stream || len(r.Input) == 0 {
		return errors.New("model, store, stream or input is not as it must be")
	}
	for _, t := range r.Tools {
		if t.Type != "function" || t.Name == "" || t.Parameters["type"] != "object" || t.Strict == nil {
			return fmt.Errorf("tool %+v", t)
		}
	}
	var open []string // calls without a result
	thinking := false // reasoning waits for what it led to
	for n, i := range r.Input {
		if err := i.known(); err != nil {
			return err
		}
		said := i.str("role") == "assistant" || i.str("type") == "function_call"
		if thinking && !said && i.str("type") != "reasoning" {
			return fmt.Errorf("item %d: reasoning without its following item", n)
		}
		var err error
		switch i.str("type") {
		case "reasoning":
			thinking = true
			if _, ok := i["summary"].([]any); !ok || i.str("encrypted_content") == "" || i.str("id") == "" {
				err = errors.New("reasoning that is only known by its id")
			}
		case "function_call":
			if _, ok := i["arguments"].(string); !ok || i.str("call_id") == "" || i.str("name") == "" || slices.Contains(open, i.str("call_id")) {
				err = fmt.Errorf("call %v", i)
			}
			open = append(open, i.str("call_id"))
		case "function_call_output":
			at := slices.Index(open, i.str("call_id"))
			_, ok := i["output"].(string)
			for _, c := range i.list("output") {
				if ok = c.known() == nil; !ok {
					break
				}
			}
			if !ok || at < 0 {
				return fmt.Errorf("item %d: the output %v is of no open call", n, i)
			}
			open = slices.Delete(open, at, at+1)
		default:
			if !said && len(open) > 0 {
				return fmt.Errorf("item %d: calls %v have no outputs", n, open)
			}
			err = i.validMessage()
		}
		thinking = thinking && !said
		if err != nil {
			return fmt.Errorf("item %d: %w", n, err)
		}
	}
	if len(open) > 0 || thinking {
		return errors.New("the input ends before its calls or its reasoning do")
	}
	return nil
}

func (i item) validMessage() error {
	role := i.str("role")
	if s, ok := i["content"].(string); ok && s != "" && role == "assistant" {
		return nil
	}
	contents := i.list("content")
	if len(contents) == 0 || i.str("id") == "" && role == "assistant" {
		return fmt.Errorf("message %v", i)
	}
	for _, c := range contents {
		if err := c.known(); err != nil {
			return err
		}
		_, annotated := c["annotations"].([]any)
		switch c.str("type") {
		case "input_image", "input_file":
			if role != "user" || !strings.HasPrefix(c.str("image_url")+c.str("file_data"), "data:") {
				return fmt.Errorf("content %v", c)
			}
		case "input_text":
			if role != "user" || c.str("text") == "" {
				return fmt.Errorf("content %v", c)
			}
		case "output_text":
			if role != "assistant" || !annotated {
				return fmt.Errorf("content %v", c)
			}
		case "refusal":
			if role != "assistant" {
				return fmt.Errorf("content %v", c)
			}
		}
	}
	return nil
}
