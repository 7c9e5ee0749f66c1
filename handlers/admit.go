package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime/schema"
)

// Reasons of a rejection: stable words for programs.
const (
	RejectMalformed   = "malformed"       // not a CloudEvent, or data that does not fit the command
	RejectUnknown     = "unknown_command" // no such command
	RejectNoAgent     = "unknown_agent"   // no such agent in the namespace
	RejectInput       = "invalid_input"   // the input does not fit the agent's schema, or an output or a result the capability's
	RejectConflict    = "id_conflict"     // the same source and id came before with other content
	RejectSession     = "session_exists"  // run.start on a session that has a run
	RejectNoSession   = "unknown_session" // run.continue on a session without runs
	RejectBusy        = "session_busy"    // the session's last run has not ended
	RejectChild       = "child_session"   // run.continue or run.retry on the session of a child
	RejectNoRun       = "unknown_run"     // no such run
	RejectEnded       = "run_ended"       // a message to a run that has ended
	RejectNotFailed   = "run_not_failed"  // run.retry of a run that has not failed, or is not its session's last
	RejectNoCall      = "unknown_call"    // call.settle of what is no deferred call of the run
	RejectSettled     = "call_settled"    // call.settle of a call that is not open any more
	RejectNotUnknown  = "not_unknown"     // call.resolve of a callback whose effect is not unknown
	RejectNoBudget    = "no_budget"       // budget.topup of a limit that the run does not have
	RejectDenied      = "denied"          // call.settle without the call's token, call.resolve over agent.cmd, or what the policy of the namespace does not allow
	RejectUnsupported = "unsupported"     // the definition asks for what this release does not do
)

// Rejection is a command that was not carried out. It is decided on what stands
// there: the same command sent again, once the session is free or the agent
// exists, is decided anew. What never changes is what an id that was accepted
// stands for.
type Rejection struct {
	Reason string
	Detail string
}

func (e *Rejection) Error() string { return e.Reason + ": " + e.Detail }

func reject(reason, format string, args ...any) error {
	return &Rejection{reason, fmt.Sprintf(format, args...)}
}

// Admission is the answer to a command: the run it started, now or before, or
// the run it is about.
type Admission struct {
	Run     string          `json:"run"`
	Session string          `json:"session"`
	Ended   projector.State `json:"ended,omitempty"` // how the run that was to be cancelled had ended already
}

// Admit carries out a command. The command's namespace, source and id identify
// it for ever: the same command again returns the same run, the same id with
// other content is a *Rejection. Any other error leaves open whether the command
// took effect; repeat it.
func (h *Host) Admit(ctx context.Context, namespace string, command *events.Event) (*Admission, error) {
	return h.admit(ctx, namespace, command, false)
}

// admit carries out a command. An operator may continue the session of a child;
// from anybody else only the child's parent may.
func (h *Host) admit(ctx context.Context, namespace string, command *events.Event, operator bool) (*Admission, error) {
	if err := events.CheckNamespace(namespace); err != nil {
		return nil, reject(RejectMalformed, "%v", err)
	}
	body, err := events.HashJSON(command.Data)
	if err != nil {
		return nil, reject(RejectMalformed, "the data is not JSON: %v", err)
	}
	a := &admission{host: h, namespace: namespace, command: command, operator: operator,
		cause: events.Cause{Source: command.Source, ID: command.ID, Body: body}}
	carry, ok := commands[command.Type]
	if !ok {
		known := slices.Sorted(maps.Keys(commands))
		return nil, reject(RejectUnknown, "type %q is no command; known are %s", command.Type, strings.Join(known, ", "))
	}
	admitted, err := carry(a, ctx)
	if erased := new(events.ErasedError); errors.As(err, &erased) {
		return nil, reject(RejectErased, "%v", erased)
	}
	return admitted, err
}

// commands holds what carries out each type of command.
var commands = map[string]func(*admission, context.Context) (*Admission, error){
	events.TypeFor[events.StartRun]().Name:    (*admission).start,
	events.TypeFor[events.ContinueRun]().Name: (*admission).resume,
	events.TypeFor[events.RetryRun]().Name:    (*admission).retry,
	events.TypeFor[events.CancelRun]().Name:   (*admission).cancel,
	events.TypeFor[events.MessageRun]().Name:  (*admission).tell,
	events.TypeFor[events.TopUpBudget]().Name: (*admission).topUp,
	events.TypeFor[events.SettleCall]().Name:  (*admission).settle,
	events.TypeFor[events.ResolveCall]().Name: (*admission).resolve,
}

