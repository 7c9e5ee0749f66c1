package events_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
)

func TestNames(t *testing.T) {
	for name, valid := range map[string]bool{
		"a": true, "A9_-": true, "0": true, strings.Repeat("x", 40): true,
		"": false, "-a": false, "_a": false, "a.b": false, "a b": false, "é": false, "*": false, ">": false, strings.Repeat("x", 41): false,
	} {
		if err := events.CheckSession(name); (err == nil) != valid {
			t.Errorf("session %q: %v", name, err)
		}
		if err := events.CheckNamespace(name); (err == nil) != valid {
			t.Errorf("namespace %q: %v", name, err)
		}
	}
}

func TestARunLeadsToItsSession(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		session := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_-]{0,39}`).Draw(t, "session")
		run := events.RunFor("n", session, rapid.String().Draw(t, "source"), rapid.String().Draw(t, "id"))
		if got, err := events.SessionOf(run); err != nil || got != session {
			t.Fatalf("run %q leads to %q, %v", run, got, err)
		}
		if err := events.CheckSession(events.SessionFor("n", session, run)); err != nil {
			t.Fatal(err)
		}
	})
	for _, bad := range []string{"", "abc", "-12345678", "a-1234567", "a-1234567.", "a.b-12345678"} {
		if _, err := events.SessionOf(bad); err == nil {
			t.Errorf("%q passes for a run id", bad)
		}
	}
}

// The derived ids and the shard of a session are promises: stored sessions are
// found by them for ever.
func TestDerivedIDsAreStable(t *testing.T) {
	for got, want := range map[string]string{
		events.SessionFor("default", "/tickets", "1"):   "sn09j1ak2k5rkgy0s24k7",
		events.RunFor("default", "s1", "/tickets", "1"): "s1-sb4p26eg",
		events.Derive(52, "a", "b"):                     "zb6xwynz3tp5pc0jeenjwa1ff6xb040f0p4379xrqqwzg1t1w54g",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := events.Shard(events.Key{Namespace: "default", Session: "s1"}, 8); got != 3 {
		t.Errorf("shard %d", got)
	}
	if events.Derive(20, "ab", "c") == events.Derive(20, "a", "bc") {
		t.Error("two lists of parts give one id")
	}
}
