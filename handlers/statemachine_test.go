package handlers_test

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
)

// machine is a service whose every step is chosen, and what is known of it.
type machine struct {
	*rapid.T
	ctx      context.Context
	w        *handlerstest.World
	cast     []handlers.Version
	plays    map[string]play
	lossless bool // nothing is lost, and nothing is swept

	workers  [2]*handlerstest.Worker
	sweepers [2]*handlers.Sweeper
	sent     []events.Event
	trace    []string
	reacted  map[int]bool // facts whose reactions are acknowledged
	open     int          // facts before it are acknowledged
	armed    []handlers.Timer
	restedAt time.Time // what is due since need not be done
	points   int
	appends  int
	running  *op        // that may be cut
	under    events.Key // session that is worked on
	*witness

	mu       sync.Mutex
	requests map[string]int // to the model, by the message that began the run
}

// maxAppends is more than any op needs: who appends more does so for ever.
const maxAppends = 3000

func newMachine(ctx context.Context, t *rapid.T) *machine {
	m := &machine{T: t, ctx: ctx, w: handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "machine"), plays: make(map[string]play),
		reacted: make(map[int]bool), requests: make(map[string]int), lossless: rapid.Bool().Draw(t, "lossless")}
	m.witness = newWitness(m)
	m.w.Tree = handlers.TreeLimits{Depth: 2, Width: 3}
	m.w.Model.Respond = m.respond
	m.w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
		m.point(nil, request)
		return []byte(`{"ok":true}`), nil
	}
	m.w.Unheard = rapid.Bool().Draw(t, "unheard")
	m.cast = drawCast(t)
	for _, v := range m.cast {
		if _, err := m.worker(0).Dispatcher.Apply(ctx, m.w.Namespace, &v); err != nil {
			t.Fatal(err)
		}
		m.plays[v.Agent.Slug] = drawPlay().Draw(t, "play of "+v.Agent.Slug)
	}
	return m
}

// worker returns a worker that is alive.
func (m *machine) worker(n int) *handlerstest.Worker {
	if m.workers[n] == nil || m.workers[n].Dead() {
		m.workers[n] = m.w.Start(m.ctx, func(a handlerstest.Append) (eventstest.Fault, bool) {
			if m.appends++; m.appends > maxAppends {
				m.wrong("an op has made %d appends and goes on", m.appends)
				return eventstest.LostBefore, true
			}
			return m.point(m.workers[n], a.Type)
		})
		m.sweepers[n] = m.workers[n].Sweeper()
	}
	return m.workers[n]
}

// point is where an op may be cut. Appends of worker w are cut before they are
// made, requests where they are.
func (m *machine) point(w *handlerstest.Worker, what string) (fault eventstest.Fault, kill bool) {
	o := m.running
	if o == nil || o.cut == nil || w != nil && w != m.workers[o.W] || !strings.HasSuffix(what, o.cut.On) {
		return eventstest.None, false
	}
	if m.points++; m.points != o.cut.At {
		return eventstest.None, false
	}
	c := *o.cut
	meanwhile := func() {
		m.running = nil
		for _, other := range c.Between {
			other.W = 1 - o.W
			m.trace = append(m.trace, fmt.Sprintf("  meanwhile %v", other))
			m.do(&other)
		}
	}
	if w != nil {
		w.Before(meanwhile)
		if late := c.Fault == eventstest.Late || c.Fault == eventstest.PhantomLate; late && !slices.Contains([]string{"work", "work again", "command", "command again"}, o.Do) {
			c.Fault = eventstest.AnswerLost // children are asked to stop several at a time, and the log meets late appends one at a time
		}
		return c.Fault, c.Kill
	}
	if meanwhile(); c.Kill {
		m.workers[o.W].Kill()
	}
	return eventstest.None, false
}

// run does one op and looks at what came of it.
func (m *machine) run(o op) {
	m.trace = append(m.trace, o.String())
	m.points, m.appends, m.running = 0, 0, &o
	m.do(&o)
	m.running = nil
	m.observe()
}

