package jetstream_test

import (
	"testing"

	"github.com/agentruntime/agentruntime/handlers/limit"
	"github.com/agentruntime/agentruntime/handlers/limit/limittest"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
)

func TestLimitsKeepToTheSuite(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) {
		var s limit.Store = &jetstream.Limits{Conn: conn}
		limittest.Store(t, s)
		if _, _, err := s.Load(t.Context(), "a.>"); err == nil {
			t.Error("a key that can be no subject was looked up")
		}
	})
}
