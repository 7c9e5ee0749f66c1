package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// cast is a model for each agent, by its instructions.
type cast map[string]func(ctx context.Context, step int, r *runtime.Request) (*runtime.Response, error)

// Model implements handlers.Models.
func (c cast) Model(string) (runtime.Model, runtime.ModelLimits, error) {
	return c, runtime.ModelLimits{ContextTokens: 100_000}, nil
}

// Generate implements runtime.Model.
func (c cast) Generate(ctx context.Context, r *runtime.Request) (*runtime.Response, error) {
	play, ok := c[r.System]
	if !ok {
		return nil, fmt.Errorf("there is no model for %q", r.System)
	}
	return play(ctx, runtimetest.Position(r), r)
}

// plays answers with a script.
func plays(steps ...runtimetest.Step) func(context.Context, int, *runtime.Request) (*runtime.Response, error) {
	return func(_ context.Context, step int, r *runtime.Request) (*runtime.Response, error) {
		return runtimetest.Script(steps...)(step, r)
	}
}

func member(slug string, subagents ...string) events.AgentDefinition {
	return events.AgentDefinition{Slug: slug, Instructions: slug, Model: "test/model", Subagents: subagents}
}

func spawn(slug string) events.ToolCall {
	return runtimetest.ToolCall("spawn_"+slug, `{"message":"Go."}`)
}

func wait(arguments string) events.ToolCall { return runtimetest.ToolCall("wait_calls", arguments) }

// begin starts a run of an agent.
func begin(t testing.TB, h *Host, id, agent string) *handlers.Admission {
	t.Helper()
	return send(t, h, id, events.StartRun{Agent: agent, Message: "Go."})
}

// send carries out a command.
func send(t testing.TB, h *Host, id string, payload any) *handlers.Admission {
	t.Helper()
	e, err := events.New(payload)
	if err != nil {
		t.Fatal(err)
	}
	e.ID, e.Source = id, "/test"
	admitted, err := h.Admit(t.Context(), "default", &e)
	if err != nil {
		t.Fatal(err)
	}
	return admitted
}

// ended waits for a run's end and returns it.
func (s *system) ended(h *Host, run string) *handlers.RunDetail {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for r, err := range (&jetstream.Public{Conn: s.conn}).Watch(ctx, jetstream.Filter{Run: run}, 0) {
		if err != nil {
			s.t.Fatal(err)
		}
		if row := events.TypeOf(r.Type).Short(); row == "run.completed" || row == "run.failed" || row == "run.cancelled" {
			d, err := h.GetRun(s.t.Context(), "default", run)
			if err != nil {
				s.t.Fatal(err)
			}
			return d
		}
	}
	s.t.Fatalf("waited %s for the end of run %s", patience, run)
	return nil
}

func TestAParentIsWokenByItsChildren(t *testing.T) {
	s := newSystem(t)
	h, _ := s.hostOf("w", cast{
		"parent": plays(runtimetest.Calls(spawn("child"), spawn("child"), wait(`{}`)), runtimetest.CompleteQuoting()),
		"child":  plays(runtimetest.Complete(`"from a child"`)),
	}, member("parent", "child"), member("child"))
	s.run(h)
	d := s.ended(h, begin(t, h, "1", "parent").Run)
	if d.State != projector.StateCompleted || strings.Count(string(d.Reply.Output), "from a child") != 2 {
		t.Errorf("the parent is %s with %s", d.State, d.Reply.Output)
	}
}

func TestATimeOutWakesItsRunAndCancelsNobody(t *testing.T) {
	s := newSystem(t)
	h, _ := s.hostOf("w", cast{
		"parent": plays(runtimetest.Calls(spawn("child"), wait(`{"timeout":"300ms"}`)), runtimetest.Calls(runtimetest.ToolCall("cancel_calls", `{"calls":["call_0_0"]}`), wait(`{}`)), runtimetest.CompleteQuoting()),
		"child":  plays(runtimetest.Calls(wait(`{"messages":true}`))),
	}, member("parent", "child"), member("child", "parent"))
	s.run(h)
	d := s.ended(h, begin(t, h, "1", "parent").Run)
	if said := string(d.Reply.Output); !strings.Contains(said, "timed_out") || !strings.Contains(said, "cancelled by its parent") {
		t.Errorf("the parent is %s with %s", d.State, said)
	}
}

func TestADeadlineIsKeptWhileARunIsParked(t *testing.T) {
	s := newSystem(t)
	parent := member("parent", "child")
	parent.Limits.Timeout = "500ms"
	h, _ := s.hostOf("w", cast{
		"parent": plays(runtimetest.Calls(spawn("child"), wait(`{}`))),
		"child":  plays(runtimetest.Calls(wait(`{"messages":true}`))),
	}, parent, member("child", "parent"))
	s.run(h)
	run := begin(t, h, "1", "parent").Run
	if d := s.ended(h, run); d.State != projector.StateFailed || d.Reason != events.FailureDeadline {
		t.Errorf("the parent is %s: %s", d.State, d.Reason)
	}
	s.treeSettles(h, run)
}

// treeSettles waits until nothing of a tree is under way.
func (s *system) treeSettles(h *Host, run string) *handlers.TreeNode {
	s.t.Helper()
	var tree *handlers.TreeNode
	jetstreamtest.Eventually(s.t, "the tree to settle", func() bool {
		var err error
		tree, err = h.Tree(s.t.Context(), "default", run)
		return err == nil && tree.Settled
	})
	return tree
}

