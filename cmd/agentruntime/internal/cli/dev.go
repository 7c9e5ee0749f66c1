package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/files"
	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/host"
	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/sample"
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/runtime/model/scripted"
)

// devFlags are what dev is told.
type devFlags struct {
	folders
	data, listen, metrics string
	once                  bool
}

func (a *app) devCommand() *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{Use: "dev", Short: "Run everything in one process, with a sample", Args: exactly(),
		Long: "dev runs a NATS server with its data in a folder, a worker, and, unless it is given agents,\nsamples that it runs once. Nothing else is needed. Changed agent files count for new runs.",
		Example: "  agentruntime dev\n  agentruntime dev --agents ./agents --capabilities ./capabilities\n" +
			"  agentruntime dev --once   # exit when the sample's runs have completed"}
	f.register(cmd)
	cmd.Flags().StringVar(&f.data, "data", "", "data folder (default: agentruntime/dev in the user's cache folder)")
	cmd.Flags().StringVar(&f.listen, "listen", "127.0.0.1:4222", "address at which other programs reach NATS; port 0 picks a free one")
	cmd.Flags().StringVar(&f.metrics, "metrics", "", "address for /metrics, /healthz and /readyz, or off (default "+defaultMetrics+", or a free port when that is taken)")
	cmd.Flags().BoolVar(&f.once, "once", false, "exit when the sample's runs have ended: 0 when they completed")
	cmd.RunE = func(*cobra.Command, []string) error {
		if f.once && f.agents != "" {
			return usage(errors.New("--once runs the sample and does not go with --agents"))
		}
		f.metrics = orDefault(f.metrics, a.config.Metrics)
		if err := errors.Join(checkAddress("--listen", f.listen, "127.0.0.1:4222"), checkMetrics(f.metrics)); err != nil {
			return err
		}
		return a.unlessStopped(a.dev(&f))
	}
	return cmd
}

// devData returns the data folder.
func (a *app) devData(f *devFlags) (string, error) {
	if folder := orDefault(f.data, a.config.Worker.Data); folder != "" {
		return filepath.Abs(folder)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no cache folder for this user (%w); name a data folder with --data", err)
	}
	return filepath.Join(cache, "agentruntime", "dev"), nil
}

func (a *app) dev(f *devFlags) error {
	a.stays = true
	if err := a.checkWorker(); err != nil {
		return err
	}
	read := f.fingerprint()
	versions, err := a.devVersions(f)
	if err != nil {
		return err
	}
	data, err := a.devData(f)
	if err != nil {
		return usage(err)
	}
	logger := a.logger("text", "warn")
	server := &jetstream.Embedded{StoreDir: data, Listen: f.listen, Logger: logger}
	if err := server.Start(); err != nil {
		var used *jetstream.AddressInUseError
		if errors.As(err, &used) {
			err = fmt.Errorf("%w with --listen; port 0 picks a free one", err)
		}
		return failed(err)
	}
	defer server.Shutdown()
	// Credentials of the environment are for other servers.
	conn, err := server.Connect(jetstream.Config{Name: "agentruntime dev", Logger: logger, Layout: a.config.Connection("").Layout})
	if err != nil {
		return failed(err)
	}
	defer conn.Close()
	models, err := devModels(f)
	if err != nil {
		return failed(err)
	}
	w, err := a.newWorker(conn, data, models, logger)
	if err != nil {
		return err
	}
	defer w.scripts.Close()
	defer w.routes.Close()
	if err := w.prepare(a.ctx, conn); err != nil {
		return err
	}
	if f.agents == "" {
		stop, err := conn.Answer(sample.Subject, sample.Serve)
		if err != nil {
			return failed(err)
		}
		defer stop()
	}
	for i := range versions {
		if _, err := w.host.Apply(a.ctx, a.config.Namespace, &versions[i]); err != nil {
			return failed(err)
		}
	}
	w.definitions = read
	return a.devRun(f, w, conn, server.ClientURL(), data)
}

// devVersions reads the agents that dev serves.
func (a *app) devVersions(f *devFlags) ([]handlers.Version, error) {
	if f.agents == "" {
		if f.capabilities != "" {
			return nil, usage(errors.New("--capabilities needs --agents"))
		}
		versions, err := sample.Set().Versions()
		if err != nil {
			return nil, failed(err)
		}
		return versions, nil
	}
	f.tools = a.tools
	versions, err := f.versions()
	a.tellLeftOut(&f.folders)
	return versions, err
}

func devModels(f *devFlags) (*host.Models, error) {
	if f.agents != "" {
		return &host.Models{ScriptFolder: f.agents}, nil
	}
	models := &host.Models{Scripts: make(map[string]*scripted.Model)}
	for name, text := range sample.Scripts() {
		script, err := scripted.Parse(name, text)
		if err != nil {
			return nil, err
		}
		models.Scripts[name] = script
	}
	return models, nil
}

