package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/projector"
)

func (a *app) budgetCommand() *cobra.Command {
	return group("budget", "Show and raise what runs may use", "  agentruntime budget show s3f9…-k2m4x9qa\n  agentruntime budget topup s3f9…-k2m4x9qa --steps 20",
		a.budgetShowCommand(), a.budgetTopUpCommand())
}

func (a *app) budgetShowCommand() *cobra.Command {
	return &cobra.Command{Use: "show RUN", Short: "Show what the runs of a tree may use and have used", Args: exactly("RUN"),
		Long:    "show lists the accounts of the tree that a run is in, the root's first. What a run has used\nincludes everything below it. A request is open until something is heard of it.",
		Example: "  agentruntime budget show s3f9…-k2m4x9qa",
		RunE: func(_ *cobra.Command, args []string) error {
			if err := events.CheckRun(args[0]); err != nil {
				return usage(err)
			}
			return a.withClient(func(ctx context.Context, c *client) error {
				var b handlers.Budget
				if err := c.ask(ctx, handlers.VerbBudget, nil, handlers.RunRequest{Run: args[0]}, &b); err != nil {
					return err
				}
				return a.show(b, func(w io.Writer) { writeBudget(w, &b) })
			})
		}}
}

func writeBudget(w io.Writer, b *handlers.Budget) {
	if len(b.Accounts) == 0 {
		fmt.Fprintf(w, "the tree of run %s has used nothing of a budget\n", b.Root)
		return
	}
	var rows [][]string
	for _, account := range b.Accounts {
		used := events.Budget{Steps: account.Steps, InputTokens: account.Tokens.Input, OutputTokens: account.Tokens.Output}
		rows = append(rows, []string{account.Run, orDefault(amounts(account.Limit), "none"), orDefault(amounts(&used), "nothing"), fmt.Sprint(len(account.Open)), refusal(&account)})
	}
	table(w, "RUN LIMIT USED OPEN REFUSED", rows)
}

// amounts is what a budget counts, in a few words.
func amounts(b *events.Budget) string {
	var list []string
	if b == nil {
		return ""
	}
	for _, n := range []struct {
		n    int64
		what string
	}{{b.Steps, "steps"}, {b.InputTokens, "in"}, {b.OutputTokens, "out"}} {
		if n.n > 0 {
			list = append(list, fmt.Sprintf("%d %s", n.n, n.what))
		}
	}
	if b.Timeout != "" {
		list = append(list, "within "+b.Timeout)
	}
	return strings.Join(list, ", ")
}

func refusal(account *projector.Account) string {
	switch r := account.Refused; {
	case r == nil:
		return ""
	case r.By == account.Run:
		return "its " + r.What + " are spent"
	default:
		return fmt.Sprintf("the %s of %s are spent", r.What, r.By)
	}
}

func (a *app) budgetTopUpCommand() *cobra.Command {
	var s steering
	var add events.TopUpBudget
	cmd := &cobra.Command{Use: "topup RUN", Short: "Add to the limits of a run", Args: exactly("RUN"),
		Long:    "topup adds to the limits that a run has. Runs that its budget holds up go on. A run that has failed\nfor its budget has ended; start another one with run retry.",
		Example: "  agentruntime budget topup s3f9…-k2m4x9qa --steps 20\n  agentruntime budget topup s3f9…-k2m4x9qa --input-tokens 100000 --output-tokens 10000"}
	s.register(cmd)
	cmd.Flags().Int64Var(&add.Steps, "steps", 0, "model requests to add")
	cmd.Flags().Int64Var(&add.InputTokens, "input-tokens", 0, "tokens sent to add")
	cmd.Flags().Int64Var(&add.OutputTokens, "output-tokens", 0, "tokens generated to add")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if min(add.Steps, add.InputTokens, add.OutputTokens) < 0 || max(add.Steps, add.InputTokens, add.OutputTokens) == 0 {
			return usage(errors.New("say what to add: at least one of --steps, --input-tokens and --output-tokens, and none below zero"))
		}
		add.Run = args[0]
		return a.steer(&s, args[0], func(ctx context.Context, c *client) error {
			admitted, err := c.command(ctx, s.id, add)
			if err != nil {
				return err
			}
			return a.show(admitted, func(w io.Writer) {
				fmt.Fprintf(w, "run %s may use more: %s\n", admitted.Run, amounts(&events.Budget{Steps: add.Steps, InputTokens: add.InputTokens, OutputTokens: add.OutputTokens}))
			})
		})
	}
	return cmd
}
