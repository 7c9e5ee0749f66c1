package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// provisioned is what provision prints.
type provisioned struct {
	Shards   int `json:"shards"`
	Replicas int `json:"replicas"`
}

func (a *app) provisionCommand() *cobra.Command {
	return &cobra.Command{Use: "provision", Short: "Make the streams and stores that are missing", Args: exactly(),
		Long:    "provision makes what does not exist yet and compares the rest; it changes nothing that is\nthere. Run it as the user that may make streams, before workers that may not.",
		Example: "  agentruntime provision --user provisioner --config /etc/agentruntime/config.yaml",
		RunE: func(*cobra.Command, []string) error {
			conn, err := a.connect("agentruntime provision")
			if err != nil {
				return err
			}
			defer conn.Close()
			if err := conn.Provision(a.ctx); err != nil {
				return startError(err)
			}
			p := provisioned{conn.Layout().Shards, conn.Layout().Replicas}
			return a.show(p, func(w io.Writer) {
				fmt.Fprintf(w, "the streams are there: %d shards, %d replicas\n", p.Shards, p.Replicas)
			})
		}}
}
