package projector

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agentruntime/agentruntime/events"
)

// Callback is one callback of a script: its predispatch and, once it is known,
// what became of it.
type Callback struct {
	events.CallbackMade
	Done *events.CallbackDone `json:"done,omitempty"`
}

// Changes reports whether a callback may change something: whatever is not
// declared as a read does.
func (c *Callback) Changes() bool { return c.Effect != events.EffectRead }

// Open reports whether nobody knows if a callback took effect. A read has no
// effect.
func (c *Callback) Open() bool {
	return c.Changes() && (c.Done == nil || c.Done.Outcome == events.OutcomeUnknown)
}

// UnknownCallback is a callback whose effect nobody knows, of a call that has
// its result.
type UnknownCallback struct {
	CallID   string `json:"call_id"`
	Callback        // its Done tells why nobody knows
	Direct   bool   `json:"direct,omitempty"` // the model called the capability itself: the callback is the call
}

// MaxUnknown is how many callbacks whose effect is unknown a session remembers;
// the oldest are forgotten first. The log keeps all of them.
const MaxUnknown = 64

// record adds to the journal of the script that is under way.
func (r *Run) record(p *events.CallbacksRecorded) {
	if !r.underWay(p.CallID) {
		return
	}
	if r.Script == nil || r.Script.CallID != p.CallID {
		r.Script = &Script{CallID: p.CallID}
	}
	r.Script.Record(p)
}

// InFlight reports whether a callback was sent of which nobody knows what became.
func (r *Run) InFlight() bool {
	return r.Script != nil && slices.ContainsFunc(r.Script.Callbacks, func(c Callback) bool { return c.Open() })
}

// underWay reports whether a call is dispatched and has no result.
func (r *Run) underWay(callID string) bool {
	return r.Checkpoint != nil && slices.ContainsFunc(r.Checkpoint.Calls, func(c events.Call) bool {
		return c.ID == callID && c.State == events.CallDispatched
	})
}

// closeScript forgets the journal of a script whose call has its result, or whose
// run has ended, but for what stays unknown. Who gave the call a known outcome
// knew what became of every callback, and recorded those that it did not know.
func (s *Session) closeScript(run *Run) {
	script := run.Script
	if script == nil || !run.State.Terminal() && run.underWay(script.CallID) {
		return
	}
	interrupted := run.State.Terminal()
	if c := run.Checkpoint; c != nil {
		interrupted = interrupted || slices.ContainsFunc(c.Calls, func(c events.Call) bool {
			return c.ID == script.CallID && c.Outcome == events.OutcomeUnknown
		})
	}
	for _, c := range script.Callbacks {
		if c.Open() && (interrupted || c.Done != nil && !script.Direct) && !run.answered(script.CallID) {
			if c.Done == nil {
				c.Done = &events.CallbackDone{Index: c.Index, Outcome: events.OutcomeUnknown, Text: run.whyOpen(script.CallID)}
			}
			if script.Direct {
				c.Input = run.arguments(script.CallID)
			}
			if len(c.Input) > maxKeptInput {
				c.InputHash, _ = events.HashJSON(c.Input)
				c.Input = nil
			}
			run.Unknown = append(run.Unknown, UnknownCallback{script.CallID, c, script.Direct})
		}
	}
	run.Script = nil
	s.boundUnknown()
}

// whyOpen says why nobody knows what a callback did of which the journal tells
// nothing: the run ended before an answer was stored, or the worker stopped.
func (r *Run) whyOpen(callID string) string {
	if !r.State.Terminal() {
		return "the worker that made it stopped before its answer was stored"
	}
	how := fmt.Sprintf("its run was %s", r.State)
	if r.State == StateFailed {
		how = "its run failed"
	}
	if r.Reason != "" {
		how += " (" + r.Reason + ")"
	}
	if r.Wait != nil && r.Wait.Reason == events.ParkCall && r.Wait.CallID == callID {
		return Cut("its service accepted it, and " + how + " before the answer came")
	}
	return Cut(how + " before an answer was stored")
}

// maxKeptInput is the largest input of an unknown callback that the fold keeps,
// in bytes.
const maxKeptInput = 1 << 10

