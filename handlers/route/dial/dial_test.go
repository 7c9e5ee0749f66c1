package dial

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"testing"
)

func TestAHostOfTheConfigurationIsMetWithItsPortOrAtEvery(t *testing.T) {
	for _, c := range []struct {
		configured, url string
		want            bool
	}{
		{"desk.example", "https://desk.example/x", true},
		{"Desk.Example", "http://desk.example:8080/", true},
		{"desk.example:443", "https://desk.example/", true},
		{"desk.example:80", "http://DESK.example/", true},
		{"desk.example:443", "http://desk.example/", false},
		{"desk.example:8443", "https://desk.example:8443/", true},
		{"desk.example:8443", "https://desk.example/", false},
		{"desk.example", "https://a.desk.example/", false},
		{"[::1]", "http://[::1]:8080/", true},
		{"::1", "http://[0:0::1]/", true},
		{"[::1]:8080", "http://[::1]:8080/", true},
		{"[::1]:8080", "http://[::1]:8081/", false},
		{"127.0.0.1:80", "http://127.0.0.1/", true},
	} {
		u, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		if got := Means(c.configured, u.Hostname(), Port(u)); got != c.want || !IsHost(c.configured) {
			t.Errorf("%s for %s: %v, want %v", c.configured, c.url, got, c.want)
		}
	}
	for _, s := range []string{"", "[::1", "::1]", "[desk.example]", "desk.example:", "desk.example:0", "desk.example:70000", "[::1]:x", "[::1]:", ":80"} {
		if IsHost(s) {
			t.Errorf("%q is taken, and would never be met", s)
		}
	}
}

func TestHostsShareATransportUnlessTheyHaveTLSOfTheirOwn(t *testing.T) {
	own := &tls.Config{ServerName: "own", MinVersion: tls.VersionTLS12}
	transport := Rules{TLS: map[string]*tls.Config{"desk.example": {MinVersion: tls.VersionTLS12}, "desk.example:8443": own}}.Transport()
	for i := range 100 {
		request, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://127.0.0.%d:1/", i), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := transport.RoundTrip(request); err == nil {
			t.Fatal("a host that is not allowed answered")
		}
	}
	if n := len(transport.hosts); n != 1 {
		t.Errorf("%d transports are kept, want one", n)
	}
	for address, want := range map[string]string{"https://desk.example/": "desk.example", "https://desk.example:8443/": "desk.example:8443", "https://other.example/": ""} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := transport.rules.entry(u); got != want {
			t.Errorf("%s has the TLS of %q, want %q", address, got, want)
		}
	}
	if got := transport.rules.transport("desk.example:8443").TLSClientConfig.ServerName; got != "own" {
		t.Errorf("the entry's own TLS was not used: %q", got)
	}
}
