package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// TreeLimits bound what one root run may grow into.
type TreeLimits struct {
	Depth int // generations below the root; DefaultDepth when zero
	Width int // calls of one run that start children; DefaultWidth when zero
}

// The defaults of TreeLimits.
const (
	DefaultDepth = 8
	DefaultWidth = 10_000
)

func (l TreeLimits) depth() int { return positiveOr(l.Depth, DefaultDepth) }
func (l TreeLimits) width() int { return positiveOr(l.Width, DefaultWidth) }

func positiveOr(n, def int) int {
	if n > 0 {
		return n
	}
	return def
}

// TreeError is a child that was not started because the tree is as large as it
// may be. It becomes the call's error.
type TreeError struct {
	What  string // depth or width
	Limit int
}

func (e *TreeError) Error() string {
	if e.What == "depth" {
		return fmt.Sprintf("not started: this run is %d generations below its root, and no run may be deeper; do the work yourself", e.Limit)
	}
	return fmt.Sprintf("not started: this run has made %d calls that start children, and may make no more", e.Limit)
}

// CallError is a call about children that cannot be carried out. It becomes the
// call's error.
type CallError struct {
	Call   string // the call or session it is about, empty when it is about none
	Reason string
}

func (e *CallError) Error() string {
	if e.Call == "" {
		return e.Reason
	}
	return fmt.Sprintf("%q: %s", e.Call, e.Reason)
}

// infrastructure stops the attempt instead of becoming a tool error: what failed
// was the service, and the call is made again.
type infrastructure struct{ error }

// FatalToolError implements runtime.FatalToolError.
func (*infrastructure) FatalToolError() {}

func (e *infrastructure) Unwrap() error { return e.error }

// fatal leaves the errors that the model is to read and makes the others stop
// the attempt.
func fatal(err error) error {
	var (
		tree   *TreeError
		call   *CallError
		denied *runtime.DeniedError
	)
	if err == nil || errors.As(err, &tree) || errors.As(err, &call) || errors.As(err, &denied) {
		return err
	}
	if errors.Is(err, events.ErrErased) {
		return &CallError{"", "the child's session was erased: nobody can read it or go on with it"}
	}
	return &infrastructure{err}
}

// Spawn implements runtime.Controller. The child's session and run derive from
// the parent run and the call, so that the same call finds the same child.
func (c *controller) Spawn(ctx context.Context, callID, slug string, input json.RawMessage) (*runtime.AgentRunInfo, error) {
	run := c.run()
	session := events.ChildSession(c.key().Namespace, run.ID, callID)
	body, err := causeBody(map[string]any{"agent": slug, "input": input})
	if err != nil {
		return nil, &CallError{callID, err.Error()}
	}
	return c.open(ctx, callID, session, body, func(s *projector.Session) (*events.RunAdmitted, error) {
		if len(s.Runs) > 0 {
			return nil, &CallError{callID, "the child's session is taken by another run"}
		}
		return c.child(ctx, slug, func(v *Version) (string, error) {
			if len(v.Agent.Input) > 0 {
				return inputMessage(&v.Agent, input)
			}
			var plain struct {
				Message string `json:"message"`
			}
			if err := json.Unmarshal(input, &plain); err != nil {
				return "", &CallError{"", err.Error()}
			}
			return plain.Message, nil
		})
	})
}

// Continue implements runtime.Controller: a new run in the session of a child of
// this session, once its last run has ended.
func (c *controller) Continue(ctx context.Context, callID, session, prompt string) (*runtime.AgentRunInfo, error) {
	if agentOf(c.store.session, session) == "" {
		return nil, &runtime.DeniedError{Reason: fmt.Sprintf("session %q is not that of a child of this session", bounded(session, maxNamed))}
	}
	body, err := causeBody(map[string]any{"session": session, "prompt": prompt})
	if err != nil {
		return nil, &CallError{callID, err.Error()}
	}
	return c.open(ctx, callID, session, body, func(s *projector.Session) (*events.RunAdmitted, error) {
		last := s.Current()
		switch {
		case last == nil:
			return nil, &CallError{session, "the session has no run to continue"}
		case !last.State.Terminal():
			return nil, &CallError{session, fmt.Sprintf("its run %s has not ended; wait for it or cancel it first", last.ID)}
		}
		return c.child(ctx, last.Admitted.Agent, func(*Version) (string, error) { return prompt, nil })
	})
}

// causeBody identifies a call's arguments, however they were written.
func causeBody(arguments map[string]any) (string, error) {
	data, err := events.Marshal(arguments)
	if err != nil {
		return "", err
	}
	return events.HashJSON(data)
}

