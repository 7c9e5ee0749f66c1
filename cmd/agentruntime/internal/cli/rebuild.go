package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/host"
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
)

// rebuilt is what rebuild prints.
type rebuilt struct {
	Facts uint64 `json:"facts"` // positions of the log that were read
	Took  string `json:"took"`
}

// rebuildPause is the pause between two looks at how far it has come.
const rebuildPause = 200 * time.Millisecond

func (a *app) rebuildCommand() *cobra.Command {
	return &cobra.Command{Use: "rebuild", Short: "Build anew from the log whatever is no truth of its own", Args: exactly(),
		Long: "rebuild makes the worker that keeps the list of runs forget it and read the log from the beginning;\n" +
			"it also sweeps the log: timers are armed again, lost hints and facts are made good. Runs go on\nmeanwhile; run list is unavailable until the list is complete.",
		Example: "  agentruntime rebuild",
		RunE: func(*cobra.Command, []string) error {
			return a.withClient(func(ctx context.Context, c *client) error {
				began := time.Now()
				list := host.List{Conn: c.conn}
				ask := func(f func(context.Context) error) error {
					attempt, cancel := context.WithTimeout(ctx, a.flags.timeout)
					defer cancel()
					return f(attempt)
				}
				if err := ask(list.Rebuild); err != nil {
					return listError(err)
				}
				for told := ""; ; {
					var status *host.ListStatus
					err := ask(func(ctx context.Context) (err error) { status, err = list.Status(ctx); return err })
					if err != nil {
						return listError(err)
					}
					read, all := status.Read()
					if status.Ready() && status.Swept {
						done := rebuilt{all, time.Since(began).Round(time.Millisecond).String()}
						return a.show(done, func(w io.Writer) {
							fmt.Fprintf(w, "the list of runs is complete: %d facts read in %s\n", done.Facts, done.Took)
						})
					}
					if line := fmt.Sprintf("%d of %d facts read", read, all); line != told {
						a.tell("%s", line)
						told = line
					}
					if err := events.Sleep(ctx, rebuildPause); err != nil {
						return unreachable(fmt.Errorf("the list of runs is still being built: %w", err))
					}
				}
			})
		}}
}

// listError tells a list that nobody keeps from a request that failed.
func listError(err error) error {
	var typed *handlers.APIError
	if errors.As(err, &typed) {
		return unreachable(errors.New(typed.Message))
	}
	return unreachable(err)
}
