package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
)

func (a *app) runTreeCommand() *cobra.Command {
	return &cobra.Command{Use: "tree RUN", Short: "Show a run and everything below it", Args: exactly("RUN"),
		Example: "  agentruntime run tree s3f9…-k2m4x9qa\n  agentruntime run tree s3f9…-k2m4x9qa -o json",
		RunE: func(_ *cobra.Command, args []string) error {
			if err := events.CheckRun(args[0]); err != nil {
				return usage(err)
			}
			return a.withClient(func(ctx context.Context, c *client) error {
				n, err := c.tree(ctx, args[0])
				if err != nil {
					return err
				}
				return a.show(n, func(w io.Writer) { table(w, "RUN AGENT STATE STEPS TOKENS REASON", treeRows(n, "", "")) })
			})
		}}
}

// tree asks for a run and everything below it.
func (c *client) tree(ctx context.Context, run string) (*handlers.TreeNode, error) {
	var n handlers.TreeNode
	return &n, c.ask(ctx, handlers.VerbTree, nil, handlers.RunRequest{Run: run}, &n)
}

// treeCounts asks for a run and how many there are below it.
func (c *client) treeCounts(ctx context.Context, run string) (*handlers.TreeNode, error) {
	var n handlers.TreeNode
	return &n, c.ask(ctx, handlers.VerbTree, nil, handlers.RunRequest{Run: run, Brief: true}, &n)
}

// treeRows draws a tree: first stands before the node itself, rest before what
// is below it.
func treeRows(n *handlers.TreeNode, first, rest string) [][]string {
	reason := why(&n.Summary)
	if n.Error != "" {
		reason = brief(n.Error)
	}
	rows := [][]string{{first + n.Run, n.Agent, string(n.State), fmt.Sprint(n.Steps), fmt.Sprintf("%d+%d", n.Usage.Input, n.Usage.Output), reason}}
	for i := range n.Children {
		if i < len(n.Children)-1 {
			rows = append(rows, treeRows(&n.Children[i], rest+"├─ ", rest+"│  ")...)
		} else {
			rows = append(rows, treeRows(&n.Children[i], rest+"└─ ", rest+"   ")...)
		}
	}
	return rows
}
