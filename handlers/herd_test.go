package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

var (
	factAdmitted  = events.TypeFor[events.RunAdmitted]().Name
	factClaimed   = events.TypeFor[events.RunClaimed]().Name
	factCommitted = events.TypeFor[events.CheckpointCommitted]().Name
	factParked    = events.TypeFor[events.RunParked]().Name
	factReserved  = events.TypeFor[events.BudgetReserved]().Name
)

// ends reports whether a type of fact ends a run.
func ends(factType string) bool { return events.TypeOf(factType).Ends }

// apply stores versions in a world.
func apply(t *testing.T, w *handlerstest.Worker, versions ...handlers.Version) {
	t.Helper()
	for _, v := range versions {
		if _, err := w.Dispatcher.Apply(t.Context(), w.Namespace, &v); err != nil {
			t.Fatal(err)
		}
	}
}

// admit carries out a command at once.
func admit(t *testing.T, w *handlerstest.Worker, e events.Event) *handlers.Admission {
	t.Helper()
	a, err := w.Dispatcher.Admit(t.Context(), w.Namespace, &e)
	if err != nil {
		t.Fatalf("%s: %v", e.Type, err)
	}
	return a
}

// fold is a session as the log has it.
func fold(t *testing.T, w *handlerstest.World, session string) *projector.Session {
	t.Helper()
	s, _, err := w.Session(t.Context(), events.Key{Namespace: w.Namespace, Session: session})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// runIn is a run as the log has it.
func runIn(t *testing.T, w *handlerstest.World, run string) *projector.Run {
	t.Helper()
	session, err := events.SessionOf(run)
	if err != nil {
		t.Fatal(err)
	}
	r := fold(t, w, session).Run(run)
	if r == nil {
		t.Fatalf("there is no run %s", run)
	}
	return r
}

// childOf is the run that a call of a run started.
func childOf(w *handlerstest.World, parent, call string) string {
	session := events.ChildSession(w.Namespace, parent, call)
	return events.RunFor(w.Namespace, session, parent, call)
}

// resultOf is what the transcript of a session has of a call.
func resultOf(t *testing.T, w *handlerstest.World, session, call string) *events.ToolResult {
	t.Helper()
	for _, m := range fold(t, w, session).Window {
		for _, p := range m.Parts {
			if p.Result != nil && p.Result.CallID == call {
				return p.Result
			}
		}
	}
	t.Fatalf("call %s has no result", call)
	return nil
}

// waited is the result of a wait.
func waited(t *testing.T, w *handlerstest.World, session, call string) runtime.WaitResult {
	t.Helper()
	r := resultOf(t, w, session, call)
	var result runtime.WaitResult
	if err := json.Unmarshal([]byte(r.Parts[0].Text), &result); err != nil || r.Outcome != events.OutcomeOK {
		t.Fatalf("the wait %s is %s: %s", call, r.Outcome, r.Parts[0].Text)
	}
	return result
}

// reactTo lets a worker react to every fact so far that is chosen, whoever else
// has.
func reactTo(t *testing.T, w *handlerstest.Worker, chosen func(*events.Record) bool) {
	t.Helper()
	for _, f := range w.Facts() {
		if !chosen(&f) {
			continue
		}
		if err := w.Dispatcher.React(t.Context(), &f.Event, events.Position{Sequence: f.Sequence}); err != nil && !w.Dead() {
			t.Errorf("react to %s: %v", f.Type, err)
		}
	}
}

// naming are the arguments of a wait for the first n calls of the first response.
func naming(n int, more ...string) string {
	calls := make([]string, n)
	for i := range calls {
		calls[i] = fmt.Sprintf("%q", runtimetest.CallID(0, i))
	}
	return `{"calls":[` + strings.Join(calls, ",") + `]` + strings.Join(more, "") + `}`
}

// herd is a world with a parent that starts n children in one response and waits
// for all of them in the next.
func herd(t *testing.T, w *handlerstest.World, n int) *handlerstest.Worker {
	calls := make([]events.ToolCall, n)
	for i := range calls {
		calls[i] = spawn("child", fmt.Sprint(i))
	}
	family(runtimetest.Script(runtimetest.Calls(calls...), runtimetest.Calls(wait(naming(n))), runtimetest.Complete(`"all"`)))(w)
	parent := member("parent", "child")
	parent.Agent.Limits.CallsPerAnswer = n
	worker := w.Start(t.Context(), nil)
	apply(t, worker, parent, member("child"))
	return worker
}

// finish brings children of a herd to their end and tells their parent.
func finish(t *testing.T, w *handlerstest.Worker, parent string, from, to int) {
	t.Helper()
	sessions := make(map[string]bool)
	for i := from; i < to; i++ {
		session := events.ChildSession(w.Namespace, parent, runtimetest.CallID(0, i))
		sessions[session] = true
		if err := w.Dispatcher.Carry(t.Context(), events.Key{Namespace: w.Namespace, Session: session}); err != nil {
			t.Errorf("child %d: %v", i, err)
		}
	}
	reactTo(t, w, func(f *events.Record) bool { return sessions[f.Session] && ends(f.Type) })
}

// allTold demands that a wait lists every call of a herd, each once.
func allTold(t *testing.T, w *handlerstest.World, parent string, n int) {
	t.Helper()
	if r := runIn(t, w, parent); r.State != projector.StateCompleted {
		t.Fatalf("the parent is %s: %s", r.State, r.Reason)
	}
	session, _ := events.SessionOf(parent)
	result := waited(t, w, session, runtimetest.CallID(1, 0))
	told := make(map[string]int)
	for _, info := range result.Settled {
		if told[info.CallID]++; info.State != string(projector.StateCompleted) || info.Reply == nil {
			t.Errorf("child %s is %s", info.CallID, info.State)
		}
	}
	if len(told) != n || len(result.Settled) != n || len(result.Pending) != 0 {
		t.Errorf("the wait tells of %d children %d times, %d are pending; there are %d", len(told), len(result.Settled), len(result.Pending), n)
	}
}

// point is an append of a parent at which its worker is killed.
type point struct {
	at    string // park, claim or result
	fault eventstest.Fault
}

var herdPoints = []point{{"park", eventstest.AnswerLost}, {"claim", eventstest.LostBefore}, {"result", eventstest.LostBefore},
	{"park", eventstest.LostBefore}, {"claim", eventstest.AnswerLost}, {"result", eventstest.AnswerLost}}

// herdAround lets children end while others are being started, between the
// decision to park and its append, and after it, and kills the worker.
func herdAround(t *testing.T, w *handlerstest.World, n int, p point) {
	helper := herd(t, w, n)
	parent := parentOf(w, "1")
	commits, parks, claims, met := 0, 0, 0, false
	var first *handlerstest.Worker
	first = w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
		if a.Run != parent || met {
			return eventstest.None, false
		}
		at := ""
		switch {
		case a.Type == factClaimed:
			if claims++; claims > 1 {
				at = "claim"
			}
		case a.Type == factParked:
			if parks++; parks == 1 {
				first.Before(func() { finish(t, helper, parent, n/4, n/2) })
			} else {
				at = "park"
			}
		case a.Type == factCommitted && claims > 1:
			at = "result"
		case a.Type == factCommitted:
			if commits++; commits == n/2 {
				first.Before(func() { finish(t, helper, parent, 0, n/4) })
			}
		}
		if at != p.at {
			return eventstest.None, false
		}
		met = true
		return p.fault, true
	})
	w.Send(handlerstest.Start("1", "parent", "Go."))
	first.Settle()
	if !first.Dead() {
		t.Fatalf("the first worker was not killed at its %s", p.at)
	}
	second := w.Start(t.Context(), nil)
	if _, err := second.Sweeper().Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	second.Settle()
	if err := w.Idle(); err != nil {
		t.Error(err)
	}
	allTold(t, w, parent, n)
}

