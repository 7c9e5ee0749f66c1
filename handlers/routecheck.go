package handlers

import (
	"encoding/json"
	"maps"
	"net/textproto"
	"slices"
	"strings"
	"unicode"

	"github.com/agentruntime/agentruntime/events"
)

// The bounds of what a definition says of a route, in bytes and in headers.
const (
	maxToolName    = 256
	maxHeaders     = 32
	maxHeaderValue = 4 << 10
)

// Methods are the methods that an HTTP route may have, those with a body last.
var Methods = []string{"GET", "DELETE", "POST", "PUT", "PATCH"}

// HasBody reports whether requests of a method carry the input as JSON.
func HasBody(method string) bool { return slices.Index(Methods, method) >= 2 }

func checkRoute(c *events.Capability, wrong func(field, format string, args ...any)) {
	kinds := 0
	for _, given := range []bool{c.Route.NATS != nil, c.Route.MCP != nil, c.Route.HTTP != nil} {
		if given {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		wrong("route", "must be one of nats with a subject, mcp with a server and a tool, http with a method and a url")
	case c.Route.NATS != nil:
		if !isLiteralSubject(c.Route.NATS.Subject) {
			wrong("route.nats.subject", "%q must be a literal subject, outside agent., _INBOX. and $", c.Route.NATS.Subject)
		}
	case c.Route.MCP != nil:
		if !IsServerName(c.Route.MCP.Server) {
			wrong("route.mcp.server", "%q must be a server's name in the worker's configuration: 1 to 40 characters of a-z 0-9 _ that start with a letter", bounded(c.Route.MCP.Server, maxNamed))
		}
		if tool := c.Route.MCP.Tool; tool == "" || len(tool) > maxToolName || strings.ContainsFunc(tool, unicode.IsControl) {
			wrong("route.mcp.tool", "must be the tool's name at the server, of at most %d bytes", maxToolName)
		}
	default:
		checkEndpoint(c, wrong)
	}
}

// IsServerName accepts the name of an MCP server. It is a JavaScript name, since
// the names of imported tools begin with it.
func IsServerName(s string) bool {
	if s == "" || len(s) > 40 {
		return false
	}
	for i, r := range s {
		if (r < 'a' || r > 'z') && (i == 0 || r != '_' && (r < '0' || r > '9')) {
			return false
		}
	}
	return true
}

func checkEndpoint(c *events.Capability, wrong func(field, format string, args ...any)) {
	route := c.Route.HTTP
	if !slices.Contains(Methods, route.Method) {
		wrong("route.http.method", "%q is none of %s", bounded(route.Method, maxNamed), strings.Join(Methods, ", "))
		return
	}
	if route.Method == "GET" && c.Effect != events.EffectRead {
		wrong("effect", "must be read for a GET, which whoever stands between may repeat; choose another method for an effect")
	}
	template, err := ParseURLTemplate(route.URL)
	if err != nil {
		wrong("route.http.url", "%v", err)
		return
	}
	checkPlaceholders(c, template, wrong)
	if len(route.Headers) > maxHeaders {
		wrong("route.http.headers", "are %d, more than %d", len(route.Headers), maxHeaders)
	}
	given := make(map[string]string, len(route.Headers)) // by the name that is sent
	for _, name := range slices.Sorted(maps.Keys(route.Headers)) {
		value, at := route.Headers[name], "route.http.headers."+bounded(name, maxNamed)
		switch canonical := textproto.CanonicalMIMEHeaderKey(name); {
		case !isToken(name):
			wrong(at, "must be the name of a header: letters, digits and hyphens")
		case strings.HasPrefix(canonical, "Agent-") || slices.Contains(ownHeaders, canonical):
			wrong(at, "is set by the service")
		case given[canonical] != "":
			wrong(at, "is the header %s once more: capitals do not tell headers apart", given[canonical])
		case len(value) > maxHeaderValue || strings.ContainsFunc(value, unicode.IsControl):
			wrong(at, "must be one line of at most %d bytes", maxHeaderValue)
		default:
			given[canonical] = name
			if _, err := ExpandSecrets(value, func(string) (string, error) { return "", nil }); err != nil {
				wrong(at, "%v", err)
			}
		}
	}
}

// ownHeaders are those that the client sets, and those that would change what a
// connection carries.
var ownHeaders = []string{"Host", "Connection", "Content-Length", "Content-Type", "Transfer-Encoding", "Upgrade", "Te", "Trailer", "Expect", "Idempotency-Key", "Accept-Encoding", "Proxy-Authorization"}

func isToken(s string) bool {
	return s != "" && len(s) <= 100 && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// checkPlaceholders demands that the input always holds what the URL needs, and
// that nothing of it is lost.
func checkPlaceholders(c *events.Capability, template *URLTemplate, wrong func(field, format string, args ...any)) {
	var input struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	_ = json.Unmarshal(c.Input, &input) // what is no schema of an object has no properties
	for _, name := range template.Names() {
		if _, known := input.Properties[name]; !known || !slices.Contains(input.Required, name) {
			wrong("route.http.url", "needs %s: make it a required property of the input", name)
		}
	}
	if HasBody(c.Route.HTTP.Method) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(input.Properties)) {
		if !slices.Contains(template.Names(), name) {
			wrong("route.http.url", "does not hold %s, and a %s has no body: add {%s} to the path or the query", name, c.Route.HTTP.Method, name)
		}
	}
}
