package handlers

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/schema"
)

// A deferred call is made like any other. A service that answers it with exactly
// {"accepted": true} settles it later, by the command call.settle; the run parks
// meanwhile. What a call's end is, is a function of the fold: the first answer,
// otherwise the time-out. An answer may come before the park, since the service
// may be faster than the worker, and whatever became of the request: a result
// that is not made of the answer that counted is not committed.

// isAcceptance reports whether an answer, as it came, says that the call is
// settled later.
func isAcceptance(answer json.RawMessage) bool {
	var said map[string]json.RawMessage
	if err := json.Unmarshal(answer, &said); err != nil || len(said) != 1 {
		return false
	}
	return string(said["accepted"]) == "true"
}

// settleToken is what entitles to settle one call. It derives from a secret that
// only the log holds.
func settleToken(run *projector.Run, callID string) string {
	return events.Derive(40, "settle", run.Admitted.SettleKey, run.ID, callID)
}

// withoutSettleKey returns a fact as people may see it.
func withoutSettleKey(e events.Event) events.Event {
	if e.Type != typeAdmitted {
		return e
	}
	var data map[string]json.RawMessage
	if json.Unmarshal(e.Data, &data) != nil || data["settle_key"] == nil {
		return e
	}
	delete(data, "settle_key")
	if shown, err := events.Marshal(data); err == nil {
		e.Data = shown
	}
	return e
}

// Recall implements runtime.Recaller: what the log knows of a deferred call.
func (b *backend) Recall(ctx context.Context, c *runtime.Callback) (json.RawMessage, bool, error) {
	run := b.store.session.Run(b.store.run)
	if !c.Capability.Deferred || (run.Answer == nil || run.Answer.CallID != c.CallID) && !awaits(run, c.CallID) {
		return nil, false, nil
	}
	output, err := b.await(ctx, c)
	return output, true, err
}

// awaits reports whether the run has parked for the answer to a call.
func awaits(run *projector.Run, callID string) bool {
	return run.Wait != nil && run.Wait.Reason == events.ParkCall && run.Wait.CallID == callID
}

// await returns the answer to a call that its service has accepted, or parks the
// run until it comes.
func (b *backend) await(ctx context.Context, c *runtime.Callback) (json.RawMessage, error) {
	var deadline *time.Time
	if run := b.store.session.Run(b.store.run); awaits(run, c.CallID) {
		deadline = run.Wait.Deadline
	} else if within, err := time.ParseDuration(c.Capability.SettleWithin); err == nil {
		at := b.host.Now().Add(within).UTC()
		deadline = &at
	}
	whole, err := b.store.whole(ctx)
	if err == nil {
		err = b.meter.settle(whole)
	}
	if err != nil {
		return nil, fatal(err)
	}
	var answer *events.CallAnswered
	err = b.store.park(ctx, func() (*events.RunParked, error) {
		run := b.store.session.Run(b.store.run)
		answer = nil
		switch {
		case run.Answer != nil && run.Answer.CallID == c.CallID:
			answer = run.Answer
			return nil, nil
		case awaits(run, c.CallID) && run.Timer != nil:
			return nil, nil
		}
		return &events.RunParked{CallID: c.CallID, Reason: events.ParkCall, Capability: c.Capability.Name, Deadline: deadline}, nil
	})
	if answer != nil {
		b.store.heard = answer.ID
	}
	switch {
	case err != nil:
		return nil, fatalWait(err)
	case answer == nil:
		why, advice := fmt.Sprintf("%s accepted the call and did not answer by %s", c.Capability.Name, deadline.Format(time.RFC3339)), ""
		if c.Capability.Effect != events.EffectRead {
			advice = ": first find out, by reading, what is there"
		}
		return nil, &runtime.CallbackError{Outcome: events.OutcomeUnknown, Why: why,
			Err: errors.New(why + ", and an answer that comes now is not heard; " + doubt(c.Capability) + advice)}
	case answer.Error != "":
		return nil, fmt.Errorf("%s failed: %s", c.Capability.Name, b.host.Redactor.Redact(answer.Error))
	}
	if err := b.attach(ctx, c, answer.Files); err != nil {
		return nil, fmt.Errorf("%s was carried out, but its files cannot be taken: %s", c.Capability.Name, b.host.Redactor.Redact(err.Error()))
	}
	return runtime.RedactJSON(b.host.Redactor, answer.Output), nil
}

