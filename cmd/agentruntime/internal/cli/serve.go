package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/host"
	"github.com/agentruntime/agentruntime/jetstream"
)

// defaultMetrics is where a worker answers metrics and health requests.
const defaultMetrics = "127.0.0.1:9464"

func (a *app) serveCommand() *cobra.Command {
	var data, metrics, scripts string
	var sweep time.Duration
	var list bool
	cmd := &cobra.Command{Use: "serve", Short: "Run a worker against a NATS system", Args: exactly(),
		Long: "serve runs a worker: it takes commands, runs agents and answers the API, until it is\ntold to stop. The first SIGINT or SIGTERM lets calls under way end (worker.grace, 30s)\nand hands the runs to other workers; the second ends it at once.",
		Example: "  agentruntime serve -s nats://nats-1:4222,nats-2:4222 --creds worker.creds\n" +
			"  agentruntime serve --config /etc/agentruntime/config.yaml --data /var/lib/agentruntime"}
	cmd.Flags().StringVar(&data, "data", "", "folder that this worker alone uses; with it a restarted worker takes its runs back at once (AGENTRUNTIME_DATA)")
	cmd.Flags().StringVar(&metrics, "metrics", "", "address for /metrics, /healthz and /readyz, or off (AGENTRUNTIME_METRICS; default "+defaultMetrics+")")
	cmd.Flags().StringVar(&scripts, "scripts", "", "folder of <name>.script.yaml files for scripted/<name> models")
	cmd.Flags().DurationVar(&sweep, "sweep", 0, "time between two looks at every run that has not ended (AGENTRUNTIME_SWEEP; default 1m)")
	cmd.Flags().BoolVar(&list, "list", true, "whether this worker may keep the list of runs, which one worker does for all (AGENTRUNTIME_LIST)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("sweep") {
			if err := checkSweep(sweep); err != nil {
				return err
			}
			a.config.Sweep = sweep
		}
		if scripts != "" {
			if err := checkFolder("--scripts", scripts); err != nil {
				return err
			}
		}
		if cmd.Flags().Changed("list") {
			a.config.List = list
		}
		at := orDefault(orDefault(metrics, a.config.Metrics), defaultMetrics)
		if err := checkMetrics(at); err != nil {
			return err
		}
		return a.unlessStopped(a.serve(orDefault(data, a.config.Worker.Data), at, scripts))
	}
	return cmd
}

func (a *app) serve(data, metrics, scripts string) error {
	a.stays = true
	if data != "" {
		lock, err := jetstream.LockFolder(data)
		if err != nil {
			return failed(err)
		}
		defer lock.Close()
	}
	if err := a.checkFiles(); err != nil {
		return err
	}
	if err := a.checkWorker(); err != nil {
		return err
	}
	logger := a.logger("json", "info")
	connection := a.config.Connection("agentruntime worker")
	connection.Logger = logger
	conn, err := jetstream.Connect(connection)
	if err != nil {
		return unreachable(err)
	}
	defer conn.Close()
	a.conn = conn
	w, err := a.newWorker(conn, data, &host.Models{ScriptFolder: scripts}, logger)
	if err != nil {
		return err
	}
	defer w.scripts.Close()
	defer w.routes.Close()
	if err := w.prepare(a.ctx, conn); err != nil {
		return err
	}
	life, end := context.WithCancel(context.WithoutCancel(a.ctx))
	defer end()
	at, err := w.serveMetrics(life, conn, metrics)
	if err != nil {
		return err
	}
	logger.Info("the worker runs", "version", version(), "namespace", a.config.Namespace, "metrics", at)
	if err := w.host.Run(a.ctx, a.kill); err != nil {
		return failed(fmt.Errorf("the worker ended: %w", err))
	}
	logger.Info("the worker has stopped")
	return nil
}
