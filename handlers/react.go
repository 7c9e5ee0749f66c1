package handlers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// React does everything that follows from one fact, of which only the headers
// were delivered. Nil means that all of it is stored and the fact may be
// acknowledged. A repetition does the same again; public events keep their ids,
// and facts appended to other sessions say nothing new.
func (h *Host) React(ctx context.Context, fact *events.Event, at events.Position) error {
	key := events.Key{Namespace: fact.Namespace, Session: fact.Session}
	t := events.TypeOf(fact.Type)
	var follows bool
	switch t.Name {
	case typeErased:
		return h.dropKey(ctx, key)
	case typeAdmitted, typeParked, typeReleased, typeSwitched:
		follows = true
	default:
		follows = t.Kind == events.External || t.Ends || fact.Emits != ""
	}
	if !follows {
		return nil
	}
	// The session is folded at least up to the fact before anything is decided:
	// a hint that is not sent because the session looked idle would be a lost
	// one.
	err := h.folded(ctx, key, at.Sequence, func(s *followed) error { return h.follow(ctx, s, fact, t, at) })
	if errors.Is(err, events.ErrErased) {
		return nil // nothing follows any more from what nobody can read
	}
	if err != nil {
		return fmt.Errorf("react to %s at sequence %d of session %s: %w", fact.Type, at.Sequence, key, err)
	}
	return nil
}

var (
	typeAdmitted        = events.TypeFor[events.RunAdmitted]().Name
	typeClaimed         = events.TypeFor[events.RunClaimed]().Name
	typeParked          = events.TypeFor[events.RunParked]().Name
	typeSwitched        = events.TypeFor[events.ModelSwitched]().Name
	typeErased          = events.TypeFor[events.SessionErased]().Name
	typeFailed          = events.TypeFor[events.RunFailed]().Name
	typeCancelled       = events.TypeFor[events.RunCancelled]().Name
	typeReleased        = events.TypeFor[events.RunReleased]().Name
	typeCancelRequested = events.TypeFor[events.CancelRequested]().Name
)

// Fold calls use with a fold of a session, at least as far as a sequence. The
// fold is valid, and must not be changed, until use returns.
func (h *Host) Fold(ctx context.Context, key events.Key, atLeast uint64, use func(*projector.Session) error) error {
	return h.folded(ctx, key, atLeast, func(s *followed) error { return use(&s.Session) })
}

// followed is the reactions' own fold of a session.
type followed struct {
	projector.Session
	hinted uint64 // where the session stood when it was hinted
}

// hintOnce is hint, but once for each state of the session: what comes to a
// parent of many children in a herd is one reason to look at it.
func (h *Host) hintOnce(ctx context.Context, s *followed) error {
	if s.hinted == s.At.Sequence {
		return nil
	}
	if err := h.hint(ctx, &s.Session); err != nil {
		return err
	}
	s.hinted = s.At.Sequence
	return nil
}

// folded calls f with the reactions' own fold of a session, at least as far as a
// sequence, or as far as the log's leader knows when that is 0. The fold is
// kept: a parent of many children is read once and not once for each.
func (h *Host) folded(ctx context.Context, key events.Key, atLeast uint64, f func(*followed) error) error {
	return h.sessions.with(key, func(s *followed) error {
		if s.At.Sequence == 0 {
			s.Session = *h.restore(ctx, key)
		}
		var err error
		switch {
		case atLeast == 0:
			err = h.appender().LoadLatest(ctx, key, s)
		case s.At.Sequence < atLeast:
			err = h.appender().Load(ctx, key, s, atLeast)
		}
		if err != nil {
			return err
		}
		return f(s)
	})
}

// follow does what follows from a fact.
func (h *Host) follow(ctx context.Context, s *followed, fact *events.Event, t events.Type, at events.Position) error {
	list, err := h.publicEvents(ctx, &s.Session, fact, t, at)
	if err != nil {
		return err
	}
	for i := range list {
		if err := h.Public.Publish(ctx, &list[i], at); err != nil {
			return err
		}
	}
	if run := s.Run(fact.Run); run != nil {
		if err := h.followRun(ctx, &s.Session, run, t, at); err != nil {
			return err
		}
	}
	return h.hintOnce(ctx, s)
}

// followRun does what follows from a fact for others than the public: timers,
// the run's children, its parent.
func (h *Host) followRun(ctx context.Context, s *projector.Session, run *projector.Run, t events.Type, at events.Position) error {
	namespace := s.Key.Namespace
	ended := run.EndedSeq == at.Sequence
	switch {
	case t.Name == typeAdmitted && !ended:
		return h.armDeadline(ctx, namespace, run)
	case t.Name == typeParked && !run.State.Terminal():
		return h.armWait(ctx, namespace, run)
	case t.Name == typeCancelRequested && !run.State.Terminal():
		if err := h.Signals.Send(s.Key); err != nil {
			h.Logger.Warn("a signal was not sent; the worker sees the cancellation at its next commit", "run", run.ID, "error", err)
		}
		return h.stopChildren(ctx, namespace, run, "its parent was cancelled")
	case ended:
		return h.followEnd(ctx, namespace, run)
	}
	return nil
}

