package host

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// A service accepts a call, everything is restarted, and a command of the service
// settles it.
func TestAnApprovalComesAfterEverythingWasRestarted(t *testing.T) {
	s := newSystem(t)
	models := cast{"asker": plays(runtimetest.Calls(runtimetest.ToolCall("desk_approve", `{"seat":4}`)), runtimetest.CompleteQuoting())}
	asker := handlers.Version{Agent: member("asker"), Capabilities: []events.Capability{{Name: "desk.approve", Effect: events.EffectWrite, Expose: events.ExposeTool, Deferred: true,
		SettleWithin: "1h", Input: json.RawMessage(`{"type":"object"}`), Route: events.Route{NATS: &events.NATSRoute{Subject: "svc.approve"}}}}}
	asker.Agent.Capabilities = []string{"desk.approve"}
	tokens := make(chan string, 2)
	serve := func() {
		_, err := s.conn.NATS().Subscribe("svc.approve", func(m *nats.Msg) {
			tokens <- m.Header.Get(handlers.HeaderSettle)
			_ = m.Respond([]byte(`{"accepted":true}`))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	serve()
	h, _ := s.hostOf("w", models)
	if _, err := h.Apply(t.Context(), "default", &asker); err != nil {
		t.Fatal(err)
	}
	stop := s.run(h)
	run := begin(t, h, "1", "asker").Run
	jetstreamtest.Eventually(t, "the run to be parked", func() bool {
		d, err := h.GetRun(t.Context(), "default", run)
		return err == nil && d.State == projector.StateParked && d.Reason == events.ParkCall
	})
	stop()
	s.end()
	s.begin()
	serve()
	h, _ = s.hostOf("w", models)
	s.run(h)
	e, err := events.New(events.SettleCall{Run: run, Call: "call_0_0", Token: <-tokens, Output: json.RawMessage(`{"approved":true}`)})
	if err != nil {
		t.Fatal(err)
	}
	e.ID, e.Source = "yes", "/desk"
	for range 2 {
		m := nats.NewMsg("agent.cmd.default.call.settle")
		m.Data = e.Data
		for name, values := range e.Header() {
			m.Header[name] = values
		}
		if _, err := s.conn.NATS().RequestMsg(m, patience); err != nil {
			t.Fatal(err)
		}
	}
	if d := s.ended(h, run); d.State != projector.StateCompleted || d.Reply == nil || len(tokens) != 0 {
		t.Errorf("the run is %s with %v after %d more requests", d.State, d.Reply, len(tokens))
	}
}
