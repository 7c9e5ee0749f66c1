package handlerstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/projector"
)

// Scenario is one piece of work that is done undisturbed once, and then again
// with a fault at every append.
type Scenario struct {
	Name     string
	Versions []handlers.Version
	Prepare  func(w *World)
	Commands func(namespace string) []events.Event // each is sent when nothing is left to do
	Timers   bool                                  // fire when nothing else is left to do
	Racy     bool                                  // what is quoted depends on who is first: replies are not compared
	Parallel bool                                  // callbacks are made at once: how they share appends, and their order, differ

	// Judge, when set, demands more of each disturbed world.
	Judge func(w *World) error

	// Charged, when set, does the same scenario with one step less in the
	// budget: what a crash between a reservation and its response comes to.
	Charged *Scenario
}

// mode is what happens at the chosen append.
type mode struct {
	name  string
	fault eventstest.Fault
	kill  bool
}

var modes = []mode{
	{"lost before", eventstest.LostBefore, false},
	{"answer lost after", eventstest.AnswerLost, false},
	{"killed before", eventstest.LostBefore, true},
	{"killed after", eventstest.AnswerLost, true},
}

// Points counts what a crash test did.
type Points struct {
	Crashes, Unknown int
}

// CrashEverywhere does the scenario undisturbed, and then once for each append
// and each fault at it, and compares. It returns how many points there were,
// and at how many a call's outcome had to be unknown, which is computed from
// the undisturbed log beforehand. With sample only one fault is met at each
// append, each of them in turn.
func CrashEverywhere(t *testing.T, s Scenario, sample bool, world func() *World) Points {
	t.Helper()
	ctx := t.Context()
	calm, want := s.calm(ctx, t, world)
	charged := want
	if s.Charged != nil {
		_, charged = s.Charged.calm(ctx, t, world)
	}
	open := openCalls(ctx, t, calm)
	var p Points
	counts := make(map[string]int)
	for i, fact := range calm.Appends() {
		n := i + 1
		counts[fact.Type]++
		target := Append{Type: fact.Type, Nth: counts[fact.Type]}
		for k, m := range modes {
			if sample && k != i%len(modes) {
				continue
			}
			unknown := 0
			if m.kill && (m.fault == eventstest.LostBefore && open[n-1].call || m.fault == eventstest.AnswerLost && open[n].call) {
				unknown = 1
			}
			p.Crashes++
			p.Unknown += unknown
			w := world()
			calmly, want := want, want
			if m.kill && (m.fault == eventstest.LostBefore && open[n-1].reserved || m.fault == eventstest.AnswerLost && open[n].reserved) {
				want = charged
			}
			met, err := s.run(ctx, w, target, m)
			if err == nil && !met {
				unknown, want = 0, calmly
			}
			if err == nil {
				err = s.compare(ctx, w, want, unknown)
			}
			if err == nil && s.Judge != nil {
				err = s.Judge(w)
			}
			if err != nil {
				t.Errorf("%s, append %d (%s) %s: %v", s.Name, n, fact.Type, m.name, err)
			}
		}
	}
	return p
}

// calm does the scenario undisturbed.
func (s *Scenario) calm(ctx context.Context, t *testing.T, world func() *World) (*World, *result) {
	t.Helper()
	w := world()
	if _, err := s.run(ctx, w, Append{}, mode{}); err != nil {
		t.Fatalf("%s, undisturbed: %v", s.Name, err)
	}
	r, err := outcome(ctx, w)
	if err != nil {
		t.Fatalf("%s, undisturbed: %v", s.Name, err)
	}
	if r.unknown != 0 {
		t.Fatalf("%s, undisturbed: %d calls are unknown", s.Name, r.unknown)
	}
	return w, r
}

// run does the scenario with one fault. What the appends are is told by their
// type: on a replicated log a stale read may cost one more, which changes how
// they are counted.
func (s *Scenario) run(ctx context.Context, w *World, target Append, m mode) (met bool, err error) {
	w.Effects = effects(s.Versions)
	if s.Prepare != nil {
		s.Prepare(w)
	}
	first := w.Start(ctx, func(a Append) (eventstest.Fault, bool) {
		if met || a.Type != target.Type || a.Nth != target.Nth {
			return eventstest.None, false
		}
		met = true
		return m.fault, m.kill
	})
	for _, v := range s.Versions {
		if _, err := first.Dispatcher.Apply(ctx, w.Namespace, &v); err != nil {
			return met, err
		}
	}
	worker := first
	for _, c := range s.Commands(w.Namespace) {
		w.Send(c)
		for worker.Settle(); worker.Dead() || s.Timers && worker.Fire() || worker.Dead(); worker.Settle() {
			if !worker.Dead() {
				continue
			}
			worker = w.Start(ctx, nil)
			if _, err := worker.Sweeper().Sweep(ctx); err != nil {
				return met, err
			}
		}
	}
	if target.Type != "" && !met && !(s.Parallel && target.Type == events.TypeFor[events.CallbacksRecorded]().Name) {
		return met, fmt.Errorf("no append was fact %d of type %s", target.Nth, target.Type)
	}
	return met, w.Idle()
}

