package projector

import (
	"time"

	"github.com/agentruntime/agentruntime/events"
)

// Summary is a run in one line, as lists show it.
type Summary struct {
	Run     string            `json:"run"`
	Session string            `json:"session"`
	Agent   string            `json:"agent"`
	State   State             `json:"state"`
	Reason  string            `json:"reason"`
	Parent  string            `json:"parent"`
	Root    string            `json:"root"`
	Started time.Time         `json:"started"`
	Ended   *time.Time        `json:"ended,omitempty"`
	Steps   int               `json:"steps"`
	Usage   events.Usage      `json:"usage"`
	Labels  map[string]string `json:"labels,omitempty"`
	Worker  string            `json:"worker,omitempty"`
}

// Summary returns the run in one line.
func (r *Run) Summary() Summary {
	session, _ := events.SessionOf(r.ID) // an admitted run's id was checked
	s := Summary{Run: r.ID, Session: session, Agent: r.Admitted.Agent, State: r.State, Reason: r.Reason, Parent: r.Parent, Root: r.Root,
		Started: r.AdmittedAt, Labels: r.Admitted.Labels, Worker: r.Worker}
	if !r.EndedAt.IsZero() {
		s.Ended = &r.EndedAt
	}
	if r.Checkpoint != nil {
		s.Steps, s.Usage = r.Checkpoint.Steps, r.Checkpoint.Usage
	}
	return s
}
