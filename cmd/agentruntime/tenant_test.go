package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/limit"
	"github.com/agentruntime/agentruntime/jetstream"
)

// Whoever may do everything in one namespace, and knows the session and the run of
// another one, is refused by the server, and finds nothing in its own.
func TestAnotherTenantThatKnowsARunReachesNothingOfIt(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := single(t)
	s.provision(ctx)
	w := s.connect(worker)
	runHost(ctx, w)
	o := s.connect(operator)
	definition, err := json.Marshal(handlers.Version{Agent: events.AgentDefinition{Slug: "once", Instructions: "Answer.", Model: "scripted/once"}})
	if err != nil {
		t.Fatal(err)
	}
	o.ask(ctx, "agent.api.other.agents.apply", definition)
	var known handlers.Admission
	if err := json.Unmarshal(o.ask(ctx, "agent.api.other.run.start", []byte(`{"agent":"once","message":"Do it."}`)), &known); err != nil {
		t.Fatal(err)
	}

	a := s.connect(application)
	about := fmt.Appendf(nil, `{"run":%q}`, known.Run)
	for _, verb := range []string{"run.get", "run.tree", "budget.show", "run.cancel", "run.retry", "run.events"} {
		var refused *jetstream.ServiceError
		if answer, err := a.Request(ctx, "agent.api.default."+verb, nil, about); !errors.As(err, &refused) || refused.Code != handlers.RejectNoRun {
			t.Errorf("%s of another namespace's run is answered %s, %v", verb, answer, err)
		}
	}
	a.wasNeverRefused()
	for _, subject := range []string{
		"agent.api.other.run.get", "agent.api.other.run.events", "agent.api.other.run.message", "agent.cmd.other.run.cancel", "agent.cmd.other.run.continue",
		"agent.log.0.other." + known.Session, "agent.work.other." + known.Session, "agent.signal.other." + known.Session, "agent.budget.0.other." + known.Run,
		"$JS.API.DIRECT.GET.AGENT_LOG_0.agent.log.0.other." + known.Session, "$KV.AGENT_LEASES.other." + known.Session,
	} {
		a.mayNotPublish(subject)
	}
	for _, subject := range []string{"agent.event.other.*." + known.Session + "." + known.Run, "agent.event.other.run_completed." + known.Session + "." + known.Run, "agent.log.0.other." + known.Session, "agent.signal.other." + known.Session} {
		a.mayNotSubscribe(subject)
	}

	// What workers share of limits is theirs alone.
	shared, key := &jetstream.Limits{Conn: w.Conn}, limit.Key("provider", "x")
	if _, err := shared.Swap(ctx, key, []byte(`{}`), 0, time.Minute); err != nil {
		t.Errorf("a worker cannot write a limit: %v", err)
	}
	if data, _, err := shared.Load(ctx, key); string(data) != `{}` || err != nil {
		t.Errorf("a worker reads the limit %q, %v", data, err)
	}
	w.wasNeverRefused()
	a.mayNotPublish("$KV.AGENT_LEASES._limit.of." + key)
}
