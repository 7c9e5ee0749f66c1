package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/sample"
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream"
)

// samples runs the samples and shows their histories.
type samples struct {
	*client
	public *jetstream.Public
	after  uint64 // where the public events ended before the first run
	stamp  string // makes the commands new ones
}

// runSamples runs each sample once.
func (a *app) runSamples(ctx context.Context, conn *jetstream.Conn) error {
	s := samples{client: &client{a, conn}, public: &jetstream.Public{Conn: conn}, stamp: time.Now().UTC().Format("20060102T150405.000")}
	var err error
	if s.after, err = a.end(ctx, s.public); err != nil {
		return err
	}
	a.say("\nThe sample: agent %s reads a ticket.", sample.Agent)
	d, err := s.run(ctx, "ticket", events.StartRun{Agent: sample.Agent, Message: sample.Ticket})
	if err != nil {
		return err
	}
	a.say("\ncompleted in %d steps: %s", d.Steps, describeReply(d.Reply))

	a.say("\nA sample with children: agent %s starts three others, answers what one asks, and asks itself.", sample.Planner)
	d, err = s.run(ctx, "trip", events.StartRun{Agent: sample.Planner, Message: sample.Trip})
	if err != nil {
		return err
	}
	a.say("\n%s", describeReply(d.Reply))
	a.say("The answer is %q: a second run of the same session.", sample.Name)
	if d, err = s.run(ctx, "name", events.ContinueRun{Session: d.Session, Message: sample.Name}); err != nil {
		return err
	}
	a.say("\ncompleted in %d steps: %s", d.Steps, describeReply(d.Reply))
	return nil
}

// run carries out a command, waits for its run and shows what happened.
func (s *samples) run(ctx context.Context, name string, command any) (*handlers.RunDetail, error) {
	admitted, err := s.command(ctx, "sample-"+name+"-"+s.stamp, command)
	if err != nil {
		return nil, err
	}
	s.app.say("  run %s\n", admitted.Run)
	if err := s.await(ctx, admitted.Run); err != nil {
		return nil, err
	}
	var d handlers.RunDetail
	if err := s.ask(ctx, handlers.VerbGet, nil, handlers.RunRequest{Run: admitted.Run}, &d); err != nil {
		return nil, err
	}
	if err := s.history(ctx, admitted.Run); err != nil {
		return nil, err
	}
	if d.Reply == nil {
		return nil, failed(fmt.Errorf("run %s of the sample ended as %s: %s", d.Run, d.State, d.Error))
	}
	return &d, nil
}

// await waits for a run's last public event.
func (s *samples) await(ctx context.Context, run string) error {
	for r, err := range s.public.Watch(ctx, jetstream.Filter{Namespace: s.app.config.Namespace, Run: run}, s.after) {
		if err != nil {
			return unreachable(err)
		}
		if ends(r.Type) {
			return nil
		}
	}
	return failed(fmt.Errorf("stopped before run %s had ended", run))
}

// toldFact is a fact of a run of a tree, and of which one.
type toldFact struct {
	who    string
	answer handlers.FactAnswer
	event  events.Event
}

// history prints the facts of a run and of those below it, in the order of time.
// Which agent's they are stands before them when there are several runs.
func (s *samples) history(ctx context.Context, run string) error {
	root, err := s.tree(ctx, run)
	if err != nil {
		return err
	}
	var list []toldFact
	names := make(map[string]string) // by session
	width := 0
	var collect func(n *handlers.TreeNode) error
	collect = func(n *handlers.TreeNode) error {
		if names[n.Session] == "" {
			names[n.Session] = n.Agent
			if n != root {
				names[n.Session] = fmt.Sprintf("%s %d", n.Agent, len(names)-1)
			}
		}
		width = max(width, len(names[n.Session]))
		err := s.facts(ctx, n.Run, 0, func(f handlers.FactAnswer, e *events.Event) error {
			list = append(list, toldFact{names[n.Session], f, *e})
			return nil
		})
		for i := range n.Children {
			if err == nil {
				err = collect(&n.Children[i])
			}
		}
		return err
	}
	if err := collect(root); err != nil {
		return err
	}
	slices.SortStableFunc(list, func(a, b toldFact) int { return cmp.Compare(a.event.Time.UnixNano(), b.event.Time.UnixNano()) })
	for i := range list {
		text := describeFact(&list[i].event, root.Started)
		if len(names) > 1 {
			text = fmt.Sprintf("%-*s %s", width, list[i].who, text)
		}
		if err := s.app.line(list[i].answer, text); err != nil {
			return err
		}
	}
	return nil
}
