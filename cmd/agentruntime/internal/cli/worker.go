package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/config"
	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/host"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/runtime/executor"
)

// worker is one process of the service: a host, its metrics, its scripts.
type worker struct {
	app     *app
	host    *host.Host
	metrics *host.Metrics
	scripts *executor.Factory
	routes  *host.Routes
	logger  *slog.Logger

	definitions string // the fingerprint of the files that were applied last, in dev
}

// logger logs to standard error, without secrets.
func (a *app) logger(format, level string) *slog.Logger {
	var l slog.Level
	_ = l.UnmarshalText([]byte(orDefault(orDefault(a.config.Log.Level, level), "info"))) // the configuration was checked
	secrets := a.config.Redactor()
	o := &slog.HandlerOptions{Level: l, ReplaceAttr: func(_ []string, at slog.Attr) slog.Attr {
		switch v := at.Value.Any().(type) {
		case string:
			at.Value = slog.StringValue(secrets.Redact(v))
		case error:
			at.Value = slog.StringValue(secrets.Redact(v.Error()))
		default:
			if at.Value.Kind() == slog.KindAny {
				at.Value = slog.StringValue(secrets.Redact(fmt.Sprint(v)))
			}
		}
		return at
	}}
	if orDefault(a.config.Log.Format, format) == "json" {
		return slog.New(slog.NewJSONHandler(a.err, o))
	}
	return slog.New(slog.NewTextHandler(a.err, o))
}

// checkWorker refuses a configuration that no worker can work with, before anything
// is connected or started: a policy, a file of TLS or an encryption key that cannot
// be read, or a key file that holds no key. A variable of a provider or a secret that
// is not set concerns only the runs that need it.
func (a *app) checkWorker() error {
	_, err := a.config.WrappingKeys()
	if err == nil {
		_, err = a.config.HTTP.TLS()
	}
	if err == nil && a.config.Policy != "" {
		_, err = config.ReadPolicy(a.config.Policy)
	}
	if err != nil {
		return usage(err)
	}
	for _, name := range slices.Sorted(maps.Keys(a.config.Providers)) {
		if p := a.config.Providers[name]; p.KeyFile != "" && p.Key == "" {
			return usage(&config.Error{Source: "providers." + name + ".key_file", Reason: p.KeyGone})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.config.Named)) {
		if s := a.config.Named[name]; s.KeyFile != "" && s.Value == "" {
			return usage(&config.Error{Source: "secrets." + name + ".key_file", Reason: s.Gone})
		}
	}
	return nil
}

// newWorker puts a worker together over a connection. The folder is one that
// this process has locked, or empty.
func (a *app) newWorker(conn *jetstream.Conn, folder string, models *host.Models, logger *slog.Logger) (*worker, error) {
	name := a.config.Worker.Name
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			name = "worker"
		}
	}
	id, err := host.NewIdentity(name, folder)
	if err != nil {
		return nil, failed(err)
	}
	wrapping, err := a.config.WrappingKeys()
	if err != nil {
		return nil, usage(err)
	}
	w := &worker{app: a, metrics: host.NewMetrics(), logger: logger, scripts: a.config.Scripts.Executors()}
	w.scripts.Stderr = func(text string) { logger.Warn("a script's process wrote to its standard error", "text", text) }
	if w.routes, err = host.NewRoutes(a.config, logger, version()); err != nil {
		return nil, usage(err)
	}
	models.Providers, models.Requests, models.Money = a.config.Providers, a.config.Requests, a.config.Currency
	models.Limits = host.NewLimiter(conn, id.String(), w.metrics)
	policies, err := a.policies(logger)
	if err != nil {
		return nil, err
	}
	w.metrics.CountTokens(models)
	w.host = host.New(host.Options{Conn: conn, Logger: logger, Meter: w.metrics, Redactor: a.config.Redactor(), Wrapping: wrapping, Models: models, Prices: models, Executors: w.scripts, Carriers: w.routes.Carriers(), EndRoutes: w.routes.Close,
		Policies: policies, Limits: models.Limits,
		Version: version(), Worker: id.String(), Gone: id.Gone, TTL: a.config.Worker.Lease, Slots: a.config.Worker.Slots, Grace: a.config.Worker.Grace, Requests: a.config.Requests.PerRun, Fallback: a.config.Requests.Fallback,
		Tree: handlers.TreeLimits{Depth: a.config.Tree.Depth, Width: a.config.Tree.Width}, Sweep: a.config.Sweep, Unkept: !a.config.List, ListPath: listFile(folder), Stuck: w.metrics.Stuck})
	w.metrics.CountLateAnswers(conn.LateAnswers)
	return w, nil
}

// listFile is where a worker with a data folder keeps the list of runs.
func listFile(folder string) string {
	if folder == "" {
		return ""
	}
	return filepath.Join(folder, "runs.sqlite")
}

// prepare makes the streams that are missing and refuses settings that would
// break a guarantee.
func (w *worker) prepare(ctx context.Context, conn *jetstream.Conn) error {
	if err := w.app.provision(ctx, conn); err != nil {
		return err
	}
	findings, err := conn.Check(ctx)
	if err != nil {
		return startError(err)
	}
	for _, f := range findings {
		if f.Verdict == jetstream.Unverifiable {
			w.logger.Warn("a setting cannot be seen from here", "where", f.Where, "setting", f.Setting, "must be", f.Want, "advice", f.Advice)
		}
	}
	return nil
}

// unlessStopped drops an error that comes of being told to stop before the
// worker ran.
func (a *app) unlessStopped(err error) error {
	if a.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// startError tells a wrong setting from a server that cannot be reached.
func startError(err error) error {
	if err == nil {
		return nil
	}
	var setting *jetstream.SettingError
	var shard *jetstream.MissingShardError
	if errors.As(err, &setting) || errors.As(err, &shard) {
		return failed(err)
	}
	return unreachable(err)
}

// serveMetrics begins to answer at the configured address and returns it, or
// "" when metrics are off.
func (w *worker) serveMetrics(ctx context.Context, conn *jetstream.Conn, address string) (string, error) {
	if address == "off" {
		return "", nil
	}
	at, err := w.metrics.Serve(ctx, address, func() error {
		select {
		case <-w.host.Ready():
		default:
			return host.ErrNotReady
		}
		if !conn.Connected() {
			return errors.New("the connection to NATS is lost")
		}
		return nil
	})
	if err != nil {
		return "", failed(err)
	}
	return at, nil
}

// version is the program's version, for people and for the NATS service.
func version() string { return buildVersion }

// buildVersion is set at release by the linker; it is semantic, as a NATS
// service's must be.
var buildVersion = "0.1.0"

// say prints a line for people, when people are being talked to.
func (a *app) say(format string, args ...any) {
	if !a.json() {
		fmt.Fprintf(a.out, format+"\n", args...)
	}
}

// tell prints a line of progress on standard error, in either form of output.
func (a *app) tell(format string, args ...any) {
	fmt.Fprintf(a.err, "agentruntime: %s\n", escape(fmt.Sprintf(format, args...)))
}
