package projector

import (
	"slices"

	"github.com/agentruntime/agentruntime/events"
)

// ResultMessage returns the transcript message of a call's one result. Its id
// derives from the call's: a call has one result.
func ResultMessage(call *events.ToolCall, outcome events.Outcome, text string) events.Message {
	return events.Message{ID: "result-" + call.ID, Role: events.RoleTool, Parts: []events.Part{{Type: events.PartToolResult,
		Result: &events.ToolResult{CallID: call.ID, Name: call.Name, Outcome: outcome, Parts: []events.Part{{Type: events.PartText, Text: text}}}}}}
}

// isUntrusted tells whether a message holds a result that is not trusted.
func isUntrusted(m events.Message) bool {
	return slices.ContainsFunc(m.Parts, func(p events.Part) bool { return p.Result != nil && p.Result.Untrusted })
}
