package endpoint_test

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/handlers/route/dial"
	"github.com/agentruntime/agentruntime/handlers/route/endpoint"
)

// actor is an HTTP endpoint that plays acts.
type actor struct {
	witness *handlerstest.Witness
	mu      sync.Mutex
	late    chan struct{} // of a request that is answered when the next one comes
}

func (a *actor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var q handlerstest.ActRequest
	if json.Unmarshal(body, &q) != nil {
		http.Error(w, "no request", http.StatusBadRequest)
		return
	}
	handlerstest.Tell(a.witness.Address(), q)
	a.mu.Lock()
	late := a.late
	a.late = nil
	if q.Do == handlerstest.ActLate {
		a.late = make(chan struct{})
	}
	mine := a.late
	a.mu.Unlock()
	if late != nil {
		close(late)
	}
	if handlerstest.PlayHTTP(w, r, q.Do) {
		return
	}
	answer := q.Answer(r.Header.Get)
	switch q.Do {
	case handlerstest.ActNever:
		<-r.Context().Done()
		return
	case handlerstest.ActLate:
		<-mine
	case handlerstest.ActDies:
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write(answer[:len(answer)/2])
		panic(http.ErrAbortHandler)
	case handlerstest.ActError:
		http.Error(w, handlerstest.ActRefusal, http.StatusConflict)
		return
	}
	_, _ = w.Write(answer)
}

// local lets a test reach its own servers.
var local = dial.Rules{Allow: []string{"127.0.0.1"}}

func TestAnHTTPEndpointKeepsTheRulesOfRoutes(t *testing.T) {
	witness := handlerstest.NewWitness(t)
	server := httptest.NewServer(&actor{witness: witness})
	defer server.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	carrier := endpoint.New(local, nil)
	defer carrier.Close()
	post := func(url string) events.Route {
		return events.Route{HTTP: &events.HTTPRoute{Method: "POST", URL: url}}
	}
	handlerstest.TestRoute(t, handlerstest.Route{Route: post(server.URL), Nowhere: post(gone.URL), Carriers: handlers.Carriers{HTTP: carrier}, Witness: witness, HTTP: true})
}

// ask makes one request of a capability.
func ask(t *testing.T, c *endpoint.Carrier, effect events.Effect, route events.HTTPRoute, input string) (string, error) {
	t.Helper()
	out, err := c.Carry(t.Context(), &handlers.Request{Capability: &events.Capability{Name: "desk.book", Effect: effect, Route: events.Route{HTTP: &route}},
		Header: map[string]string{handlers.HeaderKey: "ns/run/call/0", handlers.HeaderEpoch: "3"}, Input: json.RawMessage(input)})
	return string(out), err
}

func TestWhatTheInputHoldsStandsInTheURLEncodedAndTheRestInTheBody(t *testing.T) {
	var got *http.Request
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got, body = r, string(text)
	}))
	defer server.Close()
	c := endpoint.New(local, nil)
	if _, err := ask(t, c, events.EffectWrite, events.HTTPRoute{Method: "PUT", URL: server.URL + "/desks/{id}/x?who={who}&n={n}"}, `{"id":"a/..b?#é","who":"x&admin=1","n":12345678901234567890,"seat":1.50}`); err != nil {
		t.Fatal(err)
	}
	if want := "/desks/a%2F..b%3F%23%C3%A9/x?who=x%26admin%3D1&n=12345678901234567890"; got.RequestURI != want {
		t.Errorf("the URL is %s, want %s", got.RequestURI, want)
	}
	if body != `{"seat":1.50}` {
		t.Errorf("the body is %s", body)
	}
	if h := got.Header; h.Get("Idempotency-Key") != "ns/run/call/0" || h.Get(handlers.HeaderEpoch) != "3" || h.Get("Content-Type") != "application/json" {
		t.Errorf("the headers are %v", got.Header)
	}
	got = nil
	for _, id := range []string{`".."`, `"."`, `"../admin/keys"`, `"x\\..\\y"`, `""`, `[1]`, `null`} {
		if _, err := ask(t, c, events.EffectRead, events.HTTPRoute{Method: "GET", URL: server.URL + "/desks/{id}"}, `{"id":`+id+`}`); !errors.Is(err, handlers.ErrNoService) || got != nil {
			t.Errorf("with the id %s: %v, request %v; want that none was made", id, err, got)
		}
	}
}

