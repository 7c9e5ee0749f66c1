package limit

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func wants(namespaces ...string) (list []Waiting) {
	for _, ns := range namespaces {
		list = append(list, Waiting{Namespace: ns})
	}
	return list
}

// take asks at an entry and returns of which namespaces requests were let through.
func take(e *Entry, l Limits, worker string, now time.Time, held map[string]int, list ...Waiting) (passed []string, waits []time.Duration) {
	waits = e.Take(l, &Ask{Worker: worker, Now: now, TTL: DefaultTTL, Held: held, Waiting: list})
	for i, w := range waits {
		if w == 0 {
			passed = append(passed, list[i].Namespace)
		}
	}
	return passed, waits
}

func TestNoMoreRequestsAreUnderWayThanMayBe(t *testing.T) {
	var e Entry
	l := Limits{Concurrent: 3}
	if passed, _ := take(&e, l, "w1", epoch, nil, wants("a", "a", "a", "a")...); len(passed) != 3 {
		t.Errorf("%v passed", passed)
	}
	if passed, _ := take(&e, l, "w2", epoch, nil, wants("a")...); passed != nil {
		t.Errorf("%v passed beside three", passed)
	}
	take(&e, l, "w1", epoch, map[string]int{"a": 2})
	if passed, _ := take(&e, l, "w2", epoch, nil, wants("a", "a")...); len(passed) != 1 {
		t.Errorf("%v passed when one had ended", passed)
	}
}

func TestAWorkerThatDiesHoldsNothingAfterATTL(t *testing.T) {
	var e Entry
	l := Limits{Concurrent: 1}
	take(&e, l, "dead", epoch, nil, wants("a")...)
	if passed, _ := take(&e, l, "w", epoch.Add(DefaultTTL-1), nil, wants("a")...); passed != nil {
		t.Error("it was given up before its time")
	}
	if passed, _ := take(&e, l, "w", epoch.Add(DefaultTTL), nil, wants("a")...); len(passed) != 1 {
		t.Error("its slot is lost")
	}
}

func TestANamespaceWithManyThatWaitLeavesTheOthersTheirShare(t *testing.T) {
	for name, l := range map[string]Limits{"slots": {Concurrent: 4}, "requests": {RequestsPerMinute: 4 * burst}} {
		var e Entry
		var many []string
		for range 50 {
			many = append(many, "many")
		}
		// Another worker has made known that it waits for two of another namespace.
		e.Workers = map[string]Presence{"w2": {Until: epoch.Add(time.Hour), Spaces: map[string]Space{"few": {Waiting: 2}}}}
		if passed, _ := take(&e, l, "w1", epoch, nil, wants(many...)...); len(passed) != 2 {
			t.Errorf("%s: %v passed, the half of four is two", name, passed)
		}
		// What is left of a bucket is divided again.
		want := map[string]int{"slots": 2, "requests": 1}[name]
		if passed, _ := take(&e, l, "w2", epoch, nil, wants("few", "few")...); len(passed) != want {
			t.Errorf("%s: %v of the few passed", name, passed)
		}
		// Nothing is kept for who asks for nothing.
		var alone Entry
		if passed, _ := take(&alone, l, "w1", epoch, nil, wants(many...)...); len(passed) != 4 {
			t.Errorf("%s: %d passed alone", name, len(passed))
		}
	}
}

func TestWhatDoesNotDivideGoesToEachInTurn(t *testing.T) {
	var e Entry
	l := Limits{Concurrent: 1}
	got := make(map[string]int)
	for i := range 40 {
		now := epoch.Add(time.Duration(i) * time.Second)
		for range 2 { // a worker whose turn it is not asks again
			for worker, ns := range map[string]string{"w1": "a", "w2": "b"} {
				passed, _ := take(&e, l, worker, now, nil, wants(ns, ns)...)
				for _, p := range passed {
					got[p]++
				}
				take(&e, l, worker, now, nil, wants(ns)...) // it has ended, and more wait
			}
		}
	}
	if got["a"] == 0 || got["b"] < got["a"]*3/4 || got["a"] < got["b"]*3/4 {
		t.Errorf("let through %v", got)
	}
}

func TestRatesAreKeptOverMinutes(t *testing.T) {
	for _, c := range []struct {
		limits Limits
		tokens int64
		most   int // in five minutes, with the first burst
	}{{Limits{RequestsPerMinute: 60}, 0, 5*60 + 10}, {Limits{TokensPerMinute: 6000}, 100, 5*60 + 10}, {Limits{TokensPerMinute: 600}, 1000, 3 + 1}} {
		var e Entry
		passed := 0
		for now := epoch; now.Before(epoch.Add(5 * time.Minute)); now = now.Add(250 * time.Millisecond) {
			list, _ := take(&e, c.limits, "w", now, nil, Waiting{"a", c.tokens}, Waiting{"a", c.tokens}, Waiting{"a", c.tokens})
			passed += len(list)
		}
		if passed > c.most || passed < c.most*9/10-1 {
			t.Errorf("%+v: %d passed, want %d", c.limits, passed, c.most)
		}
	}
}

