package handlers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// Filter says which runs a list holds: those that match all of it. The zero
// value matches every run.
type Filter struct {
	State     []projector.State `json:"state,omitempty"` // any of them
	Agent     string            `json:"agent,omitempty"`
	Label     map[string]string `json:"label,omitempty"` // all of them
	OlderThan Age               `json:"older_than,omitempty"`
	NewerThan Age               `json:"newer_than,omitempty"`
	Parent    string            `json:"parent,omitempty"` // run id
	Root      string            `json:"root,omitempty"`   // run id
	Reason    string            `json:"reason,omitempty"`
	Stuck     bool              `json:"stuck,omitempty"`   // only runs that nothing will wake
	Unknown   bool              `json:"unknown,omitempty"` // only runs of whose callbacks an effect is not known
	Limit     int               `json:"limit,omitempty"`   // 0: 1,000, which is the most
	After     string            `json:"after,omitempty"`   // what the page before returned as next
}

// Age is how long ago a run was admitted, as people write it: 90s, 15m, 72h.
// Empty is no age. It stays text until it is checked, so that a bad one is
// refused under the name of its field.
type Age string

// Duration returns the age, or 0 for none.
func (a Age) Duration() (time.Duration, error) {
	if a == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(string(a))
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is no age: write one such as 90s, 15m or 72h", bounded(string(a), maxNamed))
	}
	return d, nil
}

// States lists what a run can be in a list.
var States = []projector.State{projector.StatePending, projector.StateRunning, projector.StateParked,
	projector.StateCompleted, projector.StateFailed, projector.StateCancelled, StateUnreadable, StateErased}

// Validate refuses a filter that can match nothing by mistake. The error is an
// *APIError. What After holds is for the Lister to check.
func (f *Filter) Validate() error {
	for _, s := range f.State {
		if !slices.Contains(States, s) {
			return f.invalid("state", "%q is no state; known are %s", bounded(string(s), maxNamed), joined(States))
		}
	}
	if f.Agent != "" && events.CheckSession(f.Agent) != nil {
		return f.invalid("agent", "%q can be no agent's name", bounded(f.Agent, maxNamed))
	}
	for _, v := range []struct{ field, run string }{{"parent", f.Parent}, {"root", f.Root}} {
		if v.run == "" {
			continue
		}
		if err := events.CheckRun(v.run); err != nil {
			return f.invalid(v.field, "%v", err)
		}
	}
	for _, v := range []struct {
		field string
		age   Age
	}{{"older_than", f.OlderThan}, {"newer_than", f.NewerThan}} {
		if _, err := v.age.Duration(); err != nil {
			return f.invalid(v.field, "%v", err)
		}
	}
	if checkLabels(f.Label) != nil {
		return f.invalid("label", "a run has at most %d labels with %d bytes in all", maxLabels, maxLabelBytes)
	}
	if _, unnamed := f.Label[""]; unnamed {
		return f.invalid("label", "a label has a name")
	}
	if f.Limit < 0 {
		return f.invalid("limit", "%d is negative", f.Limit)
	}
	return nil
}

// Most returns how many rows a page holds at most.
func (f *Filter) Most() int { return orDefault(f.Limit, maxListed) }

func (f *Filter) invalid(field, format string, args ...any) error {
	return &APIError{RejectMalformed, field + ": " + fmt.Sprintf(format, args...)}
}

func joined(states []projector.State) string {
	words := make([]string, len(states))
	for i, s := range states {
		words[i] = string(s)
	}
	return strings.Join(words, ", ")
}

// Row is a run as lists show it. A session that cannot be folded is one row in
// StateUnreadable, and one that was erased one in StateErased, without a run.
type Row struct {
	projector.Summary
	Stuck bool         `json:"stuck,omitempty"` // nothing will wake it
	Cost  *events.Cost `json:"cost,omitempty"`  // as it is shown: no part of what a Lister keeps
}

// MarshalJSON implements json.Marshaler. A row without a run has nothing that only a
// run has.
func (r Row) MarshalJSON() ([]byte, error) {
	type run Row
	if r.Run != "" {
		return events.Marshal(run(r))
	}
	return events.Marshal(struct {
		Session string          `json:"session"`
		State   projector.State `json:"state"`
		Reason  string          `json:"reason,omitempty"`
	}{r.Session, r.State, r.Reason})
}

// Lister lists the runs of a namespace that match a filter: the newest admitted
// first, those of one moment by run from the last to the first. What it says may
// be a moment old.
type Lister interface {
	// List returns one page and, when there are more, what Filter.After of
	// the next one is. A run that exists throughout is in exactly one of the
	// pages, whatever is admitted meanwhile.
	List(ctx context.Context, namespace string, f Filter) (rows []Row, next string, err error)
}