// devRun runs the worker until it is told to stop, and the sample beside it.
func (a *app) devRun(f *devFlags, w *worker, conn *jetstream.Conn, url, data string) error {
	ctx, stop := context.WithCancel(a.ctx)
	defer stop()
	life, end := context.WithCancel(context.WithoutCancel(a.ctx))
	defer end()
	metrics, err := a.devMetrics(life, w, conn, f)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		defer stop() // without a worker the sample would wait for ever
		ended <- w.host.Run(ctx, a.kill)
	}()
	select {
	case <-w.host.Ready():
	case err := <-ended:
		return failed(fmt.Errorf("the worker ended: %w", errors.Join(err, context.Cause(ctx))))
	}
	if err := a.answers(ctx, conn); err != nil && ctx.Err() == nil {
		return err
	}
	a.greet(f, url, data, metrics)
	var sampleErr error
	if f.agents == "" {
		sampleErr = a.runSamples(ctx, conn)
	}
	switch {
	case f.once:
		stop()
	case ctx.Err() == nil:
		if sampleErr != nil {
			a.complain(sampleErr)
			sampleErr = nil
		}
		a.invite(f, url)
		if f.agents != "" {
			w.reload(ctx, &f.folders)
		}
	default:
		sampleErr = nil // told to stop meanwhile
	}
	defer context.AfterFunc(a.ctx, func() {
		if events.Sleep(life, stoppingAfter) == nil {
			fmt.Fprintln(a.err, "stopping: calls under way may end; press Ctrl-C again to stop at once")
		}
	})()
	if err := <-ended; err != nil {
		return failed(fmt.Errorf("the worker ended: %w", err))
	}
	return sampleErr
}

// answerPause is the pause before a worker that does not answer yet is asked
// again.
const answerPause = 5 * time.Millisecond

// answers waits until the worker of this process answers requests, which it
// begins to do a moment after it is ready.
func (a *app) answers(ctx context.Context, conn *jetstream.Conn) error {
	for {
		var agents handlers.AgentsAnswer
		err := (&client{a, conn}).ask(ctx, handlers.VerbAgentsList, nil, struct{}{}, &agents)
		if !errors.Is(err, errNoWorker) || events.Sleep(ctx, answerPause) != nil {
			return err
		}
	}
}

// stoppingAfter is how long a stop may take before it is explained.
const stoppingAfter = time.Second

// devMetrics listens at the default address, or at a free port beside another
// worker.
func (a *app) devMetrics(ctx context.Context, w *worker, conn *jetstream.Conn, f *devFlags) (string, error) {
	if f.metrics != "" {
		return w.serveMetrics(ctx, conn, f.metrics)
	}
	at, err := w.serveMetrics(ctx, conn, defaultMetrics)
	if err != nil {
		return w.serveMetrics(ctx, conn, "127.0.0.1:0")
	}
	return at, nil
}

// isLoopback reports whether an address is this machine's alone.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (a *app) greet(f *devFlags, url, data, metrics string) {
	a.say("agentruntime %s", version())
	a.say("  NATS       %s", orDefault(url, "inside this process only"))
	if host, _, err := net.SplitHostPort(f.listen); err == nil && !isLoopback(host) {
		a.say("             reachable from other machines, without a password: use this for trials only")
	}
	a.say("  data       %s", data)
	a.say("  namespace  %s", a.config.Namespace)
	if metrics != "" {
		a.say("  metrics    http://%s/metrics", metrics)
	}
	if f.agents != "" {
		a.say("  agents     %s (changed files count for new runs)", f.agents)
	}
}

// invite tells how to go on from another terminal.
func (a *app) invite(f *devFlags, url string) {
	if url == "" {
		return
	}
	agent := sample.Agent
	if f.agents != "" {
		agent = "AGENT"
	}
	server := ""
	if url != "nats://127.0.0.1:4222" {
		server = " -s " + url
	}
	a.say("\nStart a run from another terminal:")
	a.say("  agentruntime run start %s -m 'The printer on floor 3 is down' --wait%s", agent, server)
	a.say("\nor from JavaScript (npm install cloudevents @nats-io/transport-node):")
	a.say("  import { connect, headers } from '@nats-io/transport-node'")
	a.say("  import { CloudEvent, HTTP } from 'cloudevents'")
	a.say("  const nc = await connect({ servers: '%s' }), h = headers(); h.set('content-type', 'application/cloudevents+json')", url)
	a.say("  const start = new CloudEvent({ type: 'dev.agentruntime.run.start', source: '/me', data: { agent: '%s', message: 'It is down' } })", agent)
	a.say("  nc.publish('agent.cmd.%s.run.start', HTTP.structured(start).body, { headers: h })", a.config.Namespace)
	a.say("\nStop with Ctrl-C.")
}

// reloadEvery is how often the definition files are looked at.
const reloadEvery = time.Second

// fingerprint tells whether files have changed. Folders that cannot be read have
// none; reading them says why.
func (f *folders) fingerprint() string {
	text, err := files.Fingerprint(f.agents, f.capabilities)
	if err != nil {
		return ""
	}
	return text
}

// reload applies changed definition files until ctx ends. What is wrong with
// them is said, and the versions before stay current.
func (w *worker) reload(ctx context.Context, f *folders) {
	for ; ctx.Err() == nil; _ = events.Sleep(ctx, reloadEvery) {
		now := f.fingerprint()
		if now == w.definitions {
			continue
		}
		versions, err := f.versions()
		w.app.tellLeftOut(f)
		for i := range versions {
			if _, applying := w.host.Apply(ctx, w.app.config.Namespace, &versions[i]); applying != nil {
				err = errors.Join(err, applying)
				now = "" // it may go better the next time
			}
		}
		w.definitions = now
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.app.complain(fmt.Errorf("not reloaded: %w", err))
			continue
		}
		w.app.say("reloaded; agents: %d. Runs under way keep their versions", len(versions))
	}
}
