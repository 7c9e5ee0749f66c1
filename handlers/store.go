package handlers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// store is runtime.Store over the log, for one run under one claim.
type store struct {
	host    *Host
	session *projector.Session // the claim's own fold
	run     string
	claim   events.Claim
	version *Version
	since   int // commits since the last snapshot

	at      atomic.Uint64 // the fold's position, for whoever watches the log meanwhile
	judged  uint64        // the fold's position when a wait was last answered
	heard   string        // the answer to a deferred call that its result is made of
	telling []string      // calls whose child's end the result tells that is committed next
	failed  int           // see events.RunReleased

	disarmed         string      // the newest wait whose timer was taken back
	tellingUntrusted bool        // one of these children had read untrusted output
	untrusted        atomic.Bool // see projector.Run, for callbacks

	tools map[string]*events.Capability // see runtime.CapabilityTools; nil until it is asked

	dispatched map[string]bool // calls that may start a child and were dispatched under this claim

	lease      context.Context // of the claim
	progressed func()          // called after each commit
}

// whole returns the context under which an append is made: the lease's. What
// ends an attempt earlier (a cancellation, the run's deadline) is seen before
// the append and not in the middle of it, where it would leave open whether it
// stands.
func (s *store) whole(ctx context.Context) (context.Context, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if s.lease == nil {
		return ctx, nil
	}
	return s.lease, nil
}

var _ runtime.Store = (*store)(nil)

// Load implements runtime.SessionStore.
func (s *store) Load(context.Context) ([]events.Message, error) {
	return slices.Clone(s.session.Window), nil
}

// LoadCheckpoint implements runtime.Store. The fold was read when the claim was
// made, and only this claim's commits have advanced it.
func (s *store) LoadCheckpoint(context.Context) (*projector.Checkpoint, error) {
	r := s.session.Run(s.run)
	if r == nil || r.Checkpoint == nil {
		return nil, nil
	}
	c := *r.Checkpoint
	return &c, nil
}

// RevisionError reports a checkpoint that is not the successor of the stored
// one.
type RevisionError struct {
	Run             string
	Stored, Offered uint64
}

func (e *RevisionError) Error() string {
	return fmt.Sprintf("run %s stands at revision %d; revision %d is not its successor and was not stored", e.Run, e.Stored, e.Offered)
}

// errCancelled ends an attempt whose run was asked to stop.
var errCancelled = errors.New("the run was asked to stop")

// errReconsider ends an attempt whose decision was overtaken by what came into
// the log: it is made again at once.
var errReconsider = errors.New("something came that the decision depends on")

// SaveCheckpoint implements runtime.Store: one fact, holding what changed. The
// checkpoint that completes the run is the run's end.
func (s *store) SaveCheckpoint(ctx context.Context, c *projector.Checkpoint) error {
	ctx, err := s.whole(ctx)
	if err != nil {
		return err
	}
	r, err := s.commit(ctx, func() (*events.Event, error) {
		run := s.session.Run(s.run)
		stored := run.Checkpoint
		if stored != nil && stored.Revision == c.Revision && sameCheckpoint(stored, c) {
			return nil, nil // the identical committed revision
		}
		if stored != nil && c.Revision != stored.Revision+1 || stored == nil && c.Revision != 1 {
			var at uint64
			if stored != nil {
				at = stored.Revision
			}
			return nil, &RevisionError{s.run, at, c.Revision}
		}
		if run.Cancel != nil {
			return nil, errCancelled
		}
		if s.session.At.Sequence != s.judged && answersWait(stored, c) || s.ignoresAnswer(run, c) {
			return nil, errReconsider
		}
		delta, err := projector.Diff(stored, c)
		if err != nil {
			return nil, err
		}
		var payload any = events.CheckpointCommitted{Delta: delta, Opened: s.opened(stored, c), Told: s.telling, Untrusted: s.tellingUntrusted, Direct: s.direct(stored, c)}
		if c.Phase == projector.PhaseCompleted {
			payload = events.RunCompleted{Delta: delta}
		}
		e, err := s.host.fact(s.session.Key, s.run, payload)
		if err != nil {
			return nil, err
		}
		e.Revision = c.Revision
		e.Emits = s.emits(stored, c)
		return e, nil
	})
	if r != nil {
		s.telling, s.tellingUntrusted = nil, false
		s.noteDispatched(c)
	}
	return err
}

// noteDispatched remembers what this claim dispatched: nobody else can carry it
// out.
func (s *store) noteDispatched(c *projector.Checkpoint) {
	for _, call := range c.Calls {
		if _, _, ok := runtime.ChildOf(s.version.Subagents, &call.ToolCall); ok && call.State == events.CallDispatched {
			if s.dispatched == nil {
				s.dispatched = make(map[string]bool)
			}
			s.dispatched[call.ID] = true
		}
	}
}

// answersWait reports whether a checkpoint holds the answer of a wait: a function
// of the fold at the commit.
func answersWait(old, c *projector.Checkpoint) bool {
	return slices.ContainsFunc(callChanges(old, c), func(call events.Call) bool {
		return call.State == events.CallSettled && call.Outcome == events.OutcomeOK && runtime.IsWait(&call.ToolCall)
	})
}

