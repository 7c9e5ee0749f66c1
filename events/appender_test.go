package events_test

import (
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
)

func TestMemoryLog(t *testing.T) {
	eventstest.TestLog(t, func(*testing.T) events.Log { return &eventstest.Memory{} })
}

func TestAppenderInMemory(t *testing.T) { eventstest.TestAppender(t, &eventstest.Memory{}) }

func TestAttendInMemory(t *testing.T) { eventstest.TestAttend(t, &eventstest.Memory{}) }

func TestBrokenProtocolsAreRefusedInMemory(t *testing.T) {
	eventstest.TestMutants(t, &eventstest.Memory{})
}
