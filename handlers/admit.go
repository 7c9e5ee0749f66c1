package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime/schema"
)

// Reasons of a rejection: stable words for programs.
const (
	RejectMalformed   = "malformed"       // not a CloudEvent, or data that does not fit the command
	RejectUnknown     = "unknown_command" // no such command
	RejectNoAgent     = "unknown_agent"   // no such agent in the namespace
	RejectInput       = "invalid_input"   // the input does not fit the agent's schema
	RejectConflict    = "id_conflict"     // the same source and id came before with other content
	RejectSession     = "session_exists"  // run.start on a session that has a run
	RejectNoSession   = "unknown_session" // run.continue on a session without runs
	RejectBusy        = "session_busy"    // the session's last run has not ended
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

// Admission is the answer to a command: the run it started, now or before.
type Admission struct {
	Run     string `json:"run"`
	Session string `json:"session"`
}

// Admit carries out a command. The command's namespace, source and id identify
// it for ever: the same command again returns the same run, the same id with
// other content is a *Rejection. Any other error leaves open whether the run
// was admitted; repeat the command.
func (h *Host) Admit(ctx context.Context, namespace string, command *events.Event) (*Admission, error) {
	if err := events.CheckNamespace(namespace); err != nil {
		return nil, reject(RejectMalformed, "%v", err)
	}
	body, err := events.HashJSON(command.Data)
	if err != nil {
		return nil, reject(RejectMalformed, "the data is not JSON: %v", err)
	}
	a := &admission{host: h, namespace: namespace, command: command,
		cause: events.Cause{Source: command.Source, ID: command.ID, Body: body}}
	switch command.Type {
	case events.TypeFor[events.StartRun]().Name:
		return a.start(ctx)
	case events.TypeFor[events.ContinueRun]().Name:
		return a.resume(ctx)
	}
	return nil, reject(RejectUnknown, "type %q is no command; known are %s and %s", command.Type, events.TypeFor[events.StartRun]().Name, events.TypeFor[events.ContinueRun]().Name)
}

// admission is one command on its way into the log.
type admission struct {
	host      *Host
	namespace string
	command   *events.Event
	cause     events.Cause
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
	if err := checkLabels(data.Labels); err != nil {
		return nil, err
	}
	key := a.derived()
	if data.Session != "" {
		key.Session = data.Session
		if err := key.Check(); err != nil {
			return nil, reject(RejectMalformed, "%v", err)
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
		return a.prepare(ctx, data)
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
	if err := checkLabels(data.Labels); err != nil {
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
		last := s.Current()
		switch {
		case last == nil:
			return nil, reject(RejectNoSession, "session %s has no run to continue", key.Session)
		case !last.State.Terminal():
			return nil, reject(RejectBusy, "run %s of session %s has not ended", last.ID, key.Session)
		}
		return a.prepare(ctx, events.StartRun{Agent: last.Admitted.Agent, Message: data.Message, Labels: data.Labels})
	})
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

// commit makes one opening fact of a session and returns the session's fold.
// Who loses a race reads again and starts over. A refusal appends nothing that
// could be fenced, so it counts only when it was decided on what the log's
// leader knows.
func (a *admission) commit(ctx context.Context, key events.Key, decide func(*projector.Session) (*events.Event, error)) (*projector.Session, error) {
	latest := false
	for {
		s, _, err := a.host.load(ctx, key, 0)
		if latest {
			s, err = a.host.Latest(ctx, key)
		}
		if err != nil {
			return nil, err
		}
		_, err = a.host.appender().Commit(ctx, key, s, func() (*events.Event, error) { return decide(s) })
		var refused *Rejection
		if !errors.Is(err, events.ErrFenced) && (!errors.As(err, &refused) || latest) {
			return s, err
		}
		latest = true
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
	// A run that was found is hinted again: the first hint may be lost.
	if err := a.host.hint(ctx, s); err != nil {
		a.host.Logger.Warn("a hint was not sent; the reaction to the admission sends it", "session", key.String(), "error", err)
	}
	return &Admission{Run: run, Session: key.Session}, nil
}

// hint sends a hint for a session that has something to do.
func (h *Host) hint(ctx context.Context, s *projector.Session) error {
	if !s.Runnable() {
		return nil
	}
	return h.Work.Publish(ctx, events.Hint{Key: s.Key, Sequence: s.At.Sequence})
}

// prepare resolves the agent's current version and the task.
func (a *admission) prepare(ctx context.Context, data events.StartRun) (*events.RunAdmitted, error) {
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
	v, err := a.host.version(ctx, a.namespace, hash)
	if err != nil {
		return nil, err
	}
	if err := Supported(&v.Agent); err != nil {
		return nil, err
	}
	contract, err := v.Contract()
	if err != nil {
		return nil, err
	}
	text := data.Message
	if len(data.Input) > 0 {
		if text, err = inputMessage(&v.Agent, data.Input); err != nil {
			return nil, err
		}
	}
	admitted := &events.RunAdmitted{Agent: data.Agent, Definition: hash, Contract: contract, Cause: a.cause,
		Message: events.Text("task-"+events.Derive(16, a.cause.Source, a.cause.ID), events.RoleUser, text), Labels: data.Labels, Events: v.Agent.Events}
	for _, c := range v.Capabilities {
		admitted.Capabilities = append(admitted.Capabilities, c.Name)
	}
	if v.Agent.Limits.Timeout != "" {
		timeout, err := time.ParseDuration(v.Agent.Limits.Timeout)
		if err != nil {
			return nil, reject(RejectUnsupported, "agent %s: limits.timeout: %v", v.Agent.Slug, err)
		}
		deadline := a.host.Now().Add(timeout).UTC()
		admitted.Deadline = &deadline
	}
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
	return e, a.host.offload(ctx, e)
}

// strict reads a command's data and refuses what the command does not have.
func strict(data []byte, into any) error {
	if err := readStrict(data, into); err != nil {
		return reject(RejectMalformed, "the data does not fit the command: %v", err)
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
