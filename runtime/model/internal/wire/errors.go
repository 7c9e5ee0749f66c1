package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentruntime/agentruntime/runtime"
)

// ClassOf is the one mapping of statuses.
func ClassOf(status int) runtime.ErrorClass {
	switch {
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status >= 500:
		return runtime.ClassRetry
	case status == http.StatusTooManyRequests:
		return runtime.ClassLimited
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return runtime.ClassDenied
	case status == http.StatusRequestEntityTooLarge:
		return runtime.ClassOverflow
	default:
		return runtime.ClassInvalid
	}
}

// codes maps the codes and types of error objects that come with no status,
// inside a response that began well. What is not here may pass: overloaded_error
// and server_error, for example.
var codes = map[string]runtime.ErrorClass{
	"rate_limit_exceeded": runtime.ClassLimited,
	"rate_limit_error":    runtime.ClassLimited,
	"insufficient_quota":  runtime.ClassLimited,

	"invalid_api_key":      runtime.ClassDenied,
	"authentication_error": runtime.ClassDenied,
	"permission_error":     runtime.ClassDenied,

	"context_length_exceeded":   runtime.ClassOverflow,
	"exceed_context_size_error": runtime.ClassOverflow, // llama.cpp
	"request_too_large":         runtime.ClassOverflow,

	"invalid_request_error":         runtime.ClassInvalid,
	"billing_error":                 runtime.ClassInvalid,
	"not_found_error":               runtime.ClassInvalid,
	"invalid_prompt":                runtime.ClassInvalid,
	"bio_policy":                    runtime.ClassInvalid,
	"misalignment_policy_violation": runtime.ClassInvalid,
	"data_residency_mismatch":       runtime.ClassInvalid,
}

// statusError maps a response that is an error.
func statusError(r *http.Response) error {
	// The body only adds to the status; it may be missing or cut off.
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	o := parseError(body)
	text := o.text()
	if text == "" {
		text = http.StatusText(r.StatusCode)
	}
	class := ClassOf(r.StatusCode)
	// Only a 413 tells by itself that a smaller request would do.
	if class == runtime.ClassInvalid && (codes[o.code] == runtime.ClassOverflow || codes[o.kind] == runtime.ClassOverflow || TooLarge(o.message)) {
		class = runtime.ClassOverflow
	}
	return &runtime.ModelError{
		Class: class, Status: r.StatusCode,
		RetryAfter: RetryAfter(r.Header), Err: errors.New(text),
	}
}

// tooLarge are the words of those who refuse a request that is larger than the
// model takes under the same code as any other mistake, so that the code does not
// tell.
var tooLarge = []string{
	"prompt is too long",                          // Anthropic
	"exceed context limit",                        // Anthropic, with the output limit
	"exceeds the maximum number of tokens",        // Gemini
	"exceeds the context window",                  // OpenAI
	"maximum context length",                      // OpenAI, vLLM and many others
	"greater than the context length",             // LM Studio
	"larger than the available context",           // llama.cpp
	"maximum prompt length",                       // xAI
	"too large for model with",                    // Mistral
	"reduce the length of the messages or prompt", // Groq
}

// TooLarge reports whether the message of a refusal says that the request is
// larger than the model takes.
func TooLarge(message string) bool {
	message = strings.ToLower(message)
	return slices.ContainsFunc(tooLarge, func(words string) bool { return strings.Contains(message, words) })
}

// RetryAfter reads the header in both its forms. A date is measured against the
// response's own, so that a wrong clock does not matter.
func RetryAfter(h http.Header) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		if seconds >= math.MaxInt64/float64(time.Second) {
			return math.MaxInt64
		}
		if seconds > 0 {
			return time.Duration(seconds * float64(time.Second))
		}
		return 0
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(0, at.Sub(now))
}

// Invalid returns the error for what is wrong whenever it is repeated.
func Invalid(err error) error {
	return &runtime.ModelError{Class: runtime.ClassInvalid, Err: err}
}

// errorObject is an error in words, as endpoints write it.
type errorObject struct {
	message, kind, code string
}

// parseError reads the error object of a body: under "error", or the body
// itself, either in a list of one; and an error that is only a string.
func parseError(body []byte) errorObject {
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) == 1 {
		body = list[0]
	}
	var outer struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &outer) == nil && Present(outer.Error) {
		body = outer.Error
	}
	var object struct {
		Message json.RawMessage `json:"message"`
		Type    json.RawMessage `json:"type"`
		Code    json.RawMessage `json:"code"`
	}
	if json.Unmarshal(body, &object) != nil {
		return errorObject{message: word(body)}
	}
	return errorObject{word(object.Message), word(object.Type), word(object.Code)}
}

// Present reports whether a field was there and not null.
func Present(value json.RawMessage) bool {
	return len(value) > 0 && !bytes.Equal(value, []byte("null"))
}

// word returns a string, or a number as it stands.
func word(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	var number json.Number
	if json.Unmarshal(value, &number) == nil {
		return number.String()
	}
	return ""
}

// text is the error for a reader: the message and the codes. It is whole: what
// quotes a secret is cut by those who redact it, afterwards.
func (o errorObject) text() string {
	text := o.message
	for _, code := range []string{o.kind, o.code} {
		if code != "" {
			text += " [" + code + "]"
		}
	}
	return strings.TrimSpace(text)
}

// ResponseError maps an error object that came with no status of its own,
// inside a response. What gives no known code failed after it was accepted, so
// it may pass.
func ResponseError(data []byte) *runtime.ModelError {
	o := parseError(data)
	failed := &runtime.ModelError{Class: runtime.ClassRetry, Err: errors.New("error in the response: " + o.text())}
	if status, err := strconv.Atoi(o.code); err == nil && status >= 400 && status <= 599 {
		failed.Class, failed.Status = ClassOf(status), status
	} else {
		for _, code := range []string{o.code, o.kind} {
			if class, ok := codes[code]; ok {
				failed.Class = class
				break
			}
		}
	}
	if failed.Class == runtime.ClassInvalid && TooLarge(o.message) {
		failed.Class = runtime.ClassOverflow
	}
	return failed
}
