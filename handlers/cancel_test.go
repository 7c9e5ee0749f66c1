package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// watched is a log that tells of every append it stores.
type watched struct {
	events.Log
	stored func(*events.Event)
}

func (l *watched) Append(ctx context.Context, key events.Key, e *events.Event, expected uint64) (uint64, error) {
	sequence, err := l.Log.Append(ctx, key, e, expected)
	if err == nil {
		l.stored(e)
	}
	return sequence, err
}

func (l *watched) AppendUnfenced(ctx context.Context, key events.Key, e *events.Event) (uint64, error) {
	sequence, err := l.Log.AppendUnfenced(ctx, key, e)
	if err == nil {
		l.stored(e)
	}
	return sequence, err
}

// able gives an agent capabilities.
func able(v handlers.Version, capabilities ...string) handlers.Version {
	a := agent(capabilities...)
	v.Agent.Capabilities, v.Capabilities = a.Agent.Capabilities, a.Capabilities
	return v
}

// generations is a tree of three levels whose leaf calls a capability.
var generations = []handlers.Version{member("root", "middle"), member("middle", "leaf"), able(member("leaf"), "desk.book")}

func threeLevels(w *handlerstest.World) {
	cast(map[string]runtimetest.Step{
		"root":   runtimetest.Script(runtimetest.Calls(spawn("middle", "one"), spawn("middle", "two"), wait(`{}`)), runtimetest.Complete(`"root"`), runtimetest.Complete(`"again"`)),
		"middle": runtimetest.Script(runtimetest.Calls(spawn("leaf", "one"), wait(`{"calls":["call_0_0"]}`)), runtimetest.Complete(`"middle"`)),
		"leaf":   runtimetest.Script(runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.Complete(`"leaf"`)),
	})(w)
}

// hunt is a tree that somebody watches: what is begun for a run that has ended,
// and what happens after the tree has been called settled.
type hunt struct {
	t        *testing.T
	w        *handlerstest.World
	helper   *handlerstest.Worker // never killed, carries out commands
	observer *handlerstest.Worker // only reads
	root     string
	asked    bool
	settled  bool
}

func newHunt(t *testing.T, what string) *hunt {
	h := &hunt{t: t}
	log := &watched{Log: &eventstest.Memory{}}
	h.w = handlerstest.New(log, &eventstest.Memory{}, "ns")
	h.root = parentOf(h.w, "1")
	threeLevels(h.w)
	script := h.w.Model.Respond
	h.w.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
		h.begins(what, "a model request", func(run *projector.Run) bool { return run.Admitted.Message.ID == r.Messages[0].ID })
		if err := handlerstest.CheckTranscript(r.Messages); err != nil {
			t.Errorf("%s: a request: %v", what, err)
		}
		return script(step, r)
	}
	h.w.Services.Answer = func(_ string, header map[string]string, _ []byte) ([]byte, error) {
		h.begins(what, "a capability request", func(run *projector.Run) bool { return run.ID == header[handlers.HeaderRun] })
		return []byte(`1`), nil
	}
	h.helper, h.observer = h.w.Start(t.Context(), nil), h.w.Start(t.Context(), nil)
	apply(t, h.helper, generations...)
	log.stored = func(e *events.Event) {
		switch {
		case !h.asked:
		case h.settled && (e.Type == factClaimed || ends(e.Type) || e.Type == factCommitted || e.Type == factParked):
			t.Errorf("%s: %s of run %s was appended although the tree had settled", what, e.Type, e.Run)
		case !h.settled:
			h.settled = h.tree().Settled
		}
	}
	return h
}

func (h *hunt) begins(what, request string, mine func(*projector.Run) bool) {
	for _, run := range runs(h.t, h.w) {
		if mine(&run) && run.State.Terminal() && run.ID != lastOf(h.t, h.w, run.ID) {
			return // another run of the session has its messages
		}
		if mine(&run) && run.State.Terminal() {
			h.t.Errorf("%s: %s began for run %s, which is %s", what, request, run.ID, run.State)
		}
	}
}

// lastOf is the newest run of a run's session.
func lastOf(t *testing.T, w *handlerstest.World, run string) string {
	session, _ := events.SessionOf(run)
	return fold(t, w, session).Current().ID
}

