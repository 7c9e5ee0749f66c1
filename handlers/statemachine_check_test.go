package handlers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// witness holds what a machine did against what is promised.
type witness struct {
	m       *machine
	errs    []error
	kind    string // of the first of them: what a shorter case must fail with too
	views   map[events.Key]*view
	order   []events.Key
	seen    int // facts of the world
	calls   int // of services
	keys    map[string]bool
	epochs  map[string]string // of the requests of a call
	ledgers map[string]*book  // by root
	told    []told            // to be compared with the child's own log
}

// view is a session as it was seen so far.
type view struct {
	projector.Session
	records  []events.Record
	revision map[string]uint64
	ended    map[string]projector.Run
	heard    map[string]bool            // ids of messages
	asked    map[string]json.RawMessage // arguments of waits, by call
	fired    map[string]bool            // calls whose timer has fired
	deadline map[string]time.Time       // of waits, by call
	broken   map[string]int             // claims of a run that ended without a word
}

// told is what somebody was told of a run.
type told struct {
	run, state string
	where      string
}

// book is the ledger of a tree as it was seen so far.
type book struct {
	projector.Ledger
	records  []events.Record
	reserved map[string]map[events.RequestKey]bool // by run
}

func newWitness(m *machine) *witness {
	return &witness{m: m, views: make(map[events.Key]*view), keys: make(map[string]bool), epochs: make(map[string]string), ledgers: make(map[string]*book)}
}

func (w *witness) wrong(format string, args ...any) {
	if len(w.errs) == 0 {
		w.kind = format
	}
	w.errs = append(w.errs, fmt.Errorf(format, args...))
}

// report fails the check when anything was wrong.
func (w *witness) report() {
	if len(w.errs) > 0 {
		w.m.Log(w.m.story())
		w.m.Fatal(w.kind)
	}
}

// story is what happened, every fact that came of it, and what was wrong.
func (m *machine) story() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lossless %t, plays %v\n", m.lossless, m.plays)
	for _, v := range m.cast {
		fmt.Fprintf(&b, "%s: budget %+v %s, time-out %s\n", v.Agent.Slug, v.Agent.Budget, v.Agent.OnBudget, v.Agent.Limits.Timeout)
	}
	b.WriteString(strings.Join(m.trace, "\n"))
	for _, f := range m.w.Appends() {
		fmt.Fprintf(&b, "\n%4d %s %s rev %d epoch %d", f.Sequence, f.Run, strings.TrimPrefix(f.Type, events.FactPrefix), f.Revision, f.Epoch)
	}
	return fmt.Sprintf("%s\n%v", b.String(), errors.Join(m.errs...))
}

func (w *witness) runs() (list []*projector.Run) {
	for _, key := range w.order {
		for i := range w.views[key].Runs {
			list = append(list, &w.views[key].Runs[i])
		}
	}
	return list
}

func (w *witness) run(id string) *projector.Run {
	key, err := events.KeyOfRun(w.m.w.Namespace, id)
	if v := w.views[key]; err == nil && v != nil {
		return v.Run(id)
	}
	return nil
}

// anyRun prefers the newest: old ones have ended.
func (w *witness) anyRun(n int) *projector.Run {
	list := w.runs()
	if len(list) == 0 {
		return nil
	}
	return list[len(list)-1-n%min(len(list), 8)]
}

// knows reports whether the log shows that a command took effect.
func (w *witness) knows(e events.Event) bool {
	switch e.Type {
	case events.TypeFor[events.CancelRun]().Name, events.TypeFor[events.TopUpBudget]().Name:
		key := events.Key{Namespace: w.m.w.Namespace, Session: events.SessionFor(w.m.w.Namespace, e.Source, e.ID)}
		return w.views[key] != nil && len(w.views[key].Accepts) > 0
	case events.TypeFor[events.MessageRun]().Name:
		id := "message-" + events.Derive(16, e.Source, e.ID)
		return slices.ContainsFunc(w.order, func(k events.Key) bool { return w.views[k].heard[id] })
	}
	return slices.ContainsFunc(w.runs(), func(r *projector.Run) bool { return r.Admitted.Cause.ID == e.ID && r.Admitted.Cause.Source == e.Source })
}

