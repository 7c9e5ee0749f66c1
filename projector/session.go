package projector

import (
	"fmt"
	"slices"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

// FoldVersion changes whenever the same facts fold to something else. A
// snapshot of another version is not used.
const FoldVersion = 1

// UnknownFactError reports a fact that this binary must not decide over: the
// session is read-only until a newer binary carries it on.
type UnknownFactError struct {
	Key      events.Key
	Sequence uint64
	Type     string
}

func (e *UnknownFactError) Error() string {
	return fmt.Sprintf("session %s holds a fact of type %s at sequence %d, which this version does not know: upgrade the worker; until then it will not continue the session", e.Key, e.Type, e.Sequence)
}

// Session is the fold of one session. The zero value is a session without
// facts. Its exported fields are the snapshot; read them, change nothing.
type Session struct {
	Key     events.Key       `json:"key"`
	At      events.Tip       `json:"tip"`
	Window  []events.Message `json:"window,omitempty"`  // the context window
	Runs    []Run            `json:"runs,omitempty"`    // in order; only the last may not have ended
	Accepts []Accepted       `json:"accepts,omitempty"` // commands whose derived session this is
	Early   []EarlyCancel    `json:"early,omitempty"`   // of runs that are not admitted yet
}

// EarlyCancel is a cancellation that came before its run: whoever cancels a
// parent asks each of its children to stop, admitted or not.
type EarlyCancel struct {
	events.CancelRequested
	Run string `json:"run"`
}

// Accepted is a command that was accepted at this session's id.
type Accepted struct {
	events.CommandAccepted
	Sequence uint64 `json:"sequence"`
}

// State says where a run stands, in one word.
type State string

// The states of a run.
const (
	StatePending   State = "pending"   // admitted or released; a worker will claim it
	StateRunning   State = "running"   // claimed
	StateParked    State = "parked"    // waits for a dependency, a message or a deadline
	StateCompleted State = "completed" // has a reply
	StateFailed    State = "failed"
	StateCancelled State = "cancelled"
)

// Terminal reports whether a run in this state has ended.
func (s State) Terminal() bool {
	return s == StateCompleted || s == StateFailed || s == StateCancelled
}

// Run is what the facts say of one run.
type Run struct {
	ID            string             `json:"id"`
	Admitted      events.RunAdmitted `json:"admitted"`
	AdmittedAt    time.Time          `json:"admitted_at"`
	AdmittedSeq   uint64             `json:"admitted_seq"`
	Root          string             `json:"root"`
	Parent        string             `json:"parent,omitempty"`
	CorrelationID string             `json:"correlation_id,omitempty"`
	CausationID   string             `json:"causation_id,omitempty"`
	AuthType      string             `json:"auth_type,omitempty"`
	AuthID        string             `json:"auth_id,omitempty"`

	State      State       `json:"state"`
	Worker     string      `json:"worker,omitempty"` // of the newest claim
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	// Failures counts the claims that ended without a release and without a
	// commit since the checkpoint last advanced.
	Failures int               `json:"failures,omitempty"`
	Parked   *events.RunParked `json:"parked,omitempty"`
	Failed   *events.RunFailed `json:"failed,omitempty"`
	Reason   string            `json:"reason,omitempty"` // why it is parked, failed or cancelled
	EndedAt  time.Time         `json:"ended_at,omitzero"`
	EndedSeq uint64            `json:"ended_seq,omitempty"`

	// What external facts told the run, each fact id once.
	Seen     []string                 `json:"seen,omitempty"`
	Settled  []events.ChildSettled    `json:"settled,omitempty"` // the first per child
	Cancel   *events.CancelRequested  `json:"cancel,omitempty"`
	Messages []events.MessageReceived `json:"messages,omitempty"`
	Timers   []events.TimerFired      `json:"timers,omitempty"`
	Raised   uint64                   `json:"raised,omitempty"` // newest ledger revision told
}

// Tip implements events.State.
func (s *Session) Tip() events.Tip { return s.At }

// Current returns the newest run, or nil.
func (s *Session) Current() *Run {
	if len(s.Runs) == 0 {
		return nil
	}
	return &s.Runs[len(s.Runs)-1]
}

// Run returns the run with that id, or nil.
func (s *Session) Run(id string) *Run {
	for i := range s.Runs {
		if s.Runs[i].ID == id {
			return &s.Runs[i]
		}
	}
	return nil
}

// Runnable reports whether a worker has something to do: the newest run has
// not ended and is not parked for something that has not come.
func (s *Session) Runnable() bool {
	r := s.Current()
	if r == nil || r.State.Terminal() {
		return false
	}
	return r.State != StateParked || r.awake()
}

// awake reports whether a parked run has what it waits for. A time-out counts
// when its timer has fired: the fold has no clock.
func (r *Run) awake() bool {
	p := r.Parked
	if p == nil || r.Cancel != nil || p.Messages && len(r.Messages) > 0 {
		return true
	}
	if r.fired(p.CallID, p.Deadline) || r.fired("", r.Admitted.Deadline) {
		return true
	}
	settled := 0
	for _, child := range p.Dependencies {
		if slices.ContainsFunc(r.Settled, func(c events.ChildSettled) bool { return c.Child == child }) {
			settled++
		}
	}
	return len(p.Dependencies) > 0 && (settled == len(p.Dependencies) || p.Any && settled > 0)
}

// fired reports whether the timer of a wait, or of the run itself (no call), has
// fired for that very deadline: a late timer of an earlier wait is none.
func (r *Run) fired(call string, deadline *time.Time) bool {
	return deadline != nil && slices.ContainsFunc(r.Timers, func(t events.TimerFired) bool {
		return t.CallID == call && t.Deadline.Equal(*deadline)
	})
}

// Fold implements events.State: it advances the session over one fact. On an
// error the session is unchanged.
func (s *Session) Fold(r *events.Record) error {
	payload, err := r.Payload()
	// What anybody entitled may append unfenced must not stop a session: an
	// external fact whose data does not fit says nothing.
	silent := err != nil && events.TypeOf(r.Type).Kind == events.External
	if err != nil && !silent {
		return err
	}
	next := s.At
	if err := next.Advance(r); err != nil {
		return err
	}
	if payload == nil && !silent {
		return &UnknownFactError{events.Key{Namespace: r.Namespace, Session: r.Session}, r.Sequence, r.Type}
	}
	s.At = next
	s.Key = events.Key{Namespace: r.Namespace, Session: r.Session}
	if !silent {
		s.apply(r, payload)
	}
	return nil
}

// apply is the fold proper: one case for every fact of the codec table.
func (s *Session) apply(r *events.Record, payload any) {
	switch p := payload.(type) {
	case events.RunAdmitted:
		s.Runs = append(s.Runs, Run{ID: r.Run, Admitted: p, AdmittedAt: r.Time, AdmittedSeq: r.Sequence, Root: r.RootRun, Parent: r.ParentRun,
			CorrelationID: r.CorrelationID, CausationID: r.CausationID, AuthType: r.AuthType, AuthID: r.AuthID, State: StatePending, Cancel: s.cancelledEarly(r.Run)})
		return
	case events.CommandAccepted:
		s.Accepts = append(s.Accepts, Accepted{p, r.Sequence})
		return
	case events.CancelRequested:
		if s.Run(r.Run) == nil && s.early(r.Run) < 0 {
			s.Early = append(s.Early, EarlyCancel{p, r.Run})
		}
	}
	run := s.Current()
	if run == nil || run.ID != r.Run {
		return // a fact about a run that is not the current one changes nothing
	}
	switch p := payload.(type) {
	case events.RunClaimed:
		run.claimed(p)
	case events.CheckpointCommitted:
		s.advance(run, &p.Delta)
	case events.WindowCompacted:
		s.Window = p.Window
	case events.RunParked:
		run.State, run.Parked, run.Reason = StateParked, &p, p.Reason
	case events.RunReleased:
		run.State, run.Failures = StatePending, 0
	case events.RunCompleted:
		s.advance(run, &p.Delta)
		run.ended(StateCompleted, "", r)
	case events.RunFailed:
		run.Failed = &p
		s.closeCalls(run)
		run.ended(StateFailed, p.Reason, r)
	case events.RunCancelled:
		s.closeCalls(run)
		run.ended(StateCancelled, p.Reason, r)
	default:
		run.told(r.ID, payload)
	}
}

func (s *Session) early(run string) int {
	return slices.IndexFunc(s.Early, func(e EarlyCancel) bool { return e.Run == run })
}

// cancelledEarly hands over what was asked of a run before it was admitted.
func (s *Session) cancelledEarly(run string) *events.CancelRequested {
	i := s.early(run)
	if i < 0 {
		return nil
	}
	cancel := s.Early[i].CancelRequested
	s.Early = slices.Delete(s.Early, i, i+1)
	return &cancel
}

func (r *Run) claimed(p events.RunClaimed) {
	if r.State == StateRunning {
		r.Failures++
	}
	r.State, r.Worker, r.Parked, r.Reason = StateRunning, p.Worker, nil, ""
}

func (r *Run) ended(state State, reason string, rec *events.Record) {
	r.State, r.Reason, r.EndedAt, r.EndedSeq = state, reason, rec.Time, rec.Sequence
	r.Seen, r.Settled, r.Messages, r.Timers = nil, nil, nil, nil
}

// told applies an external fact to a run that has not ended, once per fact id.
func (r *Run) told(id string, payload any) {
	if r.State.Terminal() || slices.Contains(r.Seen, id) {
		return
	}
	r.Seen = append(r.Seen, id)
	switch p := payload.(type) {
	case events.ChildSettled:
		if !slices.ContainsFunc(r.Settled, func(c events.ChildSettled) bool { return c.Child == p.Child }) {
			r.Settled = append(r.Settled, p)
		}
	case events.CancelRequested:
		if r.Cancel == nil {
			r.Cancel = &p
		}
	case events.MessageReceived:
		r.Messages = append(r.Messages, p)
	case events.TimerFired:
		r.Timers = append(r.Timers, p)
	case events.BudgetRaised:
		r.Raised = max(r.Raised, p.Ledger)
	}
}

func (s *Session) advance(run *Run, d *events.CheckpointDelta) {
	run.Checkpoint = Apply(run.Checkpoint, d)
	run.Failures = 0
	s.Window = append(s.Window, d.Append...)
}

// closeCalls gives every call of an interrupted response its one result, so
// that the conversation can be continued: a call whose predispatch was
// committed is unknown, the others were skipped.
func (s *Session) closeCalls(run *Run) {
	c := run.Checkpoint
	if c == nil || c.Phase != PhaseCalls {
		return
	}
	for _, call := range c.Calls {
		switch call.State {
		case events.CallDispatched:
			s.Window = append(s.Window, ResultMessage(&call.ToolCall, events.OutcomeUnknown,
				"The run ended while this call was under way. Whether it took effect is not known. Check before you repeat it."))
		case events.CallPending:
			s.Window = append(s.Window, ResultMessage(&call.ToolCall, events.OutcomeSkipped, "The run ended before this call was made."))
		}
	}
}

// ResultMessage returns the transcript message of a call's one result. Its id
// derives from the call's: a call has one result.
func ResultMessage(call *events.ToolCall, outcome events.Outcome, text string) events.Message {
	return events.Message{ID: "result-" + call.ID, Role: events.RoleTool, Parts: []events.Part{{Type: events.PartToolResult,
		Result: &events.ToolResult{CallID: call.ID, Name: call.Name, Outcome: outcome, Parts: []events.Part{{Type: events.PartText, Text: text}}}}}}
}
