package gemini

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"google.golang.org/genai"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// answer is a response as far as it has been read.
type answer struct {
	parts   []events.Part
	kept    []kept // of each part
	finish  genai.FinishReason
	message string // why it finished, in words
	blocked genai.BlockedReason
	usage   events.Usage
}

// chunk is one GenerateContentResponse.
type chunk struct {
	Candidates []struct {
		Index   int `json:"index"`
		Content struct {
			Parts []json.RawMessage `json:"parts"`
		} `json:"content"`
		FinishReason  genai.FinishReason `json:"finishReason"`
		FinishMessage string             `json:"finishMessage"`
	} `json:"candidates"`
	PromptFeedback struct {
		BlockReason genai.BlockedReason `json:"blockReason"`
	} `json:"promptFeedback"`
	UsageMetadata *usageMetadata  `json:"usageMetadata"`
	Error         json.RawMessage `json:"error"`
}

// usageMetadata is the client's type with numbers that do not overflow.
type usageMetadata struct {
	Prompt     int64 `json:"promptTokenCount"` // cached ones included
	Cached     int64 `json:"cachedContentTokenCount"`
	Tools      int64 `json:"toolUsePromptTokenCount"` // beside the prompt
	Candidates int64 `json:"candidatesTokenCount"`
	Thoughts   int64 `json:"thoughtsTokenCount"` // beside the candidates
	Total      int64 `json:"totalTokenCount"`
}

// usage normalizes. Some endpoints count thoughts among the candidates; the
// total tells.
func (u usageMetadata) usage() events.Usage {
	input, output := u.Prompt+u.Tools, u.Candidates+u.Thoughts
	if u.Candidates >= u.Thoughts && u.Total == input+u.Candidates {
		output = u.Candidates
	}
	return events.Usage{Input: input, Cached: u.Cached, Output: output, Reasoning: u.Thoughts}
}

// Read reads a stream, or what an endpoint sends that does not stream: one
// chunk, or all in a list.
func (a *answer) Read(r *http.Response) error {
	contentType := r.Header.Get("Content-Type")
	media, _, _ := mime.ParseMediaType(contentType)
	var err error
	switch {
	case media == "text/event-stream" || contentType == "":
		err = a.readStream(r.Body)
	case media == "application/json" || strings.HasSuffix(media, "+json"):
		err = a.readWhole(r.Body)
	default:
		return invalid(fmt.Errorf("the response is %q, neither an event stream nor JSON: check the base URL", contentType))
	}
	if err == nil && !a.ended() {
		err = errors.New("the stream ended before the response did")
	}
	return err
}

func (a *answer) ended() bool {
	return a.finish != "" || a.blocked != ""
}

// readStream reads server-sent events. Of their fields only the data counts.
func (a *answer) readStream(body io.Reader) error {
	lines := bufio.NewReader(body)
	var data []byte
	for {
		line, err := lines.ReadBytes('\n')
		line = bytes.TrimRight(line, "\r\n")
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(append(data, bytes.TrimPrefix(value, []byte(" "))...), '\n')
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("read the stream: %w", err)
		}
		if err == io.EOF && len(data) > 0 && !json.Valid(data) {
			return errors.New("the stream ended inside an event")
		}
		if (len(line) == 0 || err == io.EOF) && len(data) > 0 {
			if err := a.add(data); err != nil {
				return err
			}
			data = data[:0]
		}
		if err == io.EOF {
			return nil
		}
	}
}

func (a *answer) readWhole(body io.Reader) error {
	data, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	chunks := []json.RawMessage{data}
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '[' {
		if err := json.Unmarshal(trimmed, &chunks); err != nil {
			return invalid(fmt.Errorf("the response is not JSON: %w", err))
		}
	}
	for _, c := range chunks {
		if err := a.add(c); err != nil {
			return err
		}
	}
	return nil
}

