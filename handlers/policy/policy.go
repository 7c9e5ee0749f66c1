// Package policy says what a namespace may do. The grants that a run was admitted
// with are the upper bound; the policy of the moment is asked again before each
// request, callback, redirect and call about children, so that what is taken away is gone
// at once, for runs under way as well.
//
// Without a policy nothing is taken away. With one, whatever it does not name is
// denied: a namespace that it does not name may do nothing.
package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers/limit"
)

// Policy holds the rules of namespaces by name; those of "*" are for every
// namespace without rules of its own.
type Policy struct {
	Namespaces map[string]Rules `yaml:"namespaces"`
}

// Rules are what one namespace may do. Lists hold patterns in which * stands for
// any characters but a slash; an absent list allows nothing.
type Rules struct {
	Agents       []string `yaml:"agents"`       // that run
	Subagents    []string `yaml:"subagents"`    // of Agents, those that other agents may start
	Models       []string `yaml:"models"`       // provider/name
	Capabilities []string `yaml:"capabilities"` // that scripts may call
	Egress       Egress   `yaml:"egress"`       // whether those marked egress are among them; deny

	// Routes bound where capabilities lead; nil: anywhere.
	Routes *Routes `yaml:"routes"`

	// Limits bound capabilities beyond what their own definitions say, by
	// pattern. Each that fits counts, for each capability by itself.
	Limits map[string]Limits `yaml:"limits"`
}

// Limits bound one capability in one namespace; see limit.Limits.
type Limits struct {
	Concurrent int `yaml:"concurrent"`
	PerMinute  int `yaml:"per_minute"`
}

// Egress says whether capabilities may be called that let data out.
type Egress string

// The choices.
const (
	EgressDeny           Egress = "deny"
	EgressUntilUntrusted Egress = "until_untrusted" // until the run has read untrusted output
	EgressAllow          Egress = "allow"           // unless the run's definition forbids it
)

// Denial is something that a policy does not allow.
type Denial struct {
	Namespace string
	What      string // agent, subagent, model, capability, route or egress
	Name      string
}

func (e *Denial) Error() string {
	if e.What == "egress" {
		return fmt.Sprintf("the policy of namespace %s lets no data out, and %s does", e.Namespace, e.Name)
	}
	return fmt.Sprintf("the policy of namespace %s does not allow the %s %s", e.Namespace, e.What, e.Name)
}

// Check reports everything that is wrong with a policy, joined.
func (p *Policy) Check() error {
	var errs []error
	for _, ns := range slices.Sorted(maps.Keys(p.Namespaces)) {
		r, at := p.Namespaces[ns], "namespaces."+ns
		if ns != "*" && events.CheckNamespace(ns) != nil {
			errs = append(errs, fmt.Errorf("%s: can be no namespace's name", at))
		}
		for _, list := range []struct {
			name     string
			patterns []string
		}{{"agents", r.Agents}, {"subagents", r.Subagents}, {"models", r.Models}, {"capabilities", r.Capabilities}, {"limits", slices.Sorted(maps.Keys(r.Limits))}} {
			for _, pattern := range list.patterns {
				if !isPattern(pattern) {
					errs = append(errs, fmt.Errorf("%s.%s: %q is no pattern", at, list.name, pattern))
				}
			}
		}
		for name, patterns := range r.Routes.lists() {
			for _, pattern := range patterns {
				if !isPattern(pattern) {
					errs = append(errs, fmt.Errorf("%s.routes.%s: %q is no pattern", at, name, pattern))
				}
			}
		}
		switch r.Egress {
		case "", EgressDeny, EgressUntilUntrusted, EgressAllow:
		default:
			errs = append(errs, fmt.Errorf("%s.egress: %q is none of deny, until_untrusted, allow", at, r.Egress))
		}
		for pattern, l := range r.Limits {
			if l.Concurrent < 0 || l.PerMinute < 0 || l == (Limits{}) {
				errs = append(errs, fmt.Errorf("%s.limits.%s: must have concurrent or per_minute, and neither negative", at, pattern))
			}
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// rules returns those of a namespace; without any, rules that allow nothing.
func (p *Policy) rules(namespace string) Rules {
	if r, ok := p.Namespaces[namespace]; ok {
		return r
	}
	return p.Namespaces["*"]
}

func allows(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, name) })
}

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// Agent returns a *Denial when an agent may not run in a namespace; as a child
// when another agent may not start it. A nil policy allows everything, here and
// below.
func (p *Policy) Agent(namespace, slug string, child bool) error {
	if p == nil {
		return nil
	}
	r := p.rules(namespace)
	switch {
	case !allows(r.Agents, slug):
		return &Denial{namespace, "agent", slug}
	case child && !allows(r.Subagents, slug):
		return &Denial{namespace, "subagent", slug}
	}
	return nil
}

// Model returns a *Denial when a model may not be asked.
func (p *Policy) Model(namespace, name string) error {
	if p == nil || allows(p.rules(namespace).Models, name) {
		return nil
	}
	return &Denial{namespace, "model", name}
}

// Capability returns a *Denial when a capability may not be called. A run that
// has read untrusted output is untrusted.
func (p *Policy) Capability(namespace string, c *events.Capability, untrusted bool) error {
	if p == nil {
		return nil
	}
	r := p.rules(namespace)
	switch {
	case !allows(r.Capabilities, c.Name):
		return &Denial{namespace, "capability", c.Name}
	case c.Egress && r.Egress != EgressAllow && (r.Egress != EgressUntilUntrusted || untrusted):
		return &Denial{namespace, "egress", c.Name}
	}
	return p.Route(namespace, c)
}

// Limits returns how a capability is limited in a namespace: the strictest of its
// own limits and those of the policy.
func (p *Policy) Limits(namespace string, c *events.Capability) (l limit.Limits) {
	if c.Limits != nil {
		l = limit.Limits{Concurrent: c.Limits.Concurrent, RequestsPerMinute: c.Limits.PerMinute}
	}
	if p == nil {
		return l
	}
	for pattern, of := range p.rules(namespace).Limits {
		if matches(pattern, c.Name) {
			l = limit.Least(l, limit.Limits{Concurrent: of.Concurrent, RequestsPerMinute: of.PerMinute})
		}
	}
	return l
}

// Version reports everything that a policy does not allow of what an agent's
// definition names, joined; each error is a *Denial. A child is started by another
// agent.
func (p *Policy) Version(namespace string, d *events.AgentDefinition, capabilities []events.Capability, child bool) error {
	errs := []error{p.Agent(namespace, d.Slug, child)}
	for _, model := range d.ModelNames() {
		errs = append(errs, p.Model(namespace, model))
	}
	for _, slug := range d.Subagents {
		errs = append(errs, p.Agent(namespace, slug, true))
	}
	for i := range capabilities {
		errs = append(errs, p.Capability(namespace, &capabilities[i], false))
	}
	return errors.Join(errs...)
}

// String tells a reader of a log what is in force.
func (p *Policy) String() string {
	if p == nil {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(p.Namespaces)), ", ")
}
