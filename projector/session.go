package projector

import (
	"errors"
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
	Failures int `json:"failures,omitempty"`
	// Asked is the place in Admitted.Models of the model that the run asks.
	// Spent is what Checkpoint.Usage is made of, by model.
	Asked int                 `json:"asked,omitempty"`
	Spent []events.ModelUsage `json:"spent,omitempty"`

	// FailedRequests counts the model requests that the provider answered and
	// that led to no response, as far as claims told of them at their end.
	FailedRequests int `json:"failed_requests,omitempty"`

	Failed   *events.RunFailed `json:"failed,omitempty"`
	Reason   string            `json:"reason,omitempty"` // why it is parked, failed or cancelled
	EndedAt  time.Time         `json:"ended_at,omitzero"`
	EndedSeq uint64            `json:"ended_seq,omitempty"`

	// Untrusted tells that the conversation holds, or held, what a capability
	// answered whose output is not trusted: the run read it, or one before it in
	// the session, or a run that told this one its task or its end. Nothing takes
	// it back, no compaction either.
	Untrusted bool `json:"untrusted,omitempty"`

	Children []Child `json:"children,omitempty"` // of every call that may have started one, in the order of dispatch

	// Wait is the newest park. It outlives the claim that follows it: the
	// wait that is made again keeps its deadline.
	Wait    *events.RunParked  `json:"wait,omitempty"`
	Wanted  int                `json:"wanted,omitempty"`  // how many children Wait depends on
	Missing int                `json:"missing,omitempty"` // of these, those that have not settled
	Timer   *events.TimerFired `json:"timer,omitempty"`   // of Wait's deadline, once it has fired
	Expired bool               `json:"expired,omitempty"` // the run's own deadline has been told

	// What external facts told the run.
	Cancel   *events.CancelRequested `json:"cancel,omitempty"`
	Messages []events.Message        `json:"messages,omitempty"` // not yet delivered
	Heard    []string                `json:"heard,omitempty"`    // ids of all messages
	Raises   uint64                  `json:"raises,omitempty"`   // of the ledger, as far as told
	Answer   *events.CallAnswered    `json:"answer,omitempty"`   // to the deferred call that is open

	Script  *Script           `json:"script,omitempty"`  // the journal of the script, or of the capability called directly, that is under way
	Unknown []UnknownCallback `json:"unknown,omitempty"` // see MaxUnknown
}

// Child is a call that may have started a child run, and how that one ended.
type Child struct {
	events.ChildCall
	Settled *events.ChildSettled `json:"settled,omitempty"`
	Awaited bool                 `json:"awaited,omitempty"` // by Wait
	Told    bool                 `json:"told,omitempty"`    // the model has been told of its end
}

// Child returns the child that a call of the session's runs started, or nil.
func (s *Session) Child(callID string) *Child {
	for i := range s.Runs {
		if c := s.Runs[i].Child(callID); c != nil {
			return c
		}
	}
	return nil
}

// Child returns the child that a call of the run started, or nil.
func (r *Run) Child(callID string) *Child {
	for i := range r.Children {
		if r.Children[i].CallID == callID {
			return &r.Children[i]
		}
	}
	return nil
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
	return r.Cancel != nil || r.Expired || r.Satisfied()
}

// Satisfied reports whether the newest park has what it waits for, or has timed
// out.
func (r *Run) Satisfied() bool {
	w := r.Wait
	switch {
	case w == nil:
		return false
	case w.Reason == events.ParkBudget:
		return r.Raises > w.Raises
	case w.Reason == events.ParkCall && r.Answer != nil && r.Answer.CallID == w.CallID:
		return true
	case r.Timer != nil, w.Messages && len(r.Messages) > 0:
		return true
	}
	return r.Wanted > 0 && (r.Missing == 0 || w.Any && r.Missing < r.Wanted)
}