// boundUnknown forgets the oldest unknown callbacks of the session beyond
// MaxUnknown.
func (s *Session) boundUnknown() {
	left := MaxUnknown
	for i := len(s.Runs) - 1; i >= 0; i-- {
		r := &s.Runs[i]
		if n := len(r.Unknown); n > left {
			r.Unknown = slices.Clone(r.Unknown[n-left:])
		}
		left -= len(r.Unknown)
	}
}

// resolved settles an unknown callback and tells the conversation of it: the run
// that is under way, at its next boundary, or else the run that comes next.
func (s *Session) resolved(runID string, p *events.CallResolved) {
	r := s.Run(runID)
	if r == nil {
		return
	}
	at := r.unknown(p.CallID, p.Index)
	if at < 0 {
		return
	}
	c := r.Unknown[at]
	if r.Unknown = slices.Delete(slices.Clone(r.Unknown), at, at+1); len(r.Unknown) == 0 {
		r.Unknown = nil
	}
	text := fmt.Sprintf("An operator found out about callback %d (%s) of call %s, whose effect was not known: ", p.Index+1, c.Capability, p.CallID)
	if c.Direct {
		text = fmt.Sprintf("An operator found out about call %s (%s), whose effect was not known: ", p.CallID, c.Capability)
	}
	switch {
	case p.As == events.ResolvedNotDone:
		text += "it did not take effect."
	case len(p.Result) > 0:
		text += "it took effect and returned " + string(p.Result)
	default:
		text += "it took effect."
	}
	message := events.Text("resolved-"+events.Derive(16, runID, p.CallID, fmt.Sprint(p.Index)), events.RoleUser, text)
	current := s.Current()
	current.Untrusted = current.Untrusted || c.Untrusted && len(p.Result) > 0
	if current.State.Terminal() {
		s.Window = append(s.Window, message)
	} else {
		current.Messages = append(current.Messages, message)
	}
}

func (r *Run) unknown(callID string, index int) int {
	return slices.IndexFunc(r.Unknown, func(c UnknownCallback) bool { return c.CallID == callID && c.Index == index })
}

// UnknownCallback returns the callback of a call whose effect is unknown, or nil.
func (r *Run) UnknownCallback(callID string, index int) *UnknownCallback {
	if at := r.unknown(callID, index); at >= 0 {
		return &r.Unknown[at]
	}
	return nil
}

// Closing returns the calls that have no result, with the outcomes that the end of
// the run, other than its completion, gives them now.
func (r *Run) Closing() []events.ClosedCall {
	c := r.Checkpoint
	if c == nil || c.Phase != PhaseCalls {
		return nil
	}
	var list []events.ClosedCall
	for _, call := range c.Calls {
		closed := events.ClosedCall{ID: call.ID, Name: call.Name}
		switch {
		case call.State == events.CallSettled:
			continue
		case call.State == events.CallPending, events.Redriven(call.Name):
			closed.Outcome = events.OutcomeSkipped
		case r.answered(call.ID):
			closed.Outcome = outcomeOf(r.Answer)
		default:
			closed.Outcome = r.interrupted(&call).Parts[0].Result.Outcome
		}
		list = append(list, closed)
	}
	return list
}

// closeCalls gives every call of an interrupted response its one result, so
// that the conversation can be continued: a call whose predispatch was
// committed and that is never made again is unknown, the others were skipped.
func (s *Session) closeCalls(run *Run) {
	c := run.Checkpoint
	if c == nil || c.Phase != PhaseCalls {
		return
	}
	for _, call := range c.Calls {
		switch {
		case call.State == events.CallDispatched && events.Redriven(call.Name):
			s.Window = append(s.Window, ResultMessage(&call.ToolCall, events.OutcomeSkipped,
				"The run ended while this call was under way. A child that it may have started was asked to stop."))
		case call.State == events.CallDispatched && run.answered(call.ID):
			s.Window = append(s.Window, run.answer(&call))
		case call.State == events.CallDispatched:
			message := run.interrupted(&call)
			run.Untrusted = run.Untrusted || message.Parts[0].Result.Untrusted
			s.Window = append(s.Window, message)
		case call.State == events.CallPending:
			s.Window = append(s.Window, ResultMessage(&call.ToolCall, events.OutcomeSkipped, "The run ended before this call was made."))
		}
	}
}

