package handlers_test

import (
	"testing"

	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// testStore runs the loop's store suite over a log.
func testStore(t *testing.T, open func() *handlerstest.World) {
	fresh := func(t *testing.T) (runtime.Store, func() runtime.Store) {
		w := open()
		worker := w.Start(t.Context(), nil)
		v := agent()
		if _, err := worker.Dispatcher.Apply(t.Context(), w.Namespace, &v); err != nil {
			t.Fatal(err)
		}
		w.Send(handlerstest.Start("1", "tester", "Go."))
		worker.Admit()
		open := func() runtime.Store {
			s, err := worker.Dispatcher.OpenStore(t.Context(), w.Keys()[0])
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		return open(), open
	}
	runtimetest.TestStore(t, fresh)
	runtimetest.TestJournal(t, fresh)
}

func TestStoreInMemory(t *testing.T) { testStore(t, inMemory) }

func TestStoreOnJetStream(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) { testStore(t, on(conn)) })
}
