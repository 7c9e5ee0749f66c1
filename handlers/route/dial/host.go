package dial

import (
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// split returns the name or the address of a host as the configuration has it, and
// its port, which is "" when it has none.
func split(s string) (host, port string, ok bool) {
	if _, err := netip.ParseAddr(s); err == nil {
		return s, "", true
	}
	if strings.HasPrefix(s, "[") {
		if strings.HasSuffix(s, "]") {
			s += ":"
		}
		host, port, err := net.SplitHostPort(s)
		at, bad := netip.ParseAddr(host)
		return host, port, err == nil && bad == nil && at.Is6()
	}
	host, port, _ = strings.Cut(s, ":")
	return host, port, host != ""
}

// IsHost reports whether a host of the configuration can be met: a name or an address,
// alone or with a port. An IPv6 address with a port stands in brackets.
func IsHost(s string) bool {
	_, port, ok := split(s)
	if port == "" {
		return ok && !strings.HasSuffix(s, ":")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return ok && err == nil && n > 0
}

// Means reports whether a host of the configuration is that host at that port. Without
// a port of its own it is the host at every port.
func Means(configured, host, port string) bool {
	name, only, ok := split(configured)
	if !ok || only != "" && only != port {
		return false
	}
	if strings.EqualFold(name, host) {
		return true
	}
	a, errA := netip.ParseAddr(name)
	b, errB := netip.ParseAddr(host)
	return errA == nil && errB == nil && a.Unmap() == b.Unmap()
}

// Port returns the port that a URL leads to, which is its scheme's when it names none.
func Port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// entry returns the key of TLS that is for a URL: one with its port before one without,
// or "".
func (r Rules) entry(u *url.URL) string {
	found := ""
	for _, key := range slices.Sorted(maps.Keys(r.TLS)) {
		if !Means(key, u.Hostname(), Port(u)) {
			continue
		}
		if _, port, _ := split(key); port != "" {
			return key
		}
		if found == "" {
			found = key
		}
	}
	return found
}
