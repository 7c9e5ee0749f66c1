// Package dial makes the HTTP clients of the routes that leave the service.
//
// A definition names URLs, and whoever serves one may answer with a redirect or
// change what its name resolves to. So that none of them leads into the network
// that the worker stands in, a connection to an address that is not public is
// refused unless the configuration allows the host or the address. The check is
// made on the address that is dialled, after the name was resolved, for every
// connection: a name that resolves to another address the second time gains
// nothing. No proxy of the environment is used, since it would resolve the name
// itself.
//
// A request leaves at most once. The client of the standard library repeats some
// requests on a connection that breaks; Once keeps it from that.
package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Rules say where connections may go.
type Rules struct {
	// Allow lists host names, addresses and networks such as 10.0.0.0/8 that
	// may be reached although they are not public. A host name allows whatever
	// address it has. A name or an address may have a port, and then allows that
	// one alone.
	Allow []string

	// TLS holds what connections to a host need, by host name or address, or by
	// that and a port, which comes first. Optional.
	TLS map[string]*tls.Config
}

// BlockedError reports a connection that the rules do not allow. It was not made.
type BlockedError struct {
	Host    string
	Address netip.Addr
}

func (e *BlockedError) Error() string {
	return fmt.Sprintf("%s is at %s, which is not a public address: allow the host or the address in the worker's configuration, as http.allow", e.Host, e.Address)
}

// Connecting is how long a connection may take to be made.
const Connecting = 10 * time.Second

// maxIdle bounds the connections of a transport that are kept without use.
const maxIdle = 128

// maxHead bounds the headers of an answer, in bytes.
const maxHead = 64 << 10

// Transport returns a transport that keeps to the rules.
func (r Rules) Transport() *Transport { return &Transport{rules: r} }

// Transport keeps one standard transport for each entry of Rules.TLS, and one for
// all other hosts: redirects may name any number of them.
type Transport struct {
	rules Rules

	mu    sync.Mutex
	hosts map[string]*http.Transport // by the entry; "" is that of the others
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	entry := t.rules.entry(r.URL)
	h := t.hosts[entry]
	if h == nil {
		if t.hosts == nil {
			t.hosts = make(map[string]*http.Transport)
		}
		h = t.rules.transport(entry)
		t.hosts[entry] = h
	}
	t.mu.Unlock()
	response, err := h.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusSwitchingProtocols {
		_ = response.Body.Close() // the connection was handed over, and no context would end it
		return nil, ErrSwitched
	}
	return response, err
}

// ErrSwitched reports an answer that changes the protocol of its connection, which no
// request here asks for. The request was sent.
var ErrSwitched = errors.New("the answer is 101, a change of protocol that nobody asked for")

// CloseIdleConnections closes what is not in use.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.hosts {
		h.CloseIdleConnections()
	}
}

// Allowed reports whether a host is on the list by its name, at a port.
func (r Rules) Allowed(host, port string) bool {
	return slices.ContainsFunc(r.Allow, func(a string) bool { return Means(a, host, port) })
}

// check refuses an address that is neither public nor allowed.
func (r Rules) check(host, port string, at netip.Addr) error {
	at = at.Unmap().WithZone("")
	if r.Allowed(host, port) || r.Allowed(at.String(), port) || public(at) {
		return nil
	}
	for _, a := range r.Allow {
		if network, err := netip.ParsePrefix(a); err == nil && network.Masked().Contains(at) {
			return nil
		}
	}
	return &BlockedError{host, at}
}

// special are networks that are not of the public internet and that package
// netip does not tell from it: those of RFC 6890 and its registry, and 6to4, which
// writes an IPv4 address as one of IPv6.
var special = func() (list []netip.Prefix) {
	for _, s := range []string{"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"} {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}()

// unicast is the part of IPv6 that is given out. What lies elsewhere is of one network,
// or means an IPv4 address.
var unicast = netip.MustParsePrefix("2000::/3")

func public(at netip.Addr) bool {
	if at.Is6() && !unicast.Contains(at) {
		return false
	}
	if !at.IsGlobalUnicast() || at.IsPrivate() || at.IsLoopback() || at.IsLinkLocalUnicast() {
		return false
	}
	for _, network := range special {
		if network.Contains(at) {
			return false
		}
	}
	return true
}

// transport returns the transport for an entry of TLS, or for the hosts without one.
// It speaks HTTP/1.1: of a request on a connection of its own it is known whether it
// was sent.
func (r Rules) transport(entry string) *http.Transport {
	config := r.TLS[entry]
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return &http.Transport{DialContext: r.dial, TLSClientConfig: config.Clone(), TLSHandshakeTimeout: Connecting, MaxIdleConns: maxIdle, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute,
		MaxResponseHeaderBytes: maxHead, DisableCompression: true}
}

// hostKey carries the name that is being dialled to where its address is known.
type hostKey struct{}

func (r Rules) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: Connecting, ControlContext: func(ctx context.Context, _, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return r.check(ctx.Value(hostKey{}).(string), port, at.Addr())
	}}
	return d.DialContext(context.WithValue(ctx, hostKey{}, host), network, address)
}

// Sent tells how far a request came. It is never told too little: what may have
// left counts as having left.
type Sent struct{ wrote atomic.Bool }

// Left reports whether anything of the request may have reached the other side.
func (s *Sent) Left() bool { return s.wrote.Load() }

// Watch returns a context for a request, and what is known of it.
func Watch(ctx context.Context) (context.Context, *Sent) {
	s := new(Sent)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// From here on the request is written to the connection.
		GotConn: func(httptrace.GotConnInfo) { s.wrote.Store(true) },
	}), s
}

// Once makes a request one that is sent once: without a way to get its body
// again, no broken connection makes the client repeat it.
func Once(r *http.Request) {
	r.GetBody = nil
	if r.Body == nil || r.Body == http.NoBody {
		r.Body = io.NopCloser(strings.NewReader(""))
	}
}

// ErrTooLarge ends the reading of a body that is larger than its bound.
var ErrTooLarge = errors.New("the body is too large")

// Bound returns a body that ends with ErrTooLarge after n bytes.
func Bound(body io.ReadCloser, n int64) io.ReadCloser { return &boundBody{body, n} }

type boundBody struct {
	io.ReadCloser
	left int64
}

func (b *boundBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, ErrTooLarge
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, ErrTooLarge
	}
	return n, err
}
