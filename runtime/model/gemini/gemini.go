// Package gemini is a model behind Google's Gemini API, through Google's own
// client.
//
// A Model makes exactly one HTTP request for each Generate. It never repeats
// one; errors say by their class whether repeating may help. Responses are
// streamed over the wire, so that a silent connection is noticed, and returned
// whole. A response without a finish reason is never returned.
//
// The client makes the request: its address, its headers, its configuration.
// What holds numbers is written and read here, because the client takes every
// JSON value through float64, in both directions: the contents, the schemas of
// functions, and the response. A number in the arguments of a call is kept
// digit by digit. Reading the stream here also keeps the client's own habits
// out: it logs, and it continues responses by further requests.
//
// A part of a response goes back as it came, except that a redactor may have
// been at its text or arguments: its thought signature, its id and whatever
// else it had travel in Part.Provider. A call that came without an id is handed
// back without one, and so is its response; the API then goes by their order.
// Calls and thoughts of other providers' models are foreign: the thoughts are
// left out, and a call carries the signature that the API documents for
// histories it did not write.
//
// What the API cannot carry is said in words: an outcome other than ok is an
// error response ("[denied] …"), and a file is described and not sent.
package gemini

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"google.golang.org/genai"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wire"
)

// Provider is the name of this adapter in errors and in the parts of messages.
const Provider = "gemini"

// The defaults of a Config.
const (
	DefaultBaseURL       = "https://generativelanguage.googleapis.com/"
	DefaultHeaderTimeout = 10 * time.Minute
	DefaultStallTimeout  = time.Minute
)

// Config says which model is asked, and where. No setting comes from the
// environment.
type Config struct {
	Name    string // of the model, as the API knows it
	APIKey  string
	BaseURL string // without the version; empty: DefaultBaseURL

	// HTTPClient makes the requests; its Timeout does not count. Nil: one of
	// the package's own, which uses no proxy.
	HTTPClient *http.Client

	// HeaderTimeout bounds the wait for a response to begin. 0:
	// DefaultHeaderTimeout.
	HeaderTimeout time.Duration

	// StallTimeout bounds the wait for the next byte of a response. 0:
	// DefaultStallTimeout.
	StallTimeout time.Duration

	// Thoughts asks for summaries of the model's thoughts, which become
	// reasoning parts. Models that do not think refuse it.
	Thoughts bool
}

// Model asks one model at one endpoint. It may be used concurrently.
type Model struct {
	config Config
	models *genai.Models
}

var _ runtime.Model = (*Model)(nil)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-]+([./][A-Za-z0-9_-]+)*$`)

// New checks a Config. It makes no request. Its errors hold no key.
func New(c Config) (*Model, error) {
	switch {
	case c.Name == "":
		return nil, errors.New("gemini model: name: required, for example gemini-2.5-flash")
	case !nameForm.MatchString(c.Name):
		return nil, errors.New("gemini model: name: has a character that no model's name has")
	case c.APIKey == "":
		return nil, errors.New("gemini model: api key: required")
	}
	for _, b := range []byte(c.APIKey) {
		if b <= ' ' || b > '~' {
			return nil, errors.New("gemini model: api key: holds a space or a character that no key has; check how it was read")
		}
	}
	if c.BaseURL == "" {
		c.BaseURL = DefaultBaseURL
	}
	base, err := url.Parse(c.BaseURL)
	switch {
	case err != nil:
		return nil, errors.New("gemini model: base url: is not a URL")
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "":
		return nil, errors.New("gemini model: base url: must begin with http:// or https:// and name a host")
	case base.User != nil, base.RawQuery != "", base.Fragment != "":
		return nil, errors.New("gemini model: base url: must have no user, query or fragment; a key belongs in the api key")
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
	client, err := genai.NewClient(context.Background(), &genai.ClientConfig{
		APIKey: c.APIKey, Backend: genai.BackendGeminiAPI, HTTPClient: tapped(c.HTTPClient),
		HTTPOptions: genai.HTTPOptions{BaseURL: c.BaseURL},
	})
	if err != nil {
		return nil, errors.New("gemini model: the client refuses the configuration") // its error repeats it, with the key
	}
	return &Model{config: c, models: client.Models}, nil
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
	config, err := m.request(r)
	if err != nil {
		return nil, m.failure(ctx, nil, invalid(err))
	}
	watched, w := wire.Watch(ctx, m.config.HeaderTimeout, m.config.StallTimeout)
	defer w.Stop()
	var a answer
	if err := m.exchange(watched, w, config, &a); err != nil {
		return a.spent(), m.failure(ctx, context.Cause(watched), err)
	}
	response, err := a.response()
	if err != nil {
		return a.spent(), m.failure(ctx, nil, err)
	}
	return response, nil
}

// exchange makes the request and reads the response into a.
func (m *Model) exchange(ctx context.Context, w *wire.Watcher, config *genai.GenerateContentConfig, a *answer) error {
	ctx, caught := catch(ctx)
	var failed error
	for _, err := range m.models.GenerateContentStream(ctx, m.config.Name, nil, config) {
		if err != nil {
			failed = err
			break
		}
	}
	res := caught.response
	switch {
	case res == nil && failed == nil:
		return errors.New("the client made no request")
	case res == nil:
		return failed
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return statusError(res)
	}
	res.Body = w.Body(res.Body)
	return a.read(res)
}

// failure maps an error of one request, whatever it is, to what Generate
// promises. The cause is why the request was cut off, if it was.
func (m *Model) failure(ctx context.Context, cause, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("generate content: %w", ctx.Err())
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

// redacted returns an error whose text does not hold the key. The API's details
// repeat it.
func (m *Model) redacted(err error) error {
	if !strings.Contains(err.Error(), m.config.APIKey) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), m.config.APIKey, "[key]"))
}

// spent returns what a failed request is known to have used.
func (a *answer) spent() *runtime.Response {
	if a.usage == (events.Usage{}) {
		return nil
	}
	return &runtime.Response{Usage: a.usage}
}
