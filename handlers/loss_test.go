package handlers_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// stage is a world in memory with a scenario's agents. Worlds of one namespace
// have the same ids.
func stage(t *testing.T, s *handlerstest.Scenario) (*handlerstest.World, *handlerstest.Worker) {
	t.Helper()
	w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
	s.Prepare(w)
	worker := w.Start(t.Context(), nil)
	apply(t, worker, s.Versions...)
	return w, worker
}

// endings says how every run of a world stands, and checks the world.
func endings(t *testing.T, w *handlerstest.World) map[string]string {
	t.Helper()
	if err := w.Check(t.Context()); err != nil {
		t.Error(err)
	}
	list := make(map[string]string)
	for _, r := range runs(t, w) {
		list[r.ID] = fmt.Sprint(r.Admitted.Agent, " ", r.State)
		if r.State == projector.StateFailed {
			list[r.ID] += " " + r.Reason
		}
	}
	return list
}

// attended plays a scenario with hints, timers and reactions, and no sweeper.
func attended(t *testing.T, s *handlerstest.Scenario, plan func(handlerstest.Append) (eventstest.Fault, bool)) map[string]string {
	t.Helper()
	w, worker := stage(t, s)
	if plan != nil {
		worker = w.Start(t.Context(), plan)
	}
	for _, c := range s.Commands("ns") {
		w.Send(c)
		for worker.Settle(); worker.Dead() || s.Timers && worker.Fire() || worker.Dead(); worker.Settle() {
			if worker.Dead() {
				worker = w.Start(t.Context(), nil)
			}
		}
	}
	if err := w.Idle(); err != nil {
		t.Errorf("%s: %v", s.Name, err)
	}
	return endings(t, w)
}

// held is a scenario in which a run is parked for its budget when its deadline
// comes.
var held = handlerstest.Scenario{
	Name: "a deadline while a budget is spent", Versions: []handlers.Version{expiring(limited(member("parent", "child"), events.OnBudgetHold, 1)), member("child")}, Timers: true,
	Prepare:  family(runtimetest.Script(runtimetest.Calls(spawn("child", "one"), wait(`{}`)), runtimetest.Complete(`"never"`))),
	Commands: begin("parent"),
}

// swept plays a scenario in which everything is lost that may be: what moves a
// run is the sweeper alone.
func swept(t *testing.T, s *handlerstest.Scenario, fresh bool) map[string]string {
	t.Helper()
	w, worker := stage(t, s)
	w.Unreacted = func(e *events.Event) bool { return ends(e.Type) && e.ParentRun != "" } // so that no parent is told
	sweeper := worker.Sweeper()
	sweep := func() bool {
		w.Lose()
		w.Published = nil
		if fresh {
			worker = w.Start(t.Context(), nil)
			sweeper = worker.Sweeper()
		}
		w.Unhinted, w.Untimed = false, false
		facts := len(w.Facts())
		got, err := sweeper.Sweep(t.Context())
		if err != nil || len(got.Stuck) > 0 {
			t.Fatalf("%s: the sweep found %+v, %v", s.Name, got.Stuck, err)
		}
		w.Unhinted, w.Untimed = true, true
		worker.Work()
		return len(w.Facts()) > facts
	}
	w.Unhinted, w.Untimed = true, true
	for _, c := range s.Commands("ns") {
		w.Send(c)
		for quiet := 0; quiet < 2; {
			worker.Admit()
			worker.React()
			if sweep() {
				quiet = 0
			} else if quiet++; quiet == 1 && s.Timers {
				w.Pass(2 * time.Hour)
			}
		}
	}
	return endings(t, w)
}

func TestTheSweeperAloneRestoresWhateverWasLost(t *testing.T) {
	for _, s := range append(trees[:len(trees):len(trees)], held) {
		want := attended(t, &s, nil)
		for _, fresh := range []bool{true, false} {
			if got := swept(t, &s, fresh); !maps.Equal(got, want) {
				t.Errorf("%s, a sweeper of a new process %t: got %v, undisturbed %v", s.Name, fresh, got, want)
			}
		}
	}
}

