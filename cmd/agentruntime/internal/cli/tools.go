package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/host"
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers/route/mcp"
)

// toolsTimeout is how long an MCP server may take to begin and to list its tools, without
// a --timeout. A program may first have to be fetched.
const toolsTimeout = time.Minute

// tools asks an MCP server of the configuration for its tools, and marks them as the
// configuration says. The server is begun for that alone. The error shows no secret.
func (a *app) tools(server string) ([]events.Capability, []*mcp.LeftOut, error) {
	routes, err := host.NewRoutes(a.config, a.logger("text", "warn"), version())
	if err != nil {
		return nil, nil, err
	}
	defer routes.Close()
	limit := toolsTimeout
	if a.timed {
		limit = a.flags.timeout
	}
	ctx, cancel := context.WithTimeout(a.ctx, limit)
	defer cancel()
	kept, left, err := routes.MCP.Import(ctx, server)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, nil, fmt.Errorf("MCP server %s did not list its tools within %s: give it longer with --timeout if need be", server, limit)
	}
	if err != nil {
		return nil, nil, errors.New(a.config.Redactor().Redact(err.Error()))
	}
	for i, marks := 0, a.config.MCP[server]; i < len(kept); i++ {
		kept[i].Egress, kept[i].Untrusted = marks.Egress, marks.Untrusted
	}
	return kept, left, nil
}

// leftOut is a tool that cannot be a capability.
type leftOut struct {
	Capability string `json:"capability"` // that it would have been
	Server     string `json:"server"`
	Tool       string `json:"tool"`
	Schema     string `json:"schema,omitempty"`  // input or output, when one of them is the reason
	Pointer    string `json:"pointer,omitempty"` // into the schema
	Reason     string `json:"reason"`
	text       string
}

func leftOuts(list []*mcp.LeftOut) (out []leftOut) {
	for _, l := range list {
		out = append(out, leftOut{l.Capability, l.Server, l.Tool, l.Schema, l.Pointer, l.Reason, l.Error()})
	}
	return out
}

// sayLeftOut prints what agents do not get.
func sayLeftOut(w io.Writer, agents []appliedAgent) {
	for _, a := range agents {
		for _, l := range a.LeftOut {
			fmt.Fprintf(w, "agent %s: %s\n", a.Agent, l.text)
		}
	}
}

// tellLeftOut tells of them on standard error.
func (a *app) tellLeftOut(f *folders) {
	for _, agent := range slices.Sorted(maps.Keys(f.leftOut)) {
		for _, l := range f.leftOut[agent] {
			a.tell("agent %s: %v", agent, l)
		}
	}
}