func (m *machine) do(o *op) {
	w := m.worker(o.W)
	id := fmt.Sprintf("c%d", len(m.sent))
	switch o.Do {
	case "start":
		m.send(handlerstest.Start(id, []string{"a", "a", "b", "c"}[o.A%4], "Go "+id+"."))
	case "continue":
		if run := m.anyRun(o.A); run != nil {
			session, _ := events.SessionOf(run.ID)
			m.send(handlerstest.Continue(id, session, "Go on "+id+"."))
		}
	case "cancel":
		if run := m.anyRun(o.A); run != nil {
			m.send(handlerstest.Cancel(id, run.ID, "enough"))
		}
	case "stop":
		if run := m.runUnderWay(w); run != "" {
			m.send(handlerstest.Cancel(id, run, "stop"))
			m.deliver(w, len(m.sent)-1)
			for m.react(w, 0) {
			}
		}
	case "tell":
		if run := m.runUnderWay(w); run != "" {
			m.send(handlerstest.Message(id, run, "Listen to "+id+"."))
			m.deliver(w, len(m.sent)-1)
		}
	case "rival":
		_, pending := m.w.Items()
		for _, n := range pending {
			w.AttendTo(n)
		}
	case "message":
		if run := m.anyRun(o.A); run != nil {
			m.send(handlerstest.Message(id, run.ID, "Hear "+id+"."))
		}
	case "retry":
		if run := m.anyRun(o.A); run != nil {
			m.send(handlerstest.Retry(id, run.ID))
		}
	case "top up":
		if run := m.anyRun(o.A); run != nil {
			m.send(handlerstest.TopUp(id, run.ID, int64(1+o.B%3)))
		}
	case "command":
		if _, pending := m.w.Sent(); len(pending) > 0 {
			m.deliver(w, pending[o.A%len(pending)])
		}
	case "command again":
		if len(m.sent) > 0 {
			m.deliver(w, o.A%len(m.sent))
		}
	case "react":
		m.react(w, o.B)
	case "react again":
		if facts := m.w.Facts(); len(facts) > 0 {
			w.ReactTo(facts[(len(facts)*o.A/64+o.B)%len(facts)])
		}
	case "work":
		m.provide(w)
		if _, pending := m.w.Items(); len(pending) > 0 {
			m.attend(w, pending[o.A%len(pending)])
		}
	case "work again":
		if n, _ := m.w.Items(); n > 0 {
			m.attend(w, (n*o.A/64+o.B)%n)
		}
	case "settle":
		m.settle(w, 1+o.B)
	case "kill":
		w.Kill()
	case "silence":
		m.w.Silence = []time.Duration{0, time.Second}[o.A%2]
	default:
		m.pass(w, o)
	}
	m.remember()
}

// provide sees to it that there is a work item, if need be for a new run.
func (m *machine) provide(w *handlerstest.Worker) {
	cut := m.running
	m.running = nil
	defer func() { m.running = cut }()
	for tries := 0; tries < 3; tries++ {
		if _, pending := m.w.Items(); len(pending) > 0 {
			return
		}
		if tries == 1 && len(m.runs()) < 20 {
			m.send(handlerstest.Start(fmt.Sprintf("c%d", len(m.sent)), "a", "Go."))
		}
		_, commands := m.w.Sent()
		for _, n := range commands {
			w.Deliver(n)
		}
		for m.react(w, 0) {
		}
	}
}

// attend attends to a work item and notes whose it is.
func (m *machine) attend(w *handlerstest.Worker, n int) bool {
	if m.running != nil {
		m.under = m.w.Item(n).Key
	}
	return w.AttendTo(n)
}

// runUnderWay returns the newest run of the session that is worked on.
func (m *machine) runUnderWay(w *handlerstest.Worker) string {
	if s, err := w.Dispatcher.Latest(m.ctx, m.under); err == nil && s.Current() != nil {
		return s.Current().ID
	}
	return ""
}