func TestWithoutASweeperNothingIsStuckThatWasNotLost(t *testing.T) {
	for _, s := range trees {
		if s.Charged != nil {
			continue // a crash spends one more step, and the run ends elsewhere
		}
		w, worker := stage(t, &s)
		want := attended(t, &s, nil)
		for _, c := range s.Commands("ns") {
			w.Send(c)
			for worker.Settle(); s.Timers && worker.Fire(); worker.Settle() {
			}
		}
		nth := make(map[string]int)
		for i, f := range w.Appends() {
			nth[f.Type]++
			fault := []eventstest.Fault{eventstest.LostBefore, eventstest.AnswerLost}[i%2]
			got := attended(t, &s, func(a handlerstest.Append) (eventstest.Fault, bool) {
				if a.Type != f.Type || a.Nth != nth[f.Type] {
					return eventstest.None, false
				}
				return fault, true
			})
			if !maps.Equal(got, want) {
				t.Errorf("%s, killed at append %d (%s), %s: got %v, undisturbed %v", s.Name, i+1, f.Type, fault, got, want)
			}
		}
	}
}

// stranded is a world with three parked parents and a pending one, each of an
// agent of its own.
func stranded(t *testing.T) (*eventstest.Memory, *handlerstest.World, *handlerstest.Worker) {
	t.Helper()
	log := &eventstest.Memory{}
	w := handlerstest.New(log, &eventstest.Memory{}, "ns")
	parent := runtimetest.Script(runtimetest.Calls(spawn("child", "one"), spawn("child", "two"), wait(`{}`)), runtimetest.Complete(`1`))
	scripts := map[string]runtimetest.Step{"child": runtimetest.Script(runtimetest.Calls(wait(`{"messages":true}`)), runtimetest.Complete(`2`))}
	worker := w.Start(t.Context(), nil)
	for i := range 3 {
		slug := fmt.Sprint("parent", i)
		scripts[slug] = parent
		apply(t, worker, member(slug, "child"))
		w.Send(handlerstest.Start(slug, slug, "Go."))
	}
	cast(scripts)(w)
	apply(t, worker, member("child", "child"))
	worker.Settle()
	return log, w, worker
}

func TestOnlyWhatNothingWillWakeIsListedAsStuck(t *testing.T) {
	run := runOf("ns", "parent1")
	session, _ := events.SessionOf(run)
	key := events.Key{Namespace: "ns", Session: session}
	first := func(w *handlerstest.World, call string) events.Key {
		child, _ := events.SessionOf(childOf(w, run, call))
		return events.Key{Namespace: "ns", Session: child}
	}
	for what, c := range map[string]struct {
		damage func(*testing.T, *eventstest.Memory, *handlerstest.World)
		why    string
		at     func(*handlerstest.World) events.Key
	}{
		"nothing": {damage: func(*testing.T, *eventstest.Memory, *handlerstest.World) {}},
		"another contract": {func(t *testing.T, _ *eventstest.Memory, w *handlerstest.World) {
			other := member("parent1", "child")
			other.Agent.Description = "Another one."
			w.Replace("ns", runIn(t, w, run).Admitted.Definition, &other)
		}, "no worker of this release may carry it on", nil},
		"an unreadable log": {func(t *testing.T, log *eventstest.Memory, w *handlerstest.World) {
			log.Flip(key, fold(t, w, session).Current().AdmittedSeq)
		}, "its log cannot be read", nil},
		"children that were never started": {func(t *testing.T, log *eventstest.Memory, w *handlerstest.World) {
			for _, call := range []string{"call_0_0", "call_0_1"} {
				erase(t, log, first(w, call))
			}
		}, "never started", nil},
		"one of two children was never started": {damage: func(t *testing.T, log *eventstest.Memory, w *handlerstest.World) {
			erase(t, log, first(w, "call_0_0"))
		}},
		"an unreadable log of a child": {func(t *testing.T, log *eventstest.Memory, w *handlerstest.World) {
			at := first(w, "call_0_1")
			log.Flip(at, fold(t, w, at.Session).Current().AdmittedSeq)
		}, "its log cannot be read", func(w *handlerstest.World) events.Key { return first(w, "call_0_1") }},
	} {
		t.Run(what, func(t *testing.T) {
			log, w, _ := stranded(t)
			at := key
			if c.at != nil {
				at = c.at(w)
			}
			c.damage(t, log, w)
			worker := w.Start(t.Context(), nil)
			sweeper := worker.Sweeper()
			for range 2 {
				got, err := sweeper.Sweep(t.Context())
				if err != nil {
					t.Fatalf("the sweep ended at %d sessions: %v", got.Seen, err)
				}
				var list []string
				for _, s := range got.Stuck {
					if s.Session == at.Session && strings.Contains(s.Why, c.why) && c.why != "" {
						continue
					}
					list = append(list, s.Session+": "+s.Why)
				}
				if len(list) > 0 || (len(got.Stuck) == 1) != (c.why != "") {
					t.Errorf("stuck are %+v", got.Stuck)
				}
			}
		})
	}
	log, w, worker := stranded(t)
	w.Forget()
	if got, err := worker.Sweeper().Sweep(t.Context()); err != nil || len(got.Stuck) != 9 || !strings.Contains(got.Stuck[0].Why, "not stored") {
		t.Errorf("without definitions %d of %d runs are stuck: %v", len(got.Stuck), len(log.Keys()), err)
	}
}

