package policy

import (
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// Routes say where the capabilities of a namespace may lead, whatever they are
// called: a capability's name, and whether it is marked egress, are its
// namespace's own to choose. An absent list allows nothing of its kind.
type Routes struct {
	NATS    []string `yaml:"nats"`    // subjects
	MCP     []string `yaml:"mcp"`     // server/tool
	HTTP    []string `yaml:"http"`    // hosts, with the port where the URL has one
	Secrets []string `yaml:"secrets"` // that headers may name
}

// Route returns a *Denial when a capability leads to where none of its namespace
// may, itself or with its inquiries. Rules without routes allow every one.
func (p *Policy) Route(namespace string, c *events.Capability) error {
	if p == nil {
		return nil
	}
	routes := p.rules(namespace).Routes
	if routes == nil {
		return nil
	}
	denied := routes.denied(&c.Route)
	if denied == "" && c.Status != nil {
		denied = routes.denied(c.Status)
	}
	if denied == "" {
		return nil
	}
	return &Denial{namespace, "route", c.Name + ", which leads to " + denied}
}

// denied names what of a route is not covered.
func (r *Routes) denied(route *events.Route) string {
	switch {
	case route.NATS != nil:
		if !allows(r.NATS, route.NATS.Subject) {
			return "the subject " + route.NATS.Subject
		}
	case route.MCP != nil:
		if tool := route.MCP.Server + "/" + route.MCP.Tool; !allows(r.MCP, tool) {
			return "the MCP tool " + tool
		}
	case route.HTTP != nil:
		return r.deniedHTTP(route.HTTP)
	default:
		return "nothing"
	}
	return ""
}

// Address returns a *Denial when a redirect leads a capability to where none of its
// namespace may. Of the address the denial has the host alone.
func (p *Policy) Address(namespace, capability string, to *url.URL) error {
	if p == nil {
		return nil
	}
	if routes := p.rules(namespace).Routes; routes == nil || routes.reaches(to) {
		return nil
	}
	return &Denial{namespace, "route", capability + ", which is led to the host " + to.Host}
}

func (r *Routes) reaches(to *url.URL) bool { return allows(r.HTTP, strings.ToLower(to.Host)) }

// secretName is how the value of a header names a secret.
var secretName = regexp.MustCompile(`\$\{([^}]*)\}`)

func (r *Routes) deniedHTTP(route *events.HTTPRoute) string {
	u, err := url.Parse(route.URL)
	if err != nil || !r.reaches(u) {
		return "the address " + route.URL
	}
	for _, value := range route.Headers {
		for _, name := range secretName.FindAllStringSubmatch(value, -1) {
			if !allows(r.Secrets, name[1]) {
				return "the secret " + name[1]
			}
		}
	}
	return ""
}

// lists returns the patterns by the name of their list.
func (r *Routes) lists() map[string][]string {
	if r == nil {
		return nil
	}
	return map[string][]string{"nats": r.NATS, "mcp": r.MCP, "http": r.HTTP, "secrets": r.Secrets}
}

// isPattern reports whether a pattern can be matched.
func isPattern(pattern string) bool {
	_, err := path.Match(pattern, "")
	return err == nil && pattern != ""
}