func TestAParentIsToldOfEveryChildThatEndsAroundItsPark(t *testing.T) {
	for _, p := range herdPoints {
		t.Run(fmt.Sprint(p.at, " ", p.fault), func(t *testing.T) { herdAround(t, inMemory(), 200, p) })
	}
}

func TestAParentIsToldOfEveryChildThatEndsAroundItsParkOnJetStream(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		n, points := 200, herdPoints[:1]
		if strings.HasSuffix(t.Name(), "R3") && !slow {
			n, points = 24, herdPoints[:3]
		}
		for _, p := range points {
			herdAround(t, on(conn)(), n, p)
		}
	})
}

// counting counts what is asked of a log.
type counting struct {
	events.Log
	appends, reads, records atomic.Int64
}

func (c *counting) Append(ctx context.Context, key events.Key, e *events.Event, expected uint64) (uint64, error) {
	c.appends.Add(1)
	return c.Log.Append(ctx, key, e, expected)
}

func (c *counting) AppendUnfenced(ctx context.Context, key events.Key, e *events.Event) (uint64, error) {
	c.appends.Add(1)
	return c.Log.AppendUnfenced(ctx, key, e)
}

func (c *counting) Read(ctx context.Context, key events.Key, after uint64, limit int) ([]events.Record, error) {
	records, err := c.Log.Read(ctx, key, after, limit)
	c.reads.Add(1)
	c.records.Add(int64(len(records)))
	return records, err
}

