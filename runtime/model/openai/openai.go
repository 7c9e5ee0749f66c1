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
	"net/http"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wire"
)

// Provider is the name of this adapter in errors and in the parts of messages.
const Provider = "openai"

// The defaults of a Config.
const (
	DefaultBaseURL       = "https://api.openai.com/v1/"
	DefaultHeaderTimeout = wire.DefaultHeaderTimeout
	DefaultStallTimeout  = wire.DefaultStallTimeout
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

	// Effort is how much the model is to reason: low, medium, high and what else
	// the model knows. Empty: its default.
	Effort string

	// Temperature is from 0 to 2. Nil: the model's default. Models that reason
	// refuse it.
	Temperature *float64
}

// Model asks one model at one endpoint. It may be used concurrently.
type Model struct {
	config      Config
	endpoint    wire.Endpoint
	completions sdk.ChatCompletionService
}

var _ runtime.Model = (*Model)(nil)

// New checks a Config. It makes no request. Its errors hold no key.
func New(c Config) (*Model, error) {
	e := wire.Endpoint{Provider: Provider, APIKey: c.APIKey, BaseURL: c.BaseURL, HTTPClient: c.HTTPClient, HeaderTimeout: c.HeaderTimeout, StallTimeout: c.StallTimeout}
	if err := e.Complete(c.Name, "gpt-5", DefaultBaseURL); err != nil {
		return nil, err
	}
	// The service is made without the client around it: only the client reads
	// the environment.
	return &Model{config: c, endpoint: e, completions: sdk.NewChatCompletionService(
		option.WithBaseURL(e.BaseURL),
		option.WithAPIKey(e.APIKey),
		option.WithHTTPClient(e.HTTPClient),
		option.WithMaxRetries(0),
	)}, nil
}

// Generate makes one request. An error is a ModelError, or the context's own.
// If usage was reported before a response turned out unusable, it is returned
// in an otherwise empty response beside the error.
func (m *Model) Generate(ctx context.Context, r *runtime.Request) (*runtime.Response, error) {
	params, err := m.params(r)
	if err != nil {
		return nil, m.endpoint.Refuse(ctx, err)
	}
	return m.endpoint.Generate(ctx, func(ctx context.Context) (res *http.Response, err error) {
		_, err = m.completions.New(ctx, params, option.WithResponseBodyInto(&res), option.WithJSONSet("stream", true))
		return res, err
	}, new(answer))
}
