package handlers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// RunDetail is what is told of one run.
type RunDetail struct {
	projector.Summary
	Reply *events.Reply `json:"reply,omitempty"`
	Error string        `json:"error,omitempty"`
	Note  string        `json:"note,omitempty"` // of a run under way: why it does not get on
}

// Notes tells what the holder of a session's lease notes for people.
type Notes interface {
	Note(ctx context.Context, key events.Key) (string, error)
}

// GetRun returns one run as the log's leader knows it. An unknown run wraps
// events.ErrNotFound.
func (h *Host) GetRun(ctx context.Context, namespace, run string) (*RunDetail, error) {
	key, err := events.KeyOfRun(namespace, run)
	if err != nil {
		return nil, err
	}
	s, err := h.Latest(ctx, key)
	if err != nil {
		return nil, err
	}
	r := s.Run(run)
	if r == nil {
		return nil, fmt.Errorf("run %s in namespace %s: %w", run, namespace, events.ErrNotFound)
	}
	d := &RunDetail{Summary: h.summary(r)}
	if r.Checkpoint != nil {
		d.Reply = h.redactReply(r.Checkpoint.Reply)
	}
	if r.Failed != nil {
		d.Error = r.Failed.Error
	}
	return d, nil
}

// summary is a run in one line, without secrets.
func (h *Host) summary(r *projector.Run) projector.Summary {
	s := r.Summary()
	s.Labels = h.redactLabels(s.Labels)
	return s
}

// redactReply returns a reply as the outside is told it.
func (h *Host) redactReply(r *events.Reply) *events.Reply {
	if r == nil {
		return nil
	}
	return &events.Reply{Kind: r.Kind, Output: runtime.RedactJSON(h.Redactor, r.Output), Question: h.Redactor.Redact(r.Question)}
}

// StateUnreadable stands in a list for a session that cannot be folded: it is
// damaged, or a newer release wrote to it.
const StateUnreadable projector.State = "unreadable"

// ListRuns returns the runs of a namespace, the newest first. It reads every
// session of the namespace.
func (h *Host) ListRuns(ctx context.Context, sessions Sessions, namespace string, limit int) ([]projector.Summary, error) {
	list := []projector.Summary{}
	for key, err := range sessions.Sessions(ctx, namespace) {
		if err != nil {
			return nil, fmt.Errorf("list runs: %w", err)
		}
		s, _, err := h.load(ctx, key, 0)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, events.ErrUnanswered) {
				return nil, fmt.Errorf("list runs: %w", err)
			}
			list = append(list, projector.Summary{Session: key.Session, State: StateUnreadable, Reason: err.Error()})
			continue
		}
		for i := range s.Runs {
			list = append(list, h.summary(&s.Runs[i]))
		}
	}
	slices.SortFunc(list, func(a, b projector.Summary) int { return b.Started.Compare(a.Started) })
	if limit > 0 && len(list) > limit {
		list = list[:limit]
	}
	return list, nil
}

// RunFacts returns the facts of a run's session that concern the run, from a
// sequence on.
func (h *Host) RunFacts(ctx context.Context, namespace, run string, after uint64, limit int) ([]events.Record, error) {
	key, err := events.KeyOfRun(namespace, run)
	if err != nil {
		return nil, err
	}
	var list []events.Record
	for len(list) < limit {
		records, err := h.Log.Read(ctx, key, after, events.MaxRead)
		if err != nil {
			return nil, err
		}
		if len(records) == 0 {
			break
		}
		for _, r := range records {
			if after = r.Sequence; r.Run == run {
				list = append(list, r)
			}
		}
	}
	return list[:min(len(list), limit)], nil
}