// admission is one command on its way into the log.
type admission struct {
	host      *Host
	namespace string
	command   *events.Event
	cause     events.Cause
	operator  bool
	files     []events.Part // of the command, once they are stored
}

// derived is the session that the command's identity leads to. What happened to
// the command is recorded there, whichever session its run is in.
func (a *admission) derived() events.Key {
	return events.Key{Namespace: a.namespace, Session: events.SessionFor(a.namespace, a.cause.Source, a.cause.ID)}
}

func (a *admission) start(ctx context.Context) (*Admission, error) {
	var data events.StartRun
	if err := strict(a.command.Data, &data); err != nil {
		return nil, err
	}
	if data.Agent == "" {
		return nil, reject(RejectMalformed, "agent is missing")
	}
	if string(data.Input) == "null" {
		data.Input = nil
	}
	if (strings.TrimSpace(data.Message) == "") == (len(data.Input) == 0) {
		return nil, reject(RejectMalformed, "exactly one of message and input must be given, and say something")
	}
	if len(data.Input) > 0 && data.Input[0] != '{' {
		return nil, reject(RejectMalformed, "input must be a JSON object")
	}
	if err := errors.Join(checkLabels(data.Labels), checkFiles(data.Files)); err != nil {
		return nil, err
	}
	key := a.derived()
	if data.Session != "" {
		key.Session = data.Session
		if err := key.Check(); err != nil {
			return nil, reject(RejectMalformed, "%v", err)
		}
		if events.IsChildSession(key.Session) {
			return nil, reject(RejectChild, "session %s has the form of a child's; choose another id", key.Session)
		}
	}
	run := events.RunFor(a.namespace, key.Session, a.cause.Source, a.cause.ID)
	if err := a.accept(ctx, key, run, data.Session != ""); err != nil {
		return nil, err
	}
	return a.open(ctx, key, run, func(s *projector.Session) (*events.RunAdmitted, error) {
		if len(s.Runs) > 0 {
			return nil, reject(RejectSession, "session %s has a run already; send run.continue to go on with it", key.Session)
		}
		return a.prepare(ctx, key, data)
	})
}

func (a *admission) resume(ctx context.Context) (*Admission, error) {
	var data events.ContinueRun
	if err := strict(a.command.Data, &data); err != nil {
		return nil, err
	}
	if strings.TrimSpace(data.Message) == "" {
		return nil, reject(RejectMalformed, "message is missing")
	}
	if err := errors.Join(checkLabels(data.Labels), checkFiles(data.Files)); err != nil {
		return nil, err
	}
	key := events.Key{Namespace: a.namespace, Session: data.Session}
	if err := key.Check(); err != nil {
		return nil, reject(RejectMalformed, "%v", err)
	}
	run := events.RunFor(a.namespace, key.Session, a.cause.Source, a.cause.ID)
	if err := a.accept(ctx, key, run, true); err != nil {
		return nil, err
	}
	return a.open(ctx, key, run, func(s *projector.Session) (*events.RunAdmitted, error) {
		last, err := a.last(s, key)
		if err != nil {
			return nil, err
		}
		return a.follow(ctx, key, last, events.StartRun{Agent: last.Admitted.Agent, Message: data.Message, Files: data.Files, Labels: data.Labels})
	})
}

// last returns the run that a session is continued from.
func (a *admission) last(s *projector.Session, key events.Key) (*projector.Run, error) {
	last := s.Current()
	switch {
	case last == nil:
		return nil, reject(RejectNoSession, "session %s has no run to continue", key.Session)
	case !last.State.Terminal():
		return nil, reject(RejectBusy, "run %s of session %s has not ended", last.ID, key.Session)
	case events.IsChildSession(key.Session) && !a.operator:
		return nil, reject(RejectChild, "session %s is that of a child of run %s, which alone continues it; operators may, over agent.api", key.Session, s.Runs[0].Parent)
	}
	return last, nil
}

// retried is what a model is told when its run is driven again.
const retried = "The run before this one ended before the task was done (%s). Go on with the task from where it stands: what has a result above took effect and is not to be repeated; what is marked unknown is to be checked first."