func TestAServersFailureLeavesAWriteOpenAndNoRead(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "on fire", http.StatusServiceUnavailable) }))
	defer server.Close()
	c := endpoint.New(local, nil)
	var refused *handlers.ServiceError
	if _, err := ask(t, c, events.EffectWrite, events.HTTPRoute{Method: "POST", URL: server.URL}, `{}`); err == nil || errors.As(err, &refused) || errors.Is(err, handlers.ErrNoService) {
		t.Errorf("a write ended with %v, want an error that leaves the effect open", err)
	}
	if _, err := ask(t, c, events.EffectRead, events.HTTPRoute{Method: "GET", URL: server.URL}, `{}`); !errors.As(err, &refused) || refused.Code != "HTTP 503" {
		t.Errorf("a read ended with %v, want an error of the service", err)
	}
}

// A connection that is kept is closed by the server with the second request in hand.
// The client of the standard library would send it again.
func TestARequestLeavesOnceWhateverTheConnectionDoes(t *testing.T) {
	for _, method := range []string{"GET", "DELETE", "POST"} {
		var mu sync.Mutex
		n := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			n++
			second := n > 1
			mu.Unlock()
			if second {
				conn, _, err := w.(http.Hijacker).Hijack()
				if err == nil {
					_ = conn.Close()
				}
			}
		}))
		c := endpoint.New(local, nil)
		route := events.HTTPRoute{Method: method, URL: server.URL}
		if _, err := ask(t, c, events.EffectWrite, route, `{}`); err != nil {
			t.Fatal(err)
		}
		if _, err := ask(t, c, events.EffectWrite, route, `{}`); err == nil || errors.Is(err, handlers.ErrNoService) {
			t.Errorf("%s: the second request ended with %v", method, err)
		}
		server.Close()
		mu.Lock()
		if n != 2 {
			t.Errorf("%s: the server saw %d requests, want 2", method, n)
		}
		mu.Unlock()
	}
}

func TestARedirectIsFollowedForAGetAloneAndTakesNoSecretAlong(t *testing.T) {
	var leaked string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leaked += r.Header.Get("Authorization") + r.Header.Get("X-Desk-Key") + r.Header.Get("Referer")
		_, _ = io.WriteString(w, `"there"`)
	}))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL+"/x", http.StatusTemporaryRedirect))
	defer server.Close()
	c := endpoint.New(local, map[string]endpoint.Secret{"desk": {Value: "s3cret-value", Hosts: []string{"127.0.0.1"}}})
	headers := map[string]string{"Authorization": "Bearer ${desk}", "X-Desk-Key": "${desk}"}
	if out, err := ask(t, c, events.EffectRead, events.HTTPRoute{Method: "GET", URL: server.URL + "/?q={q}", Headers: headers}, `{"q":"private"}`); out != `"there"` || err != nil || leaked != "" {
		t.Errorf("a GET ended with %s, %v; the other host saw %q", out, err, leaked)
	}
	if out, err := ask(t, c, events.EffectWrite, events.HTTPRoute{Method: "POST", URL: server.URL, Headers: headers}, `{}`); err == nil || !strings.Contains(err.Error(), "redirect") {
		t.Errorf("a POST ended with %s, %v", out, err)
	}
}

