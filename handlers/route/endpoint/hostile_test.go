package endpoint_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/route/dial"
	"github.com/agentruntime/agentruntime/handlers/route/endpoint"
)

func TestOnceAnotherHostWasAskedNoRedirectBringsTheHeadersBack(t *testing.T) {
	var got http.Header
	var first, other *httptest.Server
	first = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/start":
			http.Redirect(w, r, "/next", http.StatusFound)
		case "/next":
			got = r.Header.Clone()
			http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1), http.StatusFound)
		default:
			got = r.Header.Clone()
		}
	}))
	defer first.Close()
	other = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got.Get("X-Key") != "the-value" {
			t.Errorf("a redirect within the host lost the headers: %v", got)
		}
		http.Redirect(w, r, first.URL+"/chosen", http.StatusFound)
	}))
	defer other.Close()
	c := endpoint.New(dial.Rules{Allow: []string{"127.0.0.1", "localhost"}}, map[string]endpoint.Secret{"desk": {Value: "the-value", Hosts: []string{"127.0.0.1"}}})
	if _, err := ask(t, c, events.EffectRead, events.HTTPRoute{Method: "GET", URL: first.URL + "/start", Headers: map[string]string{"X-Key": "${desk}"}}, `{}`); err != nil {
		t.Fatal(err)
	}
	if got.Get("X-Key") != "" || got.Get(handlers.HeaderEpoch) != "" {
		t.Errorf("the last request had the headers %v", got)
	}
}

func TestAnInputThatNoRequestHoldsIsRefused(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer server.Close()
	c := endpoint.New(local, nil)
	for _, method := range []string{"GET", "DELETE"} {
		for _, input := range []string{`{"id":7}`, `[1]`, `7`, `""`} {
			if _, err := ask(t, c, events.EffectRead, events.HTTPRoute{Method: method, URL: server.URL}, input); !errors.Is(err, handlers.ErrNoService) || asked != 0 {
				t.Errorf("%s with %s: %v, asked %d times", method, input, err, asked)
			}
		}
		for _, input := range []string{`{}`, `{ }`, `null`, ``} {
			if _, err := ask(t, c, events.EffectRead, events.HTTPRoute{Method: method, URL: server.URL}, input); err != nil {
				t.Errorf("%s with %q: %v", method, input, err)
			}
		}
		asked = 0
	}
}

func TestOnlyA412ThatSaysSoComesFromAStaleEpoch(t *testing.T) {
	for _, stale := range []bool{true, false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if stale {
				w.Header().Set(handlers.HeaderStaleEpoch, "7")
			}
			w.WriteHeader(http.StatusPreconditionFailed)
		}))
		_, err := ask(t, endpoint.New(local, nil), events.EffectWrite, events.HTTPRoute{Method: "POST", URL: server.URL}, `{}`)
		var refused *handlers.ServiceError
		if !errors.As(err, &refused) || (refused.Code == handlers.CodeStaleEpoch) != stale {
			t.Errorf("stale %v: %v", stale, err)
		}
		server.Close()
	}
}

func TestASecretWithAPortGoesToThatPortAlone(t *testing.T) {
	seen := 0
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen += len(r.Header.Values("X-Key")) }))
	defer server.Close()
	at := strings.TrimPrefix(server.URL, "http://")
	for hosts, want := range map[string]int{at: 1, "127.0.0.1:1": 0} {
		for allow, want := range map[string]int{at: want, "127.0.0.1:1": 0} {
			seen = 0
			c := endpoint.New(dial.Rules{Allow: []string{allow}}, map[string]endpoint.Secret{"desk": {Value: "the-value", Hosts: []string{hosts}}})
			_, err := ask(t, c, events.EffectWrite, events.HTTPRoute{Method: "POST", URL: server.URL, Headers: map[string]string{"X-Key": "${desk}"}}, `{}`)
			if seen != want || (err == nil) != (want == 1) {
				t.Errorf("the secret for %s with %s allowed was seen %d times, want %d; %v", hosts, allow, seen, want, err)
			}
		}
	}
	c := endpoint.New(dial.Rules{Allow: []string{fmt.Sprintf("localhost%s", at[strings.LastIndex(at, ":"):])}}, nil)
	if _, err := ask(t, c, events.EffectWrite, events.HTTPRoute{Method: "POST", URL: strings.Replace(server.URL, "127.0.0.1", "localhost", 1)}, `{}`); err != nil {
		t.Errorf("a name with its port: %v", err)
	}
}
