package runtimetest_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

func TestTheStoreInMemoryKeepsThePromises(t *testing.T) {
	runtimetest.TestStore(t, func(*testing.T) (runtime.Store, func() runtime.Store) {
		s := &runtimetest.Store{}
		return s.Take(), s.Take
	})
}

func TestTheControllerInMemoryKeepsThePromises(t *testing.T) {
	runtimetest.TestController(t, func(*testing.T) *runtimetest.ControllerHost {
		c := &runtimetest.Controller{Agents: []string{"helper"}}
		return &runtimetest.ControllerHost{
			Attempt: func() runtime.Controller { return c },
			Agent:   "helper", Input: json.RawMessage(`{"a":1}`), Other: json.RawMessage(`{"a":2}`),
			Settle:  func(child runtime.AgentRunInfo) { c.Settle(child.CallID, `"done"`) },
			Expire:  func() { c.Advance(time.Hour) },
			Charges: c.Charges,
		}
	})
}

func TestTheJournalOfTheKit(t *testing.T) {
	runtimetest.TestJournal(t, func(*testing.T) (runtime.Store, func() runtime.Store) {
		s := runtimetest.Journaled{Store: &runtimetest.Store{}}
		return s.Take(), s.Take
	})
}