// A model call in flight anywhere in the tree is aborted, and no model is asked
// for a run that has ended.
func TestCancellingARootAbortsWhatIsInFlightBelowIt(t *testing.T) {
	s := newSystem(t)
	asked, aborted := make(chan string, 8), make(chan string, 8)
	hangs := func(ctx context.Context, _ int, r *runtime.Request) (*runtime.Response, error) {
		asked <- r.System
		<-ctx.Done()
		aborted <- r.System
		return nil, context.Cause(ctx)
	}
	h, _ := s.hostOf("w", cast{
		"root":   plays(runtimetest.Calls(spawn("middle"), spawn("leaf"), wait(`{}`))),
		"middle": plays(runtimetest.Calls(spawn("leaf"), wait(`{}`))),
		"leaf":   hangs,
	}, member("root", "middle", "leaf"), member("middle", "leaf"), member("leaf"))
	s.run(h)
	root := begin(t, h, "1", "root").Run
	for range 2 {
		<-asked
	}
	send(t, h, "2", events.CancelRun{Run: root, Reason: "enough"})
	for range 2 {
		<-aborted
	}
	tree := s.treeSettles(h, root)
	if tree.State != projector.StateCancelled || tree.Reason != "enough" || len(tree.Children) != 2 {
		t.Errorf("the tree is %+v", tree)
	}
	if len(asked) > 0 {
		t.Error("a model was asked after its run had ended")
	}
	if again := send(t, h, "3", events.CancelRun{Run: root}); again.Ended != projector.StateCancelled {
		t.Errorf("cancelling it again says %+v", again)
	}
}

func TestTheListOfRunsFollowsTheLogAndIsBuiltAnew(t *testing.T) {
	s := newSystem(t)
	h, _ := s.hostOf("w", cast{
		"parent": plays(runtimetest.Calls(spawn("child"), wait(`{}`)), runtimetest.Complete(`"done"`)),
		"child":  plays(runtimetest.Calls(wait(`{"messages":true}`)), runtimetest.Complete(`"done"`)),
	}, member("parent", "child"), member("child", "parent"))
	stop := s.run(h)
	root := begin(t, h, "1", "parent").Run
	list := List{s.conn}
	states := func(f handlers.Filter) (states []string) {
		rows, _, err := list.List(t.Context(), "default", f)
		if err != nil {
			return []string{err.Error()}
		}
		for _, r := range rows {
			states = append(states, r.Agent+" "+string(r.State)+": "+r.Wake)
		}
		slices.Sort(states)
		return states
	}
	becomes := func(f handlers.Filter, want ...string) {
		t.Helper()
		jetstreamtest.Eventually(t, fmt.Sprintf("the list to be %q", want), func() bool { return slices.Equal(states(f), want) })
	}
	becomes(handlers.Filter{Root: root}, "child parked: a message", "parent parked: 1 child (0 settled)")
	becomes(handlers.Filter{Parent: root, State: []projector.State{projector.StateParked}}, "child parked: a message")
	becomes(handlers.Filter{Stuck: true})
	if err := list.Rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
	jetstreamtest.Eventually(t, "the list to be built", func() bool {
		status, err := list.Status(t.Context())
		return err == nil && status.Ready() && status.Swept
	})
	becomes(handlers.Filter{Agent: "child"}, "child parked: a message")

	// Another process takes the role over when this one has gone.
	stop()
	other, _ := s.hostOf("other", h.options.Models, member("parent", "child"), member("child", "parent"))
	s.run(other)
	becomes(handlers.Filter{Root: root}, "child parked: a message", "parent parked: 1 child (0 settled)")
	tree, err := other.Tree(t.Context(), "default", root)
	if err != nil {
		t.Fatal(err)
	}
	send(t, other, "2", events.MessageRun{Run: tree.Children[0].Run, Message: "Go on."})
	s.ended(other, root)
	becomes(handlers.Filter{Root: root}, "child completed: ", "parent completed: ")
}

func TestAListThatNobodyKeepsIsUnavailable(t *testing.T) {
	s := newSystem(t)
	_, _, err := List{s.conn}.List(t.Context(), "default", handlers.Filter{})
	var typed *handlers.APIError
	if !errors.As(err, &typed) || typed.Code != handlers.CodeUnavailable {
		t.Errorf("got %v", err)
	}
}

func TestParkedRunsWakeAfterEverythingWasRestarted(t *testing.T) {
	s := newSystem(t)
	models := cast{
		"parent": plays(runtimetest.Calls(spawn("child"), wait(`{"timeout":"1h"}`)), runtimetest.CompleteQuoting()),
		"child":  plays(runtimetest.Calls(wait(`{"messages":true,"timeout":"2s"}`)), runtimetest.Complete(`"woken"`)),
	}
	agents := []events.AgentDefinition{member("parent", "child"), member("child", "parent")}
	h, _ := s.hostOf("w", models, agents...)
	stop := s.run(h)
	root := begin(t, h, "1", "parent").Run
	jetstreamtest.Eventually(t, "both to be parked", func() bool {
		tree, err := h.Tree(t.Context(), "default", root)
		return err == nil && tree.State == projector.StateParked && len(tree.Children) == 1 && tree.Children[0].State == projector.StateParked
	})
	stop()
	s.end()
	s.begin()
	h, _ = s.hostOf("w", models, agents...)
	began := time.Now()
	s.run(h)
	if d := s.ended(h, root); d.State != projector.StateCompleted || !strings.Contains(string(d.Reply.Output), "woken") {
		t.Errorf("after %s the parent is %s with %v", time.Since(began), d.State, d.Reply)
	}
}
