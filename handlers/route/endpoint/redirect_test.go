package endpoint_test

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/policy"
	"github.com/agentruntime/agentruntime/handlers/route/dial"
	"github.com/agentruntime/agentruntime/handlers/route/endpoint"
)

// get makes a read by GET that a policy lets lead to the hosts of some servers.
func get(t *testing.T, c *endpoint.Carrier, headers map[string]string, address string, hosts ...string) (string, error) {
	t.Helper()
	p := &policy.Policy{Namespaces: map[string]policy.Rules{"ns": {Routes: &policy.Routes{HTTP: hosts}}}}
	out, err := c.Carry(t.Context(), &handlers.Request{
		Capability: &events.Capability{Name: "desk.find", Effect: events.EffectRead, Route: events.Route{HTTP: &events.HTTPRoute{Method: "GET", URL: address, Headers: headers}}},
		Header:     map[string]string{handlers.HeaderEpoch: "3"}, Input: json.RawMessage(`{}`),
		Permit: func(to *url.URL) error { return p.Address("ns", "desk.find", to) },
	})
	return string(out), err
}

func hostOf(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }

// serve answers with a handler until the test ends.
func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// declined demands that a redirect was not followed, by this worker's own word.
func declined(t *testing.T, err error, says string) {
	t.Helper()
	var refusal *handlers.DeclinedError
	var service *handlers.ServiceError
	if !errors.As(err, &refusal) || errors.As(err, &service) || errors.Is(err, handlers.ErrNoService) || !strings.Contains(err.Error(), "redirect that is not followed") || !strings.Contains(err.Error(), says) {
		t.Errorf("it ended with %v, want that the redirect is not followed: %s", err, says)
	}
}

func TestARedirectLeadsOnlyWhereThePolicyAllows(t *testing.T) {
	reached := 0
	inside := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		reached++
		_, _ = io.WriteString(w, `"payroll"`)
	})
	between := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inside.URL+"/payroll", http.StatusFound)
	})
	first := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, between.URL, http.StatusFound) })
	c := endpoint.New(local, nil)
	for _, hosts := range [][]string{{hostOf(first)}, {hostOf(first), hostOf(between)}, {hostOf(first), hostOf(inside)}} {
		_, err := get(t, c, nil, first.URL, hosts...)
		declined(t, err, "the policy of namespace ns does not allow")
		if reached != 0 {
			t.Fatalf("with %v the server was reached", hosts)
		}
	}
	if out, err := get(t, c, nil, first.URL, hostOf(first), hostOf(between), hostOf(inside)); out != `"payroll"` || err != nil {
		t.Errorf("where the policy allows every hop: %s, %v", out, err)
	}
}

func TestARedirectIsFollowedSoManyTimesAndNotOnceMore(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if n, _ := strconv.Atoi(r.URL.Query().Get("left")); n > 0 {
			http.Redirect(w, r, "/?left="+strconv.Itoa(n-1), http.StatusFound)
		}
	})
	c := endpoint.New(local, nil)
	if _, err := get(t, c, nil, server.URL+"/?left=5", hostOf(server)); err != nil {
		t.Errorf("5 redirects: %v", err)
	}
	_, err := get(t, c, nil, server.URL+"/?left=6", hostOf(server))
	declined(t, err, "more than 5")
}

func TestNoRedirectLeadsFromHTTPSToHTTP(t *testing.T) {
	reached := false
	plain := serve(t, func(http.ResponseWriter, *http.Request) { reached = true })
	safe := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer safe.Close()
	trusting := local
	trusting.TLS = map[string]*tls.Config{"127.0.0.1": safe.Client().Transport.(*http.Transport).TLSClientConfig}
	_, err := get(t, endpoint.New(trusting, nil), nil, safe.URL, hostOf(plain), strings.TrimPrefix(safe.URL, "https://"))
	if declined(t, err, "from https to another scheme"); reached {
		t.Error("it was followed")
	}
}

