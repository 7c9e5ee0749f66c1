package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// json reports whether output is for programs.
func (a *app) json() bool { return a.flags.output == "json" }

// show prints a value as JSON, or by text.
func (a *app) show(value any, text func(w io.Writer)) error {
	if !a.json() {
		text(a.out)
		return nil
	}
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "%s\n", data)
	return err
}

// line prints one JSON value a line, or a text line: what a stream of events is
// shown as.
func (a *app) line(value any, text string) error {
	if !a.json() {
		_, err := fmt.Fprintln(a.out, text)
		return err
	}
	data, err := events.Marshal(value)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "%s\n", data)
	return err
}

// table prints rows under a heading.
func table(w io.Writer, heading string, rows [][]string) {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, strings.ReplaceAll(heading, " ", "\t"))
	for _, r := range rows {
		cells := make([]string, len(r))
		for i, cell := range r {
			cells[i] = oneLine(cell)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	_ = t.Flush() // to a terminal or a file: the writer's own error shows there
}

// oneLine makes a text that others wrote fit for one line of a terminal: what
// would move its cursor, or break a table, becomes a blank.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

// describeReply is a reply in one line.
func describeReply(r *events.Reply) string {
	if r == nil {
		return ""
	}
	if r.Kind == events.ReplyNeedsInput {
		return "asks: " + oneLine(r.Question)
	}
	return oneLine(string(r.Output))
}

// describeCost is a cost with its currency, or nothing where it is not known.
func describeCost(c *events.Cost) string {
	if c == nil {
		return ""
	}
	return c.Amount + " " + c.Currency
}

// describeFact is a fact of a run in one line, with the time since the run was
// admitted.
func describeFact(e *events.Event, since time.Time) string {
	what := strings.TrimPrefix(e.Type, events.FactPrefix)
	detail := ""
	payload, err := e.Payload()
	if err != nil {
		payload = nil
	}
	switch p := payload.(type) {
	case events.RunAdmitted:
		detail = p.Agent
	case events.RunClaimed:
		detail = "by " + p.Worker
	case events.CheckpointCommitted:
		detail = describeDelta(&p.Delta)
	case events.RunCompleted:
		detail = describeReply(p.Delta.Reply)
	case events.RunFailed:
		detail = p.Reason + ": " + p.Error
	case events.RunReleased:
		detail = p.Reason
	case events.RunCancelled:
		detail = p.Reason
	case events.RunParked:
		detail = describePark(&p)
	case events.ModelSwitched:
		detail = fmt.Sprintf("from %s to %s: %s", p.From, p.To, p.Reason)
	case events.ChildSettled:
		detail = fmt.Sprintf("%s has %s", p.Child, told(projector.State(p.Outcome)))
		if p.Error != "" {
			detail += ": " + brief(p.Error)
		} else if p.Reply != nil {
			detail += ": " + brief(describeReply(p.Reply))
		}
	case events.CallAnswered:
		if detail = p.CallID + " by " + p.By + ": "; p.Error != "" {
			detail += "error: "
		}
		detail += brief(orDefault(p.Error, string(p.Output)))
	case events.CancelRequested:
		detail = p.Reason
	case events.MessageReceived:
		for _, part := range p.Message.Parts {
			detail += quote(part.Text)
		}
	case events.TimerFired:
		detail = p.Deadline.UTC().Format(time.RFC3339)
	case events.CommandAccepted:
		detail = strings.TrimPrefix(p.Command, events.TypePrefix)
	}
	return strings.TrimRight(fmt.Sprintf("%+10.3fs  %-20s  %s", e.Time.Sub(since).Seconds(), what, detail), " ")
}

// describePark says what a run begins to wait for.
func describePark(p *events.RunParked) string {
	var list []string
	if n := len(p.Dependencies); n > 0 {
		list = append(list, p.Awaits(n))
	}
	if p.Messages {
		list = append(list, "a message")
	}
	if p.Reason == events.ParkCall {
		list = append(list, "the answer of "+p.Capability+" to call "+p.CallID)
	}
	if p.Reason == events.ParkBudget {
		list = append(list, "a top-up of the budget")
	}
	if p.Deadline != nil {
		list = append(list, "the time "+p.Deadline.UTC().Format(time.RFC3339))
	}
	return "waits for " + strings.Join(list, ", or ")
}

// describeDelta says what a checkpoint did.
func describeDelta(d *events.CheckpointDelta) string {
	var words []string
	for _, m := range d.Append {
		for _, p := range m.Parts {
			switch {
			case p.Type == events.PartText && m.Role == events.RoleUser:
				words = append(words, "task "+quote(p.Text))
			case p.Type == events.PartText:
				words = append(words, "text "+quote(p.Text))
			case p.Call != nil:
				words = append(words, "call "+p.Call.Name)
			case p.Result != nil:
				words = append(words, "result "+p.Result.Name+" "+string(p.Result.Outcome))
			}
		}
	}
	return fmt.Sprintf("revision %d: %s", d.Revision, strings.Join(words, ", "))
}

// brief makes a text one line of a bounded length.
func brief(s string) string {
	const most = 160
	return shorten(s, most)
}

// quote shortens a text to what fits a line beside others.
func quote(s string) string {
	const most = 60
	return fmt.Sprintf("%q", shorten(s, most))
}

func shorten(s string, most int) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) > most {
		r = append(r[:most-1], '…')
	}
	return string(r)
}

// describeProgress says how a run gets on, in a line.
func describeProgress(p *events.RunProgressData) string {
	text := string(p.Phase) + ": " + p.Reason
	if p.Model != "" {
		text += ", it asks " + p.Model
	}
	if p.Until != nil {
		text += ", until " + p.Until.Local().Format(time.DateTime) + " at the latest"
	}
	if p.Note != "" {
		text += ": " + brief(p.Note)
	}
	return text
}

// describePublic is a public event in one line.
func describePublic(e *events.Event) string {
	what := strings.TrimPrefix(e.Type, events.TypePrefix)
	var text string
	payload, err := e.Payload()
	if err != nil {
		payload = nil
	}
	switch p := payload.(type) {
	case events.RunTextData:
		text = p.Text
	case events.RunProgressData:
		text = describeProgress(&p)
	case events.RunCompletedData:
		text = describeReply(&p.Reply)
	case events.RunFailedData:
		text = p.Reason + ": " + p.Error
	case events.RunCancelledData:
		text = p.Reason
	case events.CallDispatchedData:
		text = p.Name
	case events.CallSettledData:
		text = p.Name + " " + string(p.Outcome)
	}
	return strings.TrimRight(fmt.Sprintf("%s  %-15s  %s", e.Time.Local().Format(time.TimeOnly), what, text), " ")
}