// followEnd does what follows from a run's end. One that has completed has no
// child left.
func (h *Host) followEnd(ctx context.Context, namespace string, run *projector.Run) error {
	if run.Admitted.Deadline != nil {
		if err := h.Timers.Disarm(ctx, Timer{Namespace: namespace, Run: run.ID}); err != nil {
			h.Logger.Debug("a timer was not disarmed; it says nothing when it fires", "run", run.ID, "error", err)
		}
	}
	if run.State != projector.StateCompleted {
		if err := h.stopChildren(ctx, namespace, run, "its parent ended: "+string(run.State)); err != nil {
			return err
		}
	}
	return h.tellParent(ctx, namespace, run)
}

// maxToldReply is the longest reply that a parent is told in the fact itself, in
// bytes. A longer one is read from the child's log by whoever needs it.
const maxToldReply = 4 << 10

// tellParent appends a child's end to its parent's session, unless it stands
// there, and hints the parent when it waits for that. Nothing is appended to a
// parent that has ended.
func (h *Host) tellParent(ctx context.Context, namespace string, child *projector.Run) error {
	if child.Parent == "" {
		return nil
	}
	key, err := events.KeyOfRun(namespace, child.Parent)
	if err != nil {
		return err
	}
	settled := events.ChildSettled{CallID: child.Admitted.Cause.ID, Child: child.ID, Outcome: string(child.State), Error: errorOf(child), Untrusted: child.Untrusted}
	if c := child.Checkpoint; c != nil && c.Reply != nil && len(c.Reply.Output)+len(c.Reply.Question) <= maxToldReply {
		settled.Reply = c.Reply
	}
	return h.folded(ctx, key, 0, func(s *followed) error {
		parent := s.Run(child.Parent)
		if parent == nil || parent.State.Terminal() {
			return nil
		}
		if c := parent.Child(settled.CallID); c != nil && c.Settled == nil {
			at, err := h.notifyAt(ctx, key, parent.ID, events.Derive(26, "settled", parent.ID, child.ID), settled)
			if err == nil {
				err = h.appender().Load(ctx, key, s, at)
			}
			if err != nil {
				return fmt.Errorf("tell run %s that its child %s has ended: %w", parent.ID, child.ID, err)
			}
		}
		return h.hintOnce(ctx, s)
	})
}

// publicEvents returns what the outside is told of a fact.
func (h *Host) publicEvents(ctx context.Context, s *projector.Session, fact *events.Event, t events.Type, at events.Position) ([]events.Event, error) {
	run := s.Run(fact.Run)
	if run == nil {
		return nil, nil
	}
	var list []events.Event
	add := func(payload any) error {
		e, err := h.public(run, fact, len(list), payload)
		list = append(list, e)
		return err
	}
	session := s.Key.Session
	if t.Name == typeAdmitted {
		if err := add(events.RunStartedData{Run: run.ID, Session: session, Agent: run.Admitted.Agent, Labels: h.redactLabels(run.Admitted.Labels)}); err != nil {
			return nil, err
		}
	}
	switch {
	case t.Name == typeParked, t.Name == typeClaimed, t.Name == typeSwitched:
		return list, h.addProgress(ctx, s.Key, run, at, add)
	case fact.Emits != "":
		if err := h.addDetails(ctx, s.Key, run, fact, at, add); err != nil {
			return nil, err
		}
	}
	if run.EndedSeq != at.Sequence {
		return list, nil
	}
	ended := events.RunFailedData{Run: run.ID, Session: session, Agent: run.Admitted.Agent, Reason: run.Reason, Cost: h.cost(run.Spent)}
	if c := run.Checkpoint; c != nil {
		ended.Usage, ended.Steps = c.Usage, c.Steps
	}
	switch run.State {
	case projector.StateCompleted:
		reply := h.redactReply(run.Checkpoint.Reply)
		return list, add(events.RunCompletedData{Run: run.ID, Session: session, Agent: ended.Agent, Reply: *reply, Usage: ended.Usage, Cost: ended.Cost, Steps: ended.Steps})
	case projector.StateFailed:
		ended.Error = run.Failed.Error
		return list, add(ended)
	}
	return list, add(events.RunCancelledData(ended))
}

// addDetails adds what a checkpoint or a run's end says beyond its type: the
// model's text, and the calls that the definition wants to be told of.
func (h *Host) addDetails(ctx context.Context, key events.Key, run *projector.Run, fact *events.Event, at events.Position, add func(any) error) error {
	record, err := h.read(ctx, key, at.Sequence)
	if err != nil {
		return err
	}
	switch fact.Type {
	case typeFailed:
		p, err := events.PayloadOf[events.RunFailed](&record.Event)
		return errors.Join(err, h.addClosed(key, run, p.Calls, add))
	case typeCancelled:
		p, err := events.PayloadOf[events.RunCancelled](&record.Event)
		return errors.Join(err, h.addClosed(key, run, p.Calls, add))
	}
	committed, err := events.PayloadOf[events.CheckpointCommitted](&record.Event)
	if err != nil {
		return err
	}
	d := committed.Delta
	emits := strings.Split(fact.Emits, ",")
	if slices.Contains(emits, emitsText) {
		if err := add(events.RunTextData{Run: run.ID, Session: key.Session, Revision: d.Revision, Text: bounded(h.Redactor.Redact(saidIn(d.Append)), maxPublicText)}); err != nil {
			return err
		}
	}
	if !slices.Contains(emits, emitsCalls) {
		return nil
	}
	return h.addCalls(key, run, &d, add)
}

