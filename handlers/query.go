package handlers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// RunDetail is what is told of one run.
type RunDetail struct {
	projector.Summary
	Reply *events.Reply `json:"reply,omitempty"`
	Cost  *events.Cost  `json:"cost,omitempty"` // of the run alone, where the prices are known
	Error string        `json:"error,omitempty"`
	Note  string        `json:"note,omitempty"` // of a run under way, or parked: why it does not get on
}

// Notes tells what the holder of a session's lease notes for people.
type Notes interface {
	Note(ctx context.Context, key events.Key) (string, error)
}

// UnknownRunError is a run that the log does not have.
type UnknownRunError struct {
	Namespace, Run string
}

func (e *UnknownRunError) Error() string {
	return fmt.Sprintf("there is no run %s in namespace %s", e.Run, e.Namespace)
}

// GetRun returns one run as the log's leader knows it. A run that is not there is
// an *UnknownRunError.
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
		return nil, &UnknownRunError{namespace, run}
	}
	d := &RunDetail{Summary: h.summary(r), Cost: h.cost(r.Spent)}
	if r.Checkpoint != nil {
		d.Reply = h.redactReply(r.Checkpoint.Reply)
	}
	if r.Failed != nil {
		d.Error = r.Failed.Error
	}
	if r.State == projector.StateParked {
		d.Note = r.Wait.Note
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

// TreeNode is a run with those below it.
type TreeNode struct {
	projector.Summary
	CallID   string     `json:"call_id,omitempty"` // of its parent, that started it
	Error    string     `json:"error,omitempty"`
	Children []TreeNode `json:"children,omitempty"`

	Runs   int `json:"runs"`   // this one and those below it
	Active int `json:"active"` // of these, those that have not ended

	// Settled tells that neither the run nor anything below it is, or can
	// come to be, under way.
	Settled bool `json:"settled"`
}

// StateNotStarted stands in a tree for a call that was to start a run and has
// not, and StateNeverStarted for one that never will.
const (
	StateNotStarted   projector.State = "not_started"
	StateNeverStarted projector.State = "never_started"
)

// MaxTree is how many runs one answer about a tree holds; a brief answer counts
// more.
const (
	MaxTree  = 2000
	maxBrief = 100_000
)

// Tree returns a run and everything below it, as the log's leader knows it. A
// run that is not there is an *UnknownRunError.
func (h *Host) Tree(ctx context.Context, namespace, run string) (*TreeNode, error) {
	return h.tree(ctx, namespace, run, false)
}

// TreeCounts is Tree without the runs below, however many they are: their
// numbers only.
func (h *Host) TreeCounts(ctx context.Context, namespace, run string) (*TreeNode, error) {
	return h.tree(ctx, namespace, run, true)
}

func (h *Host) tree(ctx context.Context, namespace, run string, brief bool) (*TreeNode, error) {
	key, err := events.KeyOfRun(namespace, run)
	if err != nil {
		return nil, err
	}
	w := &treeWalk{host: h, namespace: namespace, slots: make(chan struct{}, treeReads), brief: brief}
	w.left.Store(MaxTree)
	if brief {
		w.left.Store(maxBrief)
	}
	n, err := w.node(ctx, &events.ChildCall{Run: run, Session: key.Session}, nil)
	if err == nil && n.State == StateNotStarted {
		return nil, &UnknownRunError{namespace, run}
	}
	return n, err
}

// treeReads is how many sessions of a tree are read at a time.
const treeReads = 16

// treeWalk reads one tree.
type treeWalk struct {
	host      *Host
	namespace string
	slots     chan struct{}
	left      atomic.Int64
	brief     bool
}

// node reads one run and those below it. A call that was dispatched and whose
// run is not there has settled only when the run cannot come any more: the
// parent has ended, and whoever still carries out the call finds it cancelled.
func (w *treeWalk) node(ctx context.Context, call *events.ChildCall, parent *projector.Run) (*TreeNode, error) {
	if w.left.Add(-1) < 0 {
		return nil, &APIError{RejectMalformed, fmt.Sprintf("the tree has more than %d runs; ask for one of the runs below, or for a brief answer", MaxTree)}
	}
	w.slots <- struct{}{}
	s, err := w.host.Latest(ctx, events.Key{Namespace: w.namespace, Session: call.Session})
	<-w.slots
	if errors.Is(err, events.ErrErased) && parent != nil {
		return &TreeNode{Summary: projector.Summary{Run: call.Run, Session: call.Session, Agent: call.Agent, State: StateErased}, CallID: call.CallID, Settled: true, Runs: 1}, nil
	}
	if err != nil {
		return nil, err
	}
	r := s.Run(call.Run)
	if r == nil {
		n := &TreeNode{Summary: projector.Summary{Run: call.Run, Session: call.Session, Agent: call.Agent, State: StateNotStarted}, CallID: call.CallID, Runs: 1, Active: 1}
		if parent != nil && parent.State.Terminal() && (s.EarlyCancel(call.Run) != nil || parent.State == projector.StateCompleted) {
			n.State, n.Settled, n.Runs, n.Active = StateNeverStarted, true, 0, 0
		}
		return n, nil
	}
	n := &TreeNode{Summary: w.host.summary(r), CallID: call.CallID, Settled: r.State.Terminal(), Runs: 1}
	if !n.Settled {
		n.Active = 1
	}
	if r.State != projector.StateCancelled {
		n.Error = errorOf(r)
	}
	return n, w.below(ctx, n, r)
}

// below adds the children of a run to its node, in their order.
func (w *treeWalk) below(ctx context.Context, n *TreeNode, r *projector.Run) error {
	nodes, errs := make([]*TreeNode, len(r.Children)), make([]error, len(r.Children))
	var reading sync.WaitGroup
	for i := range r.Children {
		reading.Go(func() { nodes[i], errs[i] = w.node(ctx, &r.Children[i].ChildCall, r) })
	}
	reading.Wait()
	if err := errors.Join(errs...); err != nil {
		return errs[slices.IndexFunc(errs, func(err error) bool { return err != nil })]
	}
	for _, child := range nodes {
		n.Runs += child.Runs
		n.Active += child.Active
		n.Settled = n.Settled && child.Settled
		if !w.brief {
			n.Children = append(n.Children, *child)
		}
	}
	return nil
}

// StateUnreadable stands in a list for a session that cannot be folded: it is
// damaged, or a newer release wrote to it.
const StateUnreadable projector.State = "unreadable"

// RunFacts returns the facts of a run's session that concern the run, from a
// sequence on.
func (h *Host) RunFacts(ctx context.Context, namespace, run string, after uint64, limit int) ([]events.Record, error) {
	key, err := events.KeyOfRun(namespace, run)
	if err != nil {
		return nil, err
	}
	h.Vault.forget(key) // nothing is folded that would tell of an erasure
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