func (a *admission) retry(ctx context.Context) (*Admission, error) {
	var data events.RetryRun
	if err := strict(a.command.Data, &data); err != nil {
		return nil, err
	}
	if err := checkLabels(data.Labels); err != nil {
		return nil, err
	}
	key, err := a.target(data.Run)
	if err != nil {
		return nil, err
	}
	run := events.RunFor(a.namespace, key.Session, a.cause.Source, a.cause.ID)
	if err := a.accept(ctx, key, run, true); err != nil {
		return nil, err
	}
	return a.open(ctx, key, run, func(s *projector.Session) (*events.RunAdmitted, error) {
		if s.Run(data.Run) == nil {
			return nil, reject(RejectNoRun, "there is no run %s in namespace %s", data.Run, a.namespace)
		}
		last, err := a.last(s, key)
		if err != nil {
			return nil, err
		}
		if last.ID != data.Run || last.State != projector.StateFailed {
			return nil, reject(RejectNotFailed, "only a failed run that is the last of its session is retried; the last run of session %s is %s, which has %s", key.Session, last.ID, last.State)
		}
		labels := data.Labels
		if labels == nil {
			labels = last.Admitted.Labels
		}
		admitted, err := a.follow(ctx, key, last, events.StartRun{Agent: last.Admitted.Agent, Message: fmt.Sprintf(retried, last.Reason), Labels: labels})
		if err == nil {
			admitted.Retries = last.ID
		}
		return admitted, err
	})
}

// target returns the session of the run that a command names.
func (a *admission) target(run string) (events.Key, error) {
	if run == "" {
		return events.Key{}, reject(RejectMalformed, "run is missing")
	}
	key, err := events.KeyOfRun(a.namespace, run)
	if err != nil {
		return key, reject(RejectMalformed, "%v", err)
	}
	return key, nil
}

// accept makes the command's identity final: the first content that came under
// it counts. A command whose run is in the derived session itself needs no
// record of its own; the run's admission is one.
func (a *admission) accept(ctx context.Context, key events.Key, run string, elsewhere bool) error {
	derived := a.derived()
	_, err := a.commit(ctx, derived, func(s *projector.Session) (*events.Event, error) {
		known, err := a.known(s)
		if err != nil || known || !elsewhere {
			return nil, err
		}
		return a.host.fact(derived, "", events.CommandAccepted{Cause: a.cause, Command: a.command.Type, Session: key.Session, Run: run})
	})
	return err
}

// unused refuses a command whose identity came before with other content. It
// records nothing, so that a command that is refused may be corrected.
func (a *admission) unused(ctx context.Context, key events.Key, run string) error {
	return a.accept(ctx, key, run, false)
}

// commit makes one opening fact of a session and returns the session's fold.
func (a *admission) commit(ctx context.Context, key events.Key, decide func(*projector.Session) (*events.Event, error)) (*projector.Session, error) {
	return a.host.openWith(ctx, key, decide)
}

// openWith makes one opening fact of a session and returns the session's fold.
// Who loses a race reads again and starts over. A refusal appends nothing that
// could be fenced, so it counts only when it was decided on what the log's
// leader knows.
func (h *Host) openWith(ctx context.Context, key events.Key, decide func(*projector.Session) (*events.Event, error)) (*projector.Session, error) {
	for latest := false; ; latest = true {
		s, _, err := h.load(ctx, key, 0)
		if latest {
			s, err = h.Latest(ctx, key)
		}
		if err != nil {
			return nil, err
		}
		refused := false
		_, err = h.appender().Commit(ctx, key, s, func() (*events.Event, error) {
			e, err := decide(s)
			refused = err != nil
			return e, err
		})
		if !errors.Is(err, events.ErrFenced) && (!refused || latest) {
			return s, err
		}
	}
}

func (a *admission) conflict() error {
	return reject(RejectConflict, "the command %s of source %s came before with other content", a.cause.ID, a.cause.Source)
}

// known reports whether the derived session records this command, and rejects
// the command when it records another one under the same identity.
func (a *admission) known(s *projector.Session) (bool, error) {
	if len(s.Accepts) > 0 {
		if first := s.Accepts[0]; first.Cause != a.cause || first.Command != a.command.Type {
			return false, a.conflict()
		}
		return true, nil
	}
	for _, r := range s.Runs {
		if c := r.Admitted.Cause; c.Source == a.cause.Source && c.ID == a.cause.ID {
			if c.Body != a.cause.Body {
				return false, a.conflict()
			}
			return true, nil
		}
	}
	return false, nil
}

// open admits the run, or finds the one this command admitted before.
func (a *admission) open(ctx context.Context, key events.Key, run string, decide func(*projector.Session) (*events.RunAdmitted, error)) (*Admission, error) {
	s, err := a.commit(ctx, key, func(s *projector.Session) (*events.Event, error) {
		if found := s.Run(run); found != nil {
			if found.Admitted.Cause != a.cause {
				return nil, a.conflict()
			}
			return nil, nil
		}
		if key == a.derived() {
			if _, err := a.known(s); err != nil {
				return nil, err
			}
		}
		admitted, err := decide(s)
		if err != nil {
			return nil, err
		}
		return a.fact(ctx, key, run, admitted)
	})
	if err != nil {
		return nil, err
	}
	a.host.hintSoon(ctx, s)
	return &Admission{Run: run, Session: key.Session}, nil
}

