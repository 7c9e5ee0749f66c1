package projector_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// The runs of the tree that these tests have: top, mid below it, low below that
// and aside beside mid.
const top, mid, low, aside = "s1-aaaaaaaa", "s2-bbbbbbbb", "s3-cccccccc", "s4-dddddddd"

// ledger folds every record.
func (h *history) ledger(t rapid.TB) *projector.Ledger {
	t.Helper()
	l := &projector.Ledger{}
	for i := range h.records {
		if err := l.Fold(&h.records[i]); err != nil {
			t.Fatalf("record %d: %v", i+1, err)
		}
	}
	if l.Tip() != h.tip {
		t.Fatalf("the ledger stands at %+v, its log at %+v", l.Tip(), h.tip)
	}
	return l
}

// facts is a history of these payloads.
func facts(t rapid.TB, payloads ...any) *history {
	t.Helper()
	h := &history{}
	for _, p := range payloads {
		h.append(t, top, p)
	}
	return h
}

// key is a run's request: the first after a revision.
func key(run string, epoch, revision uint64) events.RequestKey {
	return events.RequestKey{Run: run, Epoch: epoch, Revision: revision}
}

func opens(parent string, limit *events.Budget) *events.BudgetAccount {
	return &events.BudgetAccount{Parent: parent, Limit: limit}
}

func tokens(input, output int64) events.Usage { return events.Usage{Input: input, Output: output} }

func spent(epoch uint64, committed, lost events.Usage) events.BudgetSpent {
	return events.BudgetSpent{Epoch: epoch, Committed: committed, Other: lost}
}

func reserved(k events.RequestKey, open *events.BudgetAccount, committed, lost events.Usage) events.BudgetReserved {
	s := spent(k.Epoch, committed, lost)
	s.Since = k.Revision // as of a claim's first request
	return events.BudgetReserved{RequestKey: k, Account: open, Spent: s}
}

var none events.Usage

// grown is a tree in which each run has made one request and has its answer.
func grown(t rapid.TB, limits map[string]*events.Budget) *history {
	t.Helper()
	h := &history{}
	for _, r := range []struct{ run, parent string }{{top, ""}, {mid, top}, {low, mid}, {aside, top}} {
		h.append(t, top, reserved(key(r.run, 1, 0), opens(r.parent, limits[r.run]), none, none))
		h.append(t, top, events.BudgetSettled{Run: r.run, Spent: spent(1, tokens(10, 1), none)})
	}
	return h
}

func TestARequestIsChargedToItsRunAndToEveryRunAboveIt(t *testing.T) {
	h := grown(t, nil)
	h.append(t, top, reserved(key(low, 1, 1), nil, tokens(10, 1), tokens(5, 5)))
	l := h.ledger(t)
	for run, want := range map[string]projector.Account{
		top:   {Steps: 5, Tokens: tokens(45, 9)},
		mid:   {Steps: 3, Tokens: tokens(25, 7)},
		low:   {Steps: 2, Tokens: tokens(15, 6)},
		aside: {Steps: 1, Tokens: tokens(10, 1)},
	} {
		if a := l.Accounts[run]; a.Steps != want.Steps || a.Tokens != want.Tokens {
			t.Errorf("%s has %d steps and %+v, want %d and %+v", run, a.Steps, a.Tokens, want.Steps, want.Tokens)
		}
	}
}