// Fold implements events.State: it advances the session over one fact. On an error
// the session is unchanged. The fact that erases a session is events.ErrErased.
func (s *Session) Fold(r *events.Record) error {
	payload, err := r.Payload()
	// What anybody entitled may append unfenced must not stop a session: an
	// external fact whose data does not fit says nothing.
	silent := err != nil && events.TypeOf(r.Type).Kind == events.External && !errors.Is(err, events.ErrSealed)
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
	if _, erased := payload.(events.SessionErased); erased {
		return &events.ErasedError{Key: events.Key{Namespace: r.Namespace, Session: r.Session}}
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
		untrusted := p.Untrusted
		if last := s.Current(); last != nil {
			last.trim()
			untrusted = untrusted || last.Untrusted
		}
		s.Runs = append(s.Runs, Run{ID: r.Run, Admitted: p, AdmittedAt: r.Time, AdmittedSeq: r.Sequence, Root: r.RootRun, Parent: r.ParentRun,
			CorrelationID: r.CorrelationID, CausationID: r.CausationID, AuthType: r.AuthType, AuthID: r.AuthID, State: StatePending, Untrusted: untrusted, Cancel: s.cancelledEarly(r.Run)})
		if p.Cancelled != nil {
			s.end(s.Current(), StateCancelled, p.Cancelled.Reason, r)
		}
		return
	case events.CommandAccepted:
		s.Accepts = append(s.Accepts, Accepted{p, r.Sequence})
		return
	case events.CallResolved:
		s.resolved(r.Run, &p)
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
		for _, c := range p.Opened {
			run.Children = append(run.Children, Child{ChildCall: c})
		}
		run.told(p.Told)
		run.Untrusted = run.Untrusted || p.Untrusted
		s.advance(run, &p.Delta)
		run.begin(p.Direct)
	case events.CallbacksRecorded:
		run.record(&p)
	case events.WindowCompacted:
		s.Window = p.Window
	case events.ModelSwitched:
		run.switched(p.To)
	case events.RunParked:
		run.parked(&p)
	case events.RunReleased:
		run.State, run.Failures = StatePending, 0
		run.FailedRequests += p.Failed
	case events.RunCompleted:
		s.advance(run, &p.Delta)
		s.end(run, StateCompleted, "", r)
	case events.RunFailed:
		p.Calls = nil
		run.Failed = &p
		s.end(run, StateFailed, p.Reason, r)
	case events.RunCancelled:
		s.end(run, StateCancelled, p.Reason, r)
	default:
		run.hear(payload)
	}
}

func (r *Run) claimed(p events.RunClaimed) {
	if r.State == StateRunning {
		r.Failures++
	}
	r.State, r.Worker, r.Reason = StateRunning, p.Worker, ""
}

// parked opens a wait, or goes on with the one of the same call.
func (r *Run) parked(p *events.RunParked) {
	if r.Wait == nil || r.Wait.CallID != p.CallID {
		r.Timer = nil
	}
	r.State, r.Wait, r.Reason = StateParked, p, p.Reason
	r.FailedRequests += p.Failed
	awaited := make(map[string]bool, len(p.Dependencies))
	for _, run := range p.Dependencies {
		awaited[run] = true
	}
	r.Wanted, r.Missing = len(awaited), len(awaited)
	for i := range r.Children {
		c := &r.Children[i]
		c.Awaited = awaited[c.Run]
		if c.Awaited && c.Settled != nil {
			r.Missing--
		}
	}
}

// end closes a run. What it did not get to say or hear stays in the
// conversation: the session may be continued.
func (s *Session) end(run *Run, state State, reason string, rec *events.Record) {
	if run.Checkpoint == nil {
		s.Window = append(s.Window, run.Admitted.Message)
	}
	s.closeCalls(run)
	s.Window = append(s.Window, run.Messages...)
	run.State, run.Reason, run.EndedAt, run.EndedSeq = state, reason, rec.Time, rec.Sequence
	s.closeScript(run)
	run.Wait, run.Wanted, run.Missing, run.Timer, run.Messages, run.Heard, run.Answer = nil, 0, 0, nil, nil, nil, nil
	for i := range run.Children {
		c := &run.Children[i]
		if c.Awaited = false; c.Settled != nil && c.Settled.Reply != nil {
			settled := *c.Settled
			settled.Reply = nil
			c.Settled = &settled
		}
	}
}