// result is what a scenario came to.
type result struct {
	replies  []string
	states   []projector.State
	messages []string
	public   []string
	calls    []string // idempotency keys
	made     []string // without what differs between worlds
	unknown  int
}

// outcome reads what the log, the services and the public stream hold, and
// checks what must hold of any run.
func outcome(ctx context.Context, w *World) (*result, error) {
	r := &result{}
	var runs []string
	for _, key := range w.Keys() {
		s, records, err := w.Session(ctx, key)
		if err != nil {
			return nil, err
		}
		if _, err := events.Verify(records); err != nil {
			return nil, err
		}
		if err := validTranscript(s.Window); err != nil {
			return nil, fmt.Errorf("session %s: %w", key, err)
		}
		for i := range s.Runs {
			run := &s.Runs[i]
			runs = append(runs, run.ID)
			r.states = append(r.states, run.State)
			reply := []byte(run.Reason)
			if run.Checkpoint != nil {
				if reply, err = events.Marshal(run.Checkpoint.Reply); err != nil {
					return nil, err
				}
			}
			r.replies = append(r.replies, string(reply))
			if err := settledTree(s, run); err != nil {
				return nil, err
			}
		}
		said, err := transcript(s, records)
		if err != nil {
			return nil, err
		}
		if err := w.checkCallbacks(records, said); err != nil {
			return nil, fmt.Errorf("session %s: %w", key, err)
		}
		for _, m := range said {
			r.messages = append(r.messages, string(m.Role))
			for _, p := range m.Parts {
				r.messages = append(r.messages, string(p.Type))
				if p.Result != nil && p.Result.Outcome == events.OutcomeUnknown {
					r.unknown++
				}
			}
		}
	}
	for i := range r.replies {
		r.replies[i] = anonymous(runs).Replace(r.replies[i])
	}
	var minted []string
	calls, err := w.once()
	if err != nil {
		return nil, err
	}
	for _, c := range calls {
		r.calls = append(r.calls, c.Key)
		r.made = append(r.made, named(&minted, c.Header[handlers.HeaderCall])+"/"+c.Header[handlers.HeaderIndex])
	}
	if n := w.Executors.Open(); n != 0 {
		return nil, fmt.Errorf("%d executors are open", n)
	}
	for _, e := range w.Published {
		// Whether a run gets to wait depends on who is first.
		if e.Type == events.TypeFor[events.RunProgressData]().Name {
			continue
		}
		r.public = append(r.public, fmt.Sprintf("%s of run %d", e.Type, slices.Index(runs, e.Run)))
	}
	slices.Sort(r.public)
	return r, w.Executors.Misused()
}

// transcript returns every message of a session, compacted away or not: what was
// committed, and what its window has beyond that.
func transcript(s *projector.Session, records []events.Record) (said []events.Message, err error) {
	seen := make(map[string]bool)
	add := func(messages []events.Message) {
		for _, m := range messages {
			if !seen[m.ID] {
				seen[m.ID] = true
				said = append(said, m)
			}
		}
	}
	for i := range records {
		payload, err := records[i].Payload()
		if err != nil {
			return nil, err
		}
		switch p := payload.(type) {
		case events.CheckpointCommitted:
			add(p.Delta.Append)
		case events.RunCompleted:
			add(p.Delta.Append)
		case events.WindowCompacted:
			if err := validTranscript(p.Window); err != nil {
				return nil, fmt.Errorf("a compacted window: %w", err)
			}
			add(p.Window)
		}
	}
	add(s.Window)
	return said, nil
}

// named names the call ids that the loop minted, which differ between worlds, by
// their order.
func named(minted *[]string, id string) string {
	if strings.HasPrefix(id, "call_") {
		return id
	}
	i := slices.Index(*minted, id)
	if i < 0 {
		i = len(*minted)
		*minted = append(*minted, id)
	}
	return fmt.Sprintf("minted-%d", i)
}

// anonymous replaces the ids of runs and of their sessions, which differ between
// worlds.
func anonymous(runs []string) *strings.Replacer {
	var pairs, sessions []string // the first pair that fits counts, and a run begins with its session
	for i, run := range runs {
		session, _ := events.SessionOf(run)
		pairs = append(pairs, run, fmt.Sprintf("run-%d", i))
		sessions = append(sessions, session, fmt.Sprintf("session-of-%d", i))
	}
	return strings.NewReplacer(append(pairs, sessions...)...)
}

// settledTree demands that a run that has completed was told of the end of each
// child it had, and that no child is told of twice.
func settledTree(s *projector.Session, run *projector.Run) error {
	seen := make(map[string]bool)
	for _, c := range run.Children {
		if seen[c.Run] {
			return fmt.Errorf("session %s: child %s stands twice", s.Key, c.Run)
		}
		seen[c.Run] = true
	}
	return nil
}

