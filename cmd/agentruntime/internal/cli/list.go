package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/projector"
)

// listFlags are what run list is told.
type listFlags struct {
	filter               handlers.Filter
	states               []string
	olderThan, newerThan string
	limit                int
	all                  bool
}

func (a *app) runListCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{Use: "list", Short: "List runs, the newest first", Args: exactly(),
		Long: "list shows the runs that match every flag. What it says may be a moment old; run get does not\nwait for the list. A run that nothing will wake is marked as stuck. A list that was cut ends with\nwhat the next one begins after.",
		Example: "  agentruntime run list\n  agentruntime run list --state parked,running --agent trip-planner -l team=finance\n" +
			"  agentruntime run list --stuck --older-than 1h --all -o json"}
	cmd.Flags().StringSliceVar(&f.states, "state", nil, "in any of these states: "+words(handlers.States))
	cmd.Flags().StringVar(&f.filter.Agent, "agent", "", "of this agent")
	cmd.Flags().StringToStringVarP(&f.filter.Label, "label", "l", nil, "with this label, as key=value; may be repeated")
	cmd.Flags().StringVar(&f.olderThan, "older-than", "", "started longer ago, such as 90s, 15m or 72h")
	cmd.Flags().StringVar(&f.newerThan, "newer-than", "", "started less long ago")
	cmd.Flags().StringVar(&f.filter.Parent, "parent", "", "started by this run")
	cmd.Flags().StringVar(&f.filter.Root, "root", "", "in the tree of this run, itself included")
	cmd.Flags().StringVar(&f.filter.Reason, "reason", "", "parked, failed or cancelled for this reason, such as deadline")
	cmd.Flags().BoolVar(&f.filter.Stuck, "stuck", false, "only runs that nothing will wake")
	cmd.Flags().BoolVar(&f.filter.Unknown, "unknown", false, "only runs of whose callbacks an effect is not known; call list --unknown lists these")
	cmd.Flags().IntVar(&f.limit, "limit", 0, fmt.Sprintf("most runs to list; %d by default", listPage))
	cmd.Flags().StringVar(&f.filter.After, "after", "", "go on where a list was cut, which names this")
	cmd.Flags().BoolVar(&f.all, "all", false, "list every run, however many there are")
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := f.check(); err != nil {
			return err
		}
		return a.withClient(func(ctx context.Context, c *client) error { return a.list(ctx, c, &f) })
	}
	return cmd
}

func words(states []projector.State) string {
	list := make([]string, len(states))
	for i, s := range states {
		list[i] = string(s)
	}
	return strings.Join(list, ", ")
}

// listPage is how many runs one request is answered with.
const listPage = 1000

// check completes the filter and refuses what can match nothing by mistake.
func (f *listFlags) check() error {
	for _, s := range f.states {
		f.filter.State = append(f.filter.State, projector.State(s))
	}
	f.filter.OlderThan, f.filter.NewerThan = handlers.Age(f.olderThan), handlers.Age(f.newerThan)
	if f.filter.Limit = f.limit; f.all && f.limit != 0 {
		return usage(errors.New("--all lists every run and does not go with --limit"))
	}
	var wrong *handlers.APIError
	if err := f.filter.Validate(); errors.As(err, &wrong) {
		field, reason, _ := strings.Cut(wrong.Message, ": ")
		return usage(fmt.Errorf("--%s: %s", strings.ReplaceAll(field, "_", "-"), reason))
	}
	return nil
}

// list asks for page after page, as many as are wanted.
func (a *app) list(ctx context.Context, c *client, f *listFlags) error {
	rows, more := []handlers.Row{}, true
	for most := orPage(f.limit); more && (f.all || len(rows) < most); {
		var page handlers.ListAnswer
		if f.filter.Limit = listPage; !f.all {
			f.filter.Limit = min(listPage, most-len(rows))
		}
		if err := c.page(ctx, &f.filter, &page); err != nil {
			return err
		}
		rows = append(rows, page.Runs...)
		f.filter.After, more = page.Next, page.Next != ""
	}
	if err := a.show(rows, func(w io.Writer) {
		var lines [][]string
		for i := range rows {
			r := &rows[i]
			lines = append(lines, []string{runOf(r), r.Agent, string(r.State), date(r.Started), fmt.Sprint(r.Steps), stuck(r.Stuck) + why(&r.Summary)})
		}
		table(w, "RUN AGENT STATE STARTED STEPS REASON", lines)
		if more {
			fmt.Fprintf(w, "more: --after %s\n", f.filter.After)
		}
	}); err != nil {
		return err
	}
	if more && a.json() {
		a.tell("there are more runs: --after %s goes on, --all lists all", f.filter.After)
	}
	return nil
}

// runOf names the run of a row. A session that cannot be read has none.
func runOf(r *handlers.Row) string {
	if r.Run == "" {
		return "session " + r.Session
	}
	return r.Run
}

// date is a moment in the time of this place. A session that cannot be read has
// none.
func date(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Local().Format(time.DateTime)
}

// listPause is the pause before a list that is being built is asked for again.
const listPause = 100 * time.Millisecond

// page asks for one page. The list moves to another worker when its keeper goes
// away, which takes a moment: it is asked for again as long as one request may
// take.
func (c *client) page(ctx context.Context, f *handlers.Filter, page *handlers.ListAnswer) error {
	return c.patiently(ctx, func() error { return c.ask(ctx, handlers.VerbList, nil, f, page) })
}

// patiently asks again while the list is not available.
func (c *client) patiently(ctx context.Context, ask func() error) error {
	patient, cancel := context.WithTimeout(ctx, c.app.flags.timeout)
	defer cancel()
	for {
		err := ask()
		var refused *handlers.APIError
		if !errors.As(err, &refused) || refused.Code != handlers.CodeUnavailable || events.Sleep(patient, listPause) != nil {
			return err
		}
	}
}

func orPage(limit int) int {
	if limit == 0 {
		return listPage
	}
	return limit
}

func stuck(is bool) string {
	if is {
		return "STUCK: nothing will wake it; "
	}
	return ""
}

// why says what a run that has not ended waits for, and of one that has ended
// what its end was for.
func why(s *projector.Summary) string {
	switch {
	case s.State == projector.StateParked && s.Wake != "":
		return s.Reason + ": waits for " + s.Wake
	case s.Wake != "":
		return "waits for " + s.Wake
	}
	return s.Reason
}
