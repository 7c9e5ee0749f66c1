package handlers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

// plan is what a run of a pinned version will be: its children's versions, what
// it is granted, and the contract.
type plan struct {
	version   *Version
	hash      string
	contract  string
	subagents map[string]string // hashes by slug
	grants    []string
	settleKey string
}

// plan resolves a version. A root is granted what its definition and those of
// all agents below it name; within bounds what a child is granted to what its
// parent was.
func (h *Host) plan(ctx context.Context, namespace, slug, hash string, within []string) (*plan, error) {
	v, err := h.version(ctx, namespace, hash)
	if err != nil {
		return nil, err
	}
	p := &plan{version: v, hash: hash}
	if len(v.Agent.Subagents) > 0 {
		p.subagents = make(map[string]string)
	}
	for _, child := range v.Agent.Subagents {
		hash, sub, err := h.latest(ctx, namespace, slug, child)
		if err != nil {
			return nil, err
		}
		p.subagents[child] = hash
		v.Subagents = append(v.Subagents, sub.Agent)
	}
	seen := map[string]bool{slug: true}
	if p.grants, err = h.grants(ctx, namespace, v, seen, nil); err != nil {
		return nil, err
	}
	if within != nil {
		p.grants = slices.DeleteFunc(p.grants, func(name string) bool { return !slices.Contains(within, name) })
	}
	v.grant(p.grants)
	if slices.ContainsFunc(v.Capabilities, func(c events.Capability) bool { return c.Deferred }) {
		p.settleKey = h.NewID()
	}
	p.contract, err = v.Contract()
	return p, err
}

// latest returns the current version of an agent that another one names.
func (h *Host) latest(ctx context.Context, namespace, parent, slug string) (string, *Version, error) {
	hash, err := h.Definitions.Latest(ctx, namespace, slug)
	if errors.Is(err, events.ErrNotFound) {
		return "", nil, reject(RejectNoAgent, "agent %s names the subagent %q, which namespace %s does not have; apply it first", parent, slug, namespace)
	}
	if err != nil {
		return "", nil, err
	}
	v, err := h.version(ctx, namespace, hash)
	return hash, v, err
}

// grants lists what a version and those below it name. Agents may name each
// other, or themselves.
func (h *Host) grants(ctx context.Context, namespace string, v *Version, seen map[string]bool, names []string) ([]string, error) {
	for _, c := range v.Capabilities {
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
	}
	for _, slug := range v.Agent.Subagents {
		if seen[slug] {
			continue
		}
		seen[slug] = true
		_, sub, err := h.latest(ctx, namespace, v.Agent.Slug, slug)
		if err == nil {
			names, err = h.grants(ctx, namespace, sub, seen, names)
		}
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

// admit returns the admission of a run that is planned so, without its cause
// and the id of its task.
func (p *plan) admit(task string, now time.Time) *events.RunAdmitted {
	d := &p.version.Agent
	a := &events.RunAdmitted{Agent: d.Slug, Models: d.ModelNames(), Definition: p.hash, Contract: p.contract, Message: events.Text("", events.RoleUser, task),
		Capabilities: p.grants, Events: d.Events, Subagents: p.subagents, Budget: d.Budget, Metered: counts(d.Budget), Hold: d.OnBudget == events.OnBudgetHold, SettleKey: p.settleKey,
		NoEgress: d.Limits.NoEgressAfterUntrusted}
	limits := []string{d.Limits.Timeout}
	if d.Budget != nil {
		limits = append(limits, d.Budget.Timeout)
	}
	for _, limit := range limits {
		timeout, err := time.ParseDuration(limit)
		if err != nil {
			continue // absent: a definition is checked before it is stored
		}
		if at := now.Add(timeout).UTC(); a.Deadline == nil || at.Before(*a.Deadline) {
			a.Deadline = &at
		}
	}
	return a
}

// counts reports whether a budget limits what the ledger counts. A time-out is
// a deadline, which needs no ledger.
func counts(b *events.Budget) bool {
	return b != nil && (b.Steps > 0 || b.InputTokens > 0 || b.OutputTokens > 0)
}

// admitted reads the version a run was admitted with, its children's pinned ones
// included, and refuses it when this binary would run it under another contract.
func (h *Host) admitted(ctx context.Context, namespace, run string, a *events.RunAdmitted) (*Version, error) {
	v, err := h.pinned(ctx, namespace, run, a, a.Agent, a.Definition)
	if err != nil {
		return nil, err
	}
	for _, slug := range v.Agent.Subagents {
		sub, err := h.pinned(ctx, namespace, run, a, slug, a.Subagents[slug])
		if err != nil {
			return nil, err
		}
		v.Subagents = append(v.Subagents, sub.Agent)
	}
	v.grant(a.Capabilities)
	contract, err := v.Contract()
	if err != nil {
		return nil, err
	}
	if contract != a.Contract {
		return nil, contractError(run, a, contract)
	}
	return v, nil
}

func (h *Host) pinned(ctx context.Context, namespace, run string, a *events.RunAdmitted, slug, hash string) (*Version, error) {
	v, err := h.version(ctx, namespace, hash)
	if errors.Is(err, events.ErrNotFound) {
		return nil, &MissingVersionError{run, slug, hash, a.Contract}
	}
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", slug, err)
	}
	return v, nil
}
