package handlers_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// testController runs the loop's controller suite over a log.
func testController(t *testing.T, open func() *handlerstest.World) {
	runtimetest.TestController(t, func(t *testing.T) *runtimetest.ControllerHost {
		w := open()
		family(nil)(w)
		worker := w.Start(t.Context(), nil)
		for _, v := range []handlers.Version{limited(member("parent", "child"), "", 100), member("child")} {
			if _, err := worker.Dispatcher.Apply(t.Context(), w.Namespace, &v); err != nil {
				t.Fatal(err)
			}
		}
		w.Send(handlerstest.Start("1", "parent", "Go."))
		worker.Admit()
		run := runOf(w.Namespace, "1")
		key, err := events.KeyOfRun(w.Namespace, run)
		if err != nil {
			t.Fatal(err)
		}
		return &runtimetest.ControllerHost{
			Attempt: func() runtime.Controller {
				c, err := worker.Dispatcher.OpenController(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				return c
			},
			Agent: "child", Input: json.RawMessage(`{"message":"one"}`), Other: json.RawMessage(`{"message":"two"}`),
			Settle: func(child runtime.AgentRunInfo) {
				if err := worker.Dispatcher.Carry(t.Context(), events.Key{Namespace: w.Namespace, Session: child.Session}); err != nil {
					t.Fatal(err)
				}
				worker.React()
			},
			Expire: func() {
				w.Pass(time.Hour)
				worker.React()
				if !worker.Fire() {
					t.Fatal("no timer is armed")
				}
			},
			Charges: func() int {
				b, err := worker.Dispatcher.ShowBudget(t.Context(), w.Namespace, run)
				if err != nil {
					t.Fatal(err)
				}
				return int(b.Accounts[0].Steps)
			},
		}
	})
}

func TestControllerInMemory(t *testing.T) { testController(t, inMemory) }

func TestControllerOnJetStream(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) { testController(t, on(conn)) })
}