// checkExposure checks who may call a capability, and how.
func checkExposure(c *events.Capability, wrong func(field, format string, args ...any)) {
	switch c.Expose {
	case "", events.ExposeScript, events.ExposeTool, events.ExposeBoth:
	default:
		wrong("expose", "%q is none of script, tool, both", c.Expose)
	}
	if c.IsTool() && len(c.Input) > 0 && !runtime.IsToolInput(c.Input) {
		wrong("input", "must have the type object, since the capability is exposed as a tool")
	}
	if c.Deferred && c.Expose != events.ExposeTool {
		wrong("deferred", "needs expose: tool; a script cannot be parked")
	}
	if m := c.Route.MCP; c.Deferred && m != nil && !m.Structured {
		wrong("deferred", "needs a tool with an output schema: the answer of any other MCP tool is a list of content, and never {\"accepted\": true}")
	}
	if !isDuration(c.SettleWithin) {
		wrong("settle_within", "%q must be a positive duration such as 24h", c.SettleWithin)
	}
	if c.SettleWithin != "" && !c.Deferred {
		wrong("settle_within", "is given for a capability that is not deferred")
	}
}

// settle takes the answer to a deferred call: from its service, which has the
// token, or from an operator. The first answer counts, one that is late or comes
// twice is refused, and the same command again is answered as it was.
func (a *admission) settle(ctx context.Context) (*Admission, error) {
	var data events.SettleCall
	if err := strict(a.command.Data, &data); err != nil {
		return nil, err
	}
	switch {
	case data.Call == "":
		return nil, reject(RejectMalformed, "call is missing")
	case (data.Error == "") == (len(data.Output) == 0):
		return nil, reject(RejectMalformed, "exactly one of output and error must be given")
	case len(data.Output) > MaxAnswer:
		return nil, reject(RejectMalformed, "the output has %d bytes, more than %d", len(data.Output), MaxAnswer)
	}
	key, err := a.target(data.Run)
	if err != nil {
		return nil, err
	}
	run, err := a.find(ctx, key, data.Run)
	if err != nil {
		return nil, err
	}
	if (!a.operator || given(a.command.Data, "token")) && !holdsToken(run, &data) {
		return nil, reject(RejectDenied, "call %s of run %s is settled only with the token that its request carried, and this is another one or none; operators may leave it out, over agent.api", bounded(data.Call, maxNamed), data.Run)
	}
	admitted := &Admission{Run: data.Run, Session: key.Session}
	id := events.Derive(26, "answer", a.cause.Source, a.cause.ID, a.cause.Body)
	if a.answered(run, data.Call, id) {
		return admitted, nil
	}
	if err := a.unused(ctx, key, data.Run); err != nil {
		return nil, err
	}
	capability, open, err := a.deferred(ctx, key, run, data.Call)
	if err != nil {
		return nil, err
	}
	if open {
		fact := events.CallAnswered{ID: id, CallID: data.Call, Error: bounded(a.host.Redactor.Redact(data.Error), maxErrorText), By: bounded(a.host.Redactor.Redact(a.cause.Source), maxNamed)}
		if len(data.Output) > 0 {
			if fact.Output, fact.Files, err = a.takeAnswer(ctx, key, capability, data.Output); err != nil {
				return nil, err
			}
		}
		if err := a.accept(ctx, key, data.Run, true); err != nil {
			return nil, err
		}
		if err := a.host.notify(ctx, key, data.Run, id, fact); err != nil {
			return nil, err
		}
		if run, err = a.find(ctx, key, data.Run); err != nil || a.answered(run, data.Call, id) {
			return admitted, err
		}
	}
	// Somebody else's answer, the time-out or the run's end was first; or the
	// answer counted, now or at an earlier delivery, and the run has gone on.
	counted, err := a.counted(ctx, key, data.Run, id)
	if err == nil && !counted {
		err = reject(RejectSettled, "call %s of run %s is not open: it was answered, timed out, or its run ended; this answer changes nothing", bounded(data.Call, maxNamed), data.Run)
	}
	return admitted, err
}

// holdsToken reports whether a command has the token of the call that it settles. A
// run without a secret has no tokens.
func holdsToken(run *projector.Run, data *events.SettleCall) bool {
	return run.Admitted.SettleKey != "" && subtle.ConstantTimeCompare([]byte(data.Token), []byte(settleToken(run, data.Call))) == 1
}

func (a *admission) answered(run *projector.Run, call, id string) bool {
	return run.Answer != nil && run.Answer.CallID == call && run.Answer.ID == id
}