// erase drops every fact of a session.
func erase(t *testing.T, log *eventstest.Memory, key events.Key) {
	t.Helper()
	all, err := eventstest.All(t.Context(), log, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		log.Drop(key, r.Sequence)
	}
}

func TestAChildWhoseParentsEndWasNotReactedToIsAskedToStop(t *testing.T) {
	s := trees[len(trees)-1] // a cancellation while children are open
	w, worker := stage(t, &s)
	root := runOf("ns", "1")
	w.Unreacted = func(e *events.Event) bool {
		return e.Run == root && (ends(e.Type) || events.TypeOf(e.Type).Kind == events.External)
	}
	for _, c := range s.Commands("ns") {
		w.Send(c)
		worker.Settle()
	}
	sweeper := worker.Sweeper()
	for range 6 {
		if _, err := sweeper.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		worker.Settle()
	}
	for _, r := range runs(t, w) {
		if !r.State.Terminal() {
			t.Errorf("run %s is %s, its parent is %s, and no sweep says so", r.ID, r.State, runIn(t, w, root).State)
		}
	}
}

func TestASweepThatFailsInTheMiddleIsMadeAgain(t *testing.T) {
	for n := 1; n <= 40; n += 3 {
		log := &eventstest.Faulty{Log: &eventstest.Memory{}}
		w := handlerstest.New(log, &eventstest.Memory{}, "ns")
		s := trees[0]
		s.Prepare(w)
		worker := w.Start(t.Context(), nil)
		apply(t, worker, s.Versions...)
		for _, c := range s.Commands("ns") {
			w.Send(c)
		}
		worker.Admit()
		worker.React()
		worker.Work()
		w.Lose()
		sweeper := w.Start(t.Context(), nil).Sweeper()
		reads := 0
		log.ReadFault = func(int) (int, error) {
			if reads++; reads == n {
				return 0, errors.New("the server is away")
			}
			return 0, nil
		}
		_, err := sweeper.Sweep(t.Context())
		log.ReadFault = nil
		again, err2 := sweeper.Sweep(t.Context())
		if err2 != nil || len(again.Stuck) > 0 {
			t.Fatalf("read %d fails: %v, then %v; stuck are %+v", n, err, err2, again.Stuck)
		}
		worker.Settle()
		for run, state := range endings(t, w) {
			if !strings.HasSuffix(state, "completed") {
				t.Errorf("read %d fails: run %s is %s", n, run, state)
			}
		}
	}
}
