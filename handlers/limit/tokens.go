package limit

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// head is the request of a namespace that a worker lets through next.
type head struct {
	start     int64     // of its namespace, see Entry.start
	since     time.Time // when it became the next
	namespace string
	worker    string
	need      float64 // tokens that must be in the bucket
}

// before orders the heads of all workers: they all see the same order.
func (h *head) before(other *head) bool {
	return cmp.Or(cmp.Compare(h.start, other.start), h.since.Compare(other.since), cmp.Compare(h.namespace, other.namespace), cmp.Compare(h.worker, other.worker)) < 0
}

// start is how many tokens a namespace has had, as far as that counts: one that
// asked for nothing for a while has saved nothing by it.
func (e *Entry) start(namespace string) int64 { return max(e.Served, e.Taken[namespace]) }

// charge notes that a request of a namespace was let through.
func (e *Entry) charge(namespace string, tokens int64) {
	e.Served = e.start(namespace)
	if e.Taken == nil {
		e.Taken = make(map[string]int64)
	}
	e.Taken[namespace] = e.Served + max(1, tokens)
}

// shareTokens lets requests through, each by try: next is the namespace that has
// had the fewest tokens, and in it the first that came. What does not fit yet
// keeps the tokens that are there from everything that is after it, here and at
// other workers. One whose namespace has its share of what else is limited keeps
// none.
func (e *Entry) shareTokens(a *Ask, g *grantor, since map[string]time.Time, try func(i int) bool) {
	queues := make(map[string][]int)
	for i, w := range a.Waiting {
		queues[w.Namespace] = append(queues[w.Namespace], i)
	}
	elsewhere := e.elsewhere(a.Worker, g)
	for len(queues) > 0 {
		var next *head
		for ns, q := range queues {
			if h := (&head{e.start(ns), since[ns], ns, a.Worker, g.need(a.Waiting[q[0]].Tokens)}); next == nil || h.before(next) {
				next = h
			}
		}
		ns := next.namespace
		q, open := queues[ns], g.allowed[ns] > 0
		g.elsewhere = 0
		for i := range elsewhere {
			h := elsewhere[i]
			if h.start = e.start(h.namespace); h.before(next) {
				g.elsewhere += h.need
			}
		}
		if try(q[0]) {
			e.charge(ns, a.Waiting[q[0]].Tokens)
			since[ns] = a.Now
			if queues[ns] = q[1:]; len(q) == 1 {
				delete(queues, ns)
			}
			continue
		}
		if open {
			g.kept += next.need
		}
		g.allowed[ns] = 0 // none overtakes it
		for _, i := range q[1:] {
			try(i)
		}
		delete(queues, ns)
	}
	maps.DeleteFunc(e.Taken, func(_ string, taken int64) bool { return taken <= e.Served })
}

// elsewhere returns the heads of the other workers that wait for tokens.
func (e *Entry) elsewhere(worker string, g *grantor) (list []head) {
	for _, name := range slices.Sorted(maps.Keys(e.Workers)) {
		for ns, s := range e.Workers[name].Spaces {
			if name != worker && s.Waiting > 0 && g.allowed[ns] > 0 {
				list = append(list, head{since: s.Since, namespace: ns, worker: name, need: g.need(s.First)})
			}
		}
	}
	return list
}
