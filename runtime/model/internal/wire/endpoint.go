// Package wire holds what the adapters of providers do alike over HTTP: one
// request under a watch, errors mapped to classes, and the parts of messages
// that go over as words. It knows no provider's types.
package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// The defaults of an Endpoint.
const (
	DefaultHeaderTimeout = 10 * time.Minute
	DefaultStallTimeout  = time.Minute
)

// Endpoint is where a model is asked, and how patiently.
type Endpoint struct {
	Provider string // the adapter's name, in errors
	APIKey   string
	BaseURL  string

	HTTPClient    *http.Client  // nil: one that uses no proxy
	HeaderTimeout time.Duration // until a response begins; 0: DefaultHeaderTimeout
	StallTimeout  time.Duration // between two reads of a body; 0: DefaultStallTimeout

	// StatusError maps a response that is an error, where the error object is not
	// of the common form. Nil: the common one.
	StatusError func(*http.Response) error
}

// Complete checks the endpoint of a model and fills in the defaults. Its errors
// hold no key.
func (e *Endpoint) Complete(model, example, baseURL string) error {
	refuse := func(what string) error { return errors.New(e.Provider + " model: " + what) }
	if model == "" {
		return refuse("name: required, for example " + example)
	}
	for _, b := range []byte(e.APIKey) {
		if b <= ' ' || b > '~' {
			return refuse("api key: holds a space or a character that no key has; check how it was read")
		}
	}
	if e.BaseURL == "" {
		e.BaseURL = baseURL
	}
	base, err := url.Parse(e.BaseURL)
	switch {
	case err != nil:
		return refuse("base url: is not a URL")
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "":
		return refuse("base url: must begin with http:// or https:// and name a host")
	case base.User != nil, base.RawQuery != "", base.Fragment != "":
		return refuse("base url: must have no user, query or fragment; a key belongs in the api key")
	}
	if e.HTTPClient == nil {
		e.HTTPClient = directClient()
	}
	if e.HeaderTimeout == 0 {
		e.HeaderTimeout = DefaultHeaderTimeout
	}
	if e.StallTimeout == 0 {
		e.StallTimeout = DefaultStallTimeout
	}
	return nil
}

func directClient() *http.Client {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Client{Transport: &http.Transport{
		DialContext:         dialer.DialContext,
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		MaxIdleConnsPerHost: 16,
	}}
}

// Answer is a response as far as it has been read.
type Answer interface {
	// Read reads the body of a successful response to its end.
	Read(r *http.Response) error

	// Usage is what has been reported so far.
	Usage() events.Usage

	// Response returns what was read, whole.
	Response() (*runtime.Response, error)
}

// Generate makes one request and returns its whole answer. Send returns the
// response, its body unread, or an error; both for an error status. An error is
// a ModelError, or the context's own. Usage that was reported before a response
// turned out unusable is in the ModelError, and in an otherwise empty response
// beside any error.
func (e *Endpoint) Generate(ctx context.Context, send func(context.Context) (*http.Response, error), a Answer) (*runtime.Response, error) {
	watched, w := Watch(ctx, e.HeaderTimeout, e.StallTimeout)
	defer w.Stop()
	err := e.exchange(watched, w, send, a)
	if err == nil {
		var response *runtime.Response
		if response, err = a.Response(); err == nil {
			response.Usage = Counted(response.Usage)
			return response, nil
		}
	}
	usage := Counted(a.Usage())
	err = e.failure(ctx, context.Cause(watched), err, usage)
	if usage == (events.Usage{}) {
		return nil, err
	}
	return &runtime.Response{Usage: usage}, err
}

func (e *Endpoint) exchange(ctx context.Context, w *Watcher, send func(context.Context) (*http.Response, error), a Answer) error {
	res, err := send(ctx)
	if res == nil {
		return err // nil only together with an error
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		if e.StatusError != nil {
			return e.StatusError(res)
		}
		return statusError(res)
	}
	if err != nil {
		return err
	}
	res.Body = w.Body(res.Body)
	return a.Read(res)
}

// Refuse returns the error for a request that cannot be sent.
func (e *Endpoint) Refuse(ctx context.Context, err error) error {
	return e.failure(ctx, nil, Invalid(err), events.Usage{})
}

// failure maps an error of one request, whatever it is, to what Generate
// promises. The cause is why the request was cut off, if it was.
func (e *Endpoint) failure(ctx context.Context, cause, err error, usage events.Usage) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s request: %w", e.Provider, ctx.Err())
	}
	var failed *runtime.ModelError
	if !errors.As(err, &failed) {
		if cause != nil {
			err = cause
		}
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		failed = &runtime.ModelError{Class: runtime.ClassRetry, Err: err}
	}
	failed.Provider = e.Provider
	failed.Err = e.redacted(failed.Err)
	failed.Usage = usage
	return failed
}

// redacted returns an error whose text does not hold the key. Some endpoints
// repeat it.
func (e *Endpoint) redacted(err error) error {
	if e.APIKey == "" || !strings.Contains(err.Error(), e.APIKey) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), e.APIKey, "[key]"))
}