// readPause is the pause before a replica that lags behind is asked again.
const readPause = 2 * time.Millisecond

// read returns the fact at a sequence, which stands in the log.
func (h *Host) read(ctx context.Context, key events.Key, sequence uint64) (*events.Record, error) {
	for {
		records, err := h.Log.Read(ctx, key, sequence-1, 1)
		if err != nil {
			return nil, err
		}
		if len(records) == 1 && records[0].Sequence == sequence {
			return &records[0], nil
		}
		if err := h.Pause(ctx, readPause); err != nil {
			return nil, fmt.Errorf("read the fact at sequence %d: %w", sequence, err)
		}
	}
}

// addCalls tells of the calls a checkpoint dispatched and settled, without their
// arguments and results. Settled comes first: the next dispatch is part of the
// same commit.
func (h *Host) addCalls(key events.Key, run *projector.Run, d *events.CheckpointDelta, add func(any) error) error {
	wanted := func(name string) bool { return slices.Contains(run.Admitted.Events, name) }
	for _, m := range d.Append {
		for _, p := range m.Parts {
			if p.Result != nil && wanted("call_settled") {
				if err := add(events.CallSettledData{Run: run.ID, Session: key.Session, CallID: p.Result.CallID, Name: h.toolName(p.Result.Name), Outcome: p.Result.Outcome}); err != nil {
					return err
				}
			}
		}
	}
	if !wanted("call_dispatched") {
		return nil
	}
	for _, c := range dispatchedIn(run, d) {
		if err := add(events.CallDispatchedData{Run: run.ID, Session: key.Session, CallID: c.ID, Name: h.toolName(c.Name)}); err != nil {
			return err
		}
	}
	return nil
}

// closed returns the calls that a run's end gives their results, if its definition
// wants to be told of them.
func closed(run *projector.Run) []events.ClosedCall {
	if !slices.Contains(run.Admitted.Events, "call_settled") {
		return nil
	}
	return run.Closing()
}

// addClosed tells of the calls that a run's end settled.
func (h *Host) addClosed(key events.Key, run *projector.Run, calls []events.ClosedCall, add func(any) error) error {
	for _, c := range calls {
		if err := add(events.CallSettledData{Run: run.ID, Session: key.Session, CallID: c.ID, Name: h.toolName(c.Name), Outcome: c.Outcome}); err != nil {
			return err
		}
	}
	return nil
}

// dispatchedIn returns the calls whose predispatch is part of a delta. The
// names of calls of an earlier response of the run are found by their ids in
// its newest journal, or are gone with it.
func dispatchedIn(run *projector.Run, d *events.CheckpointDelta) []events.Call {
	var list []events.Call
	if d.Calls != nil {
		list = slices.DeleteFunc(slices.Clone(*d.Calls), func(c events.Call) bool { return c.State != events.CallDispatched })
	}
	for _, change := range d.Settle {
		if change.State == events.CallDispatched {
			list = append(list, events.Call{ToolCall: events.ToolCall{ID: change.ID, Name: change.Name}})
		}
	}
	return list
}

// Bounds of what the model writes into public events, in bytes.
const (
	maxPublicText = 256 << 10
	maxPublicName = 128
)

// toolName is a tool's name as the outside is told it: the model may have made
// it up.
func (h *Host) toolName(name string) string { return bounded(h.Redactor.Redact(name), maxPublicName) }

func (h *Host) redactLabels(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels))
	for name, value := range labels {
		out[h.Redactor.Redact(name)] = h.Redactor.Redact(value)
	}
	return out
}

func saidIn(appended []events.Message) string {
	var text strings.Builder
	for _, m := range appended {
		if m.Role != events.RoleAssistant {
			continue
		}
		for _, p := range m.Parts {
			if p.Type == events.PartText {
				text.WriteString(p.Text)
			}
		}
	}
	return text.String()
}

// public returns a public event about a run. Its id derives from the fact, so
// that a repetition is the same event.
func (h *Host) public(run *projector.Run, fact *events.Event, n int, payload any) (events.Event, error) {
	e, err := events.New(payload)
	if err != nil {
		return e, err
	}
	e.ID = events.Derive(26, "public", fact.Namespace, fact.Session, fact.ID, e.Type, strconv.Itoa(n))
	e.Source, e.Subject, e.Time = "/agentruntime", run.ID, fact.Time
	e.Namespace, e.Session, e.Run, e.RootRun, e.ParentRun = fact.Namespace, fact.Session, run.ID, run.Root, run.Parent
	e.CorrelationID, e.CausationID = h.Redactor.Redact(run.CorrelationID), fact.ID
	return e, nil
}
