package handlers

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// BudgetError is a model request that a budget did not allow.
type BudgetError struct {
	projector.Shortfall
	Raises uint64 // top-ups that the ledger had
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("the budget of run %s is spent: %s", e.By, e.What)
}

// onLedger makes one fact of the ledger of a tree, decided on the newest one,
// and calls read with the ledger as it stands then. decide returns nil when
// there is nothing to append.
func (h *Host) onLedger(ctx context.Context, namespace, root string, decide func(*projector.Ledger) (run string, payload any, err error), read func(*projector.Ledger)) error {
	session, err := events.SessionOf(root)
	if err != nil {
		return err
	}
	key := events.Key{Namespace: namespace, Session: root}
	appender := h.appender()
	appender.Log, appender.Prepare = h.Ledger, nil // a ledger holds ids and numbers
	return h.ledgers.with(key, func(l *projector.Ledger) error {
		for {
			if l.At.Sequence == 0 {
				if err := appender.LoadLatest(ctx, key, l); err != nil {
					return fmt.Errorf("read the ledger of %s: %w", root, err)
				}
			}
			committed, err := appender.Commit(ctx, key, l, func() (*events.Event, error) {
				run, payload, err := decide(l)
				if payload == nil || err != nil {
					return nil, err
				}
				e, err := h.fact(events.Key{Namespace: namespace, Session: session}, run, payload)
				if err == nil {
					e.RootRun = root
				}
				return e, err
			})
			if err == nil && committed == nil {
				// Nothing was appended that could have been fenced: it counts
				// only when it was decided on the newest ledger.
				before := l.At.Sequence
				if err := appender.LoadLatest(ctx, key, l); err != nil {
					return fmt.Errorf("read the ledger of %s: %w", root, err)
				}
				if l.At.Sequence != before {
					continue
				}
			}
			if err == nil {
				if read != nil {
					read(l)
				}
				return nil
			}
			if !errors.Is(err, events.ErrFenced) {
				return fmt.Errorf("append to the ledger of %s: %w", root, err)
			}
			// Somebody else was first. What stands is folded on top, and the
			// decision is made again.
			if err := appender.LoadLatest(ctx, key, l); err != nil {
				return fmt.Errorf("read the ledger of %s: %w", root, err)
			}
		}
	})
}

// meter reserves the model requests of one run under one claim on the ledger of
// its tree. A tree without limits has no ledger.
type meter struct {
	host      *Host
	store     *store
	namespace string

	since uint64 // revision at which the claim began
	most  int    // requests in one run

	key      events.RequestKey
	reserved bool         // key is reserved, and no answer has come
	unmade   bool         // and nothing was sent of it
	begun    bool         // key is one of this claim
	answer   events.Usage // of the last request, until it is known whether its response was committed
	other    events.Usage // see events.BudgetSpent
	settled  events.BudgetSpent
}

func (m *meter) run() *projector.Run { return m.store.session.Run(m.store.run) }

// next moves to the request that is to be made. A request that was reserved and
// of which the provider counted nothing is made again on the same reservation:
// what failed was the infrastructure.
func (m *meter) next() {
	at := revision(m.run())
	switch {
	case !m.begun || m.key.Revision != at:
		m.key = events.RequestKey{Run: m.store.run, Revision: at, Epoch: m.store.claim.Epoch}
		m.answer = events.Usage{} // its response was committed, and the checkpoint counts it
	case !m.reserved:
		m.key.Request++
		m.other, m.answer = m.other.Add(m.answer), events.Usage{}
	}
	m.begun = true
}

func (m *meter) spent() events.BudgetSpent {
	s := events.BudgetSpent{Other: m.other, Epoch: m.store.claim.Epoch, Since: m.since}
	if c := m.run().Checkpoint; c != nil {
		s.Committed = c.Usage
	}
	return s
}

// account describes the run's account with its first record.
func account(r *projector.Run) *events.BudgetAccount {
	a := &events.BudgetAccount{Parent: r.Parent}
	if counts(r.Admitted.Budget) {
		a.Limit = r.Admitted.Budget
	}
	return a
}