func TestALimitHoldsForItsRunAndForEveryRunBelowIt(t *testing.T) {
	shortOf := func(run, what string) *projector.Shortfall { return &projector.Shortfall{By: run, What: what} }
	for _, c := range []struct {
		promise string
		limits  map[string]*events.Budget
		want    map[string]*projector.Shortfall // of the runs that are named; the others are not short
	}{
		{"nobody has a limit", nil, nil},
		{"a limit of zero bounds nothing", map[string]*events.Budget{top: {Steps: 99}, mid: {}}, nil},
		{"a limit that is not reached", map[string]*events.Budget{top: {Steps: 5, InputTokens: 41, OutputTokens: 5}}, nil},
		{"steps of the root", map[string]*events.Budget{top: {Steps: 4}}, map[string]*projector.Shortfall{
			top: shortOf(top, "steps"), mid: shortOf(top, "steps"), low: shortOf(top, "steps"), aside: shortOf(top, "steps")}},
		{"steps of a run in the middle", map[string]*events.Budget{mid: {Steps: 2}}, map[string]*projector.Shortfall{
			mid: shortOf(mid, "steps"), low: shortOf(mid, "steps")}},
		{"steps of a leaf", map[string]*events.Budget{low: {Steps: 1}, mid: {Steps: 3}}, map[string]*projector.Shortfall{low: shortOf(low, "steps")}},
		{"input tokens", map[string]*events.Budget{mid: {InputTokens: 20}}, map[string]*projector.Shortfall{
			mid: shortOf(mid, "input_tokens"), low: shortOf(mid, "input_tokens")}},
		{"output tokens", map[string]*events.Budget{aside: {Steps: 2, InputTokens: 11, OutputTokens: 1}}, map[string]*projector.Shortfall{aside: shortOf(aside, "output_tokens")}},
		{"the nearest of several is named", map[string]*events.Budget{top: {Steps: 1}, mid: {Steps: 1}}, map[string]*projector.Shortfall{
			top: shortOf(top, "steps"), mid: shortOf(mid, "steps"), low: shortOf(mid, "steps"), aside: shortOf(top, "steps")}},
	} {
		l := grown(t, c.limits).ledger(t)
		for _, run := range []string{top, mid, low, aside} {
			if diff := cmp.Diff(c.want[run], l.Short(run, nil, spent(1, tokens(10, 1), none))); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", c.promise, run, diff)
			}
		}
		if short := l.Short("s9-eeeeeeee", opens("", &events.Budget{InputTokens: 5}), spent(1, tokens(5, 0), none)); short == nil || *short != *shortOf("s9-eeeeeeee", "input_tokens") {
			t.Errorf("%s, a new run that has spent its own limit is short of %+v", c.promise, short)
		}
		// A run without a record is short of what is above it.
		if diff := cmp.Diff(c.want[mid], l.Short("s9-eeeeeeee", opens(mid, nil), spent(1, none, none))); diff != "" {
			t.Errorf("%s, a new run below %s (-want +got):\n%s", c.promise, mid, diff)
		}
	}
}

func TestTokensThatTheLedgerDoesNotKnowYetCount(t *testing.T) {
	l := grown(t, map[string]*events.Budget{mid: {InputTokens: 30}, aside: {OutputTokens: 9}}).ledger(t)
	for _, c := range []struct {
		run   string
		spent events.BudgetSpent
		short bool
	}{
		{low, spent(1, tokens(19, 1), none), false},
		{low, spent(1, tokens(20, 1), none), true},
		{low, spent(1, tokens(10, 1), tokens(10, 0)), true},
		{low, spent(2, tokens(10, 1), tokens(10, 0)), true},
		{aside, spent(1, tokens(99, 8), none), false},
		{aside, spent(1, tokens(10, 1), tokens(0, 8)), true},
	} {
		before := *l.Accounts[c.run]
		if got := l.Short(c.run, nil, c.spent) != nil; got != c.short {
			t.Errorf("%s with %+v is short: %t", c.run, c.spent, got)
		}
		if diff := cmp.Diff(before, *l.Accounts[c.run], cmpopts.IgnoreUnexported(projector.Account{})); diff != "" {
			t.Errorf("the question changed the account:\n%s", diff)
		}
	}
}

func TestWhatAnEarlierClaimLostStillCountsForTheNext(t *testing.T) {
	h := grown(t, map[string]*events.Budget{aside: {InputTokens: 30}})
	h.append(t, top, events.BudgetSettled{Run: aside, Spent: spent(1, tokens(10, 1), tokens(15, 0))})
	l := h.ledger(t)
	for lost, short := range map[int64]bool{0: false, 4: false, 5: true} {
		if got := l.Short(aside, nil, spent(2, tokens(10, 1), tokens(lost, 0))) != nil; got != short {
			t.Errorf("with 25 of 30 spent and %d more it is short: %t", lost, got)
		}
	}
}

func TestStepsNeverExceedALimit(t *testing.T) {
	h := facts(t, reserved(key(top, 1, 0), opens("", &events.Budget{Steps: 6}), none, none))
	allowed := map[string]int{}
	for revision := range uint64(5) {
		for _, run := range []string{mid, aside} {
			open := opens(top, &events.Budget{Steps: 4})
			if h.ledger(t).Short(run, open, spent(1, none, none)) == nil {
				h.append(t, top, reserved(key(run, 1, revision), open, none, none))
				allowed[run]++
			}
		}
	}
	l := h.ledger(t)
	if l.Accounts[top].Steps != 6 || allowed[mid] != 3 || allowed[aside] != 2 {
		t.Errorf("of 6 steps %d were charged, to the children %v", l.Accounts[top].Steps, allowed)
	}
}

