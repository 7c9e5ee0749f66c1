package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/agentruntime/agentruntime/jetstream"
)

// provisioned is what provision prints.
type provisioned struct {
	Shards   int `json:"shards"`
	Replicas int `json:"replicas"`
}

// provisionTimeouts is how many time-outs of one request the streams may take:
// servers that have just started elect their leaders first.
const provisionTimeouts = 6

// provision makes the streams that are missing. A system that does not answer
// is waited for, though not for ever.
func (a *app) provision(ctx context.Context, conn *jetstream.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, provisionTimeouts*a.flags.timeout)
	defer cancel()
	err := conn.Provision(ctx)
	if ctx.Err() != nil {
		err = fmt.Errorf("%w; is JetStream enabled for this account?", err)
	}
	return startError(err)
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
			if err := a.provision(a.ctx, conn); err != nil {
				return err
			}
			p := provisioned{conn.Layout().Shards, conn.Layout().Replicas}
			return a.show(p, func(w io.Writer) {
				fmt.Fprintf(w, "the streams are there: %d shards, %d replicas\n", p.Shards, p.Replicas)
			})
		}}
}