// pass does what has to do with time and with losses.
func (m *machine) pass(w *handlerstest.Worker, o *op) {
	switch o.Do {
	case "fire":
		if armed := m.w.Armed(); len(armed) > 0 {
			t := armed[o.A%min(len(armed), 2)]
			if left := t.At.Sub(m.w.Now()); left > 0 {
				m.w.Pass(left)
			}
			w.FireTimer(t)
		}
	case "fire late":
		if len(m.armed) > 0 {
			// A timer fires early where the clocks differ.
			if t := m.armed[o.A%len(m.armed)]; !m.lossless || !t.At.After(m.w.Now()) {
				w.FireTimer(t)
			}
		}
	case "pass":
		m.w.Pass(time.Duration(1+o.A) * time.Duration(1+o.B) * time.Minute / 2)
	case "lose item":
		if n, _ := m.w.Items(); n > 0 {
			m.w.LoseItem(o.A % n)
		}
	case "lose items":
		m.w.Purge()
	case "lose timers":
		m.w.LoseTimers()
	case "lose leases":
		m.w.LoseLeases()
	case "lose snapshots":
		m.w.LoseSnapshots()
	case "lose signals":
		m.w.Unheard = o.A%2 == 0
	case "sweep":
		if _, err := m.sweepers[o.W].Sweep(m.ctx); err != nil && !w.Dead() {
			m.wrong("sweep: %v", err)
		}
	default:
		panic(o.Do)
	}
}

// remember keeps every timer that was ever armed.
func (m *machine) remember() {
	for _, t := range m.w.Armed() {
		if !slices.Contains(m.armed, t) {
			m.armed = append(m.armed, t)
		}
	}
}

func (m *machine) send(e events.Event) {
	m.sent = append(m.sent, e)
	m.w.Send(e)
}

// deliver hands over a command. What was accepted before is never refused.
func (m *machine) deliver(w *handlerstest.Worker, n int) {
	known, buried := m.knows(m.sent[n]), len(m.w.Buried)
	whole := m.running != nil && m.running.cut == nil
	acked := w.Deliver(n)
	if refused := len(m.w.Buried) > buried; whole && known && refused {
		m.wrong("command %s was accepted and is refused now: %s", m.sent[n].ID, m.w.Buried[buried].Reason)
	} else if whole && acked && !refused && !known {
		if m.observe(); !m.knows(m.sent[n]) {
			m.wrong("command %s was acknowledged and nothing came of it", m.sent[n].ID)
		}
	}
}

// react reacts to one of the next facts, and perhaps out of their order.
func (m *machine) react(w *handlerstest.Worker, skip int) bool {
	facts := m.w.Facts()
	for m.open < len(facts) && m.reacted[m.open] {
		m.open++
	}
	for i := m.open; i < len(facts); i++ {
		if m.reacted[i] {
			continue
		}
		if skip = skip - 4; skip < 0 { // mostly in order
			m.reacted[i] = w.ReactTo(facts[i]) || m.reacted[i]
			return m.reacted[i]
		}
	}
	return false
}

// settle lets a worker do what there is to do, so many rounds.
func (m *machine) settle(w *handlerstest.Worker, rounds int) (moved bool) {
	for again := true; again && rounds > 0; rounds-- {
		again = false
		_, commands := m.w.Sent()
		for _, n := range commands {
			again = w.Deliver(n) || again
		}
		for m.react(w, 0) {
			again = true
		}
		_, items := m.w.Items()
		for _, n := range items {
			again = m.attend(w, n) || again
		}
		moved = moved || again
	}
	return moved
}

