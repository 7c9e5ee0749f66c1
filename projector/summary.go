package projector

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

// Summary is a run in one line, as lists show it.
type Summary struct {
	Run     string              `json:"run"`
	Session string              `json:"session"`
	Agent   string              `json:"agent"`
	State   State               `json:"state"`
	Reason  string              `json:"reason"`
	Parent  string              `json:"parent"`
	Root    string              `json:"root"`
	Started time.Time           `json:"started,omitzero"` // of a session that was erased it is not known
	Ended   *time.Time          `json:"ended,omitempty"`
	Steps   int                 `json:"steps"`
	Usage   events.Usage        `json:"usage"`
	Spent   []events.ModelUsage `json:"spent,omitempty"` // Usage by model
	Labels  map[string]string   `json:"labels,omitempty"`
	Worker  string              `json:"worker,omitempty"`
	Wake    string              `json:"wake,omitempty"`    // of a run that has not ended: what it goes on with
	Unknown int                 `json:"unknown,omitempty"` // callbacks whose effect is not known
}

// Summary returns the run in one line.
func (r *Run) Summary() Summary {
	session, _ := events.SessionOf(r.ID) // an admitted run's id was checked
	s := Summary{Run: r.ID, Session: session, Agent: r.Admitted.Agent, State: r.State, Reason: r.Reason, Parent: r.Parent, Root: r.Root,
		Started: r.AdmittedAt, Labels: r.Admitted.Labels, Worker: r.Worker, Spent: slices.Clone(r.Spent), Unknown: len(r.Unknown)}
	if !r.EndedAt.IsZero() {
		s.Ended = &r.EndedAt
	}
	if r.Checkpoint != nil {
		s.Steps, s.Usage = r.Checkpoint.Steps, r.Checkpoint.Usage
	}
	s.Wake = r.wake()
	return s
}

// wake says what a run that has not ended goes on with.
func (r *Run) wake() string {
	switch {
	case r.State.Terminal():
		return ""
	case r.State == StateRunning:
		return "its worker"
	case r.State == StatePending || r.awake():
		return "the next free worker"
	}
	var list []string
	if n := r.Wanted; n > 0 {
		list = append(list, fmt.Sprintf("%s (%d settled)", r.Wait.Awaits(n), n-r.Missing))
	}
	if r.Wait.Messages {
		list = append(list, "a message")
	}
	if r.Wait.Reason == events.ParkCall {
		list = append(list, fmt.Sprintf("the answer of %s to call %s", r.Wait.Capability, r.Wait.CallID))
	}
	if r.Wait.Reason == events.ParkBudget {
		list = append(list, fmt.Sprintf("a top-up of the %s of run %s", strings.ReplaceAll(r.Wait.Spent, "_", " "), r.Wait.Budget))
	}
	for _, d := range []*time.Time{r.Wait.Deadline, r.Admitted.Deadline} {
		if d != nil {
			list = append(list, "the time "+d.UTC().Format(time.RFC3339))
		}
	}
	return strings.Join(list, ", or ")
}
