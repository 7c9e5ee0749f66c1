package handlers_test

import (
	"maps"
	"slices"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// spent checks every ledger. At rest every answer is on it.
func (w *witness) spent(rest bool) {
	for _, r := range w.runs() {
		if r.Admitted.Metered && w.ledgers[r.Root] == nil {
			w.ledgers[r.Root] = &book{reserved: make(map[string]map[events.RequestKey]bool)}
		}
	}
	for _, root := range slices.Sorted(maps.Keys(w.ledgers)) {
		b := w.ledgers[root]
		key := events.Key{Namespace: w.m.w.Namespace, Session: root}
		records, err := w.m.w.Ledger.Read(w.m.ctx, key, b.At.Sequence, events.MaxRead)
		if err != nil {
			w.wrong("read the ledger of %s: %v", root, err)
		}
		for i := range records {
			if err := b.Fold(&records[i]); err != nil {
				w.wrong("fold the ledger of %s: %v", root, err)
				return
			}
			b.note(&records[i])
		}
		if len(records) > 0 || rest {
			w.account(root, b, rest)
		}
	}
}

func (b *book) note(r *events.Record) {
	b.records = append(b.records, *r)
	payload, err := r.Payload()
	if p, ok := payload.(events.BudgetReserved); ok && err == nil {
		if b.reserved[p.Run] == nil {
			b.reserved[p.Run] = make(map[events.RequestKey]bool)
		}
		b.reserved[p.Run][p.RequestKey] = true
	}
}

// account checks the accounts of a ledger against each other, the sessions and
// the requests that were made.
func (w *witness) account(root string, b *book, rest bool) {
	type total struct{ reserved, committed, requests, tokens, broken int64 }
	totals := make(map[string]*total)
	for id := range b.Accounts {
		totals[id] = &total{}
	}
	for _, r := range w.runs() {
		if r.Root != root || !r.Admitted.Metered {
			continue
		}
		own := total{reserved: int64(len(b.reserved[r.ID])), requests: int64(w.m.asked(r.Admitted.Message.ID))}
		if c := r.Checkpoint; c != nil {
			own.committed, own.tokens = int64(c.Steps), c.Usage.Input
		}
		key, _ := events.KeyOfRun(w.m.w.Namespace, r.ID)
		own.broken = int64(w.views[key].broken[r.ID])
		if most := own.requests + own.broken + 1; own.reserved > most {
			w.wrong("run %s has reserved %d steps, and may have %d", r.ID, own.reserved, most)
		}
		for at := r; at != nil; at = w.run(at.Parent) {
			if t := totals[at.ID]; t != nil {
				t.reserved, t.committed, t.requests, t.tokens = t.reserved+own.reserved, t.committed+own.committed, t.requests+own.requests, t.tokens+own.tokens
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(b.Accounts)) {
		a, t := b.Accounts[id], totals[id]
		if a.Limit != nil && a.Limit.Steps > 0 && a.Steps > a.Limit.Steps {
			w.wrong("run %s has spent %d of %d steps", id, a.Steps, a.Limit.Steps)
		}
		if a.Steps != t.reserved || a.Steps < t.committed {
			w.wrong("the ledger of run %s has %d steps: %d were reserved and %d committed", id, a.Steps, t.reserved, t.committed)
		}
		if a.Tokens.Input > 100*t.requests || rest && a.Tokens.Input < t.tokens {
			w.wrong("the ledger of run %s has %d input tokens: %d requests of 100 were made, and %d tokens are committed", id, a.Tokens.Input, t.requests, t.tokens)
		}
	}
}

// asked returns how many model requests were made for the run that a message
// began.
func (m *machine) asked(task string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.requests[task]
}

// resting checks what must hold when there is nothing left to do.
func (w *witness) resting() {
	for _, key := range w.order {
		v := w.views[key]
		if _, err := events.Verify(v.records); err != nil {
			w.wrong("session %s: %v", key, err)
		}
		for i := range v.Runs {
			w.still(v, &v.Runs[i])
		}
	}
	for root, b := range w.ledgers {
		if _, err := events.Verify(b.records); err != nil {
			w.wrong("the ledger of %s: %v", root, err)
		}
	}
	w.spent(true)
	w.public()
	w.report()
}

// still checks one run at rest.
func (w *witness) still(v *view, r *projector.Run) {
	if r.State.Terminal() {
		return
	}
	if r.State != projector.StateParked || v.Runnable() {
		w.wrong("run %s is %s (%s) at rest, and may go on", r.ID, r.State, r.Reason)
		return
	}
	if parent := w.run(r.Parent); parent != nil && parent.State.Terminal() {
		w.wrong("run %s is alive below %s, which has %s", r.ID, parent.ID, parent.State)
	}
	for _, c := range r.Children {
		child := w.run(c.Run)
		if child != nil && child.State.Terminal() && (c.Settled == nil && (c.Awaited || w.m.lossless) || c.Settled != nil && c.Settled.Outcome != string(child.State)) {
			w.wrong("run %s waits, and was told %v of child %s, which has %s", r.ID, c.Settled, c.Run, child.State)
		}
	}
	over := 0
	for _, id := range r.Wait.Dependencies {
		if child := w.run(id); child != nil && child.State.Terminal() {
			over++
		}
	}
	if n := len(r.Wait.Dependencies); n > 0 && (over == n || r.Wait.Any && over > 0) || r.Wait.Messages && len(r.Messages) > 0 {
		w.wrong("run %s waits, and has what it waits for: %d of %d children, %d messages", r.ID, over, n, len(r.Messages))
	}
	now := w.m.restedAt
	if d := r.Wait.Deadline; d != nil && !d.After(now) {
		w.wrong("run %s waits, and its time-out has passed", r.ID)
	}
	if d := r.Admitted.Deadline; d != nil && !d.After(now) {
		w.wrong("run %s waits, and its deadline has passed", r.ID)
	}
	if r.Wait.Reason == events.ParkBudget && w.ledgers[r.Root].Raises > r.Wait.Raises {
		w.wrong("run %s waits, and its budget was topped up", r.ID)
	}
}

// public checks what the outside was told: that each run started once, and
// ended once.
func (w *witness) public() {
	ends := map[projector.State]string{
		projector.StateCompleted: events.TypeFor[events.RunCompletedData]().Name,
		projector.StateFailed:    events.TypeFor[events.RunFailedData]().Name,
		projector.StateCancelled: events.TypeFor[events.RunCancelledData]().Name,
	}
	started := events.TypeFor[events.RunStartedData]().Name
	got := make(map[string][]string)
	for _, e := range w.m.w.Published {
		if e.Type == started || slices.Contains([]string{ends[projector.StateCompleted], ends[projector.StateFailed], ends[projector.StateCancelled]}, e.Type) {
			got[e.Run] = append(got[e.Run], e.Type)
		}
	}
	for _, r := range w.runs() {
		want := []string{started}
		if end := ends[r.State]; end != "" {
			want = append(want, end)
		}
		slices.Sort(want)
		slices.Sort(got[r.ID])
		if !slices.Equal(got[r.ID], want) {
			w.wrong("run %s is %s, and the outside was told %v", r.ID, r.State, got[r.ID])
		}
	}
}