// Times reports whether a timer means something to the run: it is that of the
// newest wait, or, without a call, that of the run's own deadline. A late timer
// of an earlier wait is neither.
func (r *Run) Times(callID string, deadline time.Time) bool {
	d := r.Admitted.Deadline
	if callID != "" {
		if r.Wait == nil || r.Wait.CallID != callID {
			return false
		}
		d = r.Wait.Deadline
	}
	return d != nil && d.Equal(deadline)
}

// trim drops from a run that has ended what only a run under way, and the next
// commit, need: a session of many runs stays small.
func (r *Run) trim() {
	r.Admitted.Message.Parts = nil
	if r.Checkpoint != nil {
		c := *r.Checkpoint
		c.Calls, c.UsedCallIDs, c.Append = nil, nil, nil
		r.Checkpoint = &c
	}
}

// dispatched reports whether a call was made and has no result.
func (r *Run) dispatched(callID string) bool {
	return r.Checkpoint != nil && slices.ContainsFunc(r.Checkpoint.Calls, func(c events.Call) bool {
		return c.ID == callID && c.State == events.CallDispatched
	})
}

// told notes of which children's ends the model was told.
func (r *Run) told(calls []string) {
	if len(calls) == 0 {
		return
	}
	told := make(map[string]bool, len(calls))
	for _, id := range calls {
		told[id] = true
	}
	for i := range r.Children {
		if told[r.Children[i].CallID] {
			r.Children[i].Told = true
		}
	}
}

// hear applies an external fact to a run that has not ended.
func (r *Run) hear(payload any) {
	if r.State.Terminal() {
		return
	}
	switch p := payload.(type) {
	case events.ChildSettled:
		r.settled(&p)
	case events.CancelRequested:
		if r.Cancel == nil {
			r.Cancel = &p
		}
	case events.MessageReceived:
		if !slices.Contains(r.Heard, p.Message.ID) {
			r.Heard = append(r.Heard, p.Message.ID)
			r.Messages = append(r.Messages, p.Message)
		}
	case events.TimerFired:
		switch {
		case !r.Times(p.CallID, p.Deadline):
		case p.CallID == "":
			r.Expired = true
		default:
			r.Timer = &p
		}
	case events.BudgetRaised:
		r.Raises = max(r.Raises, p.Raises)
	case events.CallAnswered:
		if r.Answer == nil && r.dispatched(p.CallID) {
			r.Answer = &p
		}
	}
}

func (r *Run) settled(p *events.ChildSettled) {
	for i := range r.Children {
		c := &r.Children[i]
		if c.Run != p.Child {
			continue
		}
		if c.Settled == nil {
			c.Settled = p
			if c.Awaited {
				r.Missing--
			}
		}
		return
	}
}

func (s *Session) advance(run *Run, d *events.CheckpointDelta) {
	run.Checkpoint = Apply(run.Checkpoint, d)
	run.Failures = 0
	if run.Answer != nil && !run.dispatched(run.Answer.CallID) {
		run.Answer = nil
	}
	run.spend(d.Usage)
	run.Untrusted = run.Untrusted || slices.ContainsFunc(d.Append, isUntrusted)
	s.Window = append(s.Window, d.Append...)
	run.deliver(d.Append)
	run.unopened(d.Settle)
	s.closeScript(run)
}

// deliver forgets the messages that are part of the transcript now.
func (r *Run) deliver(appended []events.Message) {
	if len(r.Messages) > 0 {
		r.Messages = slices.DeleteFunc(slices.Clone(r.Messages), func(m events.Message) bool {
			return slices.ContainsFunc(appended, func(a events.Message) bool { return a.ID == m.ID })
		})
	}
}

// unopened forgets children whose call was refused: there is no run.
func (r *Run) unopened(changed []events.CallChange) {
	for _, c := range changed {
		if c.State != events.CallSettled || c.Outcome == events.OutcomeOK || c.Index < 0 || c.Index >= len(r.Checkpoint.Calls) {
			continue
		}
		id := r.Checkpoint.Calls[c.Index].ID
		r.Children = slices.DeleteFunc(r.Children, func(c Child) bool { return c.CallID == id })
	}
}