func (a *answer) add(data []byte) error {
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return invalid(fmt.Errorf("the response is not the JSON of generated content: %w", err))
	}
	if present(c.Error) {
		return parseError(data).modelError()
	}
	if c.UsageMetadata != nil {
		a.usage = c.UsageMetadata.usage() // the last one counts: they are running totals
	}
	if reason := c.PromptFeedback.BlockReason; reason != "" && reason != genai.BlockedReasonUnspecified {
		a.blocked = reason
	}
	for _, candidate := range c.Candidates {
		if candidate.Index != 0 {
			continue // only one was asked for
		}
		for i, part := range candidate.Content.Parts {
			if err := a.addPart(part, i == 0); err != nil {
				return invalid(err)
			}
		}
		if reason := candidate.FinishReason; reason != "" && reason != genai.FinishReasonUnspecified {
			a.finish, a.message = reason, candidate.FinishMessage
		}
	}
	return nil
}

// addPart takes a part over. The first of a chunk goes on with the text of the
// chunk before.
func (a *answer) addPart(data json.RawMessage, first bool) error {
	p, k, err := readPart(data)
	if err != nil {
		return err
	}
	if k.plain() {
		if p.Text == "" {
			return nil
		}
		if n := len(a.parts) - 1; first && n >= 0 && a.kept[n].plain() && a.parts[n].Type == p.Type {
			a.parts[n].Text += p.Text
			return nil
		}
	}
	a.parts, a.kept = append(a.parts, p), append(a.kept, k)
	return nil
}

// Usage returns what has been reported.
func (a *answer) Usage() events.Usage { return a.usage }

// Response returns the whole answer.
func (a *answer) Response() (*runtime.Response, error) {
	finish, err := a.finishReason()
	if err != nil {
		return nil, err
	}
	for i := range a.parts {
		if a.parts[i].Provider, err = a.kept[i].provider(a.parts[i]); err != nil {
			return nil, invalid(err)
		}
	}
	return &runtime.Response{Parts: a.parts, Finish: finish, Usage: a.usage}, nil
}

// Reasons that the API's reference has and the client lacks.
const (
	finishMalformedResponse = genai.FinishReason("MALFORMED_RESPONSE")
	finishMissingSignature  = genai.FinishReason("MISSING_THOUGHT_SIGNATURE")
)

func (a *answer) finishReason() (runtime.FinishReason, error) {
	if a.finish == "" {
		return "", invalid(fmt.Errorf("the prompt was blocked: %s", a.blocked))
	}
	switch a.finish {
	case genai.FinishReasonStop:
		for _, p := range a.parts {
			if p.Call != nil {
				return runtime.FinishCalls, nil
			}
		}
		return runtime.FinishStop, nil
	case genai.FinishReasonMaxTokens, genai.FinishReasonContinuation:
		return runtime.FinishLength, nil
	case genai.FinishReasonSafety, genai.FinishReasonRecitation, genai.FinishReasonLanguage, genai.FinishReasonBlocklist,
		genai.FinishReasonProhibitedContent, genai.FinishReasonSPII, genai.FinishReasonImageSafety,
		genai.FinishReasonImageProhibitedContent, genai.FinishReasonImageRecitation:
		return runtime.FinishFilter, nil
	case genai.FinishReasonMalformedFunctionCall, genai.FinishReasonUnexpectedToolCall, genai.FinishReasonTooManyToolCalls,
		finishMalformedResponse, genai.FinishReasonOther:
		// The model wrote what the API could not read. Asked again, it writes
		// something else.
		return "", &runtime.ModelError{Class: runtime.ClassRetry, Err: a.unusable("the response is unusable")}
	case finishMissingSignature:
		return "", invalid(a.unusable("the request was refused"))
	}
	return "", invalid(a.unusable("unknown finish reason"))
}

func (a *answer) unusable(what string) error {
	text := fmt.Sprintf("%s: %q", what, string(a.finish))
	if a.message != "" {
		text += ": " + errorObject{Message: a.message}.text(0)
	}
	return errors.New(text)
}