// opened returns the calls that a checkpoint dispatches and that may start a
// child. Whoever cancels the run asks these children to stop, so a session that
// the model may only have made up is none of them.
func (s *store) opened(old, c *projector.Checkpoint) []events.ChildCall {
	var list []events.ChildCall
	for _, call := range callChanges(old, c) {
		if call.State != events.CallDispatched {
			continue
		}
		slug, session, ok := runtime.ChildOf(s.version.Subagents, &call.ToolCall)
		switch {
		case !ok:
			continue
		case slug != "":
			session = events.ChildSession(s.session.Key.Namespace, s.run, call.ID)
		default:
			if slug = agentOf(s.session, session); slug == "" {
				continue
			}
		}
		list = append(list, events.ChildCall{CallID: call.ID, Agent: slug, Session: session, Run: events.RunFor(s.session.Key.Namespace, session, s.run, call.ID)})
	}
	return list
}

// agentOf returns the agent of a child's session, or nothing for a session that
// is not that of a child.
func agentOf(s *projector.Session, session string) string {
	for i := range s.Runs {
		for _, c := range s.Runs[i].Children {
			if c.Session == session {
				return c.Agent
			}
		}
	}
	return ""
}

// park closes the claim with what decide returns, and returns an error that is
// runtime.ErrWaiting; it returns nil when decide finds nothing to wait for.
// Whatever came first is folded before it is asked again.
func (s *store) park(ctx context.Context, decide func() (*events.RunParked, error)) error {
	ctx, err := s.whole(ctx)
	if err != nil {
		return err
	}
	parked := false
	_, err = s.commit(ctx, func() (*events.Event, error) {
		parked = false
		if s.session.Run(s.run).Cancel != nil {
			return nil, errCancelled
		}
		s.judged = s.session.At.Sequence
		park, err := decide()
		if err != nil || park == nil {
			return nil, err
		}
		parked, park.Failed = true, s.failed
		return s.host.fact(s.session.Key, s.run, *park)
	})
	if err == nil && parked {
		err = runtime.ErrWaiting
	}
	return err
}

// sameCheckpoint compares two checkpoints as they are stored.
func sameCheckpoint(a, b *projector.Checkpoint) bool {
	x, err := events.Marshal(a)
	y, yErr := events.Marshal(b)
	return err == nil && yErr == nil && bytes.Equal(x, y)
}

// emits lists which public events follow from a checkpoint, so that reactions,
// which see headers only, need not fetch every fact.
func (s *store) emits(old, c *projector.Checkpoint) string {
	var list []string
	if slices.ContainsFunc(c.Append, saysSomething) {
		list = append(list, emitsText)
	}
	if len(s.session.Run(s.run).Admitted.Events) > 0 && len(callChanges(old, c)) > 0 {
		list = append(list, emitsCalls)
	}
	return strings.Join(list, ",")
}

// What a fact may emit beyond its type.
const (
	emitsText  = "text"
	emitsCalls = "calls"

	emitsProgress = "progress" // of a claim
)

func saysSomething(m events.Message) bool {
	return m.Role == events.RoleAssistant && slices.ContainsFunc(m.Parts, func(p events.Part) bool { return p.Type == events.PartText && p.Text != "" })
}

// callChanges returns the calls that a checkpoint dispatched or settled.
func callChanges(old, c *projector.Checkpoint) []events.Call {
	var before []events.Call
	if old != nil {
		before = old.Calls
	}
	var changed []events.Call
	for i, call := range c.Calls {
		if i >= len(before) || before[i].ID != call.ID || before[i].State != call.State {
			changed = append(changed, call)
		}
	}
	return changed
}

// Compact implements runtime.SessionStore.
func (s *store) Compact(ctx context.Context, window []events.Message) error {
	ctx, err := s.whole(ctx)
	if err != nil {
		return err
	}
	_, err = s.commit(ctx, func() (*events.Event, error) {
		if s.session.Run(s.run).Cancel != nil {
			return nil, errCancelled
		}
		return s.host.fact(s.session.Key, s.run, events.WindowCompacted{Window: window})
	})
	return err
}

// end commits the fact that closes the claim: a release, or the end of the run.
// payload is called with the run as it stands at the commit.
func (s *store) end(ctx context.Context, payload func(*projector.Run) any) error {
	_, err := s.commit(ctx, func() (*events.Event, error) {
		data := payload(s.session.Run(s.run))
		e, err := s.host.fact(s.session.Key, s.run, data)
		if err != nil {
			return nil, err
		}
		switch p := data.(type) {
		case events.RunFailed:
			e.Emits = emitsOf(p.Calls)
		case events.RunCancelled:
			e.Emits = emitsOf(p.Calls)
		}
		return e, nil
	})
	return err
}

// emitsOf lists which public events follow from a run's end besides its own.
func emitsOf(calls []events.ClosedCall) string {
	if len(calls) == 0 {
		return ""
	}
	return emitsCalls
}

// commit appends an owner fact of this claim.
func (s *store) commit(ctx context.Context, decide func() (*events.Event, error)) (*events.Record, error) {
	key := s.session.Key
	var pending *events.RunParked
	r, err := s.host.appender().Commit(ctx, key, s.session, func() (*events.Event, error) {
		e, err := decide()
		if e == nil || err != nil {
			return nil, err
		}
		run := s.session.Run(s.run)
		pending = timed(run)
		e.ClaimID, e.Epoch = s.claim.ID, s.claim.Epoch
		e.RootRun, e.ParentRun, e.CorrelationID = run.Root, run.Parent, run.CorrelationID
		return e, nil
	})
	s.at.Store(s.session.At.Sequence)
	s.untrusted.Store(s.session.Run(s.run).Untrusted)
	if err != nil || r == nil {
		return r, err
	}
	if s.progressed != nil {
		s.progressed()
	}
	s.disarm(ctx, pending)
	if s.since++; s.since >= SnapshotEvery {
		s.since = 0
		s.host.keep(ctx, s.session, s.session.At.Sequence == r.Sequence)
	}
	return r, nil
}
