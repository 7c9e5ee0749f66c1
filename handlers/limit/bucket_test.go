package limit

import (
	"math"
	"testing"
	"time"
)

// holds demands what a bucket holds under a limit.
func holds(t *testing.T, b *Bucket, perMinute int64, after time.Duration, want float64) {
	t.Helper()
	now := epoch.Add(after)
	b.under(perMinute, now)
	if got := b.level(perMinute, now); math.Abs(got-want) > 1e-6 {
		t.Errorf("under %d a minute it holds %v after %s, want %v", perMinute, got, after, want)
	}
}

func TestWhatWasTakenUnderLooserLimitsIsNoDebtUnderStricterOnes(t *testing.T) {
	var b Bucket
	holds(t, &b, 6000, 0, 1000)
	b.Lacks = 900
	holds(t, &b, 6, 0, 0)
	holds(t, &b, 60, 0, 0)
	holds(t, &b, 6000, 0, 100) // nothing is gained by the detour
	holds(t, &b, 6, 0, 0)
	holds(t, &b, 6, 5*time.Second, 0.5)
	holds(t, &b, 6000, 5*time.Second, 1000-0.5-(899-500)) // what was set aside fills as it did
	holds(t, &b, 12000, 5*time.Second, 2000-0.5-(899-500))
}

func TestADebtThatWasMadeUnderALimitIsOwedUnderIt(t *testing.T) {
	var b Bucket
	holds(t, &b, 60, 0, 10)
	b.Lacks = 50
	holds(t, &b, 60, 0, -40)
	holds(t, &b, 6, 10*time.Second, 0)
	holds(t, &b, 60, 10*time.Second, -30)
}

func TestTheFirstOfStricterLimitsWaitsForNoMoreThanItsOwnBurst(t *testing.T) {
	var e Entry
	loose, strict := Limits{RequestsPerMinute: 6000, TokensPerMinute: 6_000_000}, Limits{RequestsPerMinute: 6, TokensPerMinute: 60}
	asks := make([]Waiting, 900)
	for i := range asks {
		asks[i] = Waiting{"a", 1000}
	}
	if passed, _ := take(&e, loose, "w", epoch, nil, asks...); len(passed) != len(asks) {
		t.Fatalf("%d passed", len(passed))
	}
	if _, waits := take(&e, strict, "w", epoch, nil, Waiting{"a", 10}); waits[0] != 10*time.Second {
		t.Errorf("it waits for %s", waits[0])
	}
	if passed, _ := take(&e, loose, "w", epoch, nil, asks...); len(passed) != 100 {
		t.Errorf("afterwards %d passed, want what the minute's burst has left", len(passed))
	}
}

// What a worker said of its limits before counts no more when it says others.
func TestAWorkerIsNotHeldToItsOwnEarlierLimits(t *testing.T) {
	var e Entry
	take(&e, Limits{Concurrent: 1}, "w", epoch, nil, wants("a")...)
	if passed, _ := take(&e, Limits{Concurrent: 3}, "w", epoch, map[string]int{"a": 1}, wants("a", "a", "a")...); len(passed) != 2 {
		t.Errorf("%v passed, want 2", passed)
	}
}