// reserve charges one step, or returns a *BudgetError. The refusal is a record
// as well, so that a top-up finds whom to wake.
func (m *meter) reserve(ctx context.Context) error {
	run := m.run()
	if made := run.FailedRequests + m.store.failed + steps(run); made >= m.most {
		return &RequestsError{made}
	}
	if !run.Admitted.Metered {
		return nil
	}
	ctx, err := m.store.whole(ctx)
	if err != nil {
		return err
	}
	m.next()
	spent, said := m.spent(), true
	var refused *BudgetError
	err = m.host.onLedger(ctx, m.namespace, run.Root, func(l *projector.Ledger) (string, any, error) {
		refused, said = nil, true
		if l.TakenOver(m.key) {
			return "", nil, events.ErrUnresolved
		}
		if l.Reserved(m.key) {
			said = false
			return "", nil, nil
		}
		var open *events.BudgetAccount
		if l.Accounts[run.ID] == nil {
			open = account(run)
		}
		short := l.Short(run.ID, open, spent)
		if short == nil {
			return run.ID, events.BudgetReserved{RequestKey: m.key, Account: open, Spent: spent}, nil
		}
		refused = &BudgetError{*short, l.Raises}
		return run.ID, events.BudgetRefused{RequestKey: m.key, Account: open, Spent: spent, By: short.By, What: short.What}, nil
	}, nil)
	if err != nil {
		return err
	}
	if said {
		m.settled = spent
	}
	if refused != nil {
		return refused
	}
	m.reserved = true
	return nil
}

// settle brings the run's account up to date before its claim ends, also from
// what an earlier claim committed and did not come to settle.
func (m *meter) settle(ctx context.Context) error {
	run := m.run()
	if !run.Admitted.Metered {
		return nil
	}
	at := revision(run)
	if m.begun && !m.reserved {
		if m.key.Revision == at {
			m.other = m.other.Add(m.answer)
		}
		m.answer = events.Usage{}
	}
	spent := m.spent()
	if m.begun && !m.reserved && spent == m.settled {
		return nil
	}
	err := m.host.onLedger(ctx, m.namespace, run.Root, func(l *projector.Ledger) (string, any, error) {
		if a := l.Accounts[run.ID]; a == nil || a.Settled(spent) {
			return "", nil, nil
		}
		settled := events.BudgetSettled{Run: run.ID, Spent: spent, Aborted: m.reserved && !m.unmade}
		if m.reserved && m.unmade {
			settled.Unmade = &m.key
		}
		return run.ID, settled, nil
	}, nil)
	if err == nil {
		m.settled = spent
		m.reserved = m.reserved && !m.unmade
	}
	return err
}

// topUp raises the limit of a run, and tells every run that was refused.
func (a *admission) topUp(ctx context.Context) (*Admission, error) {
	var data events.TopUpBudget
	if err := strict(a.command.Data, &data); err != nil {
		return nil, err
	}
	add := events.Budget{Steps: data.Steps, InputTokens: data.InputTokens, OutputTokens: data.OutputTokens}
	if add.Steps < 0 || add.InputTokens < 0 || add.OutputTokens < 0 || !counts(&add) {
		return nil, reject(RejectMalformed, "at least one of steps, input_tokens and output_tokens must be positive, and none negative")
	}
	if max(add.Steps, add.InputTokens, add.OutputTokens) > maxAmount {
		return nil, reject(RejectMalformed, "at most %d of each can be added at a time", int64(maxAmount))
	}
	key, err := a.target(data.Run)
	if err != nil {
		return nil, err
	}
	run, err := a.find(ctx, key, data.Run)
	if err != nil {
		return nil, err
	}
	limit := run.Admitted.Budget
	for name, pair := range map[string][2]int64{"steps": {add.Steps, of(limit).Steps}, "input_tokens": {add.InputTokens, of(limit).InputTokens}, "output_tokens": {add.OutputTokens, of(limit).OutputTokens}} {
		if pair[0] > 0 && pair[1] == 0 {
			return nil, reject(RejectNoBudget, "run %s has no limit of %s; the run whose budget is spent is named in its error, see budget show", data.Run, name)
		}
	}
	if run.State.Terminal() {
		// The same command again is answered as it was the first time.
		l, err := a.host.ledger(ctx, a.namespace, run.Root)
		if err != nil {
			return nil, err
		}
		if !l.Knows(a.cause) {
			return nil, reject(RejectEnded, "run %s has ended, and its budget with it; run.retry starts another with a budget of its own", data.Run)
		}
		return &Admission{Run: data.Run, Session: key.Session}, nil
	}
	if err := a.accept(ctx, key, data.Run, true); err != nil {
		return nil, err
	}
	err = a.host.topUp(ctx, a.namespace, run, a.cause, add)
	return &Admission{Run: data.Run, Session: key.Session}, err
}

