package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/files"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/route/mcp"
)

func (a *app) agentsCommand() *cobra.Command {
	return group("agents", "Check, apply and list agent definitions", "  agentruntime agents check --agents ./agents --capabilities ./capabilities\n  agentruntime agents apply --agents ./agents --capabilities ./capabilities",
		a.agentsCheckCommand(), a.agentsApplyCommand(), a.agentsListCommand())
}

// folders are where definitions stand.
type folders struct {
	agents, capabilities string
	allowMissing         bool // subagents that no file has

	tools   files.Tools               // asks MCP servers
	leftOut map[string][]*mcp.LeftOut // by agent, once versions has returned
}

func (f *folders) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.agents, "agents", "", "folder of agent files, <slug>.yaml")
	cmd.Flags().StringVar(&f.capabilities, "capabilities", "", "folder of capability files, <name>.yaml")
}

func (f *folders) registerMissing(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.allowMissing, "allow-missing-subagents", false, "agents may name subagents that no file has, because they are applied elsewhere")
}

// versions reads the folders; what is wrong with them is one line an error.
func (f *folders) versions() ([]handlers.Version, error) {
	if f.agents == "" {
		return nil, usage(fmt.Errorf("--agents is missing: the folder of agent files"))
	}
	if err := checkFolder("--agents", f.agents); err != nil {
		return nil, err
	}
	if f.capabilities != "" {
		if err := checkFolder("--capabilities", f.capabilities); err != nil {
			return nil, err
		}
	}
	set, err := files.Load(f.agents, f.capabilities)
	if err != nil {
		return nil, failed(err)
	}
	set.AllowMissingSubagents, set.Tools = f.allowMissing, f.tools
	versions, err := set.Versions()
	f.leftOut = set.LeftOut
	if err != nil {
		return nil, failed(err)
	}
	return versions, nil
}

// appliedAgent is one line of what check and apply print.
type appliedAgent struct {
	Agent        string   `json:"agent"`
	Version      string   `json:"version,omitempty"`
	Capabilities []string `json:"capabilities"`

	LeftOut []leftOut `json:"left_out,omitempty"` // tools that the agent's patterns mean and that cannot be capabilities
}

func (a *app) agentsCheckCommand() *cobra.Command {
	var f folders
	var policy string
	cmd := &cobra.Command{Use: "check", Short: "Check definition files without a server", Args: exactly(), Example: "  agentruntime agents check --agents ./agents --capabilities ./capabilities --policy policy.yaml"}
	f.register(cmd)
	f.registerMissing(cmd)
	cmd.Flags().StringVar(&policy, "policy", "", "file of a policy that must allow what the agents name, in the namespace of --namespace; that of the configuration by default")
	cmd.RunE = func(*cobra.Command, []string) error {
		f.tools = a.tools
		versions, err := f.versions()
		if err != nil {
			return err
		}
		if file := orDefault(policy, a.config.Policy); file != "" {
			if err := a.checkPolicy(file, versions); err != nil {
				return err
			}
		}
		list := []appliedAgent{}
		for _, v := range versions {
			list = append(list, appliedAgent{Agent: v.Agent.Slug, Capabilities: append([]string{}, v.Agent.Capabilities...), LeftOut: leftOuts(f.leftOut[v.Agent.Slug])})
		}
		return a.show(list, func(w io.Writer) {
			sayLeftOut(w, list)
			fmt.Fprintf(w, "nothing is wrong; agents: %d\n", len(list))
		})
	}
	return cmd
}

func (a *app) agentsApplyCommand() *cobra.Command {
	var f folders
	cmd := &cobra.Command{Use: "apply", Short: "Make definitions current for new runs; runs under way keep theirs", Args: exactly(),
		Example: "  agentruntime agents apply --agents ./agents --capabilities ./capabilities"}
	f.register(cmd)
	f.registerMissing(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		f.tools = a.tools
		versions, err := f.versions()
		if err != nil {
			return err
		}
		return a.withClient(func(ctx context.Context, c *client) error {
			list := []appliedAgent{}
			for i := range versions {
				var applied handlers.AppliedAnswer
				if err := c.ask(ctx, handlers.VerbAgentsApply, nil, &versions[i], &applied); err != nil {
					return fmt.Errorf("apply agent %s: %w", versions[i].Agent.Slug, err)
				}
				list = append(list, appliedAgent{applied.Agent, applied.Version, append([]string{}, versions[i].Agent.Capabilities...), leftOuts(f.leftOut[versions[i].Agent.Slug])})
			}
			return a.show(list, func(w io.Writer) {
				sayLeftOut(w, list)
				var rows [][]string
				for _, l := range list {
					rows = append(rows, []string{l.Agent, l.Version})
				}
				table(w, "AGENT VERSION", rows)
			})
		})
	}
	return cmd
}

func (a *app) agentsListCommand() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the agents of a namespace", Args: exactly(), Example: "  agentruntime agents list -n default -o json",
		RunE: func(*cobra.Command, []string) error {
			return a.withClient(func(ctx context.Context, c *client) error {
				var answer handlers.AgentsAnswer
				if err := c.ask(ctx, handlers.VerbAgentsList, nil, struct{}{}, &answer); err != nil {
					return err
				}
				return a.show(answer.Agents, func(w io.Writer) {
					var rows [][]string
					for _, name := range slices.Sorted(maps.Keys(answer.Agents)) {
						rows = append(rows, []string{name, answer.Agents[name]})
					}
					table(w, "AGENT VERSION", rows)
				})
			})
		}}
}
