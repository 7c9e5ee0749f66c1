package limit

import (
	"maps"
	"slices"
	"time"
)

// Limits are what a key may have. A zero bounds nothing.
type Limits struct {
	Concurrent        int   `json:"concurrent,omitempty"` // requests under way
	RequestsPerMinute int   `json:"requests,omitempty"`   // begun
	TokensPerMinute   int64 `json:"tokens,omitempty"`     // sent and received
}

// None reports whether nothing is limited.
func (l Limits) None() bool { return l == Limits{} }

// part returns n of d of the limits, and of what is limited at least one.
func (l Limits) part(n, d int64) Limits {
	of := func(v int64) int64 {
		if v == 0 {
			return 0
		}
		return max(1, v*n/d)
	}
	return Limits{int(of(int64(l.Concurrent))), int(of(int64(l.RequestsPerMinute))), of(l.TokensPerMinute)}
}

// Least returns the stricter one of two limits in each respect.
func Least(a, b Limits) Limits {
	return Limits{int(least(int64(a.Concurrent), int64(b.Concurrent))), int(least(int64(a.RequestsPerMinute), int64(b.RequestsPerMinute))), least(a.TokensPerMinute, b.TokensPerMinute)}
}

func least(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Entry is what all workers know of one key. The zero value is that of a key
// nobody has used.
type Entry struct {
	Requests Bucket              `json:"requests,omitzero"`
	Tokens   Bucket              `json:"tokens,omitzero"`
	Share    int64               `json:"share,omitempty"`   // percent of the limits that was left at Cut
	Cut      time.Time           `json:"cut,omitzero"`      // when the limits were lowered last
	Blocked  time.Time           `json:"blocked,omitzero"`  // nobody asks before
	Turn     int                 `json:"turn,omitempty"`    // counts what was let through
	Taken    map[string]int64    `json:"taken,omitempty"`   // tokens of the namespaces that have had more than Served
	Served   int64               `json:"served,omitempty"`  // tokens that the namespace had which was let through last
	Workers  map[string]Presence `json:"workers,omitempty"` // by name and incarnation
}

// Presence is what one worker says of itself.
type Presence struct {
	Until  time.Time        `json:"until"` // it counts no longer after
	Spaces map[string]Space `json:"spaces,omitempty"`
	Limits Limits           `json:"limits,omitzero"` // the strictest of what it has
}

// Space is what a worker has of one namespace.
type Space struct {
	Held    int       `json:"held,omitempty"`
	Waiting int       `json:"waiting,omitempty"`
	First   int64     `json:"first,omitempty"` // tokens of the first that waits, where tokens are limited
	Since   time.Time `json:"since,omitzero"`  // when it became the first
}

// The steps of the limits that prove too high, as the package comment has them.
const (
	leastShare   = 10
	cutTo        = 70
	cutOnceIn    = 5 * time.Second
	recoverEvery = 10 * time.Second
	recoverBy    = 5
)

// Percent returns how much of the limits is in use now.
func (e *Entry) Percent(now time.Time) int64 {
	if e.Share == 0 {
		return 100
	}
	return min(100, e.Share+max(0, int64(now.Sub(e.Cut)/recoverEvery))*recoverBy)
}

// Refuse notes that the other side refused requests because of its limits, and
// for how long it asked for patience.
func (e *Entry) Refuse(now time.Time, retryAfter time.Duration) {
	if e.Share == 0 || now.Sub(e.Cut) >= cutOnceIn {
		e.Share, e.Cut = max(leastShare, e.Percent(now)*cutTo/100), now
	}
	if until := now.Add(retryAfter); retryAfter > 0 && until.After(e.Blocked) {
		e.Blocked = until
	}
}

// Waiting is one request that asks to be let through.
type Waiting struct {
	Namespace string
	Tokens    int64 // that it will take, as far as can be known
}

// Ask is what a worker says and asks, at one time.
type Ask struct {
	Worker  string
	Now     time.Time
	TTL     time.Duration
	Held    map[string]int // requests under way, by namespace
	Waiting []Waiting      // the first come first
	Spent   int64          // tokens beyond those that were asked for; negative: fewer
	Unmade  int            // requests that were let through and never made
}

// Take lets through what may be under the limits of the worker and of every other
// that has something of the key, and notes what the worker says of itself. It
// returns for each waiting request 0 when it is let through, and otherwise after
// how long it may be, as far as that is known: 0 < wait.
func (e *Entry) Take(l Limits, a *Ask) []time.Duration {
	own := l
	for name, p := range e.Workers {
		switch {
		case !p.Until.After(a.Now):
			delete(e.Workers, name)
		case name != a.Worker:
			l = Least(l, p.Limits)
		}
	}
	e.Requests.under(int64(l.RequestsPerMinute), a.Now)
	e.Tokens.under(l.TokensPerMinute, a.Now)
	l = l.part(e.Percent(a.Now), 100)
	if e.Workers == nil {
		e.Workers = make(map[string]Presence)
	}
	spaces, since := make(map[string]Space), make(map[string]time.Time)
	for ns, n := range a.Held {
		spaces[ns] = Space{Held: n}
	}
	for _, w := range a.Waiting {
		s := spaces[w.Namespace]
		if s.Waiting++; s.Waiting == 1 && l.TokensPerMinute > 0 {
			if s.First, s.Since = w.Tokens, e.Workers[a.Worker].Spaces[w.Namespace].Since; s.Since.IsZero() {
				s.Since = a.Now
			}
			since[w.Namespace] = s.Since
		}
		spaces[w.Namespace] = s
	}
	e.Workers[a.Worker] = Presence{a.Now.Add(a.TTL), spaces, own}
	e.Requests.Lacks = max(0, e.Requests.Lacks-float64(a.Unmade))
	if l.TokensPerMinute > 0 {
		e.Tokens.Lacks = max(0, e.Tokens.Lacks+float64(a.Spent))
	}
	g := e.grantor(l, a.Now)
	waits := make([]time.Duration, len(a.Waiting))
	try := func(i int) bool {
		w := a.Waiting[i]
		if waits[i] = g.wait(w); waits[i] > 0 {
			return false
		}
		s := spaces[w.Namespace]
		s.Held, s.Waiting = s.Held+1, s.Waiting-1
		spaces[w.Namespace] = s
		e.Turn++
		if l.RequestsPerMinute > 0 {
			e.Requests.Lacks++
		}
		if l.TokensPerMinute > 0 {
			e.Tokens.Lacks += float64(w.Tokens)
		}
		return true
	}
	if l.TokensPerMinute > 0 {
		e.shareTokens(a, g, since, try)
		first(spaces, since, a.Waiting, waits)
	} else {
		for i := range a.Waiting {
			try(i)
		}
	}
	maps.DeleteFunc(spaces, func(_ string, s Space) bool { return s == Space{} })
	if len(spaces) == 0 {
		delete(e.Workers, a.Worker)
	}
	return waits
}

// first notes which requests are the first that still wait.
func first(spaces map[string]Space, since map[string]time.Time, waiting []Waiting, waits []time.Duration) {
	for ns, s := range spaces {
		s.First, s.Since = 0, time.Time{}
		for i, w := range waiting {
			if w.Namespace == ns && waits[i] > 0 {
				s.First, s.Since = w.Tokens, since[ns]
				break
			}
		}
		spaces[ns] = s
	}
}

// grantor lets requests through, each namespace its share.
type grantor struct {
	limits   Limits
	blocked  time.Duration
	requests float64 // in the bucket
	tokens   float64
	allowed  map[string]int // by namespace
	ahead    int            // requests that must wait before the next that must
	before   float64        // tokens of these

	kept      float64 // tokens for what does not fit yet
	elsewhere float64 // tokens for what other workers let through before
}

func (e *Entry) grantor(l Limits, now time.Time) *grantor {
	all := make(map[string]Space)
	held, waiting := 0, 0
	for _, p := range e.Workers {
		for ns, s := range p.Spaces {
			t := all[ns]
			all[ns] = Space{Held: t.Held + s.Held, Waiting: t.Waiting + s.Waiting}
			held, waiting = held+s.Held, waiting+s.Waiting
		}
	}
	g := &grantor{limits: l, blocked: e.Blocked.Sub(now), allowed: make(map[string]int)}
	names := slices.Sorted(maps.Keys(all))
	most := waiting // that the rates let through
	if l.RequestsPerMinute > 0 {
		g.requests = e.Requests.level(int64(l.RequestsPerMinute), now)
		most = min(most, int(max(0, g.requests)))
	}
	if l.TokensPerMinute > 0 {
		g.tokens = e.Tokens.level(l.TokensPerMinute, now)
	}
	if l.Concurrent > 0 {
		most = min(most, max(0, l.Concurrent-held))
	}
	wants, slots := make([]int, len(names)), make([]int, len(names))
	for i, ns := range names {
		wants[i], slots[i] = all[ns].Waiting, all[ns].Waiting+all[ns].Held
	}
	if l.Concurrent > 0 {
		// The slots are divided with those that are held.
		for i, n := range divide(l.Concurrent, slots, e.Turn) {
			wants[i] = min(wants[i], max(0, n-all[names[i]].Held))
		}
	}
	for i, n := range divide(most, wants, e.Turn) {
		g.allowed[names[i]] = n
	}
	return g
}

// unknownWait is when a request is looked at again whose wait cannot be computed:
// it waits for others to end, or for its turn.
const unknownWait = 100 * time.Millisecond

// wait lets a request through, or returns how long it has to wait.
func (g *grantor) wait(w Waiting) time.Duration {
	fits := g.blocked <= 0 && g.allowed[w.Namespace] > 0
	if g.limits.RequestsPerMinute > 0 && g.requests < 1 {
		fits = false
	}
	if g.limits.TokensPerMinute > 0 && g.tokens < g.kept+g.elsewhere+g.need(w.Tokens) {
		fits = false
	}
	if fits {
		g.allowed[w.Namespace]--
		g.requests--
		g.tokens -= float64(w.Tokens)
		return 0
	}
	g.ahead, g.before = g.ahead+1, g.before+float64(w.Tokens)
	wait := max(g.blocked, unknownWait)
	if n := float64(g.limits.RequestsPerMinute); n > 0 {
		wait = max(wait, minutes((float64(g.ahead)-g.requests)/n))
	}
	if n := float64(g.limits.TokensPerMinute); n > 0 {
		wait = max(wait, minutes((g.elsewhere+g.before-float64(w.Tokens)+g.need(w.Tokens)-g.tokens)/n))
	}
	return wait
}

// need is how many tokens must be in the bucket for a request: what is larger than
// the bucket goes through when that is full.
func (g *grantor) need(tokens int64) float64 {
	return min(float64(tokens), size(g.limits.TokensPerMinute))
}

func minutes(n float64) time.Duration {
	return time.Duration(min(max(n, 0), 24*60) * float64(time.Minute))
}

// divide gives each demand an equal part of n, and what one does not take to the
// others. What does not divide goes to those whose turn it is.
func divide(n int, demands []int, turn int) []int {
	parts := make([]int, len(demands))
	for n > 0 {
		var open []int
		for i := range demands {
			if parts[i] < demands[i] {
				open = append(open, i)
			}
		}
		if len(open) == 0 {
			break
		}
		each := n / len(open)
		if each == 0 {
			for i := range n {
				parts[open[(turn+i)%len(open)]]++
			}
			break
		}
		for _, i := range open {
			part := min(each, demands[i]-parts[i])
			parts[i], n = parts[i]+part, n-part
		}
	}
	return parts
}