func TestARequestIsOpenUntilItIsAnswered(t *testing.T) {
	first, second := reserved(key(top, 1, 3), opens("", nil), none, none), reserved(key(top, 2, 3), nil, none, none)
	again := first
	again.Request = 1
	waits := func(k events.RequestKey) projector.OpenRequest { return projector.OpenRequest{RequestKey: k} }
	lost := func(k events.RequestKey) projector.OpenRequest {
		return projector.OpenRequest{RequestKey: k, Lost: true}
	}
	later := spent(2, tokens(1, 1), none)
	later.Since = 4
	for _, c := range []struct {
		promise string
		records []any
		open    []projector.OpenRequest
	}{
		{"nothing was heard", []any{first}, []projector.OpenRequest{waits(first.RequestKey)}},
		{"its claim asked again", []any{first, again}, []projector.OpenRequest{waits(again.RequestKey)}},
		{"its claim settled", []any{first, events.BudgetSettled{Run: top, Spent: spent(1, none, none)}}, nil},
		{"its claim gave it up", []any{first, events.BudgetSettled{Run: top, Spent: spent(1, none, none), Aborted: true}}, []projector.OpenRequest{lost(first.RequestKey)}},
		{"its claim was refused", []any{first, events.BudgetRefused{RequestKey: again.RequestKey, Spent: spent(1, none, none)}}, nil},
		{"its claim was killed and the next one asks again", []any{first, second}, []projector.OpenRequest{lost(first.RequestKey), waits(second.RequestKey)}},
		{"its claim was killed and the next one settled", []any{first, second, events.BudgetSettled{Run: top, Spent: spent(2, none, none)}}, []projector.OpenRequest{lost(first.RequestKey)}},
		{"it was lost, and the run has advanced since", []any{first, second, events.BudgetSettled{Run: top, Spent: later}}, []projector.OpenRequest{lost(first.RequestKey)}},
		{"the run had advanced when the next claim began", []any{first, reserved(key(top, 2, 4), nil, tokens(1, 1), none)}, []projector.OpenRequest{waits(key(top, 2, 4))}},
		{"the run had advanced and the next claim was refused", []any{first, events.BudgetRefused{RequestKey: key(top, 2, 4), Spent: later}}, nil},
		{"another run has advanced", []any{first, reserved(key(mid, 1, 9), opens(top, nil), none, none)}, []projector.OpenRequest{waits(first.RequestKey)}},
	} {
		if diff := cmp.Diff(c.open, facts(t, c.records...).ledger(t).Accounts[top].Open, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.promise, diff)
		}
	}
}

func TestWhatClaimsLostAddsUpAndCountsOnce(t *testing.T) {
	h := facts(t, reserved(key(top, 1, 0), opens("", nil), none, none))
	for i, s := range []struct {
		spent events.BudgetSpent
		want  events.Usage
	}{
		{spent(1, tokens(10, 1), tokens(5, 0)), tokens(15, 1)},
		{spent(1, tokens(10, 1), tokens(5, 0)), tokens(15, 1)},
		{spent(1, tokens(10, 1), tokens(7, 0)), tokens(17, 1)},
		{spent(2, tokens(10, 1), none), tokens(17, 1)},
		{spent(2, tokens(20, 2), tokens(1, 0)), tokens(28, 2)},
		{spent(4, tokens(20, 2), tokens(2, 0)), tokens(30, 2)},
		{spent(4, tokens(20, 2), tokens(2, 0)), tokens(30, 2)},
	} {
		h.append(t, top, events.BudgetSettled{Run: top, Spent: s.spent})
		if a := h.ledger(t).Accounts[top]; a.Tokens != s.want || !a.Settled(s.spent) {
			t.Errorf("after settlement %d the tokens are %+v, want %+v", i, a.Tokens, s.want)
		}
	}
}

