package config_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/config"
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers/policy"
)

// A file that is written in place is a policy after each of its lines, and one that
// allows more before the last one.
func TestAPolicyThatIsHalfWrittenIsNotInForce(t *testing.T) {
	const whole = `namespaces:
  default:
    agents: [desk-*]
    capabilities: ["*"]
    routes: { nats: [svc.desk.*] }
`
	other := &events.Capability{Name: "x", Route: events.Route{NATS: &events.NATSRoute{Subject: "svc.pay"}}}
	for name, ahead := range map[string]time.Duration{"written now": 0, "by a clock that is ahead": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file := write(t, whole)
				told := 0
				f, err := config.OpenPolicy(file, func(*policy.Policy, error) { told++ })
				if err != nil {
					t.Fatal(err)
				}
				wait := func(d time.Duration) { _ = events.Sleep(context.Background(), d) }
				written := func(text string) {
					t.Helper()
					if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
					at := time.Now().Add(ahead)
					if err := os.Chtimes(file, at, at); err != nil {
						t.Fatal(err)
					}
				}
				may := func(want bool) {
					t.Helper()
					if got := f.Policy().Capability("default", other, false) == nil; got != want {
						t.Fatalf("the other subject is allowed: %t, want %t", got, want)
					}
				}
				may(false)
				for end := range whole {
					written(whole[:end])
					may(false)
					wait(50 * time.Millisecond)
					may(false)
				}
				written(whole)
				may(false)
				wait(time.Second)
				may(false)
				if told != 0 {
					t.Errorf("a policy that was never whole was told of %d times", told)
				}
				// What stands still is in force, the size that it had or not.
				written(strings.Replace(whole, "svc.desk.*", "svc.pa*   ", 1))
				may(false)
				wait(99 * time.Millisecond)
				may(false)
				wait(time.Millisecond)
				may(true)
				if told != 1 {
					t.Errorf("a change was told of %d times", told)
				}
			})
		})
	}
}

// Nobody need have looked while a change became settled.
func TestAChangeThatIsOldIsInForceAtTheFirstLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := write(t, allowing)
		f, err := config.OpenPolicy(file, func(*policy.Policy, error) {})
		if err != nil {
			t.Fatal(err)
		}
		place(t, file, "namespaces: {}")
		if f.Policy().Agent("default", "desk-helper", false) == nil {
			t.Error("what was revoked an hour ago is allowed")
		}
	})
}
