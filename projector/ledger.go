package projector

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// Ledger is the fold of the ledger of one tree: what its runs have spent of
// their budgets. The zero value is a ledger without facts.
type Ledger struct {
	At       events.Tip          `json:"-"`
	Accounts map[string]*Account `json:"accounts,omitempty"` // by run
	Raises   uint64              `json:"raises"`             // top-ups so far
	causes   map[events.Cause]bool
}

// Account is what is known of one run. Steps and Tokens include everything
// below it.
type Account struct {
	Run    string         `json:"run"`
	Parent string         `json:"parent,omitempty"`
	Limit  *events.Budget `json:"limit,omitempty"` // as it was topped up
	Steps  int64          `json:"steps"`
	Tokens events.Usage   `json:"tokens"`

	// Of the run alone: tokens of committed responses, and, by claim, of
	// requests that led to none.
	Committed events.Usage            `json:"committed"`
	Other     map[uint64]events.Usage `json:"other,omitempty"`

	Open    []OpenRequest         `json:"open,omitempty"`    // requests that nothing was heard of since
	Refused *events.BudgetRefused `json:"refused,omitempty"` // the newest refusal, until a request is allowed

	newest   events.RequestKey // reserved; requests of one run follow each other
	returned bool              // the step of newest was given back
}

// Tip implements events.State.
func (l *Ledger) Tip() events.Tip { return l.At }

// Fold implements events.State.
func (l *Ledger) Fold(r *events.Record) error {
	payload, err := r.Payload()
	if err != nil {
		return err
	}
	next := l.At
	if err := next.Advance(r); err != nil {
		return err
	}
	switch p := payload.(type) {
	case events.BudgetReserved:
		l.reserve(&p)
	case events.BudgetRefused:
		a := l.account(p.Run, p.Account)
		l.spend(a, p.Spent, false)
		a.Refused = &p
	case events.BudgetSettled:
		a := l.account(p.Run, nil)
		l.spend(a, p.Spent, p.Aborted)
		if p.Unmade != nil && a.newest == *p.Unmade && !a.returned {
			a.returned = true
			l.line(a, func(a *Account) { a.Steps-- })
		}
	case events.BudgetToppedUp:
		l.raise(&p)
	default:
		return &UnknownFactError{events.Key{Namespace: r.Namespace, Session: r.Session}, r.Sequence, r.Type}
	}
	l.At = next
	return nil
}

func (l *Ledger) account(run string, open *events.BudgetAccount) *Account {
	if l.Accounts == nil {
		l.Accounts, l.causes = make(map[string]*Account), make(map[events.Cause]bool)
	}
	a := l.Accounts[run]
	if a == nil {
		a = &Account{Run: run}
		if open != nil {
			a.Parent = open.Parent
			if open.Limit != nil {
				limit := *open.Limit
				a.Limit = &limit
			}
		}
		l.Accounts[run] = a
	}
	return a
}

// line calls yield for an account and those above it.
func (l *Ledger) line(a *Account, yield func(*Account)) {
	for ; a != nil; a = l.Accounts[a.Parent] {
		yield(a)
	}
}

func (l *Ledger) reserve(p *events.BudgetReserved) {
	a := l.account(p.Run, p.Account)
	if l.Reserved(p.RequestKey) {
		return
	}
	a.returned = false
	l.spend(a, p.Spent, false)
	a.newest = p.RequestKey
	a.Open = append(a.Open, OpenRequest{RequestKey: p.RequestKey})
	a.Refused = nil
	l.line(a, func(a *Account) { a.Steps++ })
}

// spend brings an account up to date. What a claim says later answers its own
// earlier requests, unless it gave the last one up; a request of an earlier
// claim was answered when the run had advanced by the time this claim began, and
// is lost otherwise, for ever.
func (l *Ledger) spend(a *Account, s events.BudgetSpent, aborted bool) {
	added := a.spent(s)
	l.line(a, func(a *Account) { a.Tokens = a.Tokens.Add(added) })
	a.Committed = most(a.Committed, s.Committed)
	if s.Other != (events.Usage{}) {
		if a.Other == nil {
			a.Other = make(map[uint64]events.Usage)
		}
		a.Other[s.Epoch] = most(a.Other[s.Epoch], s.Other)
	}
	var open []OpenRequest
	for _, k := range a.Open {
		switch {
		case k.Lost, k.Epoch > s.Epoch:
		case k.Epoch == s.Epoch && !aborted, k.Epoch < s.Epoch && k.Revision < s.Since:
			continue
		default:
			k.Lost = true
		}
		open = append(open, k)
	}
	a.Open = open
}

