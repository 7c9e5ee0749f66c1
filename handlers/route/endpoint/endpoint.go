// Package endpoint carries capability requests to HTTP endpoints.
//
// # What an answer means
//
//   - 2xx: it was carried out; the body, if there is one, is the answer.
//   - 4xx: it was refused; the beginning of the body says why.
//   - 5xx, a connection that breaks, an answer that does not come: whether it
//     took effect is not known. Of a read alone, 5xx is an error like 4xx.
//   - 3xx: a GET is sent on, at most 5 times, never from https to http, only
//     where the policy of the moment lets its namespace, and without the headers of
//     the request from the first other host on, wherever that one leads to. No other request is sent on: it might be carried out
//     twice.
//   - 412 with the header Agent-Stale-Epoch (handlers.HeaderStaleEpoch): the
//     endpoint knows a newer epoch of the run, and this worker is stale. A 412
//     without it is a 4xx like any other.
//   - No connection, or a name that leads where the configuration does not let it:
//     the request was not made.
//
// # Input
//
// The members that the URL has no place for are the body. A GET and a DELETE have
// none: an input that is more than the placeholders of the URL, and neither null
// nor {}, makes no request. An input schema may leave such members open, so this is
// seen when the request is made; what the schema names is seen when the definition
// is checked.
//
// # Secrets
//
// A definition names secrets and never holds one. Each secret of the
// configuration names the hosts that it may be sent to, so that whoever may apply
// a definition cannot send it elsewhere, and it leaves only over https, unless the
// configuration allows the host by name.
package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/route/dial"
)

// Secret is a secret of the configuration.
type Secret struct {
	Value string
	Gone  string   // why there is no value, and what to do
	Hosts []string // that it may be sent to, by name; with a port, to that port alone
}

// Carrier is the handlers.Carrier of HTTP routes. Set its fields once.
type Carrier struct {
	Rules   dial.Rules
	Secrets map[string]Secret

	client *http.Client
}

var _ handlers.Carrier = (*Carrier)(nil)

