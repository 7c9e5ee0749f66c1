// Package cli is the command line: its verbs, their flags, what they print and
// their exit codes.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/config"
	"github.com/agentruntime/agentruntime/jetstream"
)

// The exit codes. They are promises.
const (
	exitOK          = 0
	exitFailed      = 1 // the run failed, or what was asked for was refused
	exitUsage       = 2 // the command line or the configuration is wrong
	exitUnreachable = 3 // NATS, or a worker behind it, cannot be reached

	exitInterrupted = 130 // SIGINT or SIGTERM came before the verb was done
)

// coded is an error with its exit code.
type coded struct {
	code int
	err  error
}

func (e *coded) Error() string { return e.err.Error() }
func (e *coded) Unwrap() error { return e.err }

func failed(err error) error      { return &coded{exitFailed, err} }
func usage(err error) error       { return &coded{exitUsage, err} }
func unreachable(err error) error { return &coded{exitUnreachable, err} }

// app is one invocation.
type app struct {
	getenv   func(string) string
	in       io.Reader
	out, err io.Writer
	flags    flags
	config   *config.Config
	timed    bool // --timeout was given

	stays bool            // until it is told to end: an end is what was asked for
	conn  *jetstream.Conn // the one that was made last

	ctx  context.Context // ends with the first signal
	kill context.Context // ends with the second
}

// flags are those that every verb has.
type flags struct {
	file, output, namespace                                 string
	server, creds, nkey, user, password, token, inboxPrefix string
	tlsCert, tlsKey, tlsCA                                  string
	timeout                                                 time.Duration
}

// Main runs one command line and returns its exit code.
func Main(args []string, getenv func(string) string, in io.Reader, out, errOut io.Writer) int {
	ctx, kill, stop := signals()
	defer stop()
	return run(ctx, kill, args, getenv, in, out, errOut)
}

// run is Main without the signals: a verb that stays lets its work end when ctx
// ends, and leaves at once when kill does.
func run(ctx, kill context.Context, args []string, getenv func(string) string, in io.Reader, out, errOut io.Writer) int {
	written := &tracked{Writer: out}
	a := &app{getenv: getenv, in: in, err: errOut, ctx: ctx, kill: kill}
	a.out = &visible{w: written, raw: a.json}
	root := a.root()
	root.SetArgs(append([]string{}, args...)) // nil would stand for the process's own
	root.SetIn(in)
	root.SetOut(written)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	if written.failed != nil {
		err = failed(fmt.Errorf("write the output: %w", written.failed))
	}
	if err == nil {
		return exitOK
	}
	a.complain(err)
	if ctx.Err() != nil && !a.stays {
		return exitInterrupted
	}
	var c *coded
	if errors.As(err, &c) {
		return c.code
	}
	return exitUsage // what cobra itself refuses
}

// tracked remembers that a write failed: output that was lost is no success.
type tracked struct {
	io.Writer
	failed error
}

func (t *tracked) Write(p []byte) (int, error) {
	n, err := t.Writer.Write(p)
	if err != nil && t.failed == nil {
		t.failed = err
	}
	return n, err
}

// complain says on standard error what went wrong, without the secrets of the
// configuration.
func (a *app) complain(err error) {
	text := err.Error()
	if a.config != nil {
		text = a.config.Redactor().Redact(text)
	}
	fmt.Fprintf(a.err, "agentruntime: %s\n", escape(text))
	var denied *jetstream.PermissionError
	if a.conn == nil || errors.As(err, &denied) {
		return
	}
	// What the server said beside is likely to be the reason.
	for _, e := range a.conn.Denied() {
		fmt.Fprintf(a.err, "agentruntime: %s\n", escape(e.Error()))
	}
}