// child prepares the admission of a child: its pinned version, the authority of
// this run cut to what the child's own definition names, and the task.
func (c *controller) child(ctx context.Context, slug string, task func(*Version) (string, error)) (*events.RunAdmitted, error) {
	// Decided with the admission: a child that an earlier claim has started is
	// there, and is not forgotten.
	if err := c.mayAct(); err != nil {
		return nil, err
	}
	run, limits := c.run(), c.limits
	if run.Admitted.Depth >= limits.depth() {
		return nil, &TreeError{"depth", limits.depth()}
	}
	if len(run.Children) > limits.width() {
		return nil, &TreeError{"width", limits.width()}
	}
	hash, ok := run.Admitted.Subagents[slug]
	if !ok {
		return nil, &runtime.DeniedError{Reason: fmt.Sprintf("agent %q is none that this run may start", slug)}
	}
	p, err := c.host.plan(ctx, c.key().Namespace, slug, hash, append([]string{}, run.Admitted.Capabilities...))
	if err != nil {
		return nil, asCallError(err)
	}
	if err := c.host.denied(c.host.policy().Version(c.key().Namespace, &p.version.Agent, p.version.Capabilities, true)); err != nil {
		return nil, err
	}
	text, err := task(p.version)
	if err != nil {
		return nil, asCallError(err)
	}
	a := p.admit(text, c.host.Now())
	a.Depth = run.Admitted.Depth + 1
	a.NoEgress, a.Untrusted = a.NoEgress || run.Admitted.NoEgress, run.Untrusted
	a.Metered = a.Metered || run.Admitted.Metered
	if p.version.Agent.OnBudget == "" {
		a.Hold = run.Admitted.Hold // what the tree's budget asks for
	}
	return a, nil
}

// asCallError makes a refusal one that the model reads.
func asCallError(err error) error {
	var refused *Rejection
	if errors.As(err, &refused) {
		return &CallError{"", refused.Detail}
	}
	return err
}

// open admits a run below this one, or finds the one that the same call
// admitted. A run that was asked to stop before it was there is admitted as
// cancelled.
func (c *controller) open(ctx context.Context, callID, session, body string, decide func(*projector.Session) (*events.RunAdmitted, error)) (*runtime.AgentRunInfo, error) {
	if err := c.hold.alive(); err != nil {
		return nil, err
	}
	ctx, err := c.store.whole(ctx)
	if err != nil {
		return nil, fatal(err)
	}
	parent := c.run()
	key := events.Key{Namespace: c.key().Namespace, Session: session}
	id := events.RunFor(key.Namespace, session, parent.ID, callID)
	cause := events.Cause{Source: parent.ID, ID: callID, Body: body}
	s, err := c.host.openWith(ctx, key, func(s *projector.Session) (*events.Event, error) {
		if found := s.Run(id); found != nil {
			if found.Admitted.Cause != cause {
				return nil, &CallError{callID, "the same call was made before with other arguments"}
			}
			return nil, nil
		}
		a, err := decide(s)
		if err != nil {
			return nil, err
		}
		a.Cause, a.Cancelled = cause, s.EarlyCancel(id)
		a.Message.ID = "task-" + events.Derive(16, parent.ID, callID)
		e, err := c.host.fact(key, id, *a)
		if err != nil {
			return nil, err
		}
		e.RootRun, e.ParentRun = parent.Root, parent.ID
		e.CorrelationID, e.CausationID = parent.CorrelationID, callID
		e.AuthType, e.AuthID = parent.AuthType, parent.AuthID
		return e, nil
	})
	if err != nil && !c.store.dispatched[callID] {
		s, err = c.refuse(ctx, key, id, cause, err)
	}
	if err != nil {
		return nil, fatal(err)
	}
	c.host.hintSoon(ctx, s)
	// The same call made again is answered with the same words, however far the
	// child has come meanwhile.
	return &runtime.AgentRunInfo{CallID: callID, Run: id, Session: session, Agent: s.Run(id).Admitted.Agent, State: "started"}, nil
}

// refuse settles that a call of an earlier claim starts nothing: the worker that
// had that claim may be alive and about to admit the run. It is asked to stop
// first, so that an admission that comes yet admits it as cancelled; one that
// was there before makes the refusal void.
func (c *controller) refuse(ctx context.Context, key events.Key, run string, cause events.Cause, refusal error) (*projector.Session, error) {
	var fatalError runtime.FatalToolError
	if refusal = fatal(refusal); errors.As(refusal, &fatalError) {
		return nil, refusal
	}
	child := events.ChildCall{CallID: cause.ID, Session: key.Session, Run: run}
	if err := c.host.askToStop(ctx, key.Namespace, cause.Source, &child, "its call was refused"); err != nil {
		return nil, err
	}
	s, err := c.host.Latest(ctx, key)
	if err != nil {
		return nil, err
	}
	if found := s.Run(run); found == nil || found.Admitted.Cause != cause {
		return nil, refusal
	}
	return s, nil
}

