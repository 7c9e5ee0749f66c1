package files

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/route/mcp"
)

// Tools lists the tools of an MCP server as capabilities, and those that cannot be
// one.
type Tools func(server string) (kept []events.Capability, left []*mcp.LeftOut, err error)

// offer is what one server offers, asked once.
type offer struct {
	kept []events.Capability
	left []*mcp.LeftOut
	err  error
}

// imports reports whether a name means tools of an MCP server, mcp.<server>.<tool>
// with * in the tool for any characters, that no file describes.
func (s *Set) imports(name string) bool {
	return strings.HasPrefix(name, "mcp.") && !slices.ContainsFunc(s.Capabilities, func(c events.Capability) bool { return c.Name == name })
}

// importTools returns the capabilities that a name means, and notes which tools it
// would mean if they could be capabilities. The reason says why there are none.
func (s *Set) importTools(agent, name string) (found []events.Capability, reason string) {
	parts := strings.Split(name, ".")
	if len(parts) != 3 || !handlers.IsServerName(parts[1]) || parts[2] == "" || strings.ContainsAny(parts[2], `?[]\/`) {
		return nil, "must be mcp.<server>.<tool>, in which * stands for any characters of the tool's name"
	}
	if s.Tools == nil {
		return nil, "means tools of an MCP server, and no server can be asked here: describe the capability in a file"
	}
	offered, asked := s.offers[parts[1]]
	if !asked {
		offered.kept, offered.left, offered.err = s.Tools(parts[1])
		if s.offers == nil {
			s.offers = make(map[string]offer)
		}
		s.offers[parts[1]] = offered
	}
	if offered.err != nil {
		return nil, offered.err.Error()
	}
	for _, c := range offered.kept {
		if meant(name, c.Name) {
			found = append(found, c)
		}
	}
	for _, l := range offered.left {
		switch {
		case !meant(name, l.Capability):
		case name == l.Capability:
			return nil, l.Error()
		case !slices.Contains(s.LeftOut[agent], l):
			if s.LeftOut == nil {
				s.LeftOut = make(map[string][]*mcp.LeftOut)
			}
			s.LeftOut[agent] = append(s.LeftOut[agent], l)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Sprintf("means no tool that can be a capability; MCP server %s has %s", parts[1], s.offers[parts[1]].names())
	}
	return found, ""
}

// maxOffered bounds how many tools an error names.
const maxOffered = 20

func (o offer) names() string {
	var names []string
	for _, c := range o.kept {
		names = append(names, c.Name)
	}
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > maxOffered:
		return strings.Join(names[:maxOffered], ", ") + " and more"
	}
	return strings.Join(names, ", ")
}

// meant reports whether a name, which may hold *, means a capability. Neither has a
// character that path.Match would read otherwise.
func meant(name, capability string) bool {
	ok, err := path.Match(name, capability)
	return err == nil && ok
}