// Claims fence sessions, not ledgers: a worker that does not know yet that its
// claim is over may still settle.
func TestALateRecordOfAnEarlierClaimCountsWhatWasLostOnce(t *testing.T) {
	early, late := spent(1, tokens(10, 1), tokens(5, 0)), spent(2, tokens(10, 1), tokens(7, 0))
	h := facts(t, reserved(key(top, 1, 0), opens("", nil), none, none))
	for _, s := range []events.BudgetSpent{early, late, early, late} {
		h.append(t, top, events.BudgetSettled{Run: top, Spent: s})
	}
	if got := h.ledger(t).Accounts[top].Tokens; got != tokens(22, 1) {
		t.Errorf("the tokens are %+v, want 10 committed, 5 and 7 lost", got)
	}
}

func TestARefusalStandsUntilARequestIsAllowed(t *testing.T) {
	refusal := events.BudgetRefused{RequestKey: key(low, 1, 0), Account: opens(mid, &events.Budget{Steps: 9}), Spent: spent(1, tokens(3, 3), none), By: top, What: "steps"}
	h := facts(t, reserved(key(top, 1, 0), opens("", &events.Budget{Steps: 1}), none, none), reserved(key(mid, 1, 0), opens(top, nil), none, none), refusal)
	l := h.ledger(t)
	a := l.Accounts[low]
	if diff := cmp.Diff(&refusal, a.Refused); diff != "" || a.Steps != 0 || a.Parent != mid || a.Limit.Steps != 9 || l.Accounts[top].Tokens != tokens(3, 3) {
		t.Errorf("the refused run is %+v (-want +got):\n%s", a, diff)
	}
	h.append(t, top, events.BudgetToppedUp{Run: top, Add: events.Budget{Steps: 5}})
	if h.ledger(t).Accounts[low].Refused == nil {
		t.Error("a top-up alone has cleared the refusal")
	}
	h.append(t, top, reserved(key(low, 2, 0), nil, tokens(3, 3), none))
	if a := h.ledger(t).Accounts[low]; a.Refused != nil || a.Steps != 1 {
		t.Errorf("after it was allowed the run is %+v", a)
	}
}

func TestATopUpRaisesTheLimitsThatARunHas(t *testing.T) {
	cause := events.Cause{Source: "/cli", ID: "1", Body: "b"}
	limit := &events.Budget{Steps: 2, OutputTokens: 7, Timeout: "1h"}
	h := facts(t, reserved(key(top, 1, 0), opens("", limit), none, none), reserved(key(mid, 1, 0), opens(top, nil), none, none))
	if l := h.ledger(t); l.Knows(cause) || l.Short(mid, nil, spent(1, none, none)) == nil {
		t.Fatal("the top-up has been made before")
	}
	h.append(t, top, events.BudgetToppedUp{Cause: cause, Run: top, Add: events.Budget{Steps: 3, InputTokens: 100}})
	h.append(t, top, events.BudgetToppedUp{Cause: events.Cause{Source: "/cli", ID: "2"}, Run: mid, Add: events.Budget{Steps: 3}})
	l := h.ledger(t)
	if diff := cmp.Diff(&events.Budget{Steps: 5, OutputTokens: 7, Timeout: "1h"}, l.Accounts[top].Limit); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if l.Accounts[mid].Limit != nil {
		t.Errorf("a run without limits has got %+v", l.Accounts[mid].Limit)
	}
	if !l.Knows(cause) || l.Knows(events.Cause{Source: "/other", ID: "1", Body: "b"}) || l.Raises != 2 {
		t.Errorf("it knows the cause: %t, raises: %d", l.Knows(cause), l.Raises)
	}
	if short := l.Short(mid, nil, spent(1, none, none)); short != nil {
		t.Errorf("after the top-up %s is short of %s", short.By, short.What)
	}
}

func TestATopUpOpensTheAccountOfARunThatHasMadeNoRequest(t *testing.T) {
	h := facts(t, reserved(key(top, 1, 0), opens("", &events.Budget{Steps: 9}), none, none),
		events.BudgetToppedUp{Cause: events.Cause{Source: "/cli", ID: "1"}, Run: mid, Account: opens(top, &events.Budget{Steps: 2}), Add: events.Budget{Steps: 3}},
		reserved(key(mid, 1, 0), nil, none, none))
	l := h.ledger(t)
	if a := l.Accounts[mid]; a.Parent != top || a.Limit == nil || a.Limit.Steps != 5 || a.Steps != 1 || l.Accounts[top].Steps != 2 {
		t.Errorf("the account is %+v", a)
	}
}

