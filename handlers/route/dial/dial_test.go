package dial

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
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

func TestWhatIsNotOfThePublicInternetIsRefused(t *testing.T) {
	for _, s := range []string{"127.0.0.1", "10.1.2.3", "192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.0.1", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "240.0.0.1", "0.0.0.0", "224.0.0.1",
		"::1", "::", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:0:127.0.0.1", "::ffff:0:a00:1", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "100:0:0:1::1", "2001::1", "2001:db8::1", "2001:db8::1%eth0", "2002:7f00:1::", "3fff::1", "4000::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1%eth0", "fec0::1", "ff02::1"} {
		var blocked *BlockedError
		if err := (Rules{}).check("desk.example", "80", netip.MustParseAddr(s)); !errors.As(err, &blocked) {
			t.Errorf("%s is taken as public", s)
		}
	}
	for _, s := range []string{"8.8.8.8", "::ffff:8.8.8.8", "2606:4700::1111", "2a00:1450::1", "2001:470::1"} {
		if err := (Rules{}).check("desk.example", "80", netip.MustParseAddr(s)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	if err := (Rules{Allow: []string{"2001:db8::/32"}}).check("desk.example", "80", netip.MustParseAddr("2001:db8::1%eth0")); err != nil {
		t.Errorf("an address of a network that is allowed: %v", err)
	}
}

func TestAnAnswerThatChangesTheProtocolIsRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_ = buffered.Flush()
	}))
	defer server.Close()
	ctx, sent := Watch(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (Rules{Allow: []string{"127.0.0.1"}}).Transport().RoundTrip(request); !errors.Is(err, ErrSwitched) || !sent.Left() {
		t.Errorf("the request ended with %v, and was sent: %v", err, sent.Left())
	}
}