// signals returns a context that ends with the first SIGINT or SIGTERM and one
// that ends with the second.
func signals() (first, second context.Context, stop func()) {
	first, endFirst := context.WithCancel(context.Background())
	second, endSecond := context.WithCancel(context.Background())
	got := make(chan os.Signal, 2)
	signal.Notify(got, os.Interrupt, syscall.SIGTERM)
	go func() {
		for range got {
			if first.Err() != nil {
				endSecond()
			}
			endFirst()
		}
	}()
	return first, second, func() { signal.Stop(got); close(got); endFirst(); endSecond() }
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "agentruntime",
		Short:         "Run AI agents durably on NATS JetStream",
		Long:          "agentruntime runs AI agents durably: every step of a run is a committed event,\na worker may die at any moment, and another one carries on.",
		Example:       "  agentruntime dev                                   # everything in one process, with a sample\n  agentruntime run start hello-triage -m 'It is down'   # from another terminal\n  agentruntime run list",
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.configure(cmd) },
	}
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(helpCommand())
	p := root.PersistentFlags()
	p.StringVar(&a.flags.file, "config", "", "configuration file (AGENTRUNTIME_CONFIG)")
	p.StringVarP(&a.flags.output, "output", "o", "text", "text or json")
	p.StringVarP(&a.flags.namespace, "namespace", "n", "", "namespace (AGENTRUNTIME_NAMESPACE; default \"default\")")
	p.StringVarP(&a.flags.server, "server", "s", "", "NATS URLs, separated by commas (NATS_URL; default nats://127.0.0.1:4222)")
	p.StringVar(&a.flags.creds, "creds", "", "file with user credentials (NATS_CREDS)")
	p.StringVar(&a.flags.nkey, "nkey", "", "file with an nkey seed (NATS_NKEY)")
	p.StringVar(&a.flags.user, "user", "", "user name (NATS_USER)")
	p.StringVar(&a.flags.password, "password", "", "password (NATS_PASSWORD)")
	p.StringVar(&a.flags.token, "token", "", "token (NATS_TOKEN)")
	p.StringVar(&a.flags.tlsCert, "tlscert", "", "client certificate file (NATS_CERT)")
	p.StringVar(&a.flags.tlsKey, "tlskey", "", "client key file (NATS_KEY)")
	p.StringVar(&a.flags.tlsCA, "tlsca", "", "certificate authority file (NATS_CA)")
	p.StringVar(&a.flags.inboxPrefix, "inbox-prefix", "", "prefix of reply subjects (NATS_INBOX_PREFIX)")
	p.DurationVar(&a.flags.timeout, "timeout", 5*time.Second, "of one request")
	root.AddCommand(a.devCommand(), a.serveCommand(), a.provisionCommand(), a.runCommand(), a.budgetCommand(), a.callCommand(), a.sessionCommand(), a.agentsCommand(), a.rebuildCommand(), a.doctorCommand(), a.versionCommand())
	root.CompletionOptions.HiddenDefaultCmd = true
	return root
}

// configure reads the configuration and lays the flags over it.
func (a *app) configure(cmd *cobra.Command) error {
	if err := checkGiven(cmd); err != nil {
		return err
	}
	if a.flags.output != "text" && a.flags.output != "json" {
		return usage(fmt.Errorf("--output %q: must be text or json", a.flags.output))
	}
	if a.flags.timeout <= 0 {
		return usage(fmt.Errorf("--timeout %s: must be positive", a.flags.timeout))
	}
	a.timed = cmd.Flags().Changed("timeout")
	c, err := config.Read(a.flags.file, a.getenv)
	if err != nil {
		return usage(err)
	}
	for flag, field := range map[*string]*string{
		&a.flags.namespace: &c.Namespace, &a.flags.server: &c.NATS.Server, &a.flags.creds: &c.NATS.Creds, &a.flags.nkey: &c.NATS.NKey, &a.flags.user: &c.NATS.User,
		&a.flags.password: &c.NATS.Password, &a.flags.token: &c.NATS.Token, &a.flags.tlsCert: &c.NATS.TLSCert, &a.flags.tlsKey: &c.NATS.TLSKey,
		&a.flags.tlsCA: &c.NATS.TLSCA, &a.flags.inboxPrefix: &c.NATS.InboxPrefix,
	} {
		if *flag != "" {
			*field = *flag
		}
	}
	a.config = c
	if err := c.Check(); err != nil {
		return usage(err)
	}
	return nil
}

// group is a command that only has others below it.
func group(use, short, example string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Example: example, Args: func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage(fmt.Errorf("%s has no command %q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath()))
		}
		return nil
	}, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	g.AddCommand(commands...)
	return g
}