func TestATopUpCountsOnceByItsCause(t *testing.T) {
	topUp := events.BudgetToppedUp{Cause: events.Cause{Source: "/cli", ID: "1", Body: "b"}, Run: top, Add: events.Budget{Steps: 3}}
	h := facts(t, reserved(key(top, 1, 0), opens("", &events.Budget{Steps: 2}), none, none))
	for range 3 {
		if !h.ledger(t).Knows(topUp.Cause) { // as its writer decides
			h.append(t, top, topUp)
		}
	}
	if l := h.ledger(t); l.Accounts[top].Limit.Steps != 5 || l.Raises != 1 {
		t.Errorf("the limit is %d after %d top-ups", l.Accounts[top].Limit.Steps, l.Raises)
	}
}

func TestTheListHasEveryAccountAfterTheOneAboveIt(t *testing.T) {
	if list := (&projector.Ledger{}).List(); list == nil || len(list) != 0 {
		t.Errorf("the accounts of an empty ledger are %v", list)
	}
	l := grown(t, nil).ledger(t)
	var got []string
	for _, a := range l.List() {
		got = append(got, a.Run)
		if diff := cmp.Diff(*l.Accounts[a.Run], a, cmpopts.IgnoreUnexported(projector.Account{})); diff != "" {
			t.Errorf("%s (-ledger +list):\n%s", a.Run, diff)
		}
	}
	if diff := cmp.Diff([]string{top, mid, aside, low}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestARequestIsReservedOnce(t *testing.T) {
	request := reserved(key(mid, 1, 3), opens(top, nil), tokens(5, 5), none)
	h := facts(t, reserved(key(top, 1, 0), opens("", nil), none, none), request)
	once := h.ledger(t)
	h.append(t, top, request)
	h.append(t, top, reserved(key(aside, 1, 0), opens(top, nil), none, none))
	h.append(t, top, request)
	l := h.ledger(t)
	if a := l.Accounts[mid]; a.Steps != 1 || len(a.Open) != 1 || a.Tokens != tokens(5, 5) || l.Accounts[top].Steps != once.Accounts[top].Steps+1 {
		t.Errorf("the account is %+v, the one above it %+v", a, l.Accounts[top])
	}
	for k, want := range map[events.RequestKey]bool{key(mid, 1, 3): true, key(mid, 2, 3): false, key(mid, 1, 4): false, {Run: mid, Epoch: 1, Revision: 3, Request: 1}: false, key(low, 1, 3): false, {}: false} {
		if l.Reserved(k) != want {
			t.Errorf("%+v is reserved: %t", k, !want)
		}
	}
}

func TestARefusedRecordLeavesTheLedgerAsItWas(t *testing.T) {
	unknown := events.Event{ID: "u", Source: "/test", Type: events.FactPrefix + "later.thing", Namespace: "ns", Session: "s1", Run: top, Data: raw(`{}`)}
	session, misfit := unknown, unknown
	session.Type, session.Data = events.FactPrefix+"cancel.requested", raw(`{"reason":"enough"}`)
	misfit.Type, misfit.Data = events.FactPrefix+"budget.reserved", raw(`{"run":7}`)
	valid := unknown
	valid.Type, valid.Data = events.FactPrefix+"budget.reserved", raw(`{"run":"s9-eeeeeeee","revision":1,"request":0,"epoch":1,"spent":{"committed":{"input":1,"output":1},"epoch":1}}`)
	for promise, c := range map[string]struct {
		event  events.Event
		damage func(*events.Record)
		want   any
	}{
		"a record of an unknown type":  {unknown, func(*events.Record) {}, new(*projector.UnknownFactError)},
		"a fact of a session":          {session, func(*events.Record) {}, new(*projector.UnknownFactError)},
		"data that does not fit":       {misfit, func(*events.Record) {}, new(*events.DataError)},
		"a changed byte":               {valid, func(r *events.Record) { r.Run = mid }, new(*events.DamageError)},
		"a record before the last one": {valid, func(r *events.Record) { r.Sequence = 1 }, new(*events.DamageError)},
	} {
		h := grown(t, nil)
		l, before := h.ledger(t), h.ledger(t)
		record := *h.seal(t, c.event)
		c.damage(&record)
		if err := l.Fold(&record); err == nil || !errors.As(err, c.want) {
			t.Errorf("%s: %v", promise, err)
		}
		if diff := cmp.Diff(before, l, cmp.AllowUnexported(projector.Ledger{}, projector.Account{})); diff != "" {
			t.Errorf("%s changed the ledger:\n%s", promise, diff)
		}
	}
}