// describe is what a parent is told of a child.
func describe(r *projector.Run, callID string) runtime.AgentRunInfo {
	session, _ := events.SessionOf(r.ID) // an admitted run's id was checked
	info := runtime.AgentRunInfo{CallID: callID, Run: r.ID, Session: session, Agent: r.Admitted.Agent, State: string(r.State)}
	if r.Checkpoint != nil {
		info.Reply = r.Checkpoint.Reply
	}
	info.Error = errorOf(r)
	return info
}

// errorOf says why a run ended without a reply.
func errorOf(r *projector.Run) string {
	switch {
	case r.Failed != nil:
		return r.Failed.Reason + ": " + r.Failed.Error
	case r.State == projector.StateCancelled:
		return r.Reason
	}
	return ""
}

// owned finds the children that calls of this session started.
func (c *controller) owned(calls []string) ([]projector.Child, error) {
	if len(calls) > maxSettled {
		return nil, &CallError{"", fmt.Sprintf("%d calls are too many at a time: name at most %d", len(calls), maxSettled)}
	}
	var list []projector.Child
	for _, id := range calls {
		child := c.store.session.Child(id)
		if child == nil {
			return nil, &CallError{id, "is no call of this session that started a child"}
		}
		if !slices.ContainsFunc(list, func(o projector.Child) bool { return o.CallID == id }) {
			list = append(list, *child)
		}
	}
	return list, nil
}

// look reads a child's own log.
func (c *controller) look(ctx context.Context, child *projector.Child) (*projector.Run, error) {
	s, err := c.host.Latest(ctx, events.Key{Namespace: c.key().Namespace, Session: child.Session})
	if err != nil {
		return nil, err
	}
	return s.Run(child.Run), nil
}

// Get implements runtime.Controller.
func (c *controller) Get(ctx context.Context, calls []string) ([]runtime.AgentRunInfo, error) {
	return c.each(ctx, calls, func(context.Context, *projector.Child, *projector.Run) (string, error) { return "", nil })
}

// Cancel implements runtime.Controller. What is below the children is asked to
// stop by the reactions.
func (c *controller) Cancel(ctx context.Context, calls []string) ([]runtime.AgentRunInfo, error) {
	return c.each(ctx, calls, func(ctx context.Context, child *projector.Child, run *projector.Run) (string, error) {
		if run != nil && run.State.Terminal() {
			return "it had ended already, as " + string(run.State), nil
		}
		ctx, err := c.store.whole(ctx)
		if err != nil {
			return "", err
		}
		err = c.host.askToStop(ctx, c.key().Namespace, c.run().ID, &child.ChildCall, "cancelled by its parent")
		return "it was asked to stop", err
	})
}

// each does something for owned calls and tells where they stood before.
func (c *controller) each(ctx context.Context, calls []string, do func(context.Context, *projector.Child, *projector.Run) (string, error)) ([]runtime.AgentRunInfo, error) {
	if err := c.mayAct(); err != nil {
		return nil, err
	}
	list, err := c.owned(calls)
	if err != nil {
		return nil, err
	}
	infos := []runtime.AgentRunInfo{}
	c.store.telling, c.store.tellingUntrusted = nil, false
	for i := range list {
		run, err := c.look(ctx, &list[i])
		if err != nil {
			return nil, fatal(err)
		}
		note, err := do(ctx, &list[i], run)
		if err != nil {
			return nil, fatal(err)
		}
		info := runtime.AgentRunInfo{CallID: list[i].CallID, Run: list[i].Run, Session: list[i].Session, Agent: list[i].Agent, State: "not_started"}
		if run != nil {
			info = describe(run, list[i].CallID)
			c.store.tellingUntrusted = c.store.tellingUntrusted || run.Untrusted
		}
		info.Note = note
		infos = append(infos, info)
	}
	c.store.telling = trimAnswer(infos)
	return infos, nil
}

// Complete implements runtime.Controller. A child that this session has not been
// told of may have ended all the same: its own log decides.
func (c *controller) Complete(ctx context.Context, reply *events.Reply) error {
	if n := len(reply.Output) + len(reply.Question); n > MaxReply {
		return fmt.Errorf("the reply has %d bytes, more than %d; return less", n, MaxReply)
	}
	if err := c.mayAct(); err != nil {
		return err
	}
	var active []string
	for _, child := range c.run().Children {
		if child.Settled != nil {
			continue
		}
		run, err := c.look(ctx, &child)
		if err != nil {
			return fatal(err)
		}
		if run == nil || !run.State.Terminal() {
			active = append(active, child.CallID)
		}
	}
	if len(active) > 0 {
		return &CallError{"", fmt.Sprintf("not complete: children are active, by the calls %s; wait for them or cancel them first", strings.Join(active, ", "))}
	}
	whole, err := c.store.whole(ctx)
	if err == nil {
		err = c.meter.settle(whole)
	}
	if err != nil {
		return fatal(err)
	}
	return nil
}
