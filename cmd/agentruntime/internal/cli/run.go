package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/projector"
)

func (a *app) runCommand() *cobra.Command {
	return group("run", "Start runs, look at them and steer them", "  agentruntime run start hello-triage -m 'It is down' --wait\n  agentruntime run list --state failed --newer-than 24h",
		a.runStartCommand(), a.runContinueCommand(), a.runRetryCommand(), a.runMessageCommand(), a.runCancelCommand(),
		a.runGetCommand(), a.runTreeCommand(), a.runListCommand(), a.runWaitCommand(), a.runWatchCommand(), a.runEventsCommand())
}

// task is what run start and run continue are told.
type task struct {
	message, input, inputFile, session, id string
	files                                  []string
	labels                                 map[string]string
	wait                                   bool
	fresh                                  bool // the id is a new one: nothing was told of the run yet
}

func (t *task) register(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&t.message, "message", "m", "", "the task in words; - reads it from standard input")
	registerFiles(cmd, &t.files)
	t.registerStart(cmd)
}

// registerStart registers what every command has that starts a run.
func (t *task) registerStart(cmd *cobra.Command) {
	cmd.Flags().StringToStringVarP(&t.labels, "label", "l", nil, "label, as key=value; may be repeated")
	cmd.Flags().StringVar(&t.id, "id", "", "id of the command: the same one again is the same run; a fresh one by default")
	cmd.Flags().BoolVarP(&t.wait, "wait", "w", false, "wait for the run's end, showing its progress; exit 1 when it did not complete")
}

// maxMessage is the longest message that is read from standard input, in bytes.
const maxMessage = 1 << 20

// read completes the task from standard input and files.
func (t *task) read(in io.Reader) (input json.RawMessage, err error) {
	given := 0
	for _, s := range []string{t.message, t.input, t.inputFile} {
		if s != "" {
			given++
		}
	}
	if given != 1 {
		return nil, usage(errors.New("the task must be given once: with --message or, to start a run, --input or --input-file"))
	}
	if t.message, err = readMessage(t.message, in); err != nil {
		return nil, err
	}
	if err := checkTask(t.labels, t.files); err != nil {
		return nil, err
	}
	t.identify()
	input = json.RawMessage(t.input)
	if t.inputFile != "" {
		if input, err = os.ReadFile(t.inputFile); err != nil {
			return nil, usage(fmt.Errorf("read the input: %w", err))
		}
	}
	if t.message == "" {
		if err := events.CheckJSON(input, events.JSONLimits{}); err != nil {
			return nil, usage(fmt.Errorf("the input is not JSON: %w", err))
		}
		if !bytes.HasPrefix(bytes.TrimSpace(input), []byte("{")) {
			return nil, usage(errors.New("the input must be a JSON object"))
		}
	}
	return input, nil
}

// readMessage returns a message as it was given, or standard input for -.
func readMessage(message string, in io.Reader) (string, error) {
	if message != "-" {
		return message, nil
	}
	data, err := io.ReadAll(io.LimitReader(in, maxMessage+1))
	if err != nil {
		return "", usage(fmt.Errorf("read the message: %w", err))
	}
	if len(data) > maxMessage {
		return "", usage(fmt.Errorf("the message has more than %d bytes; make it shorter", maxMessage))
	}
	if message = strings.TrimSpace(string(data)); message == "" {
		return "", usage(errors.New("the message from standard input is empty"))
	}
	return message, nil
}

// identify gives a task an id of its own when none was given.
func (t *task) identify() {
	if t.fresh = t.id == ""; t.fresh {
		t.id = rand.Text()
	}
}

func (a *app) runStartCommand() *cobra.Command {
	var t task
	cmd := &cobra.Command{Use: "start AGENT", Short: "Start a run", Args: exactly("AGENT"),
		Example: "  agentruntime run start hello-triage -m 'The printer on floor 3 is down' --wait\n  agentruntime run start reporter --input '{\"month\":\"2026-01\"}' -l team=finance"}
	t.register(cmd)
	cmd.Flags().StringVar(&t.input, "input", "", "the task as JSON that fits the agent's input schema")
	cmd.Flags().StringVar(&t.inputFile, "input-file", "", "file with the input")
	cmd.Flags().StringVar(&t.session, "session", "", "id of the session; derived from the command by default")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if err := checkAgent("AGENT", args[0]); err != nil {
			return err
		}
		if t.session != "" {
			if err := events.CheckSession(t.session); err != nil {
				return usage(err)
			}
		}
		input, err := t.read(a.in)
		if err != nil {
			return err
		}
		return a.command(&t, events.StartRun{Agent: args[0], Message: t.message, Input: input, Session: t.session, Labels: t.labels})
	}
	return cmd
}