// hintSoon hints a session right after its admission: a run that was found is
// hinted again, since the first hint may be lost. The reaction to the admission
// sends one as well.
func (h *Host) hintSoon(ctx context.Context, s *projector.Session) {
	if err := h.hint(ctx, s); err != nil {
		h.Logger.Warn("a hint was not sent; the reaction to the admission sends it", "session", s.Key.String(), "error", err)
	}
}

// hint sends a hint for a session that a worker has to claim. While a claim is
// open its holder has a work item and sees whatever comes at its next commit;
// when it is gone the item comes again, or the sweep sends another.
func (h *Host) hint(ctx context.Context, s *projector.Session) error {
	if !s.Runnable() || s.At.Claim.Open {
		return nil
	}
	return h.Work.Publish(ctx, events.Hint{Key: s.Key, Sequence: s.At.Sequence})
}

// prepare resolves the agent's current version and the task.
func (a *admission) prepare(ctx context.Context, key events.Key, data events.StartRun) (*events.RunAdmitted, error) {
	if events.CheckSession(data.Agent) != nil {
		return nil, reject(RejectNoAgent, "%q can be no agent's name", bounded(data.Agent, maxNamed))
	}
	hash, err := a.host.Definitions.Latest(ctx, a.namespace, data.Agent)
	if errors.Is(err, events.ErrNotFound) {
		return nil, reject(RejectNoAgent, "namespace %s has no agent %q; apply it first", a.namespace, data.Agent)
	}
	if err != nil {
		return nil, err
	}
	p, err := a.host.plan(ctx, a.namespace, data.Agent, hash, nil)
	if err != nil {
		return nil, err
	}
	if err := a.host.policy().Version(a.namespace, &p.version.Agent, p.version.Capabilities, false); err != nil {
		return nil, reject(RejectDenied, "%s", oneLine(err))
	}
	text := data.Message
	if len(data.Input) > 0 {
		if text, err = inputMessage(&p.version.Agent, data.Input); err != nil {
			return nil, err
		}
	}
	files, err := a.store(ctx, key, data.Files)
	if err != nil {
		return nil, err
	}
	admitted := p.admit(text, a.host.Now())
	admitted.Message.Parts = append(admitted.Message.Parts, files...)
	admitted.Cause, admitted.Labels = a.cause, data.Labels
	admitted.Message.ID = "task-" + events.Derive(16, a.cause.Source, a.cause.ID)
	return admitted, nil
}

// inputMessage is the documented form of an input as a task: the input as JSON,
// as it came, after one line that says so.
func inputMessage(d *events.AgentDefinition, input json.RawMessage) (string, error) {
	if len(d.Input) > 0 {
		s, err := schema.Compile("agent "+d.Slug+" input", d.Input)
		if err != nil {
			return "", reject(RejectUnsupported, "%v", err)
		}
		if err := s.Validate(input); err != nil {
			return "", reject(RejectInput, "the input does not fit the schema of agent %s: %v", d.Slug, err)
		}
	}
	return "The task's input, as JSON:\n" + string(bytes.TrimSpace(input)), nil
}

func (a *admission) fact(ctx context.Context, key events.Key, run string, admitted *events.RunAdmitted) (*events.Event, error) {
	e, err := a.host.fact(key, run, *admitted)
	if err != nil {
		return nil, err
	}
	e.RootRun, e.CorrelationID, e.CausationID = run, a.command.ID, a.command.ID
	e.TraceParent, e.AuthType, e.AuthID = a.command.TraceParent, a.command.AuthType, a.command.AuthID
	return e, nil
}

// strict reads a command's data and refuses what the command does not have, and
// what lacks a member that the command requires.
func strict(data []byte, into any) error {
	if err := readStrict(data, into); err != nil {
		return reject(RejectMalformed, "the data does not fit the command: %v", err)
	}
	if missing := missingMember(data, into); missing != "" {
		return reject(RejectMalformed, "%s is missing", missing)
	}
	return nil
}

// Bounds of a command's labels: they are part of every public event that starts
// a run, and of every list.
const (
	maxLabels     = 64
	maxLabelBytes = 4 << 10 // of all names and values
)

func checkLabels(labels map[string]string) error {
	n := 0
	for name, value := range labels {
		n += len(name) + len(value)
	}
	if len(labels) > maxLabels || n > maxLabelBytes {
		return reject(RejectMalformed, "labels: at most %d with %d bytes in all, got %d with %d", maxLabels, maxLabelBytes, len(labels), n)
	}
	return nil
}