// validTranscript demands that each message stands once, and that each call has
// exactly one result, right after the message that made it.
func validTranscript(window []events.Message) error {
	seen := make(map[string]bool)
	var open []string
	for _, m := range window {
		if seen[m.ID] {
			return fmt.Errorf("message %s stands twice", m.ID)
		}
		seen[m.ID] = true
		for _, p := range m.Parts {
			if p.Result == nil {
				continue
			}
			if len(open) == 0 || open[0] != p.Result.CallID {
				return fmt.Errorf("the result of call %s stands where %v is open", p.Result.CallID, open)
			}
			open = open[1:]
		}
		if m.Role != events.RoleTool && len(open) > 0 {
			return fmt.Errorf("message %s follows calls without results: %v", m.ID, open)
		}
		for _, c := range m.Calls() {
			open = append(open, c.ID)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("calls without results: %v", open)
	}
	return nil
}

// compare holds a disturbed run against the undisturbed one.
func (s *Scenario) compare(ctx context.Context, w *World, want *result, unknown int) error {
	got, err := outcome(ctx, w)
	if err != nil {
		return err
	}
	var errs []error
	differ := func(what string, got, want any) {
		errs = append(errs, fmt.Errorf("%s: got %v, undisturbed %v", what, got, want))
	}
	if got.unknown != unknown {
		differ("unknown outcomes", got.unknown, unknown)
	}
	if !slices.Equal(got.states, want.states) {
		differ("states", got.states, want.states)
	}
	if !slices.Equal(got.messages, want.messages) {
		differ("messages", got.messages, want.messages)
	}
	if unknown == 0 && !s.Racy && !slices.Equal(got.replies, want.replies) {
		differ("replies", got.replies, want.replies)
	}
	if s.Parallel {
		slices.Sort(got.made)
		slices.Sort(want.made)
	}
	if unknown == 0 && !slices.Equal(got.made, want.made) {
		differ("calls", got.made, want.made)
	}
	if !slices.Equal(got.public, want.public) {
		differ("public events", got.public, want.public)
	}
	return errors.Join(errs...)
}

// underWay is what a kill interrupts. A world does one thing at a time, so at
// most one call and one request are under way.
type underWay struct {
	call     bool // one that was dispatched, has no result and is never made again
	reserved bool // a model request that was reserved and whose response is not committed
}

// openCalls tells for each number of appends what is under way after it.
func openCalls(ctx context.Context, t *testing.T, w *World) []underWay {
	t.Helper()
	type place struct {
		key      events.Key
		sequence uint64
		id       string
	}
	full := make(map[place]events.Record)
	for _, key := range w.Keys() {
		_, records, err := w.Session(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			full[place{key, r.Sequence, r.ID}] = r
		}
	}
	folds := make(map[events.Key]*projector.Session)
	list := []underWay{{}}
	reserved := ""
	for _, f := range w.Appends() {
		key := events.Key{Namespace: f.Namespace, Session: f.Session}
		r, ok := full[place{key, f.Sequence, f.ID}]
		switch {
		case !ok && f.Type == events.TypeFor[events.BudgetReserved]().Name:
			reserved = f.Run
		case f.Run == reserved:
			reserved = ""
		}
		if !ok { // of a ledger
			list = append(list, underWay{list[len(list)-1].call, reserved != ""})
			continue
		}
		if folds[key] == nil {
			folds[key] = &projector.Session{}
		}
		if err := folds[key].Fold(&r); err != nil {
			t.Fatal(err)
		}
		now := underWay{reserved: reserved != ""}
		for _, s := range folds {
			now.call = now.call || openIn(s)
		}
		list = append(list, now)
	}
	return list
}

func openIn(s *projector.Session) bool {
	run := s.Current()
	return run != nil && run.Checkpoint != nil && !run.State.Terminal() && slices.ContainsFunc(run.Checkpoint.Calls, func(c events.Call) bool {
		return c.State == events.CallDispatched && (c.Name == "run_js" || c.Name == "get_calls" || c.Name == "cancel_calls")
	})
}

// Start returns a run.start command.
func Start(id, agent, message string) events.Event {
	return command(id, events.StartRun{Agent: agent, Message: message})
}

// Continue returns a run.continue command.
func Continue(id, session, message string) events.Event {
	return command(id, events.ContinueRun{Session: session, Message: message})
}

// Message returns a run.message command.
func Message(id, run, message string) events.Event {
	return command(id, events.MessageRun{Run: run, Message: message})
}

// Cancel returns a run.cancel command.
func Cancel(id, run, reason string) events.Event {
	return command(id, events.CancelRun{Run: run, Reason: reason})
}

// Retry returns a run.retry command.
func Retry(id, run string) events.Event { return command(id, events.RetryRun{Run: run}) }

// TopUp returns a budget.topup command that adds steps.
func TopUp(id, run string, steps int64) events.Event {
	return command(id, events.TopUpBudget{Run: run, Steps: steps})
}

func command(id string, payload any) events.Event {
	e, err := events.New(payload)
	if err != nil {
		panic(err)
	}
	e.ID, e.Source = id, "/test"
	return e
}

// Large returns JSON of about n bytes.
func Large(n int) []byte {
	return append(append([]byte(`"`), bytes.Repeat([]byte("x"), n)...), '"')
}
