package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
)

func (a *app) callCommand() *cobra.Command {
	return group("call", "List and settle calls that wait for an answer", "  agentruntime call list --open\n  agentruntime call settle s3f9…-k2m4x9qa call_1 --output '{\"approved\":true}'",
		a.callListCommand(), a.callSettleCommand())
}

func (a *app) callListCommand() *cobra.Command {
	var r handlers.CallsRequest
	cmd := &cobra.Command{Use: "list", Short: "List the calls that a service has accepted and not settled", Args: cobra.NoArgs,
		Long:    "list shows the deferred calls that runs wait for: approvals and long jobs. Their runs are parked.",
		Example: "  agentruntime call list --open\n  agentruntime call list --open --agent travel-desk -o json"}
	cmd.Flags().BoolVar(&r.Open, "open", false, "the calls that wait for their answer")
	cmd.Flags().StringVar(&r.Agent, "agent", "", "of runs of this agent")
	cmd.Flags().StringVar(&r.After, "after", "", "the page after the one that named this")
	cmd.Flags().IntVar(&r.Limit, "limit", 0, "runs that are looked at for one page; 1000 when 0")
	cmd.RunE = func(*cobra.Command, []string) error {
		if !r.Open {
			return usage(errors.New("say which calls: --open"))
		}
		return a.withClient(func(ctx context.Context, c *client) error {
			var answer handlers.CallsAnswer
			if err := c.ask(ctx, handlers.VerbCalls, nil, r, &answer); err != nil {
				return err
			}
			return a.show(answer, func(w io.Writer) { writeCalls(w, &answer) })
		})
	}
	return cmd
}

func writeCalls(w io.Writer, answer *handlers.CallsAnswer) {
	var rows [][]string
	for _, c := range answer.Calls {
		until := "the run's end"
		if c.Deadline != nil {
			until = c.Deadline.UTC().Format(time.RFC3339)
		}
		rows = append(rows, []string{c.Run, c.Call, c.Agent, c.Capability, until, string(c.Input)})
	}
	if len(rows) == 0 && answer.Next == "" {
		fmt.Fprintln(w, "no call waits for an answer")
		return
	}
	table(w, "RUN CALL AGENT CAPABILITY UNTIL INPUT", rows)
	if answer.Next != "" {
		fmt.Fprintf(w, "there may be more: --after %s\n", answer.Next)
	}
}

func (a *app) callSettleCommand() *cobra.Command {
	var (
		s      steering
		data   events.SettleCall
		output string
	)
	cmd := &cobra.Command{Use: "settle RUN CALL", Short: "Answer a call that its service has accepted", Args: exactly("RUN CALL"),
		Long:    "settle answers a deferred call in its service's place: with an output, which must fit the\ncapability's schema, or with an error, which the model reads. The first answer counts.",
		Example: "  agentruntime call settle s3f9…-k2m4x9qa call_1 --output '{\"approved\":true}'\n  agentruntime call settle s3f9…-k2m4x9qa call_1 --error 'the budget owner said no'"}
	s.register(cmd)
	cmd.Flags().StringVar(&output, "output", "", "the answer, as JSON")
	cmd.Flags().StringVar(&data.Error, "error", "", "why the call failed")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if (output == "") == (data.Error == "") {
			return usage(errors.New("give exactly one of --output and --error"))
		}
		if output != "" && !json.Valid([]byte(output)) {
			return usage(fmt.Errorf("--output %q is not JSON; a text needs quotes of its own, such as --output '\"yes\"'", output))
		}
		data.Run, data.Call, data.Output = args[0], args[1], json.RawMessage(output)
		return a.steer(&s, args[0], func(ctx context.Context, c *client) error {
			admitted, err := c.command(ctx, s.id, data)
			if err != nil {
				return err
			}
			return a.show(admitted, func(w io.Writer) { fmt.Fprintf(w, "call %s of run %s is settled\n", data.Call, admitted.Run) })
		})
	}
	return cmd
}
