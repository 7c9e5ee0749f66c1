package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/agentruntime/agentruntime/projector"
)

// versionInfo is what version prints.
type versionInfo struct {
	Version    string `json:"version"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	Checkpoint int    `json:"checkpoint_version"`
	Fold       int    `json:"fold_version"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: exactly(), Example: "  agentruntime version -o json",
		RunE: func(*cobra.Command, []string) error {
			v := versionInfo{version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, projector.CheckpointVersion, projector.FoldVersion}
			return a.show(v, func(w io.Writer) {
				fmt.Fprintf(w, "agentruntime %s (%s, %s), checkpoints of version %d\n", v.Version, v.Go, v.Platform, v.Checkpoint)
			})
		}}
}
