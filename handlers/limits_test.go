package handlers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/limit"
	"github.com/agentruntime/agentruntime/handlers/policy"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// rest lets the limits of a bubble come to rest.
func rest() { _ = events.Sleep(context.Background(), time.Minute) }

// restricted limits the one capability of an agent.
func restricted(l events.CapabilityLimits) handlers.Version {
	v := agent("desk.book")
	v.Capabilities[0].Limits = &l
	return v
}

func TestACallbackWaitsForTheLimitOfItsCapabilityWithinItsScriptsTime(t *testing.T) {
	for name, c := range map[string]struct {
		perMinute int
		outcomes  []events.Outcome
		calls     int
	}{
		"a short wait":    {6, []events.Outcome{events.OutcomeOK}, 2},    // 10 s for the second
		"too long a wait": {1, []events.Outcome{events.OutcomeError}, 1}, // a minute, and a script has half of one
	} {
		synctest.Test(t, func(t *testing.T) {
			defer rest()
			w, _ := started(t, restricted(events.CapabilityLimits{PerMinute: c.perMinute}),
				runtimetest.RunJS("desk.book {\"n\":1}\ndesk.book {\"n\":2}\nreturn"), runtimetest.Complete(`"done"`))
			w.Limits = &limit.Memory{}
			w.Start(t.Context(), nil).Settle()
			outcomes, texts := results(t, w, w.Keys()[0].Session)
			if r := only(t, w); r.State != projector.StateCompleted || len(w.Services.Ledger) != c.calls || outcomes[0] != c.outcomes[0] {
				t.Errorf("%s: the run is %s after %d calls, outcomes %v", name, r.State, len(w.Services.Ledger), outcomes)
			}
			if c.calls == 1 && (!strings.Contains(texts[0], "desk.book was not called") || !strings.Contains(texts[0], "again after 1m")) {
				t.Errorf("%s: told %q", name, texts[0])
			}
		})
	}
}

// A script that waits for others is told while it can still be.
func TestACallbackThatGetsNoTurnIsToldBeforeItsScriptEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer rest()
		w, _ := started(t, restricted(events.CapabilityLimits{Concurrent: 1}), runtimetest.RunJS("try desk.book {}\nreturn"), runtimetest.Complete(`"done"`))
		w.Limits = &limit.Memory{}
		other := &limit.Limiter{Store: w.Limits, Worker: "another"}
		held, err := other.Acquire(t.Context(), limit.Request{Key: limit.Key("capability", "ns", "desk.book"), Limits: limit.Limits{Concurrent: 1}, Namespace: "r", Patience: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer held.Release(limit.Outcome{})
		began := time.Now()
		w.Start(t.Context(), nil).Settle()
		if took := time.Since(began); took < 26*time.Second || took >= 30*time.Second {
			t.Errorf("it waited %s", took)
		}
		if r := only(t, w); r.State != projector.StateCompleted || len(w.Services.Ledger) != 0 {
			t.Errorf("the run is %s after %d calls", r.State, len(w.Services.Ledger))
		}
	})
}

func TestThePolicyLimitsCapabilitiesToo(t *testing.T) {
	c := events.Capability{Name: "mail.send", Limits: &events.CapabilityLimits{PerMinute: 60}}
	p := &policy.Policy{Namespaces: map[string]policy.Rules{"ns": {Limits: map[string]policy.Limits{"mail.*": {Concurrent: 2, PerMinute: 90}, "*": {PerMinute: 30}, "desk.*": {Concurrent: 1}}}}}
	if got, want := p.Limits("ns", &c), (limit.Limits{Concurrent: 2, RequestsPerMinute: 30}); got != want {
		t.Errorf("limits %+v, want %+v", got, want)
	}
	for _, q := range []*policy.Policy{nil, {}} {
		if got, want := q.Limits("ns", &c), (limit.Limits{RequestsPerMinute: 60}); got != want {
			t.Errorf("without: %+v, want %+v", got, want)
		}
	}
}

// A run that would wait for long for its provider's limits parks, and what it did
// not ask for is charged to no budget.
func TestARunThatWouldWaitLongForALimitParksAndIsNotCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer rest()
		v := agent()
		v.Agent.Budget = &events.Budget{Steps: 2}
		w, worker := started(t, v)
		next := &runtimetest.Model{Respond: runtimetest.Script(runtimetest.RunJS("return 1"), runtimetest.Complete(`"done"`))}
		l := &limit.Limiter{Store: &limit.Memory{}, Worker: "w"}
		worker.Dispatcher.Models = sourced{&limit.Model{Next: next, Limiter: l, Key: "k", Name: "provider x", Limits: limit.Limits{RequestsPerMinute: 1}, Patience: 10 * time.Second,
			Estimate: func(*runtime.Request) int64 { return 1 }}}
		parks := 0
		for range 10 {
			worker.Settle()
			r := only(t, w)
			if r.State.Terminal() {
				break
			}
			if parks++; r.State != projector.StateParked || r.Reason != events.ParkProvider || r.Wait.Since != nil || !strings.Contains(r.Wait.Note, "the limits of provider x") {
				t.Fatalf("the run is %s, %+v", r.State, r.Wait)
			}
			if parks == 2 { // it was as late as the limit said
				_ = events.Sleep(t.Context(), time.Minute)
			}
			worker.Fire()
		}
		r := only(t, w)
		b, err := worker.Dispatcher.ShowBudget(t.Context(), "ns", r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if r.State != projector.StateCompleted || parks < 2 || b.Accounts[0].Steps != 2 || len(b.Accounts[0].Open) != 0 || len(next.Requests()) != 2 {
			t.Errorf("after %d parks the run is %s: %+v, %+v", parks, r.State, r.Failed, b.Accounts[0])
		}
	})
}

// One namespace has many runs that wait on two workers, another has one.
func TestANamespaceWithManyRunsStarvesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer rest()
		store := &limit.Memory{}
		var order []string
		done := make(chan string, 100)
		workers := []*limit.Limiter{{Store: store, Worker: "w1"}, {Store: store, Worker: "w2"}}
		ask := func(worker int, namespace string) {
			go func() {
				p, err := workers[worker].Acquire(t.Context(), limit.Request{Key: "k", Name: "x", Limits: limit.Limits{Concurrent: 2}, Namespace: namespace, Patience: time.Hour})
				if err != nil {
					t.Error(err)
				}
				_ = events.Sleep(t.Context(), time.Second)
				p.Release(limit.Outcome{})
				done <- namespace
			}()
		}
		for i := range 40 {
			ask(i%2, "many")
		}
		_ = events.Sleep(t.Context(), 3*time.Second)
		for range 3 {
			ask(1, "few")
		}
		for range 43 {
			order = append(order, <-done)
		}
		last := 0
		for i, ns := range order {
			if ns == "few" {
				last = i
			}
		}
		if last > 16 || len(slices.DeleteFunc(order, func(ns string) bool { return ns == "many" })) != 3 {
			t.Errorf("the last of the few came as number %d of 43", last+1)
		}
	})
}

func TestLimitsOfCapabilitiesAreChecked(t *testing.T) {
	for _, l := range []events.CapabilityLimits{{}, {Concurrent: -1}, {PerMinute: -1}} {
		v := restricted(l)
		if err := v.Check(); err == nil || !strings.Contains(fmt.Sprint(err), "limits") {
			t.Errorf("%+v: %v", l, err)
		}
	}
	v := restricted(events.CapabilityLimits{PerMinute: 1})
	if err := v.Check(); err != nil {
		t.Error(err)
	}
}