// rest lets everything come to rest: what is there is done, due timers fire,
// and where something may have been lost there is a sweep, the first of its
// process or a later one.
func (m *machine) rest() {
	m.running, m.w.Silence = nil, 0
	swept := m.lossless
	for range 500 {
		m.appends, m.restedAt = 0, m.w.Now()
		w := m.worker(0)
		moved := m.settle(w, 1)
		for _, t := range m.w.Armed() {
			if !t.At.After(m.restedAt) {
				moved = w.FireTimer(t) || moved
			}
		}
		if m.observe(); moved {
			continue
		}
		if !swept {
			s, err := m.sweepers[0].Sweep(m.ctx)
			if err != nil {
				m.wrong("sweep: %v", err)
			}
			for _, stuck := range s.Stuck {
				m.wrong("the sweep finds %v stuck", stuck)
			}
			if swept = s.Hinted == 0 && s.Told == 0; !swept {
				continue
			}
		}
		if err := m.idle(); err != nil {
			m.wrong("at rest: %v", err)
		}
		m.resting()
		return
	}
	m.wrong("the service does not come to rest")
	m.report()
}

func (m *machine) idle() error {
	var errs []error
	if _, pending := m.w.Sent(); len(pending) > 0 {
		errs = append(errs, fmt.Errorf("commands %v are not acknowledged", pending))
	}
	if _, pending := m.w.Items(); len(pending) > 0 {
		errs = append(errs, fmt.Errorf("work items %v are not acknowledged", pending))
	}
	for i, f := range m.w.Facts() {
		if !m.reacted[i] {
			errs = append(errs, fmt.Errorf("%s at %d of %s was not reacted to", f.Type, f.Sequence, f.Session))
		}
	}
	return errors.Join(errs...)
}

// TestWhateverHappensInWhateverOrderEveryPromiseHolds does random things to a
// service with random agents and holds every step against what is promised.
func TestWhateverHappensInWhateverOrderEveryPromiseHolds(t *testing.T) {
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(1)) // so that a case can be repeated
	want, began := 10_000, time.Now()
	if slow {
		want *= 5
	}
	steps, runs, facts := 0, 0, 0
	done := make(map[string]int)
	var failed *machine // the first case that did, as it was before it was made shorter
	defer func() {
		if failed != nil {
			t.Log(failed.story())
		}
	}()
	for steps < want && !t.Failed() {
		rapid.Check(t, func(t *rapid.T) {
			m, ended := newMachine(context.Background(), t), false
			defer func() {
				if !ended && failed == nil {
					failed = m
				}
			}()
			of := doings
			if !m.lossless {
				of = slices.Concat(doings[:8], losses, doings[8:])
			}
			ops := drawCut(of)
			m.run(op{Do: "start"})
			m.run(op{Do: "command"})
			for range 4 {
				t.Repeat(map[string]func(*rapid.T){"op": func(t *rapid.T) {
					o := ops.Draw(t, "op")
					steps++
					done[o.Do]++
					m.run(o)
				}})
			}
			m.rest()
			m.w.Pass(100 * time.Hour)
			m.rest()
			for _, run := range m.runs() {
				if run.Parent == "" && !run.State.Terminal() {
					m.send(handlerstest.Cancel(fmt.Sprintf("c%d", len(m.sent)), run.ID, "the end"))
				}
			}
			m.rest()
			for _, run := range m.runs() {
				if done[string(run.State)]++; !run.State.Terminal() {
					m.wrong("run %s of a cancelled tree is %s", run.ID, run.State)
				}
			}
			m.report()
			if err := m.w.Executors.Misused(); err != nil || m.w.Executors.Open() != 0 {
				t.Fatalf("executors: %d open, %v", m.w.Executors.Open(), err)
			}
			ended = true
			runs, facts = runs+len(m.runs()), facts+len(m.w.Facts())
		})
	}
	t.Logf("%d steps, %d runs, %d facts in %s: %v", steps, runs, facts, time.Since(began).Round(time.Millisecond), done)
	if steps < want && !t.Failed() {
		t.Errorf("%d steps were run, fewer than %d", steps, want)
	}
}
