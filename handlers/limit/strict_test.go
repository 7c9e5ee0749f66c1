package limit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentruntime/agentruntime/handlers/limit"
)

func TestWhoLeavesForItsOwnLimitsHoldsNobodyToThem(t *testing.T) {
	loose, strict := limit.Limits{RequestsPerMinute: 6000}, limit.Limits{RequestsPerMinute: 6}
	for name, at := range map[string]int{"at the same worker": 0, "at another worker": 1} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				_, w := limiters(2)
				for range 900 {
					acquire(t, w[at], request(loose, "a", time.Second)).Release(limit.Outcome{})
				}
				ended := make(chan error, 300)
				for range cap(ended) {
					go func() {
						p, err := w[at].Acquire(t.Context(), request(loose, "a", 5*time.Second))
						p.Release(limit.Outcome{})
						ended <- err
					}()
				}
				synctest.Wait()
				for range 3 {
					began := time.Now()
					later(t, w[0], request(strict, "a", 5*time.Second))
					if took := time.Since(began); took > 100*time.Millisecond {
						t.Errorf("it was told after %s", took)
					}
				}
				for range cap(ended) {
					if err := <-ended; err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// The stricter limits of what is under way end with it, long before their minute.
func TestThePauseForTheLimitsOfOthersIsThePatience(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, w := limiters(1)
		held := acquire(t, w[0], request(limit.Limits{RequestsPerMinute: 6}, "a", time.Second))
		loose := request(limit.Limits{RequestsPerMinute: 6000}, "a", 2*time.Second)
		began := time.Now()
		if after := later(t, w[0], loose); after < loose.Patience || after > loose.Patience+time.Millisecond || time.Since(began) != 0 {
			t.Errorf("it was told after %s to ask again after %s", time.Since(began), after)
		}
		held.Release(limit.Outcome{})
		acquire(t, w[0], loose).Release(limit.Outcome{})
	})
}

func TestTheLastSlotOfStricterLimitsIsFreeAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, w := limiters(1)
		held := acquire(t, w[0], request(limit.Limits{Concurrent: 1}, "a", time.Second))
		passed := make(chan time.Time)
		go func() {
			acquire(t, w[0], request(limit.Limits{RequestsPerMinute: 60}, "a", 10*time.Second)).Release(limit.Outcome{})
			passed <- time.Now()
		}()
		pass(time.Second + 10*time.Millisecond) // between two looks
		released := time.Now()
		held.Release(limit.Outcome{})
		if took := (<-passed).Sub(released); took != 0 {
			t.Errorf("who waits for it hears of it after %s", took)
		}
	})
}

func TestThePauseForItsOwnLimitsIsTheirs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, w := limiters(1)
		for range 10 {
			acquire(t, w[0], request(limit.Limits{RequestsPerMinute: 60}, "a", time.Second)).Release(limit.Outcome{})
		}
		passed := make(chan struct{})
		go func() {
			defer close(passed)
			acquire(t, w[0], request(limit.Limits{RequestsPerMinute: 6}, "a", time.Minute)).Release(limit.Outcome{})
		}()
		synctest.Wait()
		if after := later(t, w[0], request(limit.Limits{RequestsPerMinute: 60}, "a", 500*time.Millisecond)); after > 2*time.Second {
			t.Errorf("it was told to ask again after %s", after)
		}
		<-passed
	})
}

func TestWhoLeavesTakesTheLimitsOfWhatIsUnderWayAlongForNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, w := limiters(1)
		held := acquire(t, w[0], request(limit.Limits{Concurrent: 1, RequestsPerMinute: 6}, "a", time.Second))
		passed := make(chan struct{})
		go func() {
			defer close(passed)
			acquire(t, w[0], request(limit.Limits{RequestsPerMinute: 6000}, "a", time.Hour)).Release(limit.Outcome{})
		}()
		synctest.Wait()
		later(t, w[0], request(limit.Limits{RequestsPerMinute: 3}, "a", time.Second))
		synctest.Wait()
		select {
		case <-passed:
			t.Error("a looser one passed by what is under way")
		default:
		}
		held.Release(limit.Outcome{})
		<-passed
	})
}
