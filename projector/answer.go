package projector

import (
	"encoding/json"
	"fmt"

	"github.com/agentruntime/agentruntime/events"
)

// begin opens the journal of a capability that the model calls itself. It has one
// callback, which is the call, so that one whose effect stays unknown is kept and
// settled like those of scripts.
func (r *Run) begin(p *events.CallbacksRecorded) {
	if p != nil && r.underWay(p.CallID) {
		r.record(p)
		r.Script.Direct = true
	}
}

// arguments returns those of a call of the newest response.
func (r *Run) arguments(callID string) json.RawMessage {
	for _, c := range r.Checkpoint.Calls {
		if c.ID == callID {
			return c.Arguments
		}
	}
	return nil
}

// answered reports whether a deferred call has its answer, which counted and is
// not part of the transcript yet.
func (r *Run) answered(callID string) bool { return r.Answer != nil && r.Answer.CallID == callID }

// answer is the result of a call whose answer counted before its run ended.
func (r *Run) answer(call *events.Call) events.Message {
	name, untrusted := call.Name, false
	if s := r.Script; s != nil && s.CallID == call.ID && s.Direct {
		name, untrusted = s.Callbacks[0].Capability, s.Callbacks[0].Untrusted
	}
	text := string(r.Answer.Output)
	if r.Answer.Error != "" {
		text = fmt.Sprintf("%s failed: %s", name, r.Answer.Error)
	}
	if n := len(r.Answer.Files); n > 0 {
		text += fmt.Sprintf("\nThe run ended before the files of this answer were taken: %d.", n)
	}
	message := ResultMessage(&call.ToolCall, outcomeOf(r.Answer), text)
	message.Parts[0].Result.Untrusted = untrusted
	r.Untrusted = r.Untrusted || untrusted
	return message
}

// outcomeOf is the outcome of a call that has this answer.
func outcomeOf(a *events.CallAnswered) events.Outcome {
	if a.Error != "" {
		return events.OutcomeError
	}
	return events.OutcomeOK
}
