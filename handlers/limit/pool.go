package limit

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

// pool is what one worker has of a key. One goroutine at a time speaks with the
// store for all of its requests; there is none while nothing is under way.
type pool struct {
	limiter *Limiter
	key     string
	name    string
	wake    chan struct{}

	mu         sync.Mutex
	present    map[Limits]int // how many wait or are held with them
	limits     Limits         // the strictest of them, or of those that were present last
	waiting    []*waiter
	held       map[string]int
	spent      int64 // tokens beyond what was asked for, and not yet told
	unmade     int   // requests that were let through and never made, not yet told
	refused    bool  // not yet told
	retryAfter time.Duration
	fresh      bool // there is something to say or to ask that is worth an exchange
	running    bool

	// Of the goroutine.
	entry    Entry // the shared one, as it was seen last
	revision uint64
	known    bool
	told     time.Time // when it was said last what this worker has
	away     time.Time // the store is not asked before
	alone    Entry     // in its place meanwhile
	workers  int64     // at the key, when it was seen last
}

// waiter is one request that waits.
type waiter struct {
	Waiting
	limits   Limits
	patience time.Duration
	until    time.Time // when that is over
	done     chan struct{}
	err      error // set before done is closed
}

// stir makes sure that somebody speaks for the pool. The pool is locked.
func (p *pool) stir() {
	if !p.running {
		p.running = true
		go p.run()
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// least returns the strictest limits of all that wait or are held: whoever came with
// looser ones may not pass by those who came with stricter ones. The pool is locked.
func (p *pool) least() Limits {
	if len(p.present) > 0 {
		p.limits = Limits{}
		for l := range p.present {
			p.limits = Least(p.limits, l)
		}
	}
	return p.limits
}

// leastHeld returns the strictest limits of all that are held. The pool is locked.
func (p *pool) leastHeld() (l Limits) {
	waiting := make(map[Limits]int)
	for _, w := range p.waiting {
		waiting[w.limits]++
	}
	for limits, n := range p.present {
		if n > waiting[limits] {
			l = Least(l, limits)
		}
	}
	return l
}

// gone takes note that a request neither waits nor is held any more. The pool is
// locked.
func (p *pool) gone(l Limits) {
	if p.present[l]--; p.present[l] == 0 {
		delete(p.present, l)
	}
}

// leave takes a request out that has lost its patience, or whose context has
// ended with a cause. One that was let through meanwhile is returned without an
// error when nobody has left.
func (p *pool) leave(w *waiter, cause error) error {
	p.mu.Lock()
	i := slices.Index(p.waiting, w)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		p.fresh = true
		p.gone(w.limits)
	}
	p.mu.Unlock()
	switch {
	case i < 0 && cause == nil:
		return w.err
	case i < 0 && w.err == nil:
		(&Permit{p, w.Namespace, w.Tokens, w.limits}).Release(Outcome{NotMade: true})
	}
	if cause != nil {
		return cause
	}
	return &Error{p.name, w.patience}
}

// The pauses of a pool.
const (
	soonest  = 5 * time.Millisecond
	latest   = 500 * time.Millisecond // between two looks while somebody waits
	settling = time.Second            // before what nobody waits to hear is told
	awayFor  = 5 * time.Second        // before a store that did not answer is asked again
	answers  = time.Second            // within which a store is to answer
)

// run speaks for the pool until nothing is under way.
func (p *pool) run() {
	for {
		next := p.round()
		if next < 0 {
			return
		}
		timer := time.NewTimer(next)
	pause:
		for {
			select {
			case <-timer.C:
				break pause
			case <-p.wake:
				p.mu.Lock()
				fresh := p.fresh
				p.mu.Unlock()
				if fresh {
					break pause
				}
			}
		}
		timer.Stop()
	}
}

// round says and asks what there is, and returns when to do so again; less than 0
// when nothing is under way.
func (p *pool) round() time.Duration {
	p.mu.Lock()
	idle := len(p.waiting) == 0 && len(p.held) == 0 && p.spent == 0 && p.unmade == 0 && !p.refused
	if idle && (!p.entry.has(p.limiter.Worker) || time.Now().Before(p.away)) {
		p.running, p.fresh = false, false
		p.mu.Unlock()
		return -1
	}
	now := time.Now()
	ask := Ask{Worker: p.limiter.Worker, Now: now, TTL: p.ttl(), Held: make(map[string]int), Spent: p.spent, Unmade: p.unmade}
	for ns, n := range p.held {
		ask.Held[ns] = n
	}
	asked := inTurn(p.waiting, p.entry.Turn)
	for _, w := range asked {
		ask.Waiting = append(ask.Waiting, w.Waiting)
	}
	refused, retryAfter, limits, fresh := p.refused, p.retryAfter, p.least(), p.fresh
	held := p.leastHeld()
	p.fresh, p.refused, p.retryAfter, p.spent, p.unmade = false, false, 0, 0, 0
	p.mu.Unlock()

	say := func(e *Entry, n int64) []time.Duration {
		if refused {
			e.Refuse(now, retryAfter)
		}
		return (&turn{ask: ask, asked: asked, all: limits, held: held, workers: n}).take(e)
	}
	waits, err := p.exchange(say, fresh || refused || ask.Spent != 0 || ask.Unmade != 0 || now.Sub(p.told) >= p.ttl()/3, fresh)
	if err != nil {
		// The share of this worker is its own for a while.
		waits = say(&p.alone, max(1, p.workers))
	}
	return p.settle(asked, waits)
}

func (p *pool) ttl() time.Duration {
	if p.limiter.TTL > 0 {
		return p.limiter.TTL
	}
	return DefaultTTL
}

// has tells whether an entry holds something of a worker.
func (e *Entry) has(worker string) bool {
	_, ok := e.Workers[worker]
	return ok
}

// inTurn puts the waiting requests in an order in which each namespace has its
// turn, and within it the first come is first.
func inTurn(waiting []*waiter, turn int) []*waiter {
	var names []string
	queues := make(map[string][]*waiter)
	for _, w := range waiting {
		if queues[w.Namespace] == nil {
			names = append(names, w.Namespace)
		}
		queues[w.Namespace] = append(queues[w.Namespace], w)
	}
	slices.Sort(names)
	var list []*waiter
	for len(list) < len(waiting) {
		for i := range names {
			name := names[(turn+i)%len(names)]
			if q := queues[name]; len(q) > 0 {
				list, queues[name] = append(list, q[0]), q[1:]
			}
		}
	}
	return list
}

// conflicts is how often in a row an exchange may find that another worker was
// first.
const conflicts = 10

// exchange says and asks at the shared entry. What is not worth an exchange is
// only looked at. An error means that the store is away.
func (p *pool) exchange(say func(e *Entry, workers int64) []time.Duration, worth, guess bool) ([]time.Duration, error) {
	if p.workers == 0 {
		p.workers = UnknownWorkers
	}
	if time.Now().Before(p.away) {
		return nil, errAway
	}
	ctx, cancel := context.WithTimeout(context.Background(), answers)
	defer cancel()
	fail := func(err error) ([]time.Duration, error) {
		p.away, p.known = time.Now().Add(awayFor), false
		return nil, err
	}
	for range conflicts {
		// What was seen last is mostly what stands there: then it is one exchange.
		if !p.known || !guess {
			if err := p.look(ctx); err != nil {
				return fail(err)
			}
		}
		guess = false
		next := p.entry.clone()
		waits := say(&next, 1)
		if !worth && !slices.Contains(waits, 0) {
			return waits, nil
		}
		data, err := json.Marshal(next)
		if err != nil {
			return fail(err)
		}
		revision, err := p.limiter.Store.Swap(ctx, p.key, data, p.revision, forgetAfter)
		if err == nil {
			p.entry, p.revision, p.told = next, revision, time.Now()
			p.seen(next)
			return waits, nil
		}
		if !errors.Is(err, events.ErrConflict) {
			return fail(err)
		}
		if events.Sleep(ctx, time.Duration(rand.Int64N(int64(soonest)))) != nil {
			break
		}
	}
	return fail(errAway)
}

var errAway = errors.New("the store of limits is not asked for now")

// forgetAfter is how long a key that nobody uses is remembered: until its limits
// have recovered, and its buckets are full.
const forgetAfter = 15 * time.Minute

// look reads the shared entry. One that cannot be read is made anew.
func (p *pool) look(ctx context.Context) error {
	data, revision, err := p.limiter.Store.Load(ctx, p.key)
	if err != nil {
		return err
	}
	var e Entry
	if len(data) > 0 && json.Unmarshal(data, &e) != nil {
		e = Entry{}
	}
	p.entry, p.revision, p.known = e, revision, true
	return nil
}

// seen remembers how many share the key, and begins anew what this worker would
// let through without the others.
func (p *pool) seen(e Entry) {
	p.workers, p.alone = int64(max(1, len(e.Workers))), Entry{Share: e.Share, Cut: e.Cut, Blocked: e.Blocked}
	if m := p.limiter.Meter; m != nil {
		m.LimitPercent(p.name, e.Percent(time.Now()))
	}
}

func (e *Entry) clone() Entry {
	next := *e
	next.Taken = maps.Clone(e.Taken)
	next.Workers = make(map[string]Presence, len(e.Workers))
	for name, p := range e.Workers {
		next.Workers[name] = p // replaced as a whole, never changed
	}
	return next
}

// settle hands out what was let through, tells those whose wait is longer than
// their patience, and returns when to look again.
func (p *pool) settle(asked []*waiter, waits []time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, next := time.Now(), latest
	for i, w := range asked {
		at := slices.Index(p.waiting, w)
		switch {
		case waits[i] == 0 && at < 0:
			// It has left: what was let through is given back.
			p.fresh, p.unmade, p.spent = true, p.unmade+1, p.spent-w.Tokens
			continue
		case waits[i] == 0:
			p.held[w.Namespace]++
		case w.late(now, waits[i]) && at >= 0:
			w.err = &Error{p.name, waits[i]}
			p.fresh = true
			p.gone(w.limits)
		default:
			next = min(next, max(waits[i], soonest))
			continue
		}
		p.waiting = slices.Delete(p.waiting, at, at+1)
		close(w.done)
	}
	switch {
	case p.fresh:
		return 0
	case len(p.waiting) > 0:
		return next
	case len(p.held) > 0:
		return p.ttl() / 3
	}
	return settling
}