// observe folds what is new and checks what must hold at any time.
func (w *witness) observe() {
	facts := w.m.w.Facts()
	var touched []events.Key
	for _, f := range facts[w.seen:] {
		if k := (events.Key{Namespace: f.Namespace, Session: f.Session}); !slices.Contains(touched, k) {
			touched = append(touched, k)
		}
	}
	w.seen = len(facts)
	for _, k := range touched {
		v := w.views[k]
		if v == nil {
			v = &view{revision: map[string]uint64{}, ended: map[string]projector.Run{}, heard: map[string]bool{}, asked: map[string]json.RawMessage{},
				fired: map[string]bool{}, deadline: map[string]time.Time{}, broken: map[string]int{}}
			w.views[k], w.order = v, append(w.order, k)
		}
		w.advance(k, v)
		w.look(k, v)
	}
	for _, t := range w.told {
		if r := w.run(t.run); r == nil || string(r.State) != t.state {
			w.wrong("%s tells that run %s has %s", t.where, t.run, t.state)
		}
	}
	w.told = nil
	for _, r := range w.runs() {
		if r.State == projector.StateCompleted {
			for _, c := range r.Children {
				if child := w.run(c.Run); child == nil || !child.State.Terminal() {
					w.wrong("run %s has completed and its child %s has not ended", r.ID, c.Run)
				}
			}
		}
	}
	w.served()
	w.spent(false)
	w.report()
}

// advance folds a session's new facts.
func (w *witness) advance(k events.Key, v *view) {
	reader := w.m.w.Reader(w.m.ctx)
	for {
		records, err := reader.Read(w.m.ctx, k, v.At.Sequence, events.MaxRead)
		if err != nil || len(records) == 0 {
			if err != nil {
				w.wrong("read session %s: %v", k, err)
			}
			return
		}
		for i := range records {
			r := &records[i]
			early := v.EarlyCancel(r.Run) != nil
			before := v.before(r.Run)
			if err := v.Fold(r); err != nil {
				w.wrong("fold session %s at %d: %v", k, r.Sequence, err)
				w.report()
			}
			v.records = append(v.records, *r)
			w.fact(v, r, before, early)
		}
	}
}

// before is what a run was before a fact.
func (v *view) before(id string) projector.Run {
	if r := v.Run(id); r != nil {
		b := *r
		b.Heard = slices.Clone(r.Heard)
		return b
	}
	return projector.Run{}
}

// fact checks one fact against what the session was before it.
func (w *witness) fact(v *view, r *events.Record, before projector.Run, early bool) {
	payload, err := r.Payload()
	if err != nil {
		w.wrong("%s at %d: %v", r.Type, r.Sequence, err)
		return
	}
	switch p := payload.(type) {
	case events.RunAdmitted:
		if run := v.Run(r.Run); early && run.State != projector.StateCancelled {
			w.wrong("run %s was asked to stop before it was there, and is admitted as %s", r.Run, run.State)
		}
		if failed := v.Run(p.Retries); p.Retries != "" && (failed == nil || failed.State != projector.StateFailed) {
			w.wrong("run %s drives run %s again, which has not failed", r.Run, p.Retries)
		}
	case events.RunClaimed:
		if before.State == projector.StateRunning {
			v.broken[r.Run]++
		}
	case events.RunParked:
		if p.Deadline != nil {
			if first, again := v.deadline[p.CallID]; again && !first.Equal(*p.Deadline) {
				w.wrong("the wait %s of run %s was to end at %s, and now at %s", p.CallID, r.Run, first, p.Deadline)
			}
			v.deadline[p.CallID] = *p.Deadline
		}
	case events.TimerFired:
		if p.Deadline.After(r.Time) {
			w.wrong("the timer %s of run %s has fired before its time", p.CallID, r.Run)
		}
		v.fired[r.Run+p.CallID] = true
	case events.ChildSettled:
		w.told = append(w.told, told{p.Child, p.Outcome, r.Type})
	case events.MessageReceived:
		if before.ID != "" && !before.State.Terminal() {
			v.heard[p.Message.ID] = true
		}
	case events.CheckpointCommitted:
		w.checkpoint(v, r, &p.Delta, len(before.Messages))
	case events.RunCompleted:
		w.checkpoint(v, r, &p.Delta, len(before.Messages))
	}
	if before.State.Terminal() && events.TypeOf(r.Type).Kind == events.Owner {
		w.wrong("%s of run %s, which has ended", r.Type, r.Run)
	}
}