func (a *app) runContinueCommand() *cobra.Command {
	var t task
	cmd := &cobra.Command{Use: "continue SESSION", Short: "Start another run in a session whose last run has ended", Args: exactly("SESSION"),
		Example: "  agentruntime run continue s3f9… -m 'The third floor' --wait"}
	t.register(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if err := events.CheckSession(args[0]); err != nil {
			return usage(err)
		}
		if _, err := t.read(a.in); err != nil {
			return err
		}
		return a.command(&t, events.ContinueRun{Session: args[0], Message: t.message, Labels: t.labels})
	}
	return cmd
}

func (a *app) runRetryCommand() *cobra.Command {
	var t task
	cmd := &cobra.Command{Use: "retry RUN", Short: "Drive a failed run again, from where it stands", Args: exactly("RUN"),
		Long:    "retry starts another run in the session of a run that has failed and is its last. The model\nis told to go on from where the failed one stands, and not to repeat what took effect. The\nnew run has the agent's current version and a budget of its own.",
		Example: "  agentruntime run retry s3f9…-k2m4x9qa --wait"}
	t.registerStart(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if err := events.CheckRun(args[0]); err != nil {
			return usage(err)
		}
		if err := checkTask(t.labels, nil); err != nil {
			return err
		}
		t.identify()
		return a.command(&t, events.RetryRun{Run: args[0], Labels: t.labels})
	}
	return cmd
}

// command sends a command and shows what came of it.
func (a *app) command(t *task, payload any) error {
	return a.withClient(func(ctx context.Context, c *client) error {
		public := &jetstream.Public{Conn: c.conn}
		after := uint64(0)
		if t.wait && t.fresh {
			var err error
			if after, err = a.end(ctx, public); err != nil {
				return err
			}
		}
		payload, err := c.give(ctx, payload, t.files)
		if err != nil {
			return err
		}
		admitted, err := c.command(ctx, t.id, payload)
		if err != nil {
			return err
		}
		if !t.wait {
			return a.show(admitted, func(w io.Writer) { fmt.Fprintf(w, "run      %s\nsession  %s\n", admitted.Run, admitted.Session) })
		}
		if !a.json() {
			fmt.Fprintf(a.out, "run %s\n", admitted.Run)
		}
		return a.watch(ctx, public, admitted.Run, after)
	})
}

// end returns where the public events end now.
func (a *app) end(ctx context.Context, public *jetstream.Public) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, a.flags.timeout)
	defer cancel()
	after, err := public.End(ctx)
	if err != nil {
		return 0, unreachable(err)
	}
	return after, nil
}

// withRun connects and reads a run.
func (a *app) withRun(run string, f func(context.Context, *client, *handlers.RunDetail) error) error {
	if err := events.CheckRun(run); err != nil {
		return usage(err)
	}
	return a.withClient(func(ctx context.Context, c *client) error {
		var d handlers.RunDetail
		if err := c.ask(ctx, handlers.VerbGet, nil, handlers.RunRequest{Run: run}, &d); err != nil {
			return err
		}
		return f(ctx, c, &d)
	})
}

func (a *app) runGetCommand() *cobra.Command {
	return &cobra.Command{Use: "get RUN", Short: "Show one run", Args: exactly("RUN"), Example: "  agentruntime run get s3f9…-k2m4x9qa -o json",
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withRun(args[0], func(_ context.Context, _ *client, d *handlers.RunDetail) error {
				return a.show(d, func(w io.Writer) { writeDetail(w, d) })
			})
		}}
}

func writeDetail(w io.Writer, d *handlers.RunDetail) {
	rows := [][]string{{"run", d.Run}, {"session", d.Session}, {"agent", d.Agent}, {"state", string(d.State)}, {"reason", d.Reason}, {"error", d.Error}, {"note", d.Note},
		{"waits", d.Wake}, {"parent", d.Parent}, {"root", rootOf(d)}, {"started", d.Started.Local().Format(time.RFC3339)}, {"steps", fmt.Sprint(d.Steps)}, {"tokens", fmt.Sprintf("%d in, %d out", d.Usage.Input, d.Usage.Output)},
		{"cost", describeCost(d.Cost)}, {"worker", d.Worker}, {"reply", describeReply(d.Reply)}}
	for _, r := range rows {
		if r[1] != "" {
			fmt.Fprintf(w, "%-8s %s\n", r[0], oneLine(r[1]))
		}
	}
}