func (c *counting) Last(ctx context.Context, key events.Key) (uint64, error) {
	c.reads.Add(1)
	return c.Log.Last(ctx, key)
}

// hinting counts the hints that a worker sends for one session.
type hinting struct {
	handlers.Hinter
	session string
	n       int
}

func (h *hinting) Publish(ctx context.Context, hint events.Hint) error {
	if hint.Key.Session == h.session {
		h.n++
	}
	return h.Hinter.Publish(ctx, hint)
}

func TestAChildCostsTheSameHoweverManySiblingsItHas(t *testing.T) {
	cost := func(n int) (list []float64, hints int) {
		log := &counting{Log: &eventstest.Memory{}}
		w := handlerstest.New(log, &eventstest.Memory{}, "ns")
		worker := herd(t, w, n)
		session, _ := events.SessionOf(parentOf(w, "1"))
		counted := &hinting{Hinter: worker.Dispatcher.Work, session: session}
		worker.Dispatcher.Work = counted
		w.Send(handlerstest.Start("1", "parent", "Go."))
		worker.Settle()
		allTold(t, w, parentOf(w, "1"), n)
		for _, v := range []*atomic.Int64{&log.appends, &log.reads, &log.records} {
			list = append(list, float64(v.Load())/float64(n))
		}
		return list, counted.n
	}
	if _, hints := cost(50); hints > 10 {
		t.Fatalf("the parent of 50 children was hinted %d times; each hint is a load of its session", hints)
	}
	few, _ := cost(100)
	many, _ := cost(1000)
	t.Logf("appends, reads and records read, per child: of 100 %.1f, of 1,000 %.1f", few, many)
	for i, what := range []string{"appends", "reads", "records read"} {
		if many[i] > 1.1*few[i] {
			t.Errorf("%s per child: %.1f of 100, %.1f of 1,000", what, few[i], many[i])
		}
	}
}

func TestAnAnswerOfAWaitHoldsWhatCameBeforeItsCommit(t *testing.T) {
	const n = 3
	w := inMemory()
	helper := herd(t, w, n)
	calls := make([]events.ToolCall, n)
	for i := range calls {
		calls[i] = spawn("child", fmt.Sprint(i))
	}
	family(runtimetest.Script(runtimetest.Calls(calls...), runtimetest.Calls(wait(naming(n, `,"mode":"any"`))), runtimetest.Complete(`"all"`)))(w)
	parent := parentOf(w, "1")
	ended := 0
	var worker *handlerstest.Worker
	worker = w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) {
		if a.Run == parent && (a.Type == factParked && ended == 0 || a.Type == factCommitted && ended > 0 && ended < n) {
			from := ended
			ended++
			worker.Before(func() { finish(t, helper, parent, from, from+1) })
		}
		return eventstest.None, false
	})
	w.Send(handlerstest.Start("1", "parent", "Go."))
	worker.Settle()
	session, _ := events.SessionOf(parent)
	if result := waited(t, w, session, runtimetest.CallID(1, 0)); len(result.Settled) != n {
		t.Errorf("the wait tells of %+v; all %d had ended when its answer was committed", result.Settled, n)
	}
}

func TestAWaitForWhateverIsOpenTellsOfWhatEndedUnheard(t *testing.T) {
	for ended := 1; ended <= 2; ended++ {
		w := inMemory()
		helper := herd(t, w, 2)
		family(runtimetest.Script(runtimetest.Calls(spawn("child", "0"), spawn("child", "1")), runtimetest.Calls(wait(`{}`)), runtimetest.Complete(`"all"`)))(w)
		parent := parentOf(w, "1")
		asked := false
		worker := w.Start(t.Context(), nil)
		script := w.Model.Respond
		w.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
			if r.System == "parent" && step == 1 && !asked {
				asked = true
				finish(t, helper, parent, 0, ended) // while the parent thinks
			}
			return script(step, r)
		}
		w.Send(handlerstest.Start("1", "parent", "Go."))
		worker.Settle()
		session, _ := events.SessionOf(parent)
		if r := resultOf(t, w, session, runtimetest.CallID(1, 0)); r.Outcome != events.OutcomeOK || strings.Count(r.Parts[0].Text, `"completed"`) != 2 {
			t.Errorf("%d of two children ended before the first wait; it says %s: %s", ended, r.Outcome, r.Parts[0].Text)
		}
	}
}
