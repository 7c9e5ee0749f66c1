package projector_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// plainLedger is a second implementation of the ledger: it keeps the records,
// each once, and works everything out anew.
type plainLedger struct {
	parents map[string]string
	limits  map[string]*events.Budget // as they were opened
	records []any
}

// each calls yield with what a record of a run says.
func (p *plainLedger) each(run string, yield func(i int, s events.BudgetSpent, k *events.RequestKey, record any)) {
	for i, record := range p.records {
		switch r := record.(type) {
		case events.BudgetReserved:
			if r.Run == run {
				yield(i, r.Spent, &r.RequestKey, record)
			}
		case events.BudgetRefused:
			if r.Run == run {
				yield(i, r.Spent, &r.RequestKey, record)
			}
		case events.BudgetSettled:
			if r.Run == run {
				yield(i, r.Spent, nil, record)
			}
		}
	}
}

// total is what a run has spent, with what was spent below it.
func (p *plainLedger) total(run string) (steps int64, used events.Usage) {
	lost := map[uint64]events.Usage{}
	p.each(run, func(_ int, s events.BudgetSpent, _ *events.RequestKey, record any) {
		if _, ok := record.(events.BudgetReserved); ok {
			steps++
		}
		used = s.Committed
		lost[s.Epoch] = s.Other
	})
	for _, u := range lost {
		used = used.Add(u)
	}
	for child, parent := range p.parents {
		if parent == run {
			s, u := p.total(child)
			steps, used = steps+s, used.Add(u)
		}
	}
	return steps, used
}

func (p *plainLedger) limit(run string) *events.Budget {
	opened := p.limits[run]
	if opened == nil {
		return nil
	}
	limit := *opened
	for _, record := range p.records {
		r, ok := record.(events.BudgetToppedUp)
		if !ok || r.Run != run {
			continue
		}
		if opened.Steps > 0 {
			limit.Steps += r.Add.Steps
		}
		if opened.InputTokens > 0 {
			limit.InputTokens += r.Add.InputTokens
		}
		if opened.OutputTokens > 0 {
			limit.OutputTokens += r.Add.OutputTokens
		}
	}
	return &limit
}

// account works out all that a ledger says of a run.
func (p *plainLedger) account(run string) *projector.Account {
	a := &projector.Account{Run: run, Parent: p.parents[run], Limit: p.limit(run)}
	a.Steps, a.Tokens = p.total(run)
	p.each(run, func(i int, s events.BudgetSpent, k *events.RequestKey, record any) {
		a.Committed = most(a.Committed, s.Committed)
		if s.Other != (events.Usage{}) {
			if a.Other == nil {
				a.Other = map[uint64]events.Usage{}
			}
			a.Other[s.Epoch] = most(a.Other[s.Epoch], s.Other)
		}
		switch r := record.(type) {
		case events.BudgetRefused:
			a.Refused = &r
		case events.BudgetReserved:
			a.Refused = nil
			open, lost := true, false
			p.each(run, func(j int, s events.BudgetSpent, _ *events.RequestKey, later any) {
				settled, _ := later.(events.BudgetSettled)
				if j <= i || lost || s.Epoch < k.Epoch {
					return
				}
				answered := s.Epoch == k.Epoch && !settled.Aborted || s.Epoch > k.Epoch && k.Revision < s.Since
				open, lost = open && !answered, open && !answered
			})
			if open {
				a.Open = append(a.Open, projector.OpenRequest{RequestKey: *k, Lost: lost})
			}
		}
	})
	return a
}

// short says whether a run has one more request when its spending has been told.
func (p *plainLedger) short(run string, s events.BudgetSpent) *projector.Shortfall {
	told := *p
	told.records = append(told.records[:len(told.records):len(told.records)], events.BudgetSettled{Run: run, Spent: s})
	for ; run != ""; run = p.parents[run] {
		limit := told.limit(run)
		if limit == nil {
			continue
		}
		steps, used := told.total(run)
		for _, l := range []struct {
			what        string
			limit, used int64
		}{{"steps", limit.Steps, steps}, {"input_tokens", limit.InputTokens, used.Input}, {"output_tokens", limit.OutputTokens, used.Output}} {
			if l.limit > 0 && l.used >= l.limit {
				return &projector.Shortfall{By: run, What: l.what}
			}
		}
	}
	return nil
}

// spender is a run as its workers drive it.
type spender struct {
	run   string
	key   events.RequestKey
	spent events.BudgetSpent
	last  *events.BudgetReserved
	open  *events.BudgetAccount // until its first record
}

// spenders draws a tree of runs, the root first.
func spenders(t *rapid.T) []*spender {
	count := rapid.Int64Range(0, 6) // zero bounds nothing
	var list []*spender
	for i := range rapid.IntRange(1, 5).Draw(t, "runs") {
		s := &spender{run: fmt.Sprintf("s%d-aaaaaaaa", i), open: &events.BudgetAccount{}}
		if i > 0 {
			s.open.Parent = list[rapid.IntRange(0, i-1).Draw(t, "parent")].run
		}
		if rapid.Bool().Draw(t, "limited") {
			s.open.Limit = &events.Budget{Steps: count.Draw(t, "steps"), InputTokens: 10 * count.Draw(t, "input"), OutputTokens: 10 * count.Draw(t, "output")}
		}
		s.claim()
		list = append(list, s)
	}
	return list
}