// deferred returns the capability of a deferred call, and whether the call is open.
// What is no deferred call of the run is refused. Only one of the newest response
// of a run under way can be open; those before it are looked up in the log, so that
// the same command is refused for the same reason as long as there is the run.
func (a *admission) deferred(ctx context.Context, key events.Key, run *projector.Run, callID string) (*events.Capability, bool, error) {
	call, open := callOf(run, callID), !run.State.Terminal() && run.Answer == nil
	if call == nil {
		open = false
		var err error
		if call, err = a.earlierCall(ctx, key, run, callID); err != nil {
			return nil, false, err
		}
	}
	var capability *events.Capability
	if call != nil {
		v, err := a.host.admitted(ctx, a.namespace, run.ID, &run.Admitted)
		if err != nil && !(isUndefined(err) && !open) {
			return nil, false, err
		}
		if err != nil {
			return nil, false, nil // nobody can say any more what it was
		}
		capability = runtime.CapabilityTools(v.Subagents, v.Capabilities)[call.Name]
	}
	if capability == nil || !capability.Deferred {
		return nil, false, reject(RejectNoCall, "run %s has no deferred call %s", run.ID, bounded(callID, maxNamed))
	}
	return capability, open && call.State == events.CallDispatched, nil
}

// callOf returns a call of the newest response of a run, or nil.
func callOf(run *projector.Run, callID string) *events.Call {
	if run == nil || run.Checkpoint == nil {
		return nil
	}
	for i := range run.Checkpoint.Calls {
		if run.Checkpoint.Calls[i].ID == callID {
			return &run.Checkpoint.Calls[i]
		}
	}
	return nil
}

// earlierCall returns a call that a response of the run had before its newest one,
// or nil. The fold keeps no more than the ids of these, and once another run of the
// session has begun not even them.
func (a *admission) earlierCall(ctx context.Context, key events.Key, run *projector.Run, callID string) (*events.Call, error) {
	if c := run.Checkpoint; c == nil || !run.State.Terminal() && !slices.Contains(c.UsedCallIDs, callID) {
		return nil, nil
	}
	var call *events.Call
	err := a.refold(ctx, key, func(s *projector.Session, _ *events.Record) bool {
		call = callOf(s.Run(run.ID), callID)
		return call != nil
	})
	return call, err
}

// takeAnswer returns the output and the files of an answer as they are stored:
// redacted, and the files as objects of the session. It refuses what the run could
// not use.
func (a *admission) takeAnswer(ctx context.Context, key events.Key, c *events.Capability, answer json.RawMessage) (json.RawMessage, []AnsweredFile, error) {
	output, files, err := ReadAnswer(answer)
	if err != nil {
		return nil, nil, reject(RejectInput, "the files of the output cannot be taken: %v", err)
	}
	output = runtime.RedactJSON(a.host.Redactor, output)
	if err := fitsOutput(c, output); err != nil {
		return nil, nil, err
	}
	total := 0
	for i := range files {
		f := &files[i]
		if f.Ref != "" {
			if f.Data, err = a.host.given(ctx, key, f.Ref); gone(err) {
				return nil, nil, reject(RejectFile, "%s[%d]: %q is no stored file; store it with file.put", memberFiles, i, bounded(f.Ref, maxNamed))
			} else if err != nil {
				return nil, nil, fmt.Errorf("read the file %q of an answer: %w", f.Name, err)
			}
		}
		f.Data = runtime.RedactAttachment(a.host.Redactor, f.Name, f.MediaType, f.Data)
		if total += len(f.Data); len(f.Data) > runtime.MaxAttachment || total > runtime.MaxAttachmentBytes {
			return nil, nil, reject(RejectInput, "%s[%d]: a call attaches at most %d bytes in one file, and %d in all", memberFiles, i, runtime.MaxAttachment, runtime.MaxAttachmentBytes)
		}
	}
	for i := range files {
		f := &files[i]
		ref, err := a.host.objectsOf(key).Put(ctx, f.Data)
		if err != nil {
			return nil, nil, fmt.Errorf("store the file %q of an answer: %w", f.Name, err)
		}
		stored := runtime.NewFile(a.host.Redactor, ref, f.Name, f.MediaType, f.Data).File
		files[i] = AnsweredFile{Name: stored.Name, MediaType: stored.MediaType, Ref: ref}
	}
	return output, files, nil
}

// fitsOutput refuses an answer that the run could not use, while whoever gave it
// can still give another.
func fitsOutput(c *events.Capability, output json.RawMessage) error {
	if len(c.Output) == 0 {
		return nil
	}
	s, err := schema.Compile("capability "+c.Name+" output", c.Output)
	if err == nil {
		err = s.Validate(output)
	}
	if err != nil {
		return reject(RejectInput, "the output does not fit the schema of %s: %v", c.Name, err)
	}
	return nil
}

// accepted reports whether the command was accepted, now or at an earlier
// delivery: only then can a fact of it stand in the log.
func (a *admission) accepted(ctx context.Context) (bool, error) {
	s, err := a.host.Latest(ctx, a.derived())
	if err != nil {
		return false, err
	}
	return a.known(s)
}