// maxAmount is the largest amount of a top-up, and maxBudget that of a budget:
// no number of top-ups that anybody makes lets their sum overflow.
const (
	maxAmount = 1_000_000_000_000
	maxBudget = 1 << 62
)

func of(b *events.Budget) events.Budget {
	if b == nil {
		return events.Budget{}
	}
	return *b
}

func (h *Host) topUp(ctx context.Context, namespace string, run *projector.Run, cause events.Cause, add events.Budget) error {
	var refused []string
	var raises uint64
	err := h.onLedger(ctx, namespace, run.Root, func(l *projector.Ledger) (string, any, error) {
		if l.Knows(cause) {
			return "", nil, nil
		}
		var open *events.BudgetAccount
		if l.Accounts[run.ID] == nil {
			open = account(run)
		}
		return run.ID, events.BudgetToppedUp{Cause: cause, Run: run.ID, Account: open, Add: add}, nil
	}, func(l *projector.Ledger) {
		raises = l.Raises
		for id, a := range l.Accounts {
			if a.Refused != nil {
				refused = append(refused, id)
			}
		}
	})
	if err != nil {
		return err
	}
	for _, id := range refused {
		if err := h.raised(ctx, namespace, id, raises); err != nil {
			return err
		}
	}
	return nil
}

// raised tells a refused run that its ledger was topped up, unless it has ended.
func (h *Host) raised(ctx context.Context, namespace, run string, raises uint64) error {
	key, err := events.KeyOfRun(namespace, run)
	if err != nil {
		return err
	}
	s, err := h.Latest(ctx, key)
	if errors.Is(err, events.ErrErased) {
		return nil // only a session whose runs have ended is
	}
	if err != nil {
		return err
	}
	if r := s.Run(run); r == nil || r.State.Terminal() {
		return nil
	}
	return h.notify(ctx, key, run, events.Derive(26, "raised", run, fmt.Sprint(raises)), events.BudgetRaised{Raises: raises})
}

// Budget is what the ledger of a run's tree holds.
type Budget struct {
	Root     string              `json:"root"`
	Accounts []projector.Account `json:"accounts"`
}

// ShowBudget returns what the runs of a run's tree have spent, the root first.
// A tree without limits has no ledger and no accounts.
func (h *Host) ShowBudget(ctx context.Context, namespace, run string) (*Budget, error) {
	key, err := events.KeyOfRun(namespace, run)
	if err != nil {
		return nil, err
	}
	s, err := h.Latest(ctx, key)
	if err != nil {
		return nil, err
	}
	r := s.Run(run)
	if r == nil {
		return nil, &UnknownRunError{namespace, run}
	}
	l, err := h.ledger(ctx, namespace, r.Root)
	if err != nil {
		return nil, err
	}
	return &Budget{Root: r.Root, Accounts: l.List()}, nil
}

// ledger reads the ledger of a tree.
func (h *Host) ledger(ctx context.Context, namespace, root string) (*projector.Ledger, error) {
	appender := h.appender()
	appender.Log = h.Ledger
	l := &projector.Ledger{}
	if err := appender.LoadLatest(ctx, events.Key{Namespace: namespace, Session: root}, l); err != nil {
		return nil, fmt.Errorf("read the ledger of %s: %w", root, err)
	}
	return l, nil
}
