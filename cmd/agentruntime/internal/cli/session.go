package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
)

func (a *app) sessionCommand() *cobra.Command {
	return group("session", "Erase sessions", "  agentruntime session erase s3f9… --yes", a.sessionEraseCommand())
}

func (a *app) sessionEraseCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{Use: "erase SESSION --yes", Short: "Make an encrypted session unreadable for ever", Args: exactly("SESSION"),
		Long:    "erase drops the key of an encrypted session, and with it all that its runs were told, did and\nsaid. Its facts stay in the log, unreadable, and verify. It is refused while one of its runs, a run\nbelow one, or the parent of one is under way, and for a session that was not encrypted from its\nfirst fact on. Sessions of children are erased one by one. Nothing brings an erased session back.",
		Example: "  agentruntime session erase s3f9… --yes"}
	cmd.Flags().BoolVar(&yes, "yes", false, "erase; without it nothing is done")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if err := events.CheckSession(args[0]); err != nil {
			return usage(err)
		}
		if !yes {
			return usage(errors.New("nothing brings an erased session back; say --yes to erase it"))
		}
		return a.withClient(func(ctx context.Context, c *client) error {
			var erased handlers.EraseAnswer
			if err := c.ask(ctx, handlers.VerbErase, nil, handlers.EraseRequest{Session: args[0]}, &erased); err != nil {
				return err
			}
			return a.show(erased, func(w io.Writer) { fmt.Fprintf(w, "session %s is erased\n", erased.Session) })
		})
	}
	return cmd
}