// interrupted is what is known of a call that was under way when its run ended.
func (r *Run) interrupted(call *events.Call) events.Message {
	var list []Callback
	script := r.Script
	if script != nil && script.CallID == call.ID {
		list = script.Callbacks
	}
	if call.Name == events.ToolRunJS {
		message := ResultMessage(&call.ToolCall, events.OutcomeUnknown, TellScript("The run ended while this script was under way.", list, MaxTold))
		result := message.Parts[0].Result
		result.Untrusted = slices.ContainsFunc(list, func(c Callback) bool { return c.Untrusted }) // it quotes them
		result.Parts = append(result.Parts, FilesOf(list)...)
		return message
	}
	if len(list) == 1 && list[0].Done != nil && list[0].Done.Outcome != events.OutcomeUnknown {
		kind, text := TellDirect(&list[0])
		message := ResultMessage(&call.ToolCall, kind, text)
		result := message.Parts[0].Result
		result.Untrusted, result.Parts = list[0].Untrusted, append(result.Parts, FilesOf(list)...)
		return message
	}
	if len(list) == 1 && !list[0].Changes() {
		return ResultMessage(&call.ToolCall, events.OutcomeUnknown, "The run ended while this call was under way. It changes nothing and may be made again.")
	}
	return ResultMessage(&call.ToolCall, events.OutcomeUnknown,
		"The run ended while this call was under way. Whether it took effect is not known. Check before you repeat it.")
}

// TellDirect returns the outcome of a call that the model made itself and whose
// result could not be committed, and what it is told of it.
func TellDirect(c *Callback) (events.Outcome, string) {
	switch d := c.Done; {
	case d.Outcome != events.OutcomeOK:
		return d.Outcome, d.Text
	case len(d.Result) > 0 && d.Attached == len(d.Files):
		return d.Outcome, string(d.Result)
	}
	return c.Done.Outcome, c.tell()
}

// tell says what became of one callback.
func (c *Callback) tell() string {
	d := c.Done
	if !c.Changes() && (d == nil || d.Outcome == events.OutcomeUnknown) {
		return "a read that was under way; it changes nothing and may be made again"
	}
	if d == nil {
		return "not known whether it took effect"
	}
	text, how := oneLine(d.Text), map[string]string{events.ResolvedAgain: "was sent again with the same key and ", events.ResolvedStatus: "as its service says it "}[d.Resolved]
	switch d.Outcome {
	case events.OutcomeUnknown:
		if text != "" {
			text = " (" + text + ")"
		}
		return "not known whether it took effect" + text
	case events.OutcomeOK:
		how += "finished"
		switch {
		case d.Size > 0:
			how += fmt.Sprintf("; its result has %d bytes and begins with %s", d.Size, text)
		case len(d.Result) > 0:
			how += " with " + oneLine(string(d.Result))
		}
		if d.Attached > len(d.Files) {
			how += fmt.Sprintf("; of its %d files %d were lost", d.Attached, d.Attached-len(d.Files))
		}
		return how
	case events.OutcomeSkipped:
		if how != "" {
			return how + "did not take effect"
		}
		return "not made: " + text
	}
	return how + "failed: " + text
}

// FilesOf returns the files that the answers of callbacks came with, as far as
// they were stored with the outcome.
func FilesOf(list []Callback) (parts []events.Part) {
	for _, c := range list {
		if c.Done == nil {
			continue
		}
		for i := range c.Done.Files {
			parts = append(parts, events.Part{Type: events.PartFile, File: &c.Done.Files[i]})
		}
	}
	return parts
}

// oneLine puts a text on one line.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, text)
}

// MaxResult is the largest result of a callback that its journal keeps whole, and
// the longest text, in bytes.
const MaxResult = 2 << 10

// Cut shortens a text to at most MaxResult bytes, between two characters.
func Cut(text string) string { return cutTo(text, MaxResult) }

func cutTo(text string, most int) string {
	if len(text) <= most {
		return text
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
