package anthropic_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/runtime/model/internal/wiretest"
)

type block map[string]any

func (b block) str(field string) string {
	s, _ := b[field].(string)
	return s
}

// fields are what a block of each type may hold.
var fields = map[string][]string{
	"text":              {"text", "citations", "cache_control"},
	"thinking":          {"thinking", "signature"},
	"redacted_thinking": {"data"},
	"image":             {"source", "cache_control"},
	"document":          {"source", "title", "cache_control"},
	"tool_use":          {"id", "name", "input", "caller", "cache_control"},
	"tool_result":       {"tool_use_id", "content", "is_error", "cache_control"},
}

var idPattern = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// valid holds a request to the rules that the API answers with a 400.
func valid(body []byte) error {
	var r struct {
		Model     string
		MaxTokens int64 `json:"max_tokens"`
		Stream    bool
		Thinking  struct {
			Type         string
			BudgetTokens int64 `json:"budget_tokens"`
		}
		System []block
		Tools  []struct {
			Name         string
			InputSchema  map[string]any `json:"input_schema"`
			CacheControl any            `json:"cache_control"`
		}
		Messages []struct {
			Role    string
			Content []block
		}
	}
	if err := wiretest.Decode(body, &r); err != nil {
		return err
	}
	if r.Model == "" || r.MaxTokens < 1 || !r.Stream || len(r.Messages) == 0 {
		return errors.New("model, max_tokens, stream or messages is missing")
	}
	marks := strings.Count(string(body), `"cache_control"`)
	if marks > 4 {
		return fmt.Errorf("%d blocks have cache_control, at most 4 may", marks)
	}
	for _, b := range r.System {
		if err := validText(b); err != nil {
			return err
		}
	}
	for _, t := range r.Tools {
		if !idPattern.MatchString(t.Name) || t.InputSchema["type"] != "object" {
			return fmt.Errorf("tool %q", t.Name)
		}
	}
	var open []string // calls of the turn before
	for i, m := range r.Messages {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			return fmt.Errorf("message %d is of %s, want %s", i, m.Role, want)
		}
		var err error
		if m.Role == "user" {
			err = validUser(m.Content, open)
			open = nil
		} else {
			open, err = validAssistant(m.Content)
		}
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("calls %v have no results", open)
	}
	if r.Thinking.Type != "enabled" {
		return nil
	}
	if r.Thinking.BudgetTokens < 1024 || r.Thinking.BudgetTokens >= r.MaxTokens {
		return fmt.Errorf("%d tokens to think with, of %d", r.Thinking.BudgetTokens, r.MaxTokens)
	}
	if n := len(r.Messages); n > 1 && r.Messages[n-1].Content[0].str("type") == "tool_result" {
		if first := r.Messages[n-2].Content[0].str("type"); !strings.HasSuffix(first, "thinking") {
			return fmt.Errorf("the final assistant message begins with %s, with thinking it must begin with a thinking block", first)
		}
	}
	return nil
}

// validSource wants a file's bytes in a form that the API has for them.
func validSource(b block) error {
	source, _ := b["source"].(map[string]any)
	s := block(source)
	kind, media := s.str("type"), s.str("media_type")
	image := kind == "base64" && slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, media)
	document := kind == "base64" && media == "application/pdf" || kind == "text" && media == "text/plain"
	if b.str("type") == "image" && !image || b.str("type") == "document" && !document || strings.TrimSpace(s.str("data")) == "" {
		return fmt.Errorf("block %v", b)
	}
	return known(b)
}

func validText(b block) error {
	if kind := b.str("type"); kind == "image" || kind == "document" {
		return validSource(b)
	}
	if b.str("type") != "text" || strings.TrimSpace(b.str("text")) == "" {
		return fmt.Errorf("empty text block %v", b)
	}
	return known(b)
}

// known refuses fields that a block has no place for.
func known(b block) error {
	may, ok := fields[b.str("type")]
	for field := range b {
		if field != "type" && !slices.Contains(may, field) {
			ok = false
		}
	}
	if !ok {
		return fmt.Errorf("block %v", b)
	}
	return nil
}

// validUser wants the result of each open call, and all of them before the rest.
func validUser(content []block, open []string) error {
	if len(content) == 0 {
		return errors.New("no content")
	}
	for _, b := range content {
		if kind := b.str("type"); kind == "text" || kind == "image" || kind == "document" {
			if len(open) > 0 {
				return errors.New("text before the results of calls")
			}
			if err := validText(b); err != nil {
				return err
			}
			continue
		}
		id := b.str("tool_use_id")
		at := slices.Index(open, id)
		if b.str("type") != "tool_result" || at < 0 {
			return fmt.Errorf("block %v answers no call of the turn before", b)
		}
		open = slices.Delete(slices.Clone(open), at, at+1)
		inner, _ := b["content"].([]any)
		if b["is_error"] == true && len(inner) == 0 {
			return errors.New("an error without content")
		}
		for _, c := range inner {
			c, _ := c.(map[string]any)
			if err := validText(c); err != nil {
				return err
			}
		}
		if err := known(b); err != nil {
			return err
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("calls %v have no results right after them", open)
	}
	return nil
}

func validAssistant(content []block) (calls []string, err error) {
	if len(content) == 0 {
		return nil, errors.New("no content")
	}
	for _, b := range content {
		if err := known(b); err != nil {
			return nil, err
		}
		switch b.str("type") {
		case "text":
			err = validText(b)
		case "thinking":
			if _, ok := b["thinking"].(string); !ok || b.str("signature") == "" {
				err = errors.New("thinking without a signature")
			}
		case "redacted_thinking":
			if b.str("data") == "" {
				err = errors.New("redacted thinking without data")
			}
		case "tool_use":
			_, object := b["input"].(map[string]any)
			if id := b.str("id"); !idPattern.MatchString(id) || slices.Contains(calls, id) || b.str("name") == "" || !object {
				err = fmt.Errorf("call %v", b)
			}
			calls = append(calls, b.str("id"))
		}
		if err != nil {
			return nil, err
		}
	}
	if last := content[len(content)-1].str("type"); strings.HasSuffix(last, "thinking") {
		return nil, errors.New("the final block is " + last)
	}
	return calls, nil
}
