package host

import (
	"log/slog"
	"time"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/config"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/route/dial"
	"github.com/agentruntime/agentruntime/handlers/route/endpoint"
	"github.com/agentruntime/agentruntime/handlers/route/mcp"
)

// Routes are the ways to capabilities that are no NATS services, as configured.
type Routes struct {
	HTTP *endpoint.Carrier
	MCP  *mcp.Pool
}

// NewRoutes makes the routes of a configuration. Nothing is reached yet. The error is
// a *config.Error.
func NewRoutes(c *config.Config, logger *slog.Logger, version string) (*Routes, error) {
	hosts, err := c.HTTP.TLS()
	if err != nil {
		return nil, err
	}
	rules := dial.Rules{Allow: c.HTTP.Allow, TLS: hosts}
	secrets := make(map[string]endpoint.Secret, len(c.Named))
	for name, s := range c.Named {
		secrets[name] = endpoint.Secret{Value: s.Value, Gone: s.Gone, Hosts: s.Hosts}
	}
	servers := make(map[string]mcp.Server, len(c.MCP))
	for name, s := range c.MCP {
		made := mcp.Server{Command: s.Command, Dir: s.Dir, URL: s.URL}
		var gone string
		made.Env, made.Gone = c.Expand(s.Env)
		if made.Headers, gone = c.Expand(s.Headers); made.Gone == "" {
			made.Gone = gone
		}
		servers[name] = made
	}
	return &Routes{HTTP: endpoint.New(rules, secrets), MCP: mcp.New(mcp.Options{Servers: servers, Rules: rules, Logger: logger, Version: version, Now: time.Now})}, nil
}

// Carriers returns what a dispatcher needs of the routes.
func (r *Routes) Carriers() handlers.Carriers { return handlers.Carriers{MCP: r.MCP, HTTP: r.HTTP} }

// Close ends the servers that were started, and returns when they are gone.
func (r *Routes) Close() {
	r.HTTP.Close()
	r.MCP.Close()
}
