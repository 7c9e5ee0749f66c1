package events_test

import (
	"testing"

	"github.com/agentruntime/agentruntime/events"
)

func TestAKeyOfANamespaceIsNoSessions(t *testing.T) {
	kept, session := events.KeptKey("ns", "uploads"), events.Key{Namespace: "ns", Session: "uploads"}
	if kept == session || kept.Check() == nil || events.CheckSession(kept.Session) == nil {
		t.Errorf("%s may be a session", kept)
	}
	if err := kept.CheckKept(); err != nil {
		t.Error(err)
	}
	if err := session.CheckKept(); err != nil {
		t.Error(err)
	}
	for _, bad := range []events.Key{events.KeptKey("ns", ""), events.KeptKey("ns", "a.b"), events.KeptKey("n s", "a"), {Namespace: "ns", Session: "==a"}} {
		if bad.CheckKept() == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
