package projector

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/agentruntime/agentruntime/events"
)

// CheckpointVersion is the version of Checkpoint that this binary writes. A
// checkpoint of another version is not resumed.
const CheckpointVersion = 1

// Phase is where a run stands between two commits.
type Phase string

// The phases of a run.
const (
	PhaseModel     Phase = "model"     // at a model boundary: every call has its result
	PhaseCalls     Phase = "calls"     // a response is committed, its calls are not all settled
	PhaseCompleted Phase = "completed" // the reply is committed
)

// Checkpoint is the state of one run at one revision. With the context window
// it is all the loop needs to go on. It is a plain value: a host without a log
// may store it whole.
type Checkpoint struct {
	Version      int              `json:"version"`
	ContractHash string           `json:"contract_hash"`
	Revision     uint64           `json:"revision"` // starts at 1, advances by one with every commit
	Phase        Phase            `json:"phase"`
	Steps        int              `json:"steps"`           // model responses committed
	Calls        []events.Call    `json:"calls,omitempty"` // the journal of the newest response
	UsedCallIDs  []string         `json:"used_call_ids,omitempty"`
	Usage        events.Usage     `json:"usage"`
	Task         string           `json:"task,omitempty"`  // id of the message that the run began with
	Scale        int64            `json:"scale,omitempty"` // percent of its estimate that the newest request had as reported; 0: not known
	Guard        events.Guard     `json:"guard"`
	Reply        *events.Reply    `json:"reply,omitempty"`
	Append       []events.Message `json:"append,omitempty"` // what this commit adds to the transcript
}

// SuccessionError reports two checkpoints of which the second cannot be the
// next commit of the first.
type SuccessionError struct {
	From, To uint64 // revisions
	Reason   string
}

func (e *SuccessionError) Error() string {
	return fmt.Sprintf("a checkpoint of revision %d cannot follow revision %d: %s", e.To, e.From, e.Reason)
}

// Diff returns what turns old into next, in size proportional to the change.
// Old is nil for a run's first checkpoint. Next must be a successor: one
// revision on, with every used call id of old, a version, a contract and a
// phase, of a run that has no reply yet.
func Diff(old, next *Checkpoint) (events.CheckpointDelta, error) {
	if old == nil {
		old = &Checkpoint{}
	}
	refuse := func(reason string) (events.CheckpointDelta, error) {
		return events.CheckpointDelta{}, &SuccessionError{old.Revision, next.Revision, reason}
	}
	if next.Revision != old.Revision+1 {
		return refuse("revisions advance by one")
	}
	if !extends(old.UsedCallIDs, next.UsedCallIDs) {
		return refuse("used call ids are never given up")
	}
	if next.Task == "" && old.Task != "" || next.Scale == 0 && old.Scale != 0 {
		return refuse("task and scale are never given up")
	}
	if next.Version == 0 && old.Version != 0 || next.ContractHash == "" && old.ContractHash != "" || next.Phase == "" && old.Phase != "" {
		return refuse("version, contract and phase are never given up")
	}
	if old.Reply != nil {
		return refuse("the run has completed")
	}
	d := events.CheckpointDelta{
		Revision: next.Revision,
		Steps:    next.Steps - old.Steps,
		Append:   next.Append,
		UsedIDs:  next.UsedCallIDs[len(old.UsedCallIDs):],
		Usage:    subtract(next.Usage, old.Usage),
		Reply:    next.Reply,
	}
	if next.Version != old.Version {
		d.Version = next.Version
	}
	if next.ContractHash != old.ContractHash {
		d.Contract = next.ContractHash
	}
	if next.Phase != old.Phase {
		d.Phase = string(next.Phase)
	}
	if next.Task != old.Task {
		d.Task = next.Task
	}
	if next.Scale != old.Scale {
		d.Scale = next.Scale
	}
	if next.Guard != old.Guard {
		d.Guard = &next.Guard
	}
	if d.Settle = changes(old.Calls, next.Calls); d.Settle == nil && !sameCalls(old.Calls, next.Calls) {
		calls := withoutArguments(next.Calls, next.Append)
		d.Calls = &calls // never nil: an empty journal is a change too
	}
	return d, nil
}