// OpenRequest is a request of which no answer is known.
type OpenRequest struct {
	events.RequestKey
	Lost bool `json:"lost,omitempty"` // none will come: the worker was killed, or gave it up
}

// spent returns what totals add to what the account has. A claim that was taken
// over may still report; its totals count once.
func (a *Account) spent(s events.BudgetSpent) events.Usage {
	return subtract(most(a.Committed, s.Committed), a.Committed).Add(subtract(most(a.Other[s.Epoch], s.Other), a.Other[s.Epoch]))
}

// Settled reports whether a claim has nothing to add to the account.
func (a *Account) Settled(s events.BudgetSpent) bool {
	return a.spent(s) == (events.Usage{}) && !slices.ContainsFunc(a.Open, func(k OpenRequest) bool { return !k.Lost && k.Epoch <= s.Epoch })
}

// most returns the larger of two totals: totals only grow.
func most(a, b events.Usage) events.Usage {
	return events.Usage{Input: max(a.Input, b.Input), Cached: max(a.Cached, b.Cached), Output: max(a.Output, b.Output), Reasoning: max(a.Reasoning, b.Reasoning)}
}

func (l *Ledger) raise(p *events.BudgetToppedUp) {
	a := l.account(p.Run, p.Account)
	if l.causes[p.Cause] {
		return
	}
	l.Raises++
	l.causes[p.Cause] = true
	if a.Limit == nil {
		return
	}
	raised := *a.Limit
	for _, f := range []struct {
		limit *int64
		add   int64
	}{{&raised.Steps, p.Add.Steps}, {&raised.InputTokens, p.Add.InputTokens}, {&raised.OutputTokens, p.Add.OutputTokens}} {
		if *f.limit > 0 {
			*f.limit += min(f.add, math.MaxInt64-*f.limit)
		}
	}
	a.Limit = &raised
}

// List returns the accounts, the root's first and each before those below it.
func (l *Ledger) List() []Account {
	list := []Account{}
	for _, a := range l.Accounts {
		list = append(list, *a)
	}
	depth := func(a *Account) (n int) {
		l.line(a, func(*Account) { n++ })
		return n
	}
	slices.SortFunc(list, func(a, b Account) int {
		return cmp.Or(depth(&a)-depth(&b), strings.Compare(a.Run, b.Run))
	})
	return list
}

// Knows reports whether a top-up with that cause has been made.
func (l *Ledger) Knows(c events.Cause) bool { return l.causes[c] }

// TakenOver reports whether a later claim of the run has reserved since.
func (l *Ledger) TakenOver(k events.RequestKey) bool {
	a := l.Accounts[k.Run]
	return a != nil && a.newest.Epoch > k.Epoch
}

// Reserved reports whether a request is the newest that its run has reserved.
func (l *Ledger) Reserved(k events.RequestKey) bool {
	a := l.Accounts[k.Run]
	return a != nil && a.newest == k && !a.returned
}

// Shortfall names the budget that does not allow one more request.
type Shortfall struct {
	By   string // run
	What string // steps, input_tokens or output_tokens
}

// Short returns what keeps a run from one more request, or nil, when the run
// has spent what is given. Tokens are not reserved: a budget is spent when the
// requests that were answered have reached it.
func (l *Ledger) Short(run string, open *events.BudgetAccount, spent events.BudgetSpent) *Shortfall {
	a := l.Accounts[run]
	if a == nil {
		a = &Account{Run: run}
		if open != nil {
			a.Parent, a.Limit = open.Parent, open.Limit
		}
	}
	added := a.spent(spent)
	var short *Shortfall
	l.line(a, func(a *Account) {
		b := a.Limit
		if b == nil || short != nil {
			return
		}
		used := a.Tokens.Add(added)
		switch {
		case b.Steps > 0 && a.Steps >= b.Steps:
			short = &Shortfall{a.Run, "steps"}
		case b.InputTokens > 0 && used.Input >= b.InputTokens:
			short = &Shortfall{a.Run, "input_tokens"}
		case b.OutputTokens > 0 && used.Output >= b.OutputTokens:
			short = &Shortfall{a.Run, "output_tokens"}
		}
	})
	return short
}
