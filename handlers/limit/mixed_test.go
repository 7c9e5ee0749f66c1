package limit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentruntime/agentruntime/handlers/limit"
)

// Two pinned versions of a capability have unlike limits and one key.
func TestALooserRequestDoesNotPassByThoseWithStricterLimits(t *testing.T) {
	strict, loose := limit.Limits{Concurrent: 1}, limit.Limits{Concurrent: 100}
	for name, at := range map[string]int{"at the same worker": 0, "at another worker": 1} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				_, w := limiters(2)
				held := acquire(t, w[0], request(strict, "a", time.Second))
				waits := make(chan *limit.Permit)
				go func() {
					p, err := w[0].Acquire(t.Context(), request(strict, "a", time.Hour))
					if err != nil {
						t.Error(err)
					}
					waits <- p
				}()
				synctest.Wait()
				later(t, w[at], request(loose, "b", 5*time.Second))
				select {
				case <-waits:
					t.Fatal("the one that waited was let through beside the one that is held")
				default:
				}
				held.Release(limit.Outcome{})
				(<-waits).Release(limit.Outcome{})
				pass(time.Second)
				// With the last strict one its limits are gone.
				first := acquire(t, w[at], request(loose, "b", time.Second))
				acquire(t, w[at], request(loose, "b", time.Second)).Release(limit.Outcome{})
				// And a strict one that comes waits for the loose ones.
				later(t, w[0], request(strict, "a", time.Second))
				// One that has left leaves no limits behind.
				acquire(t, w[0], request(loose, "b", time.Second)).Release(limit.Outcome{})
				first.Release(limit.Outcome{})
			})
		})
	}
}

// A worker says what limits it has, and not those it was told of.
func TestStricterLimitsEndWithTheWorkerThatHadThem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, w := limiters(2)
		strict, loose := limit.Limits{Concurrent: 2}, limit.Limits{Concurrent: 100}
		held := acquire(t, w[0], request(strict, "a", time.Second))
		other := acquire(t, w[1], request(loose, "a", time.Second))
		held.Release(limit.Outcome{})
		pass(time.Second)
		for range 3 {
			p := acquire(t, w[0], request(loose, "a", time.Second))
			defer p.Release(limit.Outcome{})
		}
		other.Release(limit.Outcome{})
	})
}

// Each respect counts by itself, and whoever gives up takes its limits along.
func TestTheLimitsOfWhoeverHasLeftCountNoLonger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, w := limiters(1)
		few, slow := limit.Limits{Concurrent: 2}, limit.Limits{Concurrent: 9, RequestsPerMinute: 6}
		first := acquire(t, w[0], request(few, "a", time.Second))
		acquire(t, w[0], request(slow, "b", time.Second)).Release(limit.Outcome{}) // the minute's burst
		pass(time.Second)
		later(t, w[0], request(slow, "b", time.Second))
		pass(time.Second)
		second := acquire(t, w[0], request(few, "a", time.Second))
		later(t, w[0], request(few, "a", time.Second))
		first.Release(limit.Outcome{})
		second.Release(limit.Outcome{})
	})
}
