package limit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers/limit"
	"github.com/agentruntime/agentruntime/handlers/limit/limittest"
	"github.com/agentruntime/agentruntime/runtime"
)

func TestTheMemoryKeepsToTheSuite(t *testing.T) { limittest.Store(t, &limit.Memory{}) }

// counted is a store that counts what it is asked, and may be away.
type counted struct {
	limit.Store
	away  atomic.Bool
	asked atomic.Int64
}

var errDown = errors.New("down")

func (c *counted) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	if c.asked.Add(1); c.away.Load() {
		return nil, 0, errDown
	}
	return c.Store.Load(ctx, key)
}

func (c *counted) Swap(ctx context.Context, key string, data []byte, revision uint64, ttl time.Duration) (uint64, error) {
	if c.asked.Add(1); c.away.Load() {
		return 0, errDown
	}
	return c.Store.Swap(ctx, key, data, revision, ttl)
}

const key = "k"

func limiters(n int) (*counted, []*limit.Limiter) {
	store := &counted{Store: &limit.Memory{}}
	var list []*limit.Limiter
	for i := range n {
		list = append(list, &limit.Limiter{Store: store, Worker: fmt.Sprint("w", i)})
	}
	return store, list
}

func request(l limit.Limits, namespace string, patience time.Duration) limit.Request {
	return limit.Request{Key: key, Name: "test", Limits: l, Namespace: namespace, Patience: patience}
}

// pass lets time go by, in a bubble.
func pass(d time.Duration) { _ = events.Sleep(context.Background(), d) }

// bubble runs a test on a clock of its own, until nothing is under way any more.
func bubble(t *testing.T, f func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { pass(time.Minute) })
		f(t)
	})
}

func acquire(t *testing.T, l *limit.Limiter, r limit.Request) *limit.Permit {
	t.Helper()
	p, err := l.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// later demands that a request is not let through and returns when to ask again.
func later(t *testing.T, l *limit.Limiter, r limit.Request) time.Duration {
	t.Helper()
	p, err := l.Acquire(t.Context(), r)
	var e *limit.Error
	if p != nil || !errors.As(err, &e) || e.Name != r.Name {
		t.Fatalf("permit %v, error %v", p, err)
	}
	return e.After
}

func TestWhatIsNotLimitedIsNotAskedFor(t *testing.T) {
	store, w := limiters(1)
	acquire(t, w[0], request(limit.Limits{}, "a", 0)).Release(limit.Outcome{Tokens: 5})
	acquire(t, nil, request(limit.Limits{Concurrent: 1}, "a", 0)).Release(limit.Outcome{})
	if n := store.asked.Load(); n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
}

func TestManyRequestsOfManyWorkersNeverExceedTheLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, workers := limiters(3)
		var under, most, done atomic.Int64
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				p, err := workers[i%3].Acquire(t.Context(), request(limit.Limits{Concurrent: 4}, fmt.Sprint("ns", i%5), time.Hour))
				if err != nil {
					t.Error(err)
					return
				}
				for n := under.Add(1); n > most.Load(); {
					most.Store(n)
				}
				pass(time.Second)
				under.Add(-1)
				done.Add(1)
				p.Release(limit.Outcome{})
			})
		}
		began := time.Now()
		all.Wait()
		if done.Load() != 60 || most.Load() != 4 {
			t.Errorf("%d were made, %d at a time", done.Load(), most.Load())
		}
		if took := time.Since(began); took > 25*time.Second { // 15 at the best
			t.Errorf("it took %s", took)
		}
	})
}

func TestARequestCostsFewExchanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, l := range []limit.Limits{{RequestsPerMinute: 6000, TokensPerMinute: 1 << 40}, {Concurrent: 5}} {
			store, w := limiters(1)
			for range 100 {
				acquire(t, w[0], request(l, "a", time.Minute)).Release(limit.Outcome{})
				synctest.Wait()
			}
			pass(time.Minute)
			most := int64(100) // one for a request
			if l.Concurrent > 0 {
				most = 200 // and one for its end
			}
			if n := store.asked.Load(); n > most+20 {
				t.Errorf("%+v: %d exchanges for 100 requests", l, n)
			}
			before := store.asked.Load()
			pass(time.Hour)
			if n := store.asked.Load(); n != before {
				t.Errorf("%+v: %d exchanges while nothing was asked for", l, n-before)
			}
		}
	})
}

func TestWhoseWaitIsLongerThanItsPatienceIsToldAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, w := limiters(2)
		l := limit.Limits{RequestsPerMinute: 6}
		acquire(t, w[0], request(l, "a", time.Second)).Release(limit.Outcome{})
		began := time.Now()
		if after := later(t, w[1], request(l, "a", 9*time.Second)); after != 10*time.Second || time.Since(began) > time.Second {
			t.Errorf("told %s after %s", after, time.Since(began))
		}
		acquire(t, w[1], request(l, "a", 11*time.Second)).Release(limit.Outcome{})
		if took := time.Since(began); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("it waited %s", took)
		}
	})
}

func TestWhoWaitsForASlotLosesItsPatience(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, w := limiters(2)
		l := limit.Limits{Concurrent: 1}
		p := acquire(t, w[0], request(l, "a", time.Second))
		began := time.Now()
		if after := later(t, w[1], request(l, "b", 7*time.Second)); after != 7*time.Second || time.Since(began) != 7*time.Second {
			t.Errorf("told %s after %s", after, time.Since(began))
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errDown)
		defer cancel()
		if _, err := w[1].Acquire(ctx, request(l, "b", time.Hour)); !errors.Is(err, errDown) {
			t.Errorf("whoever left is told %v", err)
		}
		p.Release(limit.Outcome{})
		p.Release(limit.Outcome{})
		acquire(t, w[1], request(l, "b", time.Second)).Release(limit.Outcome{})
	})
}