// counted reports whether an answer was the first to its call while that was
// open. Of one that was accepted it reads the session up to the answer.
func (a *admission) counted(ctx context.Context, key events.Key, run, id string) (counted bool, err error) {
	if accepted, err := a.accepted(ctx); err != nil || !accepted {
		return false, err
	}
	err = a.refold(ctx, key, func(s *projector.Session, fact *events.Record) bool {
		if fact.ID != id {
			return false
		}
		r := s.Run(run)
		counted = r != nil && r.Answer != nil && r.Answer.ID == id
		return true
	})
	return counted, err
}

// refold folds a session from its first fact on and shows it after each, until it is
// told that this was enough.
func (a *admission) refold(ctx context.Context, key events.Key, enough func(s *projector.Session, fact *events.Record) bool) error {
	last, err := a.host.Log.Last(ctx, key)
	if err != nil {
		return err
	}
	for s := (&projector.Session{}); s.At.Sequence < last; {
		records, err := a.host.Log.Read(ctx, key, s.At.Sequence, events.MaxRead)
		if err == nil && len(records) == 0 {
			err = a.host.Pause(ctx, readPause)
		}
		if err != nil {
			return err
		}
		for i := range records {
			if err := s.Fold(&records[i]); err != nil {
				return err
			}
			if enough(s, &records[i]) {
				return nil
			}
		}
	}
	return nil
}

// OpenCallsAnswer is what call.list answers of open calls. Next, when there are
// more, is what CallsRequest.After of the next page is.
type OpenCallsAnswer struct {
	Calls []OpenCall `json:"calls"`

	Unreadable []string `json:"unreadable,omitempty"` // see CallsAnswer
	Next       string   `json:"next,omitempty"`
}

// OpenCall is a call that its service has accepted and not settled.
type OpenCall struct {
	Run        string          `json:"run"`
	Call       string          `json:"call"`
	Agent      string          `json:"agent"`
	Capability string          `json:"capability"`
	Input      json.RawMessage `json:"input,omitempty"`    // redacted; absent when longer than 16 KiB
	Deadline   *time.Time      `json:"deadline,omitempty"` // of the call or of its run, whichever comes first
}

// maxShownInput bounds the input of a call in a list, in bytes.
const maxShownInput = 16 << 10

// openCalls returns the deferred call that a run waits for, if it does.
func (h *Host) openCalls(ctx context.Context, namespace, run string) ([]OpenCall, error) {
	key, err := events.KeyOfRun(namespace, run)
	if err != nil {
		return nil, err
	}
	s, err := h.Latest(ctx, key)
	if err != nil {
		return nil, err
	}
	r := s.Run(run)
	switch {
	case r == nil:
		return nil, &UnknownRunError{namespace, run}
	case r.State != projector.StateParked || r.Wait.Reason != events.ParkCall || r.Answer != nil || r.Checkpoint == nil:
		return nil, nil
	}
	call := OpenCall{Run: run, Call: r.Wait.CallID, Agent: r.Admitted.Agent, Capability: r.Wait.Capability, Deadline: waitsUntil(r, r.Wait.Deadline)}
	for _, c := range r.Checkpoint.Calls {
		if c.ID == call.Call && len(c.Arguments) <= maxShownInput {
			call.Input = runtime.RedactJSON(h.Redactor, c.Arguments)
		}
	}
	return []OpenCall{call}, nil
}

// capability returns the capability that a call of the model's own is of, or nil.
func (s *store) capability(call *events.ToolCall) *events.Capability {
	if s.tools == nil {
		s.tools = runtime.CapabilityTools(s.version.Subagents, s.version.Capabilities)
	}
	return s.tools[call.Name]
}

// direct returns the predispatch of the capability that a checkpoint dispatches,
// or nil when it dispatches none.
func (s *store) direct(old, c *projector.Checkpoint) *events.CallbacksRecorded {
	for _, call := range callChanges(old, c) {
		if call.State != events.CallDispatched {
			continue
		}
		if made := s.capability(&call.ToolCall); made != nil {
			key := idempotencyKey(s.session.Key.Namespace, s.run, call.ID, 0)
			return &events.CallbacksRecorded{CallID: call.ID, Made: []events.CallbackMade{{Capability: made.Name, Effect: made.Effect, Key: key, Untrusted: made.Untrusted}}}
		}
	}
	return nil
}

// ignoresAnswer reports whether a checkpoint gives a deferred call another result
// than the answer that counted. Made again, the call is given that answer.
func (s *store) ignoresAnswer(run *projector.Run, c *projector.Checkpoint) bool {
	a := run.Answer
	return a != nil && a.ID != s.heard && slices.ContainsFunc(callChanges(run.Checkpoint, c), func(call events.Call) bool {
		made := s.capability(&call.ToolCall)
		return call.ID == a.CallID && call.State == events.CallSettled && made != nil && made.Deferred
	})
}
