// Package anthropic is a model behind Anthropic's Messages API, through
// Anthropic's own client.
//
// A Model makes exactly one HTTP request for each Generate. It never repeats
// one; errors say by their class whether repeating may help. Responses are
// streamed over the wire, so that a silent connection is noticed, and returned
// whole. A response whose stream did not end is never returned.
//
// Everything comes from the Config: no environment variable is read, not even
// those of the client or of HTTP proxies.
//
// A thinking block goes back as it came, in its place: its part carries the
// whole block, because the API compares it with what it signed, and a text that
// went through redaction would no longer be that. What the API does not take is
// left out: text without anything but white space, and thinking that was cut
// before its signature or that nothing follows. What it has no field for is said
// in words: an outcome other than ok is an error whose text begins with it
// ("[denied] …"), and a file is described and not sent.
package anthropic

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wire"
)

// Provider is the name of this adapter in errors and in the parts of messages.
const Provider = "anthropic"

// The defaults of a Config.
const (
	DefaultBaseURL       = "https://api.anthropic.com/"
	DefaultHeaderTimeout = wire.DefaultHeaderTimeout
	DefaultStallTimeout  = wire.DefaultStallTimeout

	// DefaultOutputTokens is what every current model may write at the least.
	// The API has no default of its own.
	DefaultOutputTokens = 32_000
)

// Config says which model is asked, where, and how.
type Config struct {
	Name    string // of the model, as the API knows it
	APIKey  string // empty: requests carry no X-Api-Key header
	BaseURL string // without the v1; empty: DefaultBaseURL

	// HTTPClient makes the requests. Nil: one of the package's own, which uses
	// no proxy.
	HTTPClient *http.Client

	// HeaderTimeout bounds the wait for a response to begin. 0:
	// DefaultHeaderTimeout.
	HeaderTimeout time.Duration

	// StallTimeout bounds the wait for the next byte of a response, those of
	// pings included. 0: DefaultStallTimeout.
	StallTimeout time.Duration

	// OutputTokens is the output limit of requests that set none. 0:
	// DefaultOutputTokens.
	OutputTokens int64

	// Thinking is "adaptive", "disabled", or empty: as the model does by
	// default. Models that think only within a budget get it as ThinkingTokens,
	// at least 1024 and less than the output limit. Between calls and their
	// results a response that began without thinking goes on without.
	Thinking       string
	ThinkingTokens int64

	// Effort is how much the model is to put into a response: low, medium, high
	// and what else the model knows. Empty: its default.
	Effort string

	// Temperature is from 0 to 1. Nil: the model's default. The API refuses it
	// together with thinking.
	Temperature *float64

	// Strict asks for arguments that are guaranteed to fit the schema, of those
	// tools whose schema conforms to strict mode as it stands. Not every model
	// takes it.
	Strict bool
}

// Model asks one model at one endpoint. It may be used concurrently.
type Model struct {
	config   Config
	endpoint wire.Endpoint
	messages sdk.MessageService
}

var _ runtime.Model = (*Model)(nil)

// New checks a Config. It makes no request. Its errors hold no key.
func New(c Config) (*Model, error) {
	e := wire.Endpoint{Provider: Provider, APIKey: c.APIKey, BaseURL: c.BaseURL, HTTPClient: c.HTTPClient, HeaderTimeout: c.HeaderTimeout, StallTimeout: c.StallTimeout}
	if err := e.Complete(c.Name, "claude-sonnet-5-5", DefaultBaseURL); err != nil {
		return nil, err
	}
	switch {
	case !slices.Contains([]string{"", "adaptive", "disabled"}, c.Thinking):
		return nil, errors.New("anthropic model: thinking: must be adaptive, disabled or empty")
	case c.Thinking != "" && c.ThinkingTokens != 0:
		return nil, errors.New("anthropic model: thinking: has a budget of its own or is set, not both")
	}
	if c.OutputTokens == 0 {
		c.OutputTokens = DefaultOutputTokens
	}
	// The service is made without the client around it: only the client reads
	// the environment.
	options := []option.RequestOption{
		option.WithBaseURL(e.BaseURL),
		option.WithHTTPClient(e.HTTPClient),
		option.WithMaxRetries(0),
	}
	if e.APIKey != "" {
		options = append(options, option.WithAPIKey(e.APIKey))
	}
	return &Model{config: c, endpoint: e, messages: sdk.NewMessageService(options...)}, nil
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
		// The client's own reader of the stream is left alone: it knows neither
		// pings nor the watch.
		stream := m.messages.NewStreaming(ctx, params, option.WithResponseInto(&res))
		return res, stream.Err()
	}, new(answer))
}