func (h *hunt) tree() *handlers.TreeNode {
	n, err := h.observer.Dispatcher.Host.Tree(h.t.Context(), "ns", h.root)
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

// cancel asks the root to stop, and lets everything follow from it when deep.
func (h *hunt) cancel(deep bool) {
	h.asked = true
	admit(h.t, h.helper, handlerstest.Cancel("c", h.root, "enough"))
	for n := 0; deep && n != len(h.w.Facts()); {
		n = len(h.w.Facts())
		reactTo(h.t, h.helper, func(*events.Record) bool { return true })
	}
}

// alive lists what has not ended below a node, itself included.
func alive(n *handlers.TreeNode) (list []string) {
	if !n.State.Terminal() && n.State != handlers.StateNeverStarted {
		list = append(list, string(n.State)+" "+n.Run)
	}
	for i := range n.Children {
		list = append(list, alive(&n.Children[i])...)
	}
	return list
}

func (h *hunt) over(what string) {
	n := h.tree()
	if list := alive(n); len(list) > 0 || !n.Settled {
		h.t.Errorf("%s: settled is %t, alive are %v", what, n.Settled, list)
	}
	for _, run := range runs(h.t, h.w) {
		if !run.State.Terminal() {
			h.t.Errorf("%s: run %s is %s", what, run.ID, run.State)
		}
	}
	if err := errors.Join(h.w.Idle(), h.w.Check(h.t.Context())); err != nil {
		h.t.Errorf("%s: %v", what, err)
	}
}

func TestACancellationAnywhereInATreeEndsAllOfIt(t *testing.T) {
	calm := newHunt(t, "undisturbed")
	calm.w.Send(handlerstest.Start("1", "root", "Go."))
	calm.helper.Settle()
	calm.over("undisturbed")
	appends := calm.w.Appends()
	for k, m := range []struct {
		name        string
		deep, after bool
		fault       eventstest.Fault
		kill        bool
	}{
		{name: "asked before"},
		{name: "asked before with all that follows", deep: true},
		{name: "asked before, then killed", fault: eventstest.LostBefore, kill: true},
		{name: "asked before with all that follows, then killed", deep: true, fault: eventstest.AnswerLost, kill: true},
		{name: "killed after, then asked", after: true, fault: eventstest.AnswerLost, kill: true},
	} {
		nth := make(map[string]int)
		for i, f := range appends {
			nth[f.Type]++
			if i == 0 && !m.after || m.kill && (i+k)%2 > 0 && !slow {
				continue // there is nothing to cancel yet, or this is for the larger tests
			}
			what := fmt.Sprintf("append %d (%s), %s", i+1, f.Type, m.name)
			h := newHunt(t, what)
			met := false
			var first *handlerstest.Worker
			first = h.w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
				if met || a.Type != f.Type || a.Nth != nth[f.Type] {
					return eventstest.None, false
				}
				met = true
				if !m.after {
					first.Before(func() { h.cancel(m.deep) })
				}
				return m.fault, m.kill
			})
			h.w.Send(handlerstest.Start("1", "root", "Go."))
			first.Settle()
			if !met || first.Dead() != m.kill {
				t.Fatalf("%s: the point was not met", what)
			}
			if m.after {
				h.cancel(false)
			}
			if m.kill {
				first = h.w.Start(t.Context(), nil)
				if _, err := first.Sweeper().Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
				first.Settle()
			}
			h.over(what)
			h.asked = false
			session, _ := events.SessionOf(h.root)
			h.w.Send(handlerstest.Continue("more", session, "Go on."))
			h.w.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
				if err := handlerstest.CheckTranscript(r.Messages); err != nil {
					t.Errorf("%s: the continuation: %v", what, err)
				}
				return runtimetest.Complete(`"again"`)(step, r)
			}
			first.Settle()
			if last := fold(t, h.w, session).Current(); last.State != projector.StateCompleted || last.ID == h.root {
				t.Errorf("%s: the session was not continued: run %s is %s", what, last.ID, last.State)
			}
		}
	}
}

func TestCancellingWhatHasEndedSaysSo(t *testing.T) {
	w, worker := memoryWorld(t)
	w.Send(handlerstest.Start("1", "tester", "Go."))
	worker.Settle()
	if a := admit(t, worker, handlerstest.Cancel("c", runOf("ns", "1"), "")); a.Ended != projector.StateCompleted {
		t.Errorf("the answer is %+v", a)
	}
}

func TestTheSameCancellationAgainIsTheSameAnswer(t *testing.T) {
	w, worker := memoryWorld(t)
	w.Send(handlerstest.Start("1", "tester", "Go."))
	worker.Admit()
	c := handlerstest.Cancel("c", runOf("ns", "1"), "enough")
	first := admit(t, worker, c)
	again := admit(t, worker, c)
	if *first != *again || first.Ended != "" {
		t.Errorf("the answers are %+v and %+v", first, again)
	}
	worker.Settle()
	facts := len(w.Facts())
	if late := admit(t, worker, c); *late != *first {
		t.Errorf("the answer is %+v, and after the run has stopped it is %+v", first, late)
	}
	if n := len(w.Facts()); n != facts {
		t.Errorf("the same command again appended %d facts", n-facts)
	}
	var refused *handlers.Rejection
	other := handlerstest.Cancel("c", runOf("ns", "1"), "another reason")
	if _, err := worker.Dispatcher.Admit(t.Context(), "ns", &other); !errors.As(err, &refused) || refused.Reason != handlers.RejectConflict {
		t.Errorf("another command under the same id: %v", err)
	}
}

