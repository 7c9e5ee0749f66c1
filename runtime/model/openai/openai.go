// Package openai is a model behind OpenAI's chat completions, or any endpoint
// compatible with them, through OpenAI's own client.
//
// A Model makes exactly one HTTP request for each Generate. It never repeats
// one; errors say by their class whether repeating may help. Responses are
// streamed over the wire, so that a silent connection is noticed, and returned
// whole. A response without a finish reason is never returned.
//
// Everything comes from the Config: no environment variable is read, not even
// those of the client or of HTTP proxies.
//
// What chat completions cannot carry is said in words or left out: the outcome
// of a tool result is a prefix of its text ("[denied] …"), a file is described
// and not sent, and reasoning goes back only where the endpoint itself gave the
// means to (reasoning_details on a message; extra_content on a call, its kin).
package openai

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// Provider is the name of this adapter in errors and in the parts of messages.
const Provider = "openai"

// The defaults of a Config.
const (
	DefaultBaseURL       = "https://api.openai.com/v1/"
	DefaultHeaderTimeout = 10 * time.Minute
	DefaultStallTimeout  = time.Minute
)

// Config says which model is asked, and where.
type Config struct {
	Name    string // of the model, as the endpoint knows it
	APIKey  string // empty: requests carry no Authorization header
	BaseURL string // empty: DefaultBaseURL

	// HTTPClient makes the requests. Nil: one of the package's own, which uses
	// no proxy.
	HTTPClient *http.Client

	// HeaderTimeout bounds the wait for a response to begin, which takes an
	// endpoint that does not stream as long as the whole response. 0:
	// DefaultHeaderTimeout.
	HeaderTimeout time.Duration

	// StallTimeout bounds the wait for the next byte of a response, those of
	// keep-alive comments included. 0: DefaultStallTimeout.
	StallTimeout time.Duration

	// LegacyMaxTokens sends the output limit as max_tokens, for endpoints that
	// do not know max_completion_tokens.
	LegacyMaxTokens bool
}

// Model asks one model at one endpoint. It may be used concurrently.
type Model struct {
	config      Config
	completions sdk.ChatCompletionService
}

var _ runtime.Model = (*Model)(nil)

// New checks a Config. It makes no request. Its errors hold no key.
func New(c Config) (*Model, error) {
	if c.Name == "" {
		return nil, errors.New("openai model: name: required, for example gpt-5")
	}
	for _, b := range []byte(c.APIKey) {
		if b <= ' ' || b > '~' {
			return nil, errors.New("openai model: api key: holds a space or a character that no key has; check how it was read")
		}
	}
	if c.BaseURL == "" {
		c.BaseURL = DefaultBaseURL
	}
	base, err := url.Parse(c.BaseURL)
	switch {
	case err != nil:
		return nil, errors.New("openai model: base url: is not a URL")
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "":
		return nil, errors.New("openai model: base url: must begin with http:// or https:// and name a host")
	case base.User != nil, base.RawQuery != "", base.Fragment != "":
		return nil, errors.New("openai model: base url: must have no user, query or fragment; a key belongs in the api key")
	}
	if c.HTTPClient == nil {
		c.HTTPClient = directClient()
	}
	if c.HeaderTimeout == 0 {
		c.HeaderTimeout = DefaultHeaderTimeout
	}
	if c.StallTimeout == 0 {
		c.StallTimeout = DefaultStallTimeout
	}
	// The service is made without the client around it: only the client reads
	// the environment.
	return &Model{config: c, completions: sdk.NewChatCompletionService(
		option.WithBaseURL(c.BaseURL),
		option.WithAPIKey(c.APIKey),
		option.WithHTTPClient(c.HTTPClient),
		option.WithMaxRetries(0),
	)}, nil
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

// Generate makes one request. An error is a ModelError, or the context's own.
// If usage was reported before a response turned out unusable, it is returned
// in an otherwise empty response beside the error.
func (m *Model) Generate(ctx context.Context, r *runtime.Request) (*runtime.Response, error) {
	params, err := m.params(r)
	if err != nil {
		return nil, m.failure(ctx, nil, &runtime.ModelError{Class: runtime.ClassInvalid, Err: err})
	}
	watched, w := watch(ctx, m.config.HeaderTimeout, m.config.StallTimeout)
	defer w.stop()
	var a answer
	if err := m.exchange(watched, w, params, &a); err != nil {
		return a.spent(), m.failure(ctx, context.Cause(watched), err)
	}
	response, err := a.response()
	if err != nil {
		return a.spent(), m.failure(ctx, nil, err)
	}
	return response, nil
}

// exchange makes the request and reads the response into a.
func (m *Model) exchange(ctx context.Context, w *watcher, params sdk.ChatCompletionNewParams, a *answer) error {
	var res *http.Response
	_, err := m.completions.New(ctx, params, option.WithResponseBodyInto(&res), option.WithJSONSet("stream", true))
	if res == nil {
		return err // nil only together with an error
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return statusError(res)
	}
	if err != nil {
		return err
	}
	res.Body = w.body(res.Body)
	return a.read(res)
}

// failure maps an error of one request, whatever it is, to what Generate
// promises. The cause is why the request was cut off, if it was.
func (m *Model) failure(ctx context.Context, cause, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("chat completion: %w", ctx.Err())
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
	failed.Provider = Provider
	failed.Err = m.redacted(failed.Err)
	return failed
}

// spent returns what a failed request is known to have used.
func (a *answer) spent() *runtime.Response {
	if a.usage == (events.Usage{}) {
		return nil
	}
	return &runtime.Response{Usage: a.usage}
}
