package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
)

func (a *app) callCommand() *cobra.Command {
	return group("call", "List and settle what runs have called", "  agentruntime call list --open\n  agentruntime call settle s3f9…-k2m4x9qa call_1 --result '{\"approved\":true}'\n  agentruntime call list --unknown\n  agentruntime call resolve s3f9…-k2m4x9qa call_7 0 --as done",
		a.callListCommand(), a.callSettleCommand(), a.callResolveCommand())
}

func (a *app) callListCommand() *cobra.Command {
	var r handlers.CallsRequest
	cmd := &cobra.Command{Use: "list", Short: "List calls that wait for an answer, or whose effect nobody knows", Args: exactly(),
		Long:    "list shows one of two kinds of calls of capabilities. Open ones were accepted by their service,\nwhich settles them later: approvals and long jobs; call settle answers in its place. Of unknown ones\nnobody knows whether they took effect, for the reason that is told: a worker or a service went away in\nthe middle, say, or the run ended first. The key is the one that the service saw. Once you have found\nout, settle each with call resolve: its run is told.",
		Example: "  agentruntime call list --open\n  agentruntime call list --unknown\n  agentruntime call list --unknown --run s3f9…-k2m4x9qa -o json"}
	cmd.Flags().BoolVar(&r.Open, "open", false, "those that wait for their answer")
	cmd.Flags().BoolVar(&r.Unknown, "unknown", false, "those whose effect is not known")
	cmd.Flags().StringVar(&r.Run, "run", "", "of this run; of all by default")
	cmd.Flags().StringVar(&r.Agent, "agent", "", "of runs of this agent")
	cmd.RunE = func(*cobra.Command, []string) error {
		if r.Open == r.Unknown {
			return usage(errors.New("say which: --open lists the calls that wait for an answer, --unknown those whose effect nobody knows"))
		}
		if r.Run != "" {
			if err := events.CheckRun(r.Run); err != nil {
				return usage(err)
			}
		}
		if r.Agent != "" {
			if err := checkAgent("--agent", r.Agent); err != nil {
				return err
			}
		}
		return a.withClient(func(ctx context.Context, c *client) error {
			if r.Open {
				return a.openCalls(ctx, c, r)
			}
			return a.unknownCalls(ctx, c, r)
		})
	}
	return cmd
}

// callPages asks call.list for page after page. Take returns the calls of an
// answer, where the next one begins, and the runs that it leaves out.
func callPages[Answer, Call any](ctx context.Context, c *client, r handlers.CallsRequest, take func(Answer) ([]Call, string, []string)) ([]Call, error) {
	calls := []Call{}
	for more := true; more; {
		var page Answer
		if err := c.patiently(ctx, func() error { return c.ask(ctx, handlers.VerbCalls, nil, r, &page) }); err != nil {
			return nil, err
		}
		found, next, unreadable := take(page)
		calls = append(calls, found...)
		c.app.leftOut(unreadable)
		r.After, more = next, next != ""
	}
	return calls, nil
}

// leftOut tells of runs that a list leaves out.
func (a *app) leftOut(runs []string) {
	for _, run := range runs {
		fmt.Fprintf(a.err, "agentruntime: run %s is left out: its session is erased, or the worker cannot read it; call list --run tells why\n", escape(run))
	}
}

func (a *app) openCalls(ctx context.Context, c *client, r handlers.CallsRequest) error {
	calls, err := callPages(ctx, c, r, func(page handlers.OpenCallsAnswer) ([]handlers.OpenCall, string, []string) {
		return page.Calls, page.Next, page.Unreadable
	})
	if err != nil {
		return err
	}
	return a.show(calls, func(w io.Writer) {
		var rows [][]string
		for _, call := range calls {
			until := "no deadline"
			if call.Deadline != nil {
				until = call.Deadline.UTC().Format(time.RFC3339)
			}
			rows = append(rows, []string{call.Run, call.Call, call.Agent, call.Capability, until, string(call.Input)})
		}
		table(w, "RUN CALL AGENT CAPABILITY UNTIL INPUT", rows)
	})
}

