package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
)

// steering is what commands about a run under way are told.
type steering struct {
	task
	reason string
}

func (s *steering) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.id, "id", "", "id of the command: the same one again counts once; a fresh one by default")
}

// steer checks the run's id and carries out what concerns it.
func (a *app) steer(s *steering, run string, f func(context.Context, *client) error) error {
	if err := events.CheckRun(run); err != nil {
		return usage(err)
	}
	s.identify()
	return a.withClient(f)
}

func (a *app) runCancelCommand() *cobra.Command {
	var s steering
	cmd := &cobra.Command{Use: "cancel RUN", Short: "Ask a run and everything below it to stop", Args: exactly("RUN"),
		Long:    "cancel asks a run and everything below it to stop. What took effect stays. With --wait it returns\nwhen none of them is under way any more.",
		Example: "  agentruntime run cancel s3f9…-k2m4x9qa --reason 'ordered twice'\n  agentruntime run cancel s3f9…-k2m4x9qa --wait"}
	s.register(cmd)
	cmd.Flags().StringVar(&s.reason, "reason", "", "why, for people")
	cmd.Flags().BoolVarP(&s.wait, "wait", "w", false, "wait until neither the run nor anything below it is under way")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return a.steer(&s, args[0], func(ctx context.Context, c *client) error {
			admitted, err := c.command(ctx, s.id, events.CancelRun{Run: args[0], Reason: s.reason})
			if err != nil {
				return err
			}
			if s.wait {
				return a.settle(ctx, c, admitted)
			}
			return a.show(admitted, func(w io.Writer) { fmt.Fprintln(w, asked(admitted)) })
		})
	}
	return cmd
}

// asked says what came of a request to stop.
func asked(admitted *handlers.Admission) string {
	if admitted.Ended != "" {
		return fmt.Sprintf("run %s had ended already: it has %s", admitted.Run, told(admitted.Ended))
	}
	return fmt.Sprintf("run %s and everything below it are asked to stop", admitted.Run)
}

// The pauses between two looks at a tree. A large one takes many reads.
const (
	firstSettlePause = 100 * time.Millisecond
	maxSettlePause   = 2 * time.Second
)

// settle waits until nothing of a cancelled run's tree is under way.
func (a *app) settle(ctx context.Context, c *client, admitted *handlers.Admission) error {
	a.say("%s", asked(admitted))
	for before, pause := 0, firstSettlePause; ; pause = min(pause*3/2, maxSettlePause) {
		n, err := c.treeCounts(ctx, admitted.Run)
		switch {
		case ctx.Err() != nil:
			return failed(fmt.Errorf("run %s was asked to stop, and runs of its tree were under way; \"agentruntime run tree %s\" shows them", admitted.Run, admitted.Run))
		case err != nil:
			var c *coded
			if errors.As(err, &c) {
				return &coded{c.code, fmt.Errorf("run %s was asked to stop, and its tree cannot be shown: %w", admitted.Run, err)}
			}
			return err
		case n.Settled:
			return a.show(n, func(w io.Writer) {
				fmt.Fprintf(w, "nothing is under way any more; runs in all: %d\n", n.Runs)
			})
		}
		if n.Active != before {
			a.tell("runs under way: %d", n.Active)
			before = n.Active
		}
		_ = events.Sleep(ctx, pause) // an end shows above
	}
}

func (a *app) runMessageCommand() *cobra.Command {
	var s steering
	cmd := &cobra.Command{Use: "message RUN", Short: "Send a message to a run under way", Args: exactly("RUN"),
		Long:    "message hands a run under way a message, which its model reads before its next answer. The session\nof a run that has ended is continued with run continue instead.",
		Example: "  agentruntime run message s3f9…-k2m4x9qa -m 'Monday does not work after all'"}
	s.register(cmd)
	cmd.Flags().StringVarP(&s.message, "message", "m", "", "the message; - reads it from standard input")
	var files []string
	registerFiles(cmd, &files)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if s.message == "" {
			return usage(errors.New("--message is missing: what to tell the run"))
		}
		text, err := readMessage(s.message, a.in)
		if err != nil {
			return err
		}
		if err := checkTask(nil, files); err != nil {
			return err
		}
		return a.steer(&s, args[0], func(ctx context.Context, c *client) error {
			payload, err := c.give(ctx, events.MessageRun{Run: args[0], Message: text}, files)
			if err != nil {
				return err
			}
			admitted, err := c.command(ctx, s.id, payload)
			if err != nil {
				return err
			}
			return a.show(admitted, func(w io.Writer) { fmt.Fprintf(w, "run %s has the message\n", admitted.Run) })
		})
	}
	return cmd
}