func TestTokensThatWereMoreOrFewerAreMadeGood(t *testing.T) {
	l := Limits{TokensPerMinute: 600} // 100 at once
	var e Entry
	take(&e, l, "w", epoch, nil, Waiting{"a", 50})
	e.Take(l, &Ask{Worker: "w", Now: epoch, TTL: DefaultTTL, Spent: 100})
	_, waits := take(&e, l, "w", epoch, nil, Waiting{"a", 50})
	if waits[0] != 10*time.Second {
		t.Errorf("50 beyond the bucket, 50 wanted, 10 a second: it waits %s", waits[0])
	}
	e.Take(l, &Ask{Worker: "w", Now: epoch, TTL: DefaultTTL, Spent: -100})
	if passed, _ := take(&e, l, "w", epoch, nil, Waiting{"a", 50}); len(passed) != 1 {
		t.Error("what was not used is lost")
	}
}

func TestTheWaitIsToldAsFarAsItIsKnown(t *testing.T) {
	var e Entry
	l := Limits{RequestsPerMinute: 60}
	_, waits := take(&e, l, "w", epoch, nil, wants(slices.Repeat([]string{"a"}, 13)...)...)
	for i, want := range []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second} {
		if waits[9+i] != want {
			t.Errorf("request %d waits %s, want %s", 10+i, waits[9+i], want)
		}
	}
}

func TestRefusalsLowerTheLimitsAndTimeRestoresThem(t *testing.T) {
	var e Entry
	for _, c := range []struct {
		after   time.Duration
		refuse  bool
		percent int64
	}{{0, true, 70}, {time.Second, true, 70}, {5 * time.Second, true, 49}, {10 * time.Second, true, 34}, {20 * time.Second, false, 39}, {50 * time.Second, false, 54}, {10 * time.Minute, false, 100},
		{10 * time.Minute, true, 70}} {
		if now := epoch.Add(c.after); c.refuse {
			e.Refuse(now, 0)
			if got := e.Percent(now); got != c.percent {
				t.Errorf("after %s and a refusal: %d %%, want %d", c.after, got, c.percent)
			}
		} else if got := e.Percent(now); got != c.percent {
			t.Errorf("after %s: %d %%, want %d", c.after, got, c.percent)
		}
	}
	for i := range 20 {
		e.Refuse(epoch.Add(time.Hour+time.Duration(i)*5*time.Second), 0)
	}
	now := epoch.Add(time.Hour + 95*time.Second)
	if got := e.Percent(now); got != leastShare {
		t.Errorf("many refusals leave %d %%", got)
	}
	if passed, _ := take(&e, Limits{Concurrent: 3}, "w", now, nil, wants("a", "a")...); len(passed) != 1 {
		t.Errorf("the least is one request, and %d passed", len(passed))
	}
}

func TestNobodyAsksBeforeTheTimeThatTheProviderNamed(t *testing.T) {
	var e Entry
	e.Refuse(epoch, 40*time.Second)
	e.Refuse(epoch.Add(time.Second), 10*time.Second)
	_, waits := take(&e, Limits{Concurrent: 9}, "w", epoch.Add(10*time.Second), nil, wants("a")...)
	if waits[0] != 30*time.Second {
		t.Errorf("it waits %s", waits[0])
	}
	if passed, _ := take(&e, Limits{Concurrent: 9}, "w", epoch.Add(40*time.Second), nil, wants("a")...); len(passed) != 1 {
		t.Error("it waits for ever")
	}
}

// Whatever workers ask in whatever order: no more is under way than may be, and
// when all have asked twice, nothing that somebody waits for is left.
func TestSlotsAreNeitherExceededNorLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limits{Concurrent: rapid.IntRange(1, 7).Draw(t, "limit")}
		workers, namespaces := []string{"w1", "w2", "w3"}, []string{"a", "b", "c"}
		held, waiting := make(map[string]map[string]int), make(map[string][]Waiting)
		for _, w := range workers {
			held[w] = make(map[string]int)
		}
		var e Entry
		total := func() (n int) {
			for _, spaces := range held {
				for _, k := range spaces {
					n += k
				}
			}
			return n
		}
		ask := func(w string) {
			waits := e.Take(l, &Ask{Worker: w, Now: epoch, TTL: DefaultTTL, Held: held[w], Waiting: waiting[w]})
			var left []Waiting
			for i, r := range waiting[w] {
				if waits[i] == 0 {
					held[w][r.Namespace]++
				} else {
					left = append(left, r)
				}
			}
			if waiting[w] = left; total() > l.Concurrent {
				t.Fatalf("%d under way, %d may be", total(), l.Concurrent)
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			w, ns := rapid.SampledFrom(workers).Draw(t, "worker"), rapid.SampledFrom(namespaces).Draw(t, "namespace")
			if rapid.Bool().Draw(t, "comes") {
				waiting[w] = append(waiting[w], Waiting{Namespace: ns})
			} else if held[w][ns] > 0 {
				held[w][ns]--
			}
			ask(w)
		}
		for range len(namespaces) + 1 {
			for _, w := range workers {
				ask(w)
			}
		}
		if n := len(waiting["w1"]) + len(waiting["w2"]) + len(waiting["w3"]); n > 0 && total() < l.Concurrent {
			t.Fatalf("%d wait, and %d of %d are under way", n, total(), l.Concurrent)
		}
	})
}
