package limit

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// While small requests come without end, one large one waits.
func TestALargeRequestIsNotStarvedBySmallOnes(t *testing.T) {
	l := Limits{TokensPerMinute: 60_000} // 10000 at once, 1000 a second
	large := Waiting{"ns", 8000}
	for _, small := range []string{"ns", "other"} {
		for _, worker := range []string{"w", "x"} {
			for _, backlog := range []int{1, 3, 50} {
				e := Entry{Tokens: Bucket{Lacks: 9900, At: epoch}}
				passed, after := 0, time.Duration(0)
				for after < 5*time.Minute {
					after += 100 * time.Millisecond
					ask := Ask{Worker: "w", Now: epoch.Add(after), TTL: time.Hour, Waiting: []Waiting{large}}
					more := Ask{Worker: worker, Now: ask.Now, TTL: time.Hour}
					for range backlog {
						more.Waiting = append(more.Waiting, Waiting{small, 200})
					}
					if worker == "w" {
						ask.Waiting = append(ask.Waiting, more.Waiting...)
					}
					waits := e.Take(l, &ask)
					if waits[0] == 0 {
						break
					}
					if worker != "w" {
						waits = e.Take(l, &more)
					}
					for _, wait := range waits {
						if wait == 0 {
							passed++
						}
					}
				}
				if after > 20*time.Second {
					t.Errorf("%d small ones of %s at %s: it waits for %s, and %d of them passed", backlog, small, worker, after, passed)
				}
			}
		}
	}
}

// Tokens are divided, and not requests.
func TestNamespacesHaveEqualPartsOfTheTokensWhateverTheirRequests(t *testing.T) {
	l := Limits{TokensPerMinute: 60_000}
	var e Entry
	got := make(map[string]int64)
	for i := range 3000 {
		now := epoch.Add(time.Duration(i) * 100 * time.Millisecond)
		for worker, list := range map[string][]Waiting{"w": {{"large", 4000}, {"small", 100}, {"small", 100}}, "x": {{"small", 100}, {"middle", 700}}} {
			for k, wait := range e.Take(l, &Ask{Worker: worker, Now: now, TTL: time.Hour, Waiting: list}) {
				if wait == 0 {
					got[list[k].Namespace] += list[k].Tokens
				}
			}
		}
	}
	for ns, tokens := range got {
		if tokens < 80_000 || tokens > 120_000 {
			t.Errorf("%s has had %d tokens of 300000, a third is its part", ns, tokens)
		}
	}
	if len(got) != 3 || len(e.Taken) > 3 {
		t.Errorf("let through %v, remembered %v", got, e.Taken)
	}
}

// One that nobody waits for any more keeps nothing, and one that asked for nothing
// has saved nothing.
func TestTokensAreKeptForNobodyWhoHasLeft(t *testing.T) {
	l := Limits{TokensPerMinute: 60_000}
	e := Entry{Tokens: Bucket{Lacks: 9000, At: epoch}}
	e.Take(l, &Ask{Worker: "w", Now: epoch, TTL: time.Hour, Waiting: []Waiting{{"a", 8000}}})
	if passed, _ := take(&e, l, "x", epoch, nil, Waiting{"b", 500}); passed != nil {
		t.Error("it overtook who came before")
	}
	e.Take(l, &Ask{Worker: "w", Now: epoch, TTL: time.Hour})
	if passed, _ := take(&e, l, "x", epoch, nil, Waiting{"b", 500}); len(passed) != 1 {
		t.Error("it waits for nobody")
	}
}

func TestWhatWasLetThroughAndNeverMadeIsGivenBack(t *testing.T) {
	for name, release := range map[string]func(p *pool, w *waiter){
		"it left while it was let through": func(p *pool, w *waiter) { _ = p.leave(w, context.Canceled) },
		"it was not made": func(p *pool, w *waiter) {
			(&Permit{p, w.Namespace, w.Tokens, w.limits}).Release(Outcome{NotMade: true})
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &Limiter{Store: &Memory{}, Worker: "w"}
			r := Request{Key: "k", Limits: Limits{Concurrent: 1, RequestsPerMinute: 6, TokensPerMinute: 600}, Namespace: "a", Tokens: 100, Patience: time.Second}
			p, w := l.enter(&r)
			<-w.done
			release(p, w)
			next, err := l.Acquire(t.Context(), r)
			if err != nil {
				t.Errorf("%s: what it had is lost: %v", name, err)
			}
			next.Release(Outcome{})
			<-time.After(time.Minute)
		})
	}
}

func TestWhatALeaverWasLetThroughForIsGivenBack(t *testing.T) {
	p := &pool{limiter: &Limiter{Worker: "w"}, held: make(map[string]int)}
	left := &waiter{Waiting: Waiting{"a", 70}, done: make(chan struct{})}
	if again := p.settle([]*waiter{left}, []time.Duration{0}); again != 0 || p.spent != -70 || p.unmade != 1 {
		t.Errorf("it looks again after %s, with %s to give back", again, fmt.Sprint(p.spent, p.unmade))
	}
}