func TestNoConnectionLeadsToAnAddressThatIsNotAllowed(t *testing.T) {
	reached := false
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer inside.Close()
	get := func(url string) events.HTTPRoute { return events.HTTPRoute{Method: "GET", URL: url} }
	var blocked *dial.BlockedError
	for _, url := range []string{inside.URL, strings.Replace(inside.URL, "127.0.0.1", "localhost", 1), strings.Replace(inside.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1),
		"http://169.254.169.254/latest", "http://10.0.0.1/", "http://[fe80::1]/", "http://0.0.0.0/", "http://100.64.0.1/", "http://[64:ff9b::7f00:1]/", "http://[fd00::1]/"} {
		if _, err := ask(t, endpoint.New(dial.Rules{}, nil), events.EffectRead, get(url), `{}`); !errors.Is(err, handlers.ErrNoService) || !errors.As(err, &blocked) {
			t.Errorf("%s: %v, want that it is not allowed", url, err)
		}
	}
	// The name of the first host is allowed; what it redirects to is not.
	door := httptest.NewServer(http.RedirectHandler(strings.Replace(inside.URL, "127.0.0.1", "127.0.0.2", 1), http.StatusFound))
	defer door.Close()
	var refused *handlers.DeclinedError
	if _, err := ask(t, endpoint.New(dial.Rules{Allow: []string{"localhost", "10.0.0.0/8"}}, nil), events.EffectRead, get(strings.Replace(door.URL, "127.0.0.1", "localhost", 1)), `{}`); !errors.As(err, &refused) {
		t.Errorf("a redirect to a private address ended with %v", err)
	}
	if reached {
		t.Error("the server inside was reached")
	}
	if _, err := ask(t, endpoint.New(dial.Rules{Allow: []string{"127.0.0.0/8"}}, nil), events.EffectRead, get(inside.URL), `{}`); err != nil || !reached {
		t.Errorf("an allowed network was not reached: %v", err)
	}
}

func TestASecretGoesOnlyWhereItMay(t *testing.T) {
	var seen string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen += r.Header.Get("X-Key") }))
	defer server.Close()
	for name, c := range map[string]struct {
		rules  dial.Rules
		secret endpoint.Secret
	}{
		"another host":  {local, endpoint.Secret{Value: "the-value", Hosts: []string{"desk.example"}}},
		"no host":       {local, endpoint.Secret{Value: "the-value"}},
		"without https": {dial.Rules{Allow: []string{"127.0.0.0/8"}}, endpoint.Secret{Value: "the-value", Hosts: []string{"127.0.0.1"}}},
		"no value":      {local, endpoint.Secret{Gone: "DESK is not set", Hosts: []string{"127.0.0.1"}}},
	} {
		route := events.HTTPRoute{Method: "POST", URL: server.URL, Headers: map[string]string{"X-Key": "${desk}"}}
		_, err := ask(t, endpoint.New(c.rules, map[string]endpoint.Secret{"desk": c.secret}), events.EffectWrite, route, `{}`)
		if !errors.Is(err, handlers.ErrNoService) || seen != "" || strings.Contains(err.Error(), "the-value") {
			t.Errorf("%s: %v, seen %q", name, err, seen)
		}
	}
}

func TestAServerIsTrustedByTheConfiguredAuthorityOfItsHostAlone(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `1`) }))
	defer server.Close()
	route := events.HTTPRoute{Method: "POST", URL: server.URL}
	if _, err := ask(t, endpoint.New(local, nil), events.EffectWrite, route, `{}`); !errors.Is(err, handlers.ErrNoService) {
		t.Errorf("an unknown authority: %v, want that no request was made", err)
	}
	trusting := local
	trusting.TLS = map[string]*tls.Config{"127.0.0.1": server.Client().Transport.(*http.Transport).TLSClientConfig}
	if out, err := ask(t, endpoint.New(trusting, nil), events.EffectWrite, route, `{}`); out != "1" || err != nil {
		t.Errorf("a configured authority: %s, %v", out, err)
	}
}