func (a *app) unknownCalls(ctx context.Context, c *client, r handlers.CallsRequest) error {
	calls, err := callPages(ctx, c, r, func(page handlers.CallsAnswer) ([]handlers.UnknownCall, string, []string) {
		return page.Calls, page.Next, page.Unreadable
	})
	if err != nil {
		return err
	}
	return a.show(calls, func(w io.Writer) {
		var rows [][]string
		for _, call := range calls {
			rows = append(rows, []string{call.Run, call.Call, strconv.Itoa(call.Index), call.Capability, call.Key, call.Reason})
		}
		table(w, "RUN CALL INDEX CAPABILITY KEY REASON", rows)
	})
}

func (a *app) callResolveCommand() *cobra.Command {
	var s steering
	var as, result string
	cmd := &cobra.Command{Use: "resolve RUN CALL INDEX", Short: "Settle a call whose effect nobody knew", Args: exactly("RUN", "CALL", "INDEX"),
		Long:    "resolve says what became of a call of a capability that call list --unknown shows. The first answer\ncounts. A result must fit the capability's output schema. The model is told before its next answer, or\nwith the next run of the session.",
		Example: "  agentruntime call resolve s3f9…-k2m4x9qa call_7 0 --as done --result '{\"seat\": 4}'\n  agentruntime call resolve s3f9…-k2m4x9qa call_7 1 --as not-done"}
	s.register(cmd)
	cmd.Flags().StringVar(&as, "as", "", "done: it took effect; not-done: it did not and will not")
	cmd.Flags().StringVar(&result, "result", "", "what it returned, as JSON, when it is done")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		index, err := strconv.Atoi(args[2])
		given := cmd.Flags().Changed("result")
		switch {
		case err != nil || index < 0:
			return usage(fmt.Errorf("INDEX %q is none that call list shows", args[2]))
		case as != events.ResolvedDone && as != events.ResolvedNotDone:
			return usage(fmt.Errorf("--as %q: must be %s or %s", as, events.ResolvedDone, events.ResolvedNotDone))
		case given && !json.Valid([]byte(result)):
			return usage(errors.New("--result is no JSON; write a text as '\"text\"', and leave the flag out when what was returned is not known"))
		case given && as != events.ResolvedDone:
			return usage(errors.New("--result goes with --as done"))
		}
		command := events.ResolveCall{Run: args[0], Call: args[1], Index: index, As: as, Result: json.RawMessage(result)}
		return a.steer(&s, args[0], func(ctx context.Context, c *client) error {
			admitted, err := c.command(ctx, s.id, command)
			if err != nil {
				return err
			}
			return a.show(admitted, func(w io.Writer) {
				fmt.Fprintf(w, "callback %d of call %s of run %s is settled: %s\n", index, args[1], admitted.Run, as)
			})
		})
	}
	return cmd
}

func (a *app) callSettleCommand() *cobra.Command {
	var (
		s      steering
		data   events.SettleCall
		output string
	)
	cmd := &cobra.Command{Use: "settle RUN CALL", Short: "Answer a call that its service has accepted", Args: exactly("RUN", "CALL"),
		Long:    "settle answers a deferred call in its service's place: with an output, which must fit the\ncapability's schema, or with an error, which the model reads. The first answer counts.",
		Example: "  agentruntime call settle s3f9…-k2m4x9qa call_1 --result '{\"approved\":true}'\n  agentruntime call settle s3f9…-k2m4x9qa call_1 --error 'the budget owner said no'"}
	s.register(cmd)
	cmd.Flags().StringVar(&output, "result", "", "the answer, as JSON")
	cmd.Flags().StringVar(&data.Error, "error", "", "why the call failed")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		answered, failed := cmd.Flags().Changed("result"), cmd.Flags().Changed("error")
		switch {
		case answered == failed:
			return usage(errors.New("give exactly one of --result and --error"))
		case answered && !json.Valid([]byte(output)):
			return usage(fmt.Errorf("--result %q is not JSON; a text needs quotes of its own, such as --result '\"yes\"'", output))
		case failed && data.Error == "":
			return usage(errors.New("--error is empty; say why the call failed: the model reads it"))
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