func (w *witness) checkpoint(v *view, r *events.Record, d *events.CheckpointDelta, mail int) {
	if r.Revision != v.revision[r.Run]+1 || d.Revision != r.Revision {
		w.wrong("revision %d (%d) of run %s follows %d", r.Revision, d.Revision, r.Run, v.revision[r.Run])
	}
	v.revision[r.Run] = r.Revision
	for _, m := range d.Append {
		for _, c := range m.Calls() {
			if c.Name == events.ToolWaitCalls {
				v.asked[c.ID] = c.Arguments
			}
		}
		for _, p := range m.Parts {
			if o := p.Result; o != nil && o.Name == events.ToolWaitCalls && o.Outcome == events.OutcomeOK {
				w.waited(v, r, o, mail)
			}
		}
	}
}

// waited checks the answer of a wait, before which the run had so many messages
// that were not delivered.
func (w *witness) waited(v *view, r *events.Record, o *events.ToolResult, mail int) {
	var args struct {
		Mode     string
		Messages bool
	}
	var got runtime.WaitResult
	if err := errors.Join(json.Unmarshal(v.asked[o.CallID], &args), json.Unmarshal([]byte(o.Parts[0].Text), &got)); err != nil {
		w.wrong("wait %s: %v", o.CallID, err)
		return
	}
	where := fmt.Sprintf("the wait %s of run %s", o.CallID, r.Run)
	run := v.Run(r.Run)
	for _, s := range got.Pending {
		if c := run.Child(s.CallID); c != nil && c.Settled != nil {
			w.wrong("%s has ended without child %s, whose end stood in the log before", where, s.Run)
		}
	}
	if args.Messages && got.Messages != mail {
		w.wrong("%s has ended with %d messages, and %d stood in the log before", where, got.Messages, mail)
	}
	for _, s := range got.Settled {
		w.told = append(w.told, told{s.Run, s.State, where})
	}
	switch {
	case got.TimedOut:
		if at, ok := v.deadline[o.CallID]; !ok || !v.fired[r.Run+o.CallID] || at.After(r.Time) {
			w.wrong("%s has timed out at %s, and was to at %s", where, r.Time, at)
		}
	case got.Messages > 0 && args.Messages:
	case args.Mode == "any" && len(got.Settled) == 0, args.Mode != "any" && len(got.Pending) > 0:
		w.wrong("%s has ended for nothing: %s", where, o.Parts[0].Text)
	}
}

// look checks a session as it stands.
func (w *witness) look(k events.Key, v *view) {
	window := slices.Clone(v.Window)
	if run := v.Current(); run != nil && run.Checkpoint != nil && !run.State.Terminal() {
		for _, c := range run.Checkpoint.Calls {
			if c.State != events.CallSettled {
				window = append(window, projector.ResultMessage(&c.ToolCall, events.OutcomeSkipped, ""))
			}
		}
	}
	if err := handlerstest.ValidTranscript(window); err != nil {
		w.wrong("session %s: %v", k, err)
	}
	for i := range v.Runs {
		r := &v.Runs[i]
		was, ended := v.ended[r.ID]
		switch {
		case ended && (was.State != r.State || was.Reason != r.Reason || was.EndedSeq != r.EndedSeq):
			w.wrong("run %s had %s at %d and now has %s at %d", r.ID, was.State, was.EndedSeq, r.State, r.EndedSeq)
		case !ended && r.State.Terminal():
			v.ended[r.ID] = *r
		}
		seen, missing := make(map[string]bool), 0
		for _, c := range r.Children {
			if c.Awaited && c.Settled == nil {
				missing++
			}
			if seen[c.Run] {
				w.wrong("child %s of run %s stands twice", c.Run, r.ID)
			}
			seen[c.Run] = true
		}
		if r.Missing != missing {
			w.wrong("run %s misses %d children and counts %d", r.ID, missing, r.Missing)
		}
		window = append(window, r.Messages...)
	}
	for id := range v.heard {
		n := 0
		for _, message := range window {
			if message.ID == id {
				n++
			}
		}
		if n != 1 {
			w.wrong("message %s stands %d times in session %s", id, n, k)
		}
	}
}

// served checks the requests that reached services.
func (w *witness) served() {
	calls := w.m.w.Services.Ledger
	for _, c := range calls[w.calls:] {
		if w.keys[c.Key] {
			w.wrong("the service was called twice for %s", c.Key)
		}
		w.keys[c.Key] = true
		call := c.Header["Agent-Run"] + "/" + c.Header["Agent-Call"]
		if epoch := c.Header["Agent-Epoch"]; w.epochs[call] == "" {
			w.epochs[call] = epoch
		} else if w.epochs[call] != epoch {
			w.wrong("the call %s was made under the claims %s and %s", call, w.epochs[call], epoch)
		}
	}
	w.calls = len(calls)
}