func (s *spender) claim() {
	epoch := s.key.Epoch + 1
	s.key = events.RequestKey{Run: s.run, Revision: s.key.Revision, Epoch: epoch}
	s.spent.Other, s.spent.Epoch, s.spent.Since = events.Usage{}, epoch, s.key.Revision
}

// account is what goes with a run's next record.
func (s *spender) account(p *plainLedger) *events.BudgetAccount {
	open := s.open
	if open != nil {
		p.parents[s.run], p.limits[s.run], s.open = open.Parent, open.Limit, nil
	}
	return open
}

// drawRecord lets a run do something, as a correct writer does it, and returns
// the record that came of it, if any.
func (s *spender) drawRecord(t *rapid.T, l *projector.Ledger, p *plainLedger) any {
	usage := func() events.Usage {
		n := rapid.Int64Range(0, 9)
		return events.Usage{Input: n.Draw(t, "input"), Cached: 1, Output: n.Draw(t, "output"), Reasoning: 1}
	}
	switch rapid.SampledFrom([]string{"ask", "ask", "ask", "answer", "answer", "interrupt", "claim", "settle", "top up"}).Draw(t, "what") {
	case "ask":
		if l.Reserved(s.key) {
			return nil
		}
		short := l.Short(s.run, s.open, s.spent)
		open := s.account(p)
		if diff := cmp.Diff(p.short(s.run, s.spent), short); diff != "" {
			t.Fatalf("what keeps %s from a request (-plain +ledger):\n%s", s.run, diff)
		}
		if short != nil {
			return events.BudgetRefused{RequestKey: s.key, Account: open, Spent: s.spent, By: short.By, What: short.What}
		}
		s.last = &events.BudgetReserved{RequestKey: s.key, Account: open, Spent: s.spent}
		return *s.last
	case "answer":
		s.key.Revision, s.key.Request = s.key.Revision+1, 0
		s.spent.Committed = s.spent.Committed.Add(usage())
	case "interrupt":
		s.key.Request++
		s.spent.Other = s.spent.Other.Add(usage())
	case "claim":
		s.claim()
	case "settle":
		if s.open == nil {
			return events.BudgetSettled{Run: s.run, Spent: s.spent}
		}
	case "top up":
		n := rapid.Int64Range(0, 5)
		cause := events.Cause{Source: "/cli", ID: fmt.Sprint(n.Draw(t, "cause"))}
		if !l.Knows(cause) {
			return events.BudgetToppedUp{Cause: cause, Run: s.run, Account: s.account(p), Add: events.Budget{Steps: n.Draw(t, "steps"), InputTokens: n.Draw(t, "input"), OutputTokens: n.Draw(t, "output")}}
		}
	}
	return nil
}

// Whatever the runs of a tree do, the ledger says what a plain count says, no
// step is charged beyond a limit, and a reservation that is recorded again
// counts once.
func TestTheLedgerSaysWhatAPlainCountSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := spenders(t)
		p := &plainLedger{parents: map[string]string{}, limits: map[string]*events.Budget{}}
		whole, once := &history{}, &history{}
		l := &projector.Ledger{}
		record := func(payload any) {
			r := whole.append(t, tree[0].run, payload)
			if err := l.Fold(r); err != nil {
				t.Fatal(err)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "turns") {
			s := tree[rapid.IntRange(0, len(tree)-1).Draw(t, "run")]
			if s.last != nil && rapid.IntRange(0, 3).Draw(t, "again") == 0 {
				record(*s.last)
			} else if parent := s.open; parent == nil || parent.Parent == "" || l.Accounts[parent.Parent] != nil {
				if payload := s.drawRecord(t, l, p); payload != nil {
					p.records = append(p.records, payload)
					once.append(t, tree[0].run, payload)
					record(payload)
				}
			}
			for run, a := range l.Accounts {
				if diff := cmp.Diff(p.account(run), a, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(projector.Account{})); diff != "" {
					t.Fatalf("%s (-plain +ledger):\n%s", run, diff)
				}
				if a.Limit != nil && a.Limit.Steps > 0 && a.Steps > a.Limit.Steps {
					t.Fatalf("%s has spent %d of %d steps", run, a.Steps, a.Limit.Steps)
				}
			}
		}
		again := once.ledger(t)
		again.At = l.At
		if diff := cmp.Diff(again, l, cmp.AllowUnexported(projector.Ledger{}, projector.Account{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("with repeats (-without +with):\n%s", diff)
		}
	})
}

func most(a, b events.Usage) events.Usage {
	return events.Usage{Input: max(a.Input, b.Input), Cached: max(a.Cached, b.Cached), Output: max(a.Output, b.Output), Reasoning: max(a.Reasoning, b.Reasoning)}
}