// both is a listener that takes http and https at one port.
type both struct {
	net.Listener
	config *tls.Config
}

func (b both) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &either{Conn: c, config: b.config}, nil
}

// either is a connection whose first byte says what it speaks.
type either struct {
	net.Conn
	config *tls.Config
	once   sync.Once
	plain  net.Conn
}

// begun is a connection with a byte that was read of it.
type begun struct {
	net.Conn
	io.Reader
}

func (b *begun) Read(p []byte) (int, error) { return b.Reader.Read(p) }

func (e *either) speak() net.Conn {
	e.once.Do(func() {
		first := make([]byte, 1)
		n, _ := io.ReadFull(e.Conn, first)
		e.plain = &begun{e.Conn, io.MultiReader(strings.NewReader(string(first[:n])), e.Conn)}
		if first[0] == 0x16 { // a handshake of TLS
			e.plain = tls.Server(e.plain, e.config)
		}
	})
	return e.plain
}

func (e *either) Read(p []byte) (int, error)  { return e.speak().Read(p) }
func (e *either) Write(p []byte) (int, error) { return e.speak().Write(p) }

// Another scheme is another server, at the same host and port as well.
func TestARedirectToAnotherSchemeTakesNoHeaderAlong(t *testing.T) {
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	defer certified.Close()
	var keys []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if keys = append(keys, r.Header.Get("X-Key")+r.Header.Get(handlers.HeaderEpoch)); r.URL.Path == "/" {
			http.Redirect(w, r, "https://"+r.Host+"/safe", http.StatusFound)
		}
	}))
	server.Listener = both{server.Listener, &tls.Config{Certificates: certified.TLS.Certificates}}
	server.Start()
	defer server.Close()
	trusting := local
	trusting.TLS = map[string]*tls.Config{"127.0.0.1": certified.Client().Transport.(*http.Transport).TLSClientConfig}
	c := endpoint.New(trusting, map[string]endpoint.Secret{"desk": {Value: "the-value", Hosts: []string{"127.0.0.1"}}})
	defer c.Close()
	if _, err := get(t, c, map[string]string{"X-Key": "${desk}"}, server.URL+"/", hostOf(server)); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprintf("%q", keys) != `["the-value3" ""]` {
		t.Errorf("the headers are %q", keys)
	}
}

func TestWhatARedirectLeadsToFencesNoWorker(t *testing.T) {
	stale := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(handlers.HeaderStaleEpoch, "7")
		w.WriteHeader(http.StatusPreconditionFailed)
	}
	other := serve(t, stale)
	own := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/here", http.StatusFound)
			return
		}
		stale(w, r)
	})
	first := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
	c := endpoint.New(local, nil)
	for server, code := range map[*httptest.Server]string{first: "HTTP 412", own: handlers.CodeStaleEpoch} {
		_, err := get(t, c, nil, server.URL, hostOf(first), hostOf(other), hostOf(own))
		var refused *handlers.ServiceError
		if !errors.As(err, &refused) || refused.Code != code {
			t.Errorf("it ended with %v, want the code %s", err, code)
		}
	}
}

func TestAnErrorHasTheStatusAsItsCode(t *testing.T) {
	for _, status := range []int{400, 404, 412, 429} {
		server := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		_, err := ask(t, endpoint.New(local, nil), events.EffectWrite, events.HTTPRoute{Method: "POST", URL: server.URL}, `{}`)
		if want := fmt.Sprintf("the service answered with an error (code HTTP %d): it says no more", status); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A name that is allowed may lead to an address that is not.
func TestARedirectIntoTheNetworkIsDeclined(t *testing.T) {
	door := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.2:1/", http.StatusFound)
	})
	_, err := get(t, endpoint.New(dial.Rules{Allow: []string{"127.0.0.1"}}, nil), nil, door.URL, hostOf(door), "127.0.0.2:1")
	declined(t, err, "127.0.0.2, which is not a public address")
	if strings.Contains(err.Error(), "dial tcp") {
		t.Error(err)
	}
}