// inFlight is a model request or a capability request that hangs.
type inFlight struct {
	begun chan struct{}
	free  chan struct{} // closed: the late answer comes
}

func (f *inFlight) hang(ctx context.Context) error {
	close(f.begun)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-f.free:
		return nil
	}
}

// deaf answers only when it is let, whatever becomes of the context.
func (f *inFlight) deaf(context.Context) error {
	close(f.begun)
	<-f.free
	return nil
}

type hangingModels struct {
	hang func(context.Context) error
	then runtimetest.Step
}

func (m hangingModels) Model(string) (runtime.Model, runtime.ModelLimits, error) {
	return m, runtime.ModelLimits{ContextTokens: 100_000}, nil
}

func (m hangingModels) Generate(ctx context.Context, r *runtime.Request) (*runtime.Response, error) {
	if err := m.hang(ctx); err != nil {
		return nil, &runtime.ModelError{Provider: "test", Class: runtime.ClassRetry, Err: err}
	}
	return m.then(runtimetest.Position(r), r)
}

type hangingServices func(context.Context) error

func (s hangingServices) Request(ctx context.Context, _ string, _ map[string]string, _ []byte) ([]byte, error) {
	return []byte(`1`), s(ctx)
}

func TestACancellationAbortsWhatIsInFlight(t *testing.T) {
	for _, what := range []string{"a model request", "a capability request"} {
		for _, how := range []string{"heard", "unheard", "heard, but not by the other side"} {
			t.Run(what+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, other := started(t, agent("desk.book"), runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.Complete(`"done"`))
					w.Unheard = how == "unheard"
					f := &inFlight{make(chan struct{}), make(chan struct{})}
					hang := f.hang
					if how == "heard, but not by the other side" {
						hang = f.deaf
					}
					worker := w.Start(t.Context(), nil)
					if what == "a model request" {
						worker.Dispatcher.Models = hangingModels{hang, runtimetest.Complete(`"late"`)}
					} else {
						worker.Dispatcher.Services = hangingServices(hang)
					}
					done := make(chan struct{})
					go func() { defer close(done); worker.Admit(); worker.Work() }()
					<-f.begun
					synctest.Wait()
					admit(t, other, handlerstest.Cancel("c", runOf("ns", "1"), "enough"))
					reactTo(t, other, func(*events.Record) bool { return true })
					synctest.Wait()
					if r := only(t, w); (r.State == projector.StateCancelled) != (how == "heard") {
						t.Errorf("before the answer the run is %s", r.State)
					}
					facts := len(w.Facts())
					close(f.free)
					<-done
					r := only(t, w)
					if r.State != projector.StateCancelled || r.Reason != "enough" || r.Checkpoint.Reply != nil {
						t.Errorf("after the late answer the run is %s: %s", r.State, r.Reason)
					}
					most := 1 // the end, and what became of the callback
					if what == "a capability request" {
						most = 2
					}
					if n := len(w.Facts()) - facts; how == "heard" && n > 0 || n > most {
						t.Errorf("the late answer appended %d facts", n)
					}
					session, _ := events.SessionOf(r.ID)
					if err := handlerstest.CheckTranscript(fold(t, w, session).Window); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

func TestACancellationDuringAnAppendDoesNotCostALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, other := started(t, agent("desk.book"), runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.Complete(`"done"`))
		w.Silence = time.Second // nobody is known to be dead
		var worker *handlerstest.Worker
		worker = w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
			if a.Type == factCommitted && a.Nth == 2 {
				worker.Before(func() {
					admit(t, other, handlerstest.Cancel("c", runOf("ns", "1"), "enough"))
					reactTo(t, other, func(*events.Record) bool { return true })
					synctest.Wait()
				})
			}
			return eventstest.None, false
		})
		worker.Admit()
		worker.Work()
		if r := only(t, w); r.State != projector.StateCancelled {
			t.Errorf("the run is %s, its claim is that of a live worker, and nobody works on it", r.State)
		}
	})
}

func TestAChildThatIsAskedToStopBeforeItIsThereNeverRuns(t *testing.T) {
	h := newHunt(t, "the spawn")
	var first *handlerstest.Worker
	first = h.w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
		if a.Type == factAdmitted && a.Nth == 2 {
			first.Before(func() { h.cancel(true) })
		}
		return eventstest.None, false
	})
	h.w.Send(handlerstest.Start("1", "root", "Go."))
	first.Settle()
	h.over("the spawn")
	child := runIn(t, h.w, childOf(h.w, h.root, runtimetest.CallID(0, 0)))
	if child.State != projector.StateCancelled || child.Worker != "" || slices.ContainsFunc(h.w.Model.Requests(), func(r *runtime.Request) bool { return r.System == "middle" }) {
		t.Errorf("the child is %s by worker %q", child.State, child.Worker)
	}
}