// New returns a carrier.
func New(rules dial.Rules, secrets map[string]Secret) *Carrier {
	return &Carrier{Rules: rules, Secrets: secrets, client: &http.Client{Transport: rules.Transport(), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// Close closes the connections that are not in use.
func (c *Carrier) Close() { c.client.CloseIdleConnections() }

// HeaderKey repeats the idempotency key under the name that many services know.
const HeaderKey = "Idempotency-Key"

// agent is what a request says it comes from.
const agent = "agentruntime"

// maxRefusal bounds what is read of an answer that is an error, in bytes. It is
// far more than is told of it, so that a secret in what is told is whole until it
// is removed.
const maxRefusal = 64 << 10

// Carry implements handlers.Carrier.
func (c *Carrier) Carry(ctx context.Context, r *handlers.Request) ([]byte, error) {
	ctx, sent := dial.Watch(ctx)
	request, err := c.request(ctx, r)
	if err != nil {
		return nil, &handlers.NotMadeError{Where: "HTTP endpoint of " + r.Capability.Name, Reason: "the request cannot be made", Err: err, Own: true}
	}
	where := request.URL.Host
	response, err := c.ask(request, r.Permit)
	if err != nil {
		return nil, failure(where, sent, err)
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode >= 200 && response.StatusCode < 300:
		answer, err := io.ReadAll(dial.Bound(response.Body, handlers.MaxAnswer))
		if errors.Is(err, dial.ErrTooLarge) {
			return nil, handlers.ErrTooLarge
		}
		if err != nil {
			return nil, fmt.Errorf("%s answered %d and broke off: %w", where, response.StatusCode, err)
		}
		return answer, nil
	case response.StatusCode == http.StatusPreconditionFailed && response.Header.Get(handlers.HeaderStaleEpoch) != "" && response.Request.URL.Host == where:
		return nil, &handlers.ServiceError{Code: handlers.CodeStaleEpoch, Description: beginning(response.Body)}
	case response.StatusCode >= 400 && response.StatusCode < 500, r.Capability.Effect == events.EffectRead:
		return nil, &handlers.ServiceError{Code: "HTTP " + strconv.Itoa(response.StatusCode), Description: beginning(response.Body)}
	case response.StatusCode >= 300 && response.StatusCode < 400:
		return nil, fmt.Errorf("%s answered %d, a redirect, which is followed for a GET only: write the address it leads to in the definition", where, response.StatusCode)
	}
	return nil, fmt.Errorf("%s answered %d: %s", where, response.StatusCode, beginning(response.Body))
}

// failure says what is known of a request without an answer. The error of the
// client repeats the URL, which holds what the input holds, and is left out.
func failure(where string, sent *dial.Sent, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if !sent.Left() {
		return &handlers.NotMadeError{Where: where, Reason: "no connection was made", Err: err}
	}
	var blocked *dial.BlockedError
	if errors.As(err, &blocked) {
		err = &redirectError{blocked.Error()} // the first request left: it is one that it led to
	}
	var astray *redirectError
	if errors.As(err, &astray) {
		return &handlers.DeclinedError{Where: where, Reason: "answered with a redirect that is not followed: " + astray.reason}
	}
	return fmt.Errorf("request to %s: %w", where, err)
}

func beginning(body io.Reader) string {
	text, _ := io.ReadAll(io.LimitReader(body, maxRefusal)) // the status says enough
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return "it says no more"
	}
	return strings.ToValidUTF8(string(text), "\uFFFD")
}

// request writes the request of a call.
func (c *Carrier) request(ctx context.Context, r *handlers.Request) (*http.Request, error) {
	route := r.Capability.Route.HTTP
	template, err := handlers.ParseURLTemplate(route.URL)
	if err != nil {
		return nil, err
	}
	address, rest, err := template.Expand(r.Input)
	if err != nil {
		return nil, err
	}
	var body io.Reader
	if handlers.HasBody(route.Method) {
		body = bytes.NewReader(rest)
	} else if !isEmpty(rest) {
		return nil, fmt.Errorf("the input has members that the URL does not hold, and a %s has no body", route.Method)
	}
	request, err := http.NewRequestWithContext(ctx, route.Method, address, body)
	if err != nil {
		return nil, errors.New("its URL cannot be used")
	}
	for name, value := range route.Headers {
		if value, err = handlers.ExpandSecrets(value, func(name string) (string, error) { return c.secret(name, request.URL) }); err != nil {
			return nil, err
		}
		request.Header.Set(name, value)
	}
	for name, value := range r.Header {
		request.Header.Set(name, value)
	}
	request.Header.Set(HeaderKey, r.Header[handlers.HeaderKey])
	if request.Header.Get("Accept") == "" {
		request.Header.Set("Accept", "application/json")
	}
	if request.Header.Get("User-Agent") == "" {
		request.Header.Set("User-Agent", agent)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	dial.Once(request)
	return request, nil
}

// isEmpty reports whether an input says nothing: null, {} or no text.
func isEmpty(input []byte) bool {
	var members map[string]json.RawMessage
	return len(input) == 0 || json.Unmarshal(input, &members) == nil && len(members) == 0
}

// secret returns a secret for a header of a request to an address.
func (c *Carrier) secret(name string, to *url.URL) (string, error) {
	s, known := c.Secrets[name]
	switch {
	case !known:
		return "", fmt.Errorf("this worker has no secret %q: add it to secrets in its configuration", name)
	case !slices.ContainsFunc(s.Hosts, func(h string) bool { return dial.Means(h, to.Hostname(), dial.Port(to)) }):
		return "", fmt.Errorf("the secret %q is not for %s: add the host to secrets.%s.hosts in the worker's configuration if it should be", name, to.Hostname(), name)
	case to.Scheme != "https" && !c.Rules.Allowed(to.Hostname(), dial.Port(to)):
		return "", fmt.Errorf("the secret %q does not leave without https: change the URL, or allow the host by name in the worker's configuration, as http.allow", name)
	case s.Value == "":
		return "", fmt.Errorf("the secret %q has no value: %s", name, s.Gone)
	}
	return s.Value, nil
}

// maxRedirects is how many redirects of one GET are followed.
const maxRedirects = 5

// redirectError says why a redirect is not followed.
type redirectError struct{ reason string }

func (e *redirectError) Error() string { return e.reason }

// ask makes a request, and for a GET those that its redirects lead to. The client
// of the standard library would follow a redirect only with requests that it may
// also repeat.
func (c *Carrier) ask(first *http.Request, permit func(to *url.URL) error) (*http.Response, error) {
	request := first
	astray := false // another host was asked, and chose what comes after it
	for n := 0; ; n++ {
		response, err := c.client.Do(request)
		if err != nil || first.Method != http.MethodGet || response.StatusCode < 300 || response.StatusCode > 399 || response.Header.Get("Location") == "" {
			return response, err
		}
		to, err := response.Location()
		_ = response.Body.Close() // nothing of it is used
		switch {
		case err != nil:
			return nil, &redirectError{"its address is malformed"}
		case n == maxRedirects:
			return nil, &redirectError{fmt.Sprintf("there were more than %d", maxRedirects)}
		case to.Scheme != "https" && to.Scheme != request.URL.Scheme:
			return nil, &redirectError{"it leads from https to another scheme"}
		}
		if permit != nil {
			if err := permit(to); err != nil {
				return nil, &redirectError{err.Error()}
			}
		}
		if request, err = http.NewRequestWithContext(first.Context(), http.MethodGet, to.String(), nil); err != nil {
			return nil, &redirectError{"its address is malformed"}
		}
		astray = astray || to.Host != first.URL.Host || to.Scheme != first.URL.Scheme
		if !astray {
			request.Header = first.Header.Clone()
		} else {
			request.Header.Set("Accept", "application/json")
			request.Header.Set("User-Agent", agent)
		}
		dial.Once(request)
	}
}