// Apply returns the checkpoint that a delta makes of old. It is the inverse of
// Diff: Apply(old, Diff(old, next)) equals next. Old is not changed, but the
// memory behind its list of used call ids passes on to the result, so that a
// step costs the same however many came before: make one successor of it.
func Apply(old *Checkpoint, d *events.CheckpointDelta) *Checkpoint {
	next := &Checkpoint{}
	if old != nil {
		*next = *old
	}
	next.Revision = d.Revision
	next.Steps += d.Steps
	next.Append = d.Append
	next.UsedCallIDs = append(next.UsedCallIDs, d.UsedIDs...)
	next.Usage = next.Usage.Add(d.Usage)
	if d.Version != 0 {
		next.Version = d.Version
	}
	if d.Contract != "" {
		next.ContractHash = d.Contract
	}
	if d.Phase != "" {
		next.Phase = Phase(d.Phase)
	}
	if d.Task != "" {
		next.Task = d.Task
	}
	if d.Scale != 0 {
		next.Scale = d.Scale
	}
	if d.Guard != nil {
		next.Guard = *d.Guard
	}
	if d.Reply != nil {
		next.Reply = d.Reply
	}
	switch {
	case d.Calls != nil:
		next.Calls = withArguments(*d.Calls, d.Append)
	case len(d.Settle) > 0:
		next.Calls = slices.Clone(next.Calls)
		for _, c := range d.Settle {
			if 0 <= c.Index && c.Index < len(next.Calls) {
				next.Calls[c.Index].State, next.Calls[c.Index].Outcome = c.State, c.Outcome
			}
		}
	}
	return next
}

// extends reports whether next begins with old. Slices that share their memory,
// as those of consecutive checkpoints do, are not compared.
func extends(old, next []string) bool {
	if len(next) < len(old) {
		return false
	}
	return len(old) == 0 || &old[0] == &next[0] || slices.Equal(old, next[:len(old)])
}

func subtract(a, b events.Usage) events.Usage {
	return events.Usage{Input: a.Input - b.Input, Cached: a.Cached - b.Cached, Output: a.Output - b.Output, Reasoning: a.Reasoning - b.Reasoning}
}

// changes returns how the entries of one journal advanced, or nil when they
// did not or when next is the journal of another response.
func changes(old, next []events.Call) []events.CallChange {
	if len(old) != len(next) {
		return nil
	}
	var list []events.CallChange
	for i := range next {
		if old[i].ID != next[i].ID || old[i].Name != next[i].Name || old[i].Refusal != next[i].Refusal || !bytes.Equal(old[i].Arguments, next[i].Arguments) {
			return nil
		}
		if old[i].State != next[i].State || old[i].Outcome != next[i].Outcome {
			change := events.CallChange{Index: i, State: next[i].State, Outcome: next[i].Outcome}
			if change.State == events.CallDispatched {
				change.ID, change.Name = next[i].ID, next[i].Name
			}
			list = append(list, change)
		}
	}
	return list
}

func sameCalls(a, b []events.Call) bool {
	return slices.EqualFunc(a, b, func(x, y events.Call) bool {
		return x.ID == y.ID && x.Name == y.Name && x.State == y.State && x.Outcome == y.Outcome && x.Refusal == y.Refusal && bytes.Equal(x.Arguments, y.Arguments)
	})
}

// withoutArguments leaves out what the same commit appends to the transcript:
// the arguments of a new response's calls stand in its message.
func withoutArguments(calls []events.Call, appended []events.Message) []events.Call {
	bare := append([]events.Call{}, calls...)
	for i := range bare {
		if a := argumentsIn(appended, bare[i].ID); a != nil && bytes.Equal(a, bare[i].Arguments) {
			bare[i].Arguments = nil
		}
	}
	return bare
}

func withArguments(calls []events.Call, appended []events.Message) []events.Call {
	if len(calls) == 0 {
		return nil
	}
	whole := slices.Clone(calls)
	for i := range whole {
		if len(whole[i].Arguments) == 0 {
			whole[i].Arguments = argumentsIn(appended, whole[i].ID)
		}
	}
	return whole
}

func argumentsIn(appended []events.Message, id string) []byte {
	for i := range appended {
		for _, c := range appended[i].Calls() {
			if c.ID == id {
				return c.Arguments
			}
		}
	}
	return nil
}