func TestARefusalLowersTheLimitsOfEveryWorker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, w := limiters(2)
		l := limit.Limits{Concurrent: 100}
		acquire(t, w[0], request(l, "a", time.Second)).Release(limit.Outcome{Refused: true, RetryAfter: 20 * time.Second})
		pass(time.Second)
		if after := later(t, w[1], request(l, "a", 5*time.Second)); after < 18*time.Second || after > 19*time.Second {
			t.Errorf("another worker is told to come after %s", after)
		}
		pass(20 * time.Second)
		for i := range 80 { // 70 %, and twice 5 % again
			p := acquire(t, w[1], request(l, fmt.Sprint(i), time.Second))
			defer p.Release(limit.Outcome{})
		}
		later(t, w[0], request(l, "a", time.Second))
	})
}

func TestAWorkerThatHoldsForLongIsNotForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, w := limiters(2)
		l := limit.Limits{Concurrent: 1}
		p := acquire(t, w[0], request(l, "a", time.Second))
		pass(10 * limit.DefaultTTL)
		later(t, w[1], request(l, "a", time.Second))
		p.Release(limit.Outcome{})
		pass(time.Second)
		acquire(t, w[1], request(l, "a", time.Second)).Release(limit.Outcome{})
	})
}

func TestWithoutTheStoreEachWorkerHasItsShare(t *testing.T) {
	bubble(t, func(t *testing.T) {
		share := func(w *limit.Limiter, l limit.Limits) (n int) {
			t.Helper()
			for {
				p, err := w.Acquire(t.Context(), request(l, "a", 10*time.Millisecond))
				if err != nil {
					return n
				}
				t.Cleanup(func() { p.Release(limit.Outcome{}) })
				n++
			}
		}
		l := limit.Limits{Concurrent: 12}
		store, w := limiters(2)
		store.away.Store(true)
		began := time.Now()
		if n := share(w[0], l); n != 12/limit.UnknownWorkers {
			t.Errorf("a worker that never saw another has %d of 12", n)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("a store that is away is waited for: %s", took)
		}
		before := store.asked.Load()
		for range 1000 {
			_, _ = w[0].Acquire(t.Context(), request(l, "a", time.Millisecond))
		}
		if n := store.asked.Load() - before; n > 2 {
			t.Errorf("a store that is away is asked %d times in a second", n)
		}

		store, w = limiters(2)
		for _, i := range []int{0, 1, 0} { // the first one has seen both
			p := acquire(t, w[i], request(l, "a", time.Second))
			t.Cleanup(func() { p.Release(limit.Outcome{}) })
		}
		store.away.Store(true)
		pass(10 * time.Second)
		if n := share(w[0], l); n != 12/2-2 {
			t.Errorf("one of two workers has %d of 12 beyond the two that it holds", n)
		}
		store.away.Store(false)
		pass(20 * time.Second)
		if n := share(w[1], l); n != 12-1-2-4 {
			t.Errorf("when the store answers again, %d are left of 12, and 7 are held", n)
		}
	})
}

func TestAnEntryThatIsLostOrNoneIsMadeAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store, w := limiters(2)
		l := limit.Limits{Concurrent: 1}
		p := acquire(t, w[0], request(l, "a", time.Second))
		for _, damage := range []string{`{}`, `no entry`} {
			_, revision, _ := store.Load(t.Context(), key)
			if _, err := store.Swap(t.Context(), key, []byte(damage), revision, time.Hour); err != nil {
				t.Fatal(err)
			}
			pass(limit.DefaultTTL) // the holder has spoken again
			later(t, w[1], request(l, "a", time.Second))
		}
		p.Release(limit.Outcome{})
		pass(time.Second)
		data, _, _ := store.Load(t.Context(), key)
		var e limit.Entry
		if err := json.Unmarshal(data, &e); err != nil || len(e.Workers) != 0 {
			t.Errorf("whoever has nothing is still there: %s, %v", data, err)
		}
	})
}

// asked is a model that answers what it is given.
type asked struct {
	response *runtime.Response
	err      error
	n        int
}

func (a *asked) Generate(context.Context, *runtime.Request) (*runtime.Response, error) {
	a.n++
	return a.response, a.err
}

func TestAModelIsAskedWithinItsLimits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, w := limiters(1)
		next := &asked{response: &runtime.Response{Usage: events.Usage{Input: 500, Output: 100}}}
		m := &limit.Model{Next: next, Limiter: w[0], Key: key, Name: "provider x", Limits: limit.Limits{TokensPerMinute: 600}, Patience: 30 * time.Second,
			Estimate: func(*runtime.Request) int64 { return 10 }}
		ctx := limit.For(t.Context(), "a")
		if response, err := m.Generate(ctx, nil); response != next.response || err != nil {
			t.Fatal(response, err)
		}
		pass(10 * time.Second)
		// 600 were taken of 100, and 100 have come: 410 to go, at 10 a second.
		var later *runtime.LaterError
		if _, err := m.Generate(ctx, nil); !errors.As(err, &later) || later.After < 40*time.Second || later.After > 42*time.Second || next.n != 1 {
			t.Errorf("%v, %d requests", err, next.n)
		}
		next.err = &runtime.ModelError{Class: runtime.ClassLimited, RetryAfter: time.Minute, Err: errDown}
		pass(time.Minute)
		if _, err := m.Generate(ctx, nil); !errors.Is(err, errDown) || next.n != 2 {
			t.Errorf("%v, %d requests", err, next.n)
		}
		pass(time.Second)
		if _, err := m.Generate(ctx, nil); !errors.As(err, &later) || later.After < 58*time.Second || next.n != 2 {
			t.Errorf("%v, %d requests", err, next.n)
		}
	})
}