// rootOf names the root of a run that is none itself.
func rootOf(d *handlers.RunDetail) string {
	if d.Root == d.Run {
		return ""
	}
	return d.Root
}

func (a *app) runWatchCommand() *cobra.Command {
	var after uint64
	cmd := &cobra.Command{Use: "watch RUN", Short: "Follow a run's public events to its end", Args: exactly("RUN"),
		Example: "  agentruntime run watch s3f9…-k2m4x9qa\n  agentruntime run watch s3f9…-k2m4x9qa --after 1234   # go on after a disconnect"}
	cmd.Flags().Uint64Var(&after, "after", 0, "begin after this sequence; JSON lines name theirs")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return a.withRun(args[0], func(ctx context.Context, c *client, d *handlers.RunDetail) error {
			public := &jetstream.Public{Conn: c.conn}
			if !d.State.Terminal() {
				return a.watch(ctx, public, d.Run, after)
			}
			// Its last event may be one of those before, or may have aged out.
			told, cancel := context.WithTimeout(ctx, a.flags.timeout)
			defer cancel()
			err := a.watch(told, public, d.Run, after)
			if ctx.Err() == nil && told.Err() != nil {
				return ended(d)
			}
			return err
		})
	}
	return cmd
}

// watchLine is one public event as programs get it.
type watchLine struct {
	Sequence uint64          `json:"sequence"`
	Event    json.RawMessage `json:"event"`
}

// watch prints a run's public events until its last one. Events that were told
// twice are shown once.
func (a *app) watch(ctx context.Context, public *jetstream.Public, run string, after uint64) error {
	seen := make(map[string]bool)
	for r, err := range public.Watch(ctx, jetstream.Filter{Namespace: a.config.Namespace, Run: run}, after) {
		switch {
		case err != nil && r.Sequence != 0:
			continue // a message that is no event; the watch goes on
		case err != nil:
			return unreachable(err)
		case seen[r.ID]:
			continue
		}
		seen[r.ID] = true
		structured, err := r.Structured()
		if err != nil {
			return failed(err)
		}
		if err := a.line(watchLine{r.Sequence, structured}, describePublic(&r.Event)); err != nil {
			return err
		}
		switch {
		case r.Type == events.TypeFor[events.RunCompletedData]().Name:
			return nil
		case ends(r.Type):
			return notCompleted(run)
		}
	}
	return failed(fmt.Errorf("run %s had not ended", run))
}

// ended is what comes of a run that has ended.
func ended(d *handlers.RunDetail) error {
	if d.State == projector.StateCompleted {
		return nil
	}
	return notCompleted(d.Run)
}

func notCompleted(run string) error {
	return failed(fmt.Errorf("run %s did not complete; see \"agentruntime run events %s\"", run, run))
}

func (a *app) runEventsCommand() *cobra.Command {
	var after uint64
	cmd := &cobra.Command{Use: "events RUN", Short: "Print every fact of a run's history", Args: exactly("RUN"), Example: "  agentruntime run events s3f9…-k2m4x9qa -o json"}
	cmd.Flags().Uint64Var(&after, "after", 0, "begin after this sequence")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return a.withRun(args[0], func(ctx context.Context, c *client, d *handlers.RunDetail) error {
			return a.facts(ctx, c, d, after)
		})
	}
	return cmd
}

// facts prints a run's facts, page by page.
func (a *app) facts(ctx context.Context, c *client, d *handlers.RunDetail, after uint64) error {
	return c.facts(ctx, d.Run, after, func(f handlers.FactAnswer, e *events.Event) error {
		return a.line(f, describeFact(e, d.Started))
	})
}

// facts calls yield for each fact of a run, page by page.
func (c *client) facts(ctx context.Context, run string, after uint64, yield func(handlers.FactAnswer, *events.Event) error) error {
	for {
		var page handlers.RunFactsAnswer
		if err := c.ask(ctx, handlers.VerbEvents, nil, handlers.RunRequest{Run: run, After: after}, &page); err != nil {
			return err
		}
		for _, f := range page.Events {
			e, err := events.Decode(map[string][]string{"content-type": {"application/cloudevents+json"}}, f.Event)
			if err != nil {
				return failed(fmt.Errorf("read the fact at sequence %d: %w", f.Sequence, err))
			}
			if err := yield(f, &e); err != nil {
				return err
			}
			after = f.Sequence
		}
		if !page.More {
			return nil
		}
	}
}
