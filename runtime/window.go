package runtime

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// taskIn returns where the task of the run stands in a window. A checkpoint of
// an earlier release does not name it; the first message of a user stands for
// it then.
func taskIn(window []events.Message, id string) int {
	i := slices.IndexFunc(window, func(m events.Message) bool { return m.ID == id })
	if i < 0 {
		i = slices.IndexFunc(window, func(m events.Message) bool { return m.Role == events.RoleUser })
	}
	return i
}

// keptFrom returns where the newest steps begin. A step is a response and all
// that follows it up to the next one, so that no cut between two steps parts a
// call from its result, nor a message from the first answer after it. Without a
// response everything after the task is the newest step.
func keptFrom(window []events.Message, task, steps int) int {
	from := task + 1
	for i := len(window) - 1; i > task && steps > 0; i-- {
		if window[i].Role == events.RoleAssistant {
			from = i
			steps--
		}
	}
	return from
}

// prunedResult is the least that the text of a result has, in bytes, to be
// replaced: it is longer than what replaces it.
const prunedResult = 256

// pruned returns a window in which the texts of results before an index are
// replaced by how much it was. Calls, outcomes and files stay.
func pruned(window []events.Message, before int) []events.Message {
	out := slices.Clone(window)
	for i := range out[:before] {
		for k, p := range out[i].Parts {
			if p.Result == nil || textBytes(p.Result.Parts) < prunedResult {
				continue
			}
			result := *p.Result
			result.Parts = []events.Part{{Type: events.PartText, Text: fmt.Sprintf("[The text of this result was dropped to make room: %d bytes. The call's outcome was %s.]", textBytes(p.Result.Parts), result.Outcome)}}
			for _, inner := range p.Result.Parts {
				if inner.Type != events.PartText {
					result.Parts = append(result.Parts, inner)
				}
			}
			out[i].Parts = slices.Clone(out[i].Parts)
			out[i].Parts[k].Result = &result
		}
	}
	return out
}

func textBytes(parts []events.Part) (n int) {
	for _, p := range parts {
		if p.Type == events.PartText {
			n += len(p.Text)
		}
	}
	return n
}

// old returns what a summary is to stand for: all but the task and what is kept.
func old(window []events.Message, task, kept int) []events.Message {
	return slices.Concat(window[:task], window[task+1:kept])
}

// summarized returns the window with a summary in place of what it stands for.
func summarized(window []events.Message, task, kept int, summary events.Message) []events.Message {
	return slices.Concat([]events.Message{window[task], summary}, window[kept:])
}

const summaryPrefix = "summary-"

// Summarized returns how many responses a message of a window stands for, if it
// is a summary.
func Summarized(m *events.Message) (responses int, ok bool) {
	if m.Role != events.RoleUser || !strings.HasPrefix(m.ID, summaryPrefix) {
		return 0, false
	}
	n, err := fmt.Sscanf(m.ID, summaryPrefix+"%d-", &responses)
	return responses, n == 1 && err == nil
}

func isSummary(m events.Message) bool {
	_, ok := Summarized(&m)
	return ok
}

// responsesIn counts the responses of messages, those of earlier summaries
// included.
func responsesIn(messages []events.Message) (n int) {
	for i := range messages {
		if earlier, ok := Summarized(&messages[i]); ok {
			n += earlier
		} else if messages[i].Role == events.RoleAssistant {
			n++
		}
	}
	return n
}

// transcript writes messages as text for a model that has no tools: providers
// refuse calls of tools that a request does not offer. Reasoning is left out.
func transcript(messages []events.Message) string {
	var b strings.Builder
	for _, m := range messages {
		for _, p := range m.Parts {
			switch {
			case p.Call != nil:
				fmt.Fprintf(&b, "<call id=%q tool=%q>\n%s\n</call>\n", p.Call.ID, p.Call.Name, p.Call.Arguments)
			case p.Result != nil:
				fmt.Fprintf(&b, "<result call=%q tool=%q outcome=%q>\n%s</result>\n", p.Result.CallID, p.Result.Name, p.Result.Outcome, plain(p.Result.Parts...))
			case p.Type == events.PartText || p.File != nil:
				fmt.Fprintf(&b, "<%s>\n%s</%s>\n", m.Role, plain(p), m.Role)
			}
		}
	}
	return b.String()
}

func plain(parts ...events.Part) string {
	var b strings.Builder
	for _, p := range parts {
		if p.File != nil {
			fmt.Fprintf(&b, "[file %q, %s, %d bytes]\n", p.File.Name, p.File.MediaType, p.File.Size)
		} else if p.Text != "" {
			b.WriteString(p.Text + "\n")
		}
	}
	return b.String()
}

// cutMiddle returns a text of at most about n bytes: its begin and its end.
func cutMiddle(text string, n int) string {
	if len(text) <= n {
		return text
	}
	head, tail := text[:n/2], text[len(text)-n/2:]
	return strings.ToValidUTF8(head, "") + fmt.Sprintf("\n[%d bytes were left out here]\n", len(text)-len(head)-len(tail)) + strings.ToValidUTF8(tail, "")
}
