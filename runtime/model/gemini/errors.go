package gemini

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wire"
)

// codes maps the names of google.rpc.Code, for errors that come without a
// number. What is not here failed after it was accepted, so it may pass.
var codes = map[string]runtime.ErrorClass{
	"RESOURCE_EXHAUSTED":  runtime.ClassLimited,
	"UNAUTHENTICATED":     runtime.ClassDenied,
	"PERMISSION_DENIED":   runtime.ClassDenied,
	"INVALID_ARGUMENT":    runtime.ClassInvalid,
	"FAILED_PRECONDITION": runtime.ClassInvalid,
	"OUT_OF_RANGE":        runtime.ClassInvalid,
	"NOT_FOUND":           runtime.ClassInvalid,
	"UNIMPLEMENTED":       runtime.ClassInvalid,
}

func invalid(err error) error { return wire.Invalid(err) }

// errorObject is a google.rpc.Status in JSON.
type errorObject struct {
	Code    int      `json:"code"`
	Message string   `json:"message"`
	Status  string   `json:"status"`
	Details []detail `json:"details"`
}

// detail is a google.rpc.ErrorInfo or RetryInfo, as its type says.
type detail struct {
	Type       string `json:"@type"`
	Reason     string `json:"reason"`
	RetryDelay string `json:"retryDelay"`
}

// parseError reads the error of a body: under "error", in a list of one or
// without.
func parseError(body []byte) errorObject {
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0]
	}
	var outer struct {
		Error errorObject `json:"error"`
	}
	// What is of another form than expected stays zero; the status counts.
	_ = json.Unmarshal(body, &outer)
	return outer.Error
}

// statusError maps a response that is an error.
func statusError(r *http.Response) error {
	// The body only adds words; it may be missing or cut off.
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	o := parseError(body)
	failed := &runtime.ModelError{Class: wire.ClassOf(r.StatusCode), Status: r.StatusCode, Err: errors.New(o.text(r.StatusCode))}
	o.amend(failed)
	if failed.RetryAfter == 0 {
		failed.RetryAfter = wire.RetryAfter(r.Header)
	}
	return failed
}

// modelError maps an error that comes inside a response that began well.
func (o errorObject) modelError() *runtime.ModelError {
	failed := &runtime.ModelError{Class: runtime.ClassRetry, Err: errors.New("error in the response: " + o.text(o.Code))}
	if o.Code >= 400 && o.Code <= 599 {
		failed.Class, failed.Status = wire.ClassOf(o.Code), o.Code
	} else if class, ok := codes[o.Status]; ok {
		failed.Class = class
	}
	o.amend(failed)
	return failed
}

// amend adds what the message and the details say: that the request is too large,
// when to come again, and that a 400 means the key, which the API answers to a
// wrong one.
func (o errorObject) amend(failed *runtime.ModelError) {
	if failed.Class == runtime.ClassInvalid && wire.TooLarge(o.Message) {
		failed.Class = runtime.ClassOverflow
	}
	for _, d := range o.Details {
		switch {
		case strings.HasSuffix(d.Type, "google.rpc.RetryInfo"):
			if delay, err := time.ParseDuration(d.RetryDelay); err == nil && delay > 0 {
				failed.RetryAfter = delay
			}
		case strings.HasSuffix(d.Type, "google.rpc.ErrorInfo") && strings.HasPrefix(d.Reason, "API_KEY_"):
			failed.Class = runtime.ClassDenied
		}
	}
}

// text is the error for a reader: the message, whole for those who redact and
// then cut it, and the codes. The other details are left out: they repeat the
// key.
func (o errorObject) text(status int) string {
	text := o.Message
	if text == "" {
		text = http.StatusText(status)
	}
	if o.Status != "" {
		text += " [" + o.Status + "]"
	}
	for _, d := range o.Details {
		if d.Reason != "" {
			text += " [" + d.Reason + "]"
		}
	}
	return strings.TrimSpace(text)
}
