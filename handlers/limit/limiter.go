package limit

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Limiter holds the requests of one worker to their limits, together with every
// other worker that has the same store. Its fields are set once, before use.
type Limiter struct {
	Store  Store
	Worker string        // name and incarnation, unlike that of every other worker
	TTL    time.Duration // after which a silent worker counts no more; DefaultTTL when zero
	Meter  Meter         // optional

	mu    sync.Mutex
	pools map[string]*pool
}

// DefaultTTL is how long a worker that is silent still counts.
const DefaultTTL = 15 * time.Second

// UnknownWorkers is how many workers are taken to share a limit when the store
// has not answered yet.
const UnknownWorkers = 4

// Meter counts what operators watch. Every method is cheap and never fails.
type Meter interface {
	// LimitWaited tells how long a request waited, and what came of it: passed,
	// later (it would have waited for too long) or ended (whoever asked left).
	LimitWaited(name, outcome string, took time.Duration)

	// LimitRefused counts requests that the other side refused because of its own
	// limits.
	LimitRefused(name string)

	// LimitPercent tells how much of a configured limit is in use.
	LimitPercent(name string, percent int64)
}

// What becomes of a request that waits.
const (
	Passed = "passed"
	Later  = "later"
	Ended  = "ended"
)

// Request is one that asks to be let through.
type Request struct {
	Key       string // see Key
	Name      string // for people and metrics: provider openai
	Limits    Limits
	Namespace string        // or whatever else is to have its share among all that ask
	Tokens    int64         // that it will take, as far as can be known
	Patience  time.Duration // the longest wait
}

// Error is a request that was not let through, because it would have waited for
// longer than its patience. It was not made.
type Error struct {
	Name  string
	After time.Duration // when to ask again, as far as can be known
}

func (e *Error) Error() string {
	return fmt.Sprintf("the limits of %s, which all workers share, let no request through now; ask again after %s", e.Name, e.After.Round(time.Millisecond))
}

// Permit is a request that was let through.
type Permit struct {
	pool      *pool
	namespace string
	tokens    int64
	limits    Limits
}

// Outcome is what became of a request.
type Outcome struct {
	Tokens     int64 // that it took; 0 when it is not known
	Refused    bool  // because of the other side's limits
	RetryAfter time.Duration
	NotMade    bool // it never was: what it was given for the minute is given back
}

// Acquire waits until the request may be made. The error is an *Error, or the
// cause of ctx. A permit is to be released when the request has ended; that of a
// request without limits is nil, and its release does nothing.
func (l *Limiter) Acquire(ctx context.Context, r Request) (*Permit, error) {
	if l == nil || r.Limits.None() {
		return nil, nil
	}
	began := time.Now()
	p, w := l.enter(&r)
	outcome := Passed
	patience := time.NewTimer(r.Patience)
	defer patience.Stop()
	defer func() {
		if l.Meter != nil {
			l.Meter.LimitWaited(r.Name, outcome, time.Since(began))
		}
	}()
	var err error
	select {
	case <-w.done:
		err = w.err
	case <-ctx.Done():
		err = p.leave(w, context.Cause(ctx))
	case <-patience.C:
		err = p.leave(w, nil)
	}
	if err == nil {
		return &Permit{p, r.Namespace, r.Tokens, r.Limits}, nil
	}
	if outcome = Later; ctx.Err() != nil {
		outcome = Ended
	}
	return nil, err
}

// enter puts a request among those that wait for a key.
func (l *Limiter) enter(r *Request) (*pool, *waiter) {
	l.mu.Lock()
	p := l.pools[r.Key]
	if p == nil {
		p = &pool{limiter: l, key: r.Key, name: r.Name, wake: make(chan struct{}, 1), held: make(map[string]int), present: make(map[Limits]int)}
		if l.pools == nil {
			l.pools = make(map[string]*pool)
		}
		l.pools[r.Key] = p
	}
	l.mu.Unlock()
	w := &waiter{Waiting: Waiting{r.Namespace, r.Tokens}, limits: r.Limits, patience: r.Patience, until: time.Now().Add(r.Patience), done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.present[w.limits]++
	p.waiting = append(p.waiting, w)
	p.fresh = true
	p.stir()
	return p, w
}

// Release tells what became of the request. Only the first call counts.
func (p *Permit) Release(o Outcome) {
	if p == nil || p.pool == nil {
		return
	}
	pool := p.pool
	p.pool = nil
	pool.mu.Lock()
	defer pool.mu.Unlock()
	if pool.held[p.namespace]--; pool.held[p.namespace] == 0 {
		delete(pool.held, p.namespace)
	}
	counted := pool.least().Concurrent > 0
	pool.gone(p.limits)
	switch {
	case o.NotMade:
		pool.unmade++
		pool.spent -= p.tokens
	case o.Tokens > 0:
		pool.spent += o.Tokens - p.tokens
	}
	if o.Refused {
		pool.refused, pool.retryAfter = true, max(pool.retryAfter, o.RetryAfter)
		if m := pool.limiter.Meter; m != nil {
			m.LimitRefused(pool.name)
		}
	}
	pool.fresh = pool.fresh || o.Refused || o.NotMade || counted
	pool.stir()
}
