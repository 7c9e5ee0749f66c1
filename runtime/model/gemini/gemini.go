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
	"net/http"
	"regexp"
	"slices"
	"time"

	"google.golang.org/genai"

	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wire"
)

// Provider is the name of this adapter in errors and in the parts of messages.
const Provider = "gemini"

// The defaults of a Config.
const (
	DefaultBaseURL       = "https://generativelanguage.googleapis.com/"
	DefaultHeaderTimeout = wire.DefaultHeaderTimeout
	DefaultStallTimeout  = wire.DefaultStallTimeout
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

	// Thinking is "off", "adaptive" (as much as the model finds right), or empty:
	// as the model does by default. ThinkingTokens is the most that it may think
	// instead. Not every model can be told.
	Thinking       string
	ThinkingTokens int64

	// Temperature is from 0 to 2. Nil: the model's default.
	Temperature *float64
}

// Model asks one model at one endpoint. It may be used concurrently.
type Model struct {
	config   Config
	endpoint wire.Endpoint
	models   *genai.Models
}

var _ runtime.Model = (*Model)(nil)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-]+([./][A-Za-z0-9_-]+)*$`)

// New checks a Config. It makes no request. Its errors hold no key.
func New(c Config) (*Model, error) {
	e := wire.Endpoint{Provider: Provider, APIKey: c.APIKey, BaseURL: c.BaseURL, HTTPClient: c.HTTPClient, HeaderTimeout: c.HeaderTimeout, StallTimeout: c.StallTimeout, StatusError: statusError}
	if err := e.Complete(c.Name, "gemini-2.5-flash", DefaultBaseURL); err != nil {
		return nil, err
	}
	switch {
	case !nameForm.MatchString(c.Name):
		return nil, errors.New("gemini model: name: has a character that no model's name has")
	case c.APIKey == "":
		return nil, errors.New("gemini model: api key: required")
	case !slices.Contains([]string{"", "adaptive", "off"}, c.Thinking):
		return nil, errors.New("gemini model: thinking: must be adaptive, off or empty")
	case c.Thinking != "" && c.ThinkingTokens != 0:
		return nil, errors.New("gemini model: thinking: has a budget of its own or is set, not both")
	}
	client, err := genai.NewClient(context.Background(), &genai.ClientConfig{
		APIKey: c.APIKey, Backend: genai.BackendGeminiAPI, HTTPClient: tapped(e.HTTPClient),
		HTTPOptions: genai.HTTPOptions{BaseURL: e.BaseURL},
	})
	if err != nil {
		return nil, errors.New("gemini model: the client refuses the configuration") // its error repeats it, with the key
	}
	return &Model{config: c, endpoint: e, models: client.Models}, nil
}

// Generate makes one request. An error is a ModelError, or the context's own.
// If usage was reported before a response turned out unusable, it is returned
// in an otherwise empty response beside the error.
func (m *Model) Generate(ctx context.Context, r *runtime.Request) (*runtime.Response, error) {
	config, err := m.request(r)
	if err != nil {
		return nil, m.endpoint.Refuse(ctx, err)
	}
	return m.endpoint.Generate(ctx, func(ctx context.Context) (*http.Response, error) {
		ctx, caught := catch(ctx)
		var failed error
		for _, err := range m.models.GenerateContentStream(ctx, m.config.Name, nil, config) {
			if err != nil {
				failed = err
				break
			}
		}
		switch {
		case caught.response != nil:
			return caught.response, nil // what the client made of an empty one is nothing
		case failed == nil:
			return nil, errors.New("the client made no request")
		}
		return nil, failed
	}, new(answer))
}
