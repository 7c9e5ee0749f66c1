package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/projector"
)

func (a *app) runWaitCommand() *cobra.Command {
	var within time.Duration
	cmd := &cobra.Command{Use: "wait RUN...", Short: "Wait until runs have ended", Args: func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage(fmt.Errorf("%s takes the ids of one run or more; see %s --help", cmd.CommandPath(), cmd.CommandPath()))
		}
		return nil
	},
		Long:    "wait shows the runs once all of them have ended, and tells of each end on standard error. It\nexits with 1 when one of them did not complete, or when the time is over.",
		Example: "  agentruntime run wait s3f9…-k2m4x9qa\n  agentruntime run wait $(agentruntime run list -l batch=7 -o json | jq -r '.[].run') --within 10m"}
	cmd.Flags().DurationVar(&within, "within", 0, "longest time to wait for the runs; for ever by default. --timeout is that of each request")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("within") && within <= 0 {
			return usage(fmt.Errorf("--within %s: must be positive", within))
		}
		w := waiting{app: a, ended: make(map[string]*handlers.RunDetail)}
		for _, run := range args {
			if err := events.CheckRun(run); err != nil {
				return usage(err)
			}
			if !slices.Contains(w.runs, run) {
				w.runs = append(w.runs, run)
			}
		}
		return a.withClient(func(ctx context.Context, c *client) error {
			if within > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, within, fmt.Errorf("%s are over", within))
				defer cancel()
			}
			return w.wait(ctx, c)
		})
	}
	return cmd
}

// waiting is what is known of runs that are waited for.
type waiting struct {
	app   *app
	runs  []string
	ended map[string]*handlers.RunDetail
}

// wait looks at each run, and then again at those whose end is told. What ends
// between a look and the watch is seen by the second look.
func (w *waiting) wait(ctx context.Context, c *client) error {
	public := &jetstream.Public{Conn: c.conn}
	after, err := uint64(0), w.lookAll(ctx, c)
	if err == nil && len(w.ended) < len(w.runs) {
		if after, err = w.app.end(ctx, public); err == nil {
			err = w.lookAll(ctx, c)
		}
	}
	if err != nil {
		return w.stopped(ctx, err)
	}
	if len(w.ended) == len(w.runs) {
		return w.show()
	}
	w.app.tell("waiting for %d of %d runs", len(w.runs)-len(w.ended), len(w.runs))
	filter := jetstream.Filter{Namespace: w.app.config.Namespace}
	if len(w.runs) == 1 {
		filter.Run = w.runs[0]
	}
	for r, err := range public.Watch(ctx, filter, after) {
		switch {
		case err != nil && r.Sequence != 0:
			continue // a message that is no event; the watch goes on
		case err != nil:
			return w.stopped(ctx, unreachable(err))
		case !ends(r.Type) || !slices.Contains(w.runs, r.Run) || w.ended[r.Run] != nil:
			continue
		}
		if err := w.look(ctx, c, r.Run); err != nil {
			return w.stopped(ctx, err)
		}
		if d := w.ended[r.Run]; d != nil {
			w.app.tell("%d of %d: run %s has %s", len(w.ended), len(w.runs), r.Run, told(d.State))
		}
		if len(w.ended) == len(w.runs) {
			return w.show()
		}
	}
	return w.stopped(ctx, nil)
}

// ends reports whether a public event is the last one of its run.
func ends(eventType string) bool {
	switch eventType {
	case events.TypeFor[events.RunCompletedData]().Name, events.TypeFor[events.RunFailedData]().Name, events.TypeFor[events.RunCancelledData]().Name:
		return true
	}
	return false
}

// lookAll looks at every run that is not known to have ended.
func (w *waiting) lookAll(ctx context.Context, c *client) error {
	for _, run := range w.runs {
		if w.ended[run] != nil {
			continue
		}
		if err := w.look(ctx, c, run); err != nil {
			return err
		}
	}
	return nil
}

// look asks for a run, and notes when it has ended.
func (w *waiting) look(ctx context.Context, c *client, run string) error {
	var d handlers.RunDetail
	if err := c.ask(ctx, handlers.VerbGet, nil, handlers.RunRequest{Run: run}, &d); err != nil {
		return err
	}
	if d.State.Terminal() {
		w.ended[run] = &d
	}
	return nil
}

// told is how a run has ended, after "has".
func told(s projector.State) string {
	if s == projector.StateCancelled {
		return "been cancelled"
	}
	return string(s)
}

// stopped is what comes of a wait that did not see the end of all runs.
func (w *waiting) stopped(ctx context.Context, err error) error {
	if ctx.Err() == nil || errors.Is(err, errNoWorker) {
		return err
	}
	open := slices.DeleteFunc(slices.Clone(w.runs), func(run string) bool { return w.ended[run] != nil })
	reason := "stopped waiting"
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		reason = cause.Error()
	}
	return failed(fmt.Errorf("%s: %d of %d runs had not ended: %s; they go on, and can be waited for again", reason, len(open), len(w.runs), strings.Join(open, ", ")))
}

// show prints the runs in the order in which they were given.
func (w *waiting) show() error {
	list, bad := []*handlers.RunDetail{}, []string{}
	for _, run := range w.runs {
		d := w.ended[run]
		if list = append(list, d); d.State != projector.StateCompleted {
			bad = append(bad, run)
		}
	}
	if err := w.app.show(list, func(out io.Writer) {
		var rows [][]string
		for _, d := range list {
			rows = append(rows, []string{d.Run, d.Agent, string(d.State), fmt.Sprint(d.Steps), brief(orDefault(describeReply(d.Reply), orDefault(d.Error, d.Reason)))})
		}
		table(out, "RUN AGENT STATE STEPS REPLY", rows)
	}); err != nil {
		return err
	}
	switch len(bad) {
	case 0:
		return nil
	case 1:
		return notCompleted(bad[0])
	}
	return failed(fmt.Errorf("%d of %d runs did not complete: %s; see \"agentruntime run events %s\"", len(bad), len(list), strings.Join(bad, ", "), bad[0]))
}
