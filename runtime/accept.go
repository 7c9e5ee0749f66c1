package runtime

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// received is a response as a store would give it back: a live attempt goes on
// with exactly what a recovered one reads.
type received struct {
	parts   []events.Part
	defects []string // of each call's arguments, empty when they are JSON
	finish  FinishReason
	usage   events.Usage
}

// receive takes a response over. Arguments that are not JSON become a JSON
// string of what the model wrote; anything else that cannot be stored makes the
// response one that is not accepted.
func receive(r *Response) (*received, error) {
	var defects []string
	parts := slices.Clone(r.Parts)
	for i := range parts {
		if parts[i].Type != events.PartToolCall || parts[i].Call == nil {
			continue
		}
		call := *parts[i].Call
		defect := ""
		if len(call.Arguments) > 0 {
			if err := events.CheckJSON(call.Arguments, events.JSONLimits{}); err != nil {
				defect = "The arguments are not valid JSON: " + err.Error()
			}
		}
		call.Arguments = callArguments(call.Arguments)
		parts[i].Call = &call
		defects = append(defects, defect)
	}
	parts, err := stored(parts)
	if err != nil {
		return nil, fmt.Errorf("the response %w", err)
	}
	return &received{parts, defects, r.Finish, r.Usage}, nil
}

// stored returns parts as a store gives them back: JSON without white space,
// text in valid UTF-8.
func stored(parts []events.Part) (back []events.Part, err error) {
	data, err := events.Marshal(parts)
	if err == nil {
		err = json.Unmarshal(data, &back)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot be stored: %w", err)
	}
	return back, nil
}

// callArguments returns arguments as JSON: those a model wrote badly become a
// JSON string of what it wrote.
func callArguments(written json.RawMessage) json.RawMessage {
	if len(written) == 0 {
		return json.RawMessage(`{}`)
	}
	if events.CheckJSON(written, events.JSONLimits{}) == nil {
		return written
	}
	text, _ := events.Marshal(strings.ToValidUTF8(string(written), "\uFFFD"))
	return text
}

// text returns what the model wrote for people.
func (r *received) text() (said string) {
	for _, p := range r.parts {
		if p.Type == events.PartText {
			said += p.Text
		}
	}
	return said
}

// accept makes the response the newest message and its calls the journal.
func (l *loop) accept(c *projector.Checkpoint, r *received) {
	message := events.Message{ID: l.mint("message", c.Revision, 0), Role: events.RoleAssistant, Parts: r.parts}
	c.Steps++
	c.Usage = c.Usage.Add(r.usage)
	c.Calls = nil
	repeats := c.Guard.Repeats
	for i := range message.Parts {
		p := &message.Parts[i]
		if p.Type == events.PartToolCall && p.Call != nil {
			refusal := l.adopt(c, p.Call, r, repeats)
			c.Calls = append(c.Calls, events.Call{ToolCall: *p.Call, State: events.CallPending, Refusal: refusal})
		}
	}
	c.Append = []events.Message{message}
	if len(c.Calls) == 0 {
		c.Phase = projector.PhaseModel
		c.Guard.Silent++
		c.Append = append(c.Append, events.Text("notice-"+message.ID, events.RoleUser, silentNotice(r.finish)))
		return
	}
	if passed := l.limits.passed(c.Guard); passed != nil {
		for i := range c.Calls {
			c.Calls[i].Refusal = "The run has failed: " + passed.Error() + ". This call was not made."
		}
	}
	c.Phase = projector.PhaseCalls
	c.Guard.Silent = 0
	l.advance(c, 0)
}

// adopt gives a call an id of its own, counts repetitions, and says why it must
// not be made, if so. Before is how often the newest call of earlier responses
// had been made: within one response the limit is not passed, so that the model
// is told before the run fails.
func (l *loop) adopt(c *projector.Checkpoint, call *events.ToolCall, r *received, before int) (refusal string) {
	// What a summary stands for may have used any id.
	if call.ID == "" || slices.Contains(c.UsedCallIDs, call.ID) || usedInWindow(l.window, call.ID) || slices.ContainsFunc(l.window, isSummary) {
		call.ID = l.mint("call", c.Revision, len(c.Calls))
	}
	c.UsedCallIDs = append(c.UsedCallIDs, call.ID)
	key := callKey(call)
	if key != c.Guard.LastCall {
		c.Guard.LastCall, c.Guard.Repeats = key, 0
		before = 0
	}
	spent := c.Guard.Repeats >= l.limits.repeated && before < l.limits.repeated
	if !spent {
		c.Guard.Repeats++
	}
	switch {
	case r.finish == FinishLength:
		return "The response was cut at the output limit, so none of its calls was made. Write shorter calls."
	case r.finish == FinishFilter:
		return "The response was cut by the provider's content filter, so none of its calls was made."
	case len(c.Calls) >= l.limits.calls:
		return fmt.Sprintf("A response may have at most %d calls; this one was not made.", l.limits.calls)
	case r.defects[len(c.Calls)] != "":
		return r.defects[len(c.Calls)]
	case spent:
		return "This identical call was made too often in a row; this one was not made."
	}
	return l.box.refusal(call)
}

func usedInWindow(window []events.Message, id string) bool {
	return slices.ContainsFunc(window, func(m events.Message) bool {
		return slices.ContainsFunc(m.Parts, func(p events.Part) bool { return p.Call != nil && p.Call.ID == id })
	})
}

// callKey identifies what a call asks for.
func callKey(call *events.ToolCall) string {
	arguments, err := events.Canonical(call.Arguments)
	if err != nil {
		arguments = call.Arguments
	}
	return events.Derive(20, call.Name, string(arguments))
}
