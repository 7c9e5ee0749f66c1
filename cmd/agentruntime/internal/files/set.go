package files

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/route/mcp"
)

// Set is what folders of agents and capabilities hold, sorted by file name.
type Set struct {
	Agents       []events.AgentDefinition
	Capabilities []events.Capability

	// AllowMissingSubagents is for agents whose subagents are applied
	// elsewhere: no file need have them.
	AllowMissingSubagents bool

	// Tools asks MCP servers for the capabilities that agents name by
	// mcp.<server>.<tool>. Optional.
	Tools Tools

	// LeftOut is, once Versions has returned, which tools that an agent's
	// patterns mean cannot be capabilities, by the agent's slug.
	LeftOut map[string][]*mcp.LeftOut

	offers  map[string]offer     // of MCP servers
	sources map[string]*document // of agents, by slug
}

// Versions gives each agent the capabilities it names. The error is all that do
// not exist or that no agent could have beside each other, and all subagents
// that no file has, joined; each is an *Error.
func (s *Set) Versions() ([]handlers.Version, error) {
	var errs []error
	versions := make([]handlers.Version, 0, len(s.Agents))
	for _, agent := range s.Agents {
		v := handlers.Version{Agent: agent}
		d := s.source(agent.Slug)
		v.Agent.Capabilities = nil
		for i, name := range agent.Capabilities {
			if s.imports(name) {
				found, reason := s.importTools(agent.Slug, name)
				if reason != "" {
					d.refuse(d.root.find(fmt.Sprintf("/capabilities/%d", i)), "%s", reason)
				}
				for _, c := range found {
					if !slices.Contains(v.Agent.Capabilities, c.Name) && (c.Name == name || !slices.Contains(agent.Capabilities, c.Name)) {
						v.Agent.Capabilities, v.Capabilities = append(v.Agent.Capabilities, c.Name), append(v.Capabilities, c)
					}
				}
				continue
			}
			v.Agent.Capabilities = append(v.Agent.Capabilities, name)
			at := slices.IndexFunc(s.Capabilities, func(c events.Capability) bool { return c.Name == name })
			if at < 0 {
				d.refuse(d.root.find(fmt.Sprintf("/capabilities/%d", i)), "%s", s.noCapability(name))
				continue
			}
			v.Capabilities = append(v.Capabilities, s.Capabilities[at])
		}
		if err := handlers.CheckTogether(v.Capabilities); err != nil && len(d.errors) == 0 {
			d.refuse(d.root.member("capabilities"), "%v", err)
		}
		for i, slug := range agent.Subagents {
			if !s.AllowMissingSubagents && !s.has(slug) {
				d.refuse(d.root.find(fmt.Sprintf("/subagents/%d", i)), "%s", s.noAgent(slug))
			}
		}
		errs = append(errs, d.sorted()...)
		versions = append(versions, v)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return versions, nil
}

// source returns the file of an agent, to report in. An agent that came from
// none is named instead.
func (s *Set) source(slug string) *document {
	if d := s.sources[slug]; d != nil {
		return &document{file: d.file, root: d.root}
	}
	return &document{file: "agent " + slug, root: &node{kind: object}}
}

func (s *Set) noCapability(name string) string {
	names := make([]string, 0, len(s.Capabilities))
	for _, c := range s.Capabilities {
		names = append(names, c.Name)
	}
	name = cut(name, maxNameBytes)
	switch near := nearest(name, names); {
	case len(names) == 0:
		return fmt.Sprintf("there is no capability %q: there are no capability files", name)
	case near != "":
		return fmt.Sprintf("there is no capability %q; did you mean %s?", name, near)
	default:
		return fmt.Sprintf("there is no capability %q: describe it in a file %s.yaml", name, name)
	}
}

func (s *Set) has(slug string) bool {
	return slices.ContainsFunc(s.Agents, func(a events.AgentDefinition) bool { return a.Slug == slug })
}

func (s *Set) noAgent(slug string) string {
	names := make([]string, 0, len(s.Agents))
	for _, a := range s.Agents {
		names = append(names, a.Slug)
	}
	slug = cut(slug, maxNameBytes)
	if near := nearest(slug, names); near != "" {
		return fmt.Sprintf("there is no agent %q; did you mean %s?", slug, near)
	}
	return fmt.Sprintf("there is no agent %q: describe it in a file %s.yaml; when it is applied elsewhere, agents check and agents apply take --allow-missing-subagents", slug, slug)
}

// readAgent reads the agent of a file as far as it is right.
func (d *document) readAgent() (a events.AgentDefinition) {
	if kept := d.checkFile(agentShape(), "slug", &a.Slug); kept != nil {
		if err := d.decodeInto(kept, &a); err != nil {
			d.refuse(d.root, "%v", err)
		}
		d.checkSubagents(&a)
		// What a definition is without capabilities, and without what is
		// said of a budget that is not right itself.
		rest := a
		rest.Capabilities = nil
		if d.root.member("budget").settled() {
			rest.OnBudget = ""
		}
		if d.root.member("models").settled() && rest.Model == "" {
			rest.Models = []string{"provider/name"}
		}
		d.report((&handlers.Version{Agent: rest}).Check())
	}
	return a
}

// checkSubagents reports each name that no agent can have where it stands.
func (d *document) checkSubagents(a *events.AgentDefinition) {
	for i, slug := range a.Subagents {
		if events.CheckSession(slug) != nil {
			d.refuse(d.root.find(fmt.Sprintf("/subagents/%d", i)), "can be no agent's name: it must be 1 to %d characters of A-Z a-z 0-9 _ - and start with a letter or a digit", events.MaxNameLength)
		}
	}
}

// readCapability reads the capability of a file as far as it is right.
func (d *document) readCapability() (c events.Capability) {
	if kept := d.checkFile(capabilityShape(), "name", &c.Name); kept != nil {
		if err := d.decodeInto(kept, &c); err != nil {
			d.refuse(d.root, "%v", err)
		}
		d.report(handlers.CheckCapability(&c))
	}
	return c
}

// checkFile checks the fields of a file and returns those that are right, nil
// when there are none. The name is the file's unless the file has another, which
// is an error.
func (d *document) checkFile(s *shape, named string, name *string) []byte {
	*name = d.name
	if d.root == nil {
		return nil
	}
	kept := d.check(s, d.root)
	if d.root.kind != object {
		return nil
	}
	n := d.root.member(named)
	if d.root.has(named) && !n.settled() && n.text != quoteJSON(d.name) {
		d.refuse(n, "must be %s, as the file is named; or leave it out", cut(d.name, maxNameBytes))
	}
	d.checkSchema("input")
	d.checkSchema("output")
	return kept
}

// report adds what package handlers found, where nothing else was.
func (d *document) report(err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			d.report(err)
		}
		return
	}
	var field *handlers.FieldError
	if errors.As(err, &field) {
		if n := d.root.find("/" + strings.ReplaceAll(field.Field, ".", "/")); !n.settled() {
			d.refuse(n, "%s", field.Reason)
		}
	} else if err != nil {
		d.refuse(d.root, "%v", err)
	}
}
