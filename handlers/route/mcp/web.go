package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/agentruntime/agentruntime/handlers/route/dial"
)

// web is the HTTP of a session. Each request leaves once, with the headers of the
// configuration. An answer that does not keep to the protocol is an error of its own
// request: the SDK would end the session, and what other runs wait for with it.
type web struct {
	next   *dial.Transport
	set    map[string]string
	tap    *tap
	life   context.Context // that of the pool, which ends every request
	taking time.Duration   // in which a message that has no answer must be taken

	begun atomic.Bool // the session has the identity that it keeps
	doubt atomic.Bool // whether the server still knows the session
}

const (
	headerVersion = "Mcp-Protocol-Version"
	headerSession = "Mcp-Session-Id"
)

// messageKey carries the message that a request is made of.
type messageKey struct{}

// callOf returns the call that a request is made of, or nil when it is made of none.
func callOf(ctx context.Context) *jsonrpc.Request {
	if r, ok := ctx.Value(messageKey{}).(*jsonrpc.Request); ok && r.IsCall() {
		return r
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (w *web) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := w.bound(r)
	r = r.Clone(ctx)
	for name, value := range w.set {
		r.Header.Set(name, value)
	}
	if version := w.tap.protocol(); version != "" && r.Header.Get(headerVersion) == "" {
		r.Header.Set(headerVersion, version)
	}
	dial.Once(r)
	response, err := w.next.RoundTrip(r)
	if err != nil {
		w.wonder(r, 0)
		cancel()
		return nil, err
	}
	response.Body = &bounded{response.Body, cancel}
	status := response.StatusCode
	if err = w.judge(r, response); err != nil || !isGood(status) {
		w.wonder(r, status)
	}
	if err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	return response, nil
}

// wonder puts the session in doubt after a request in it that was not answered as it
// should be, with this status or without an answer. A server that was begun again has
// forgotten its sessions, and not every one says so with 404. That there are too many
// requests says nothing of the session, nor does it that a request had no more time.
func (w *web) wonder(r *http.Request, status int) {
	if r.Header.Get(headerSession) != "" && status != http.StatusTooManyRequests && r.Context().Err() == nil {
		w.doubt.Store(true)
	}
}

func isGood(status int) bool { return status >= 200 && status < 300 }

// bound returns the context of a request. A call has its own time. The end of a session
// is told to the server when the pool has ended, too.
func (w *web) bound(r *http.Request) (context.Context, context.CancelFunc) {
	if r.Method == http.MethodDelete {
		return context.WithTimeout(r.Context(), closing)
	}
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(w.life, cancel)
	if callOf(ctx) != nil {
		return ctx, func() { stop(); cancel() }
	}
	late := time.AfterFunc(w.taking, cancel)
	return ctx, func() { stop(); late.Stop(); cancel() }
}

// bounded is a body whose request ends with it.
type bounded struct {
	io.ReadCloser
	end context.CancelFunc
}

// Close implements io.Closer.
func (b *bounded) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// CloseIdleConnections lets the client close what is not in use.
func (w *web) CloseIdleConnections() { w.next.CloseIdleConnections() }

// statusError is an answer that is neither a success nor a message.
type statusError struct {
	status int
	said   string // the beginning of its body
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the answer is %d %s: %s", e.status, http.StatusText(e.status), e.said)
}

// maxSaid bounds what is kept of the body of a refusal, in bytes. It is far more than is
// told of it, so that a secret in what is told is whole until it is removed.
const maxSaid = 64 << 10

// newStatusError returns the error that an answer is, with what is known of its body.
func newStatusError(status int, body []byte) *statusError {
	said := strings.ToValidUTF8(string(bytes.TrimSpace(body[:min(len(body), maxSaid)])), "\uFFFD")
	if said == "" {
		said = "it says no more"
	}
	return &statusError{status, said}
}

// errNoAnswer means that what came is not the answer to the request.
var errNoAnswer = errors.New("what came is no answer to the request in the protocol")

// judge lets pass what the SDK takes for the answer to the one call, and what it
// ignores when there is none. An error of the protocol that names the call is the
// answer, whatever the status.
func (w *web) judge(r *http.Request, response *http.Response) error {
	if w.begun.Load() || r.Header.Get(headerSession) != "" {
		response.Header.Del(headerSession) // the SDK ends a session that is given another
	}
	call, x, good := callOf(r.Context()), exchangeOf(r.Context()), isGood(response.StatusCode)
	if call == nil {
		if !good {
			return newStatusError(response.StatusCode, nil)
		}
		return nil
	}
	if x != nil {
		x.status.Store(int32(response.StatusCode))
	}
	kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	if good && kind == "text/event-stream" {
		response.Header.Set("Content-Type", kind)
		response.Body = newStream(response.Body, call.ID, w.tap, func(err error) {
			w.wonder(r, http.StatusOK)
			if x != nil {
				x.broke(err)
			}
		})
		return nil
	}
	if good && kind != "application/json" {
		return fmt.Errorf("the answer is of the type %q, and neither JSON nor a stream of events", cut(kind, maxType))
	}
	text, err := io.ReadAll(dial.Bound(response.Body, maxFrame))
	if err != nil && good {
		return fmt.Errorf("the answer broke off: %w", err)
	}
	m, err := jsonrpc.DecodeMessage(text)
	answer, ok := m.(*jsonrpc.Response)
	own := err == nil && ok && answer.ID == call.ID
	switch {
	case good && !own:
		return errNoAnswer
	case !good && own && answer.Error != nil:
		response.StatusCode, response.Status = http.StatusOK, ""
	case !good && x == nil && err == nil && ok && answer.Error != nil:
		// The SDK reads in it which versions of the protocol the server has.
	case !good:
		refused := newStatusError(response.StatusCode, text)
		if x != nil {
			x.broke(refused)
		}
		return refused
	}
	response.Header.Set("Content-Type", "application/json")
	response.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(text), response.Body}
	return nil
}

// maxType bounds what is told of the type of an answer, in bytes.
const maxType = 100
