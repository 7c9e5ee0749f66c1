package limit

import (
	"maps"
	"slices"
	"time"
)

// turn is what one worker asks at one time, of an entry or of its own share.
type turn struct {
	ask     Ask
	asked   []*waiter // as ask.Waiting has them
	all     Limits    // the strictest of all that wait or are held
	held    Limits    // of these the strictest that are held
	workers int64     // that share the limits without knowing of each other; 1 for the entry
}

// late reports whether a wait is known to outlast the patience.
func (w *waiter) late(now time.Time, wait time.Duration) bool {
	return wait > unknownWait && now.Add(wait).After(w.until)
}

// take is Entry.Take without those whom their own limits, with those that are held,
// make wait for longer than their patience: they are to leave, and neither the
// others nor other workers are held to limits that leave with them. Of all that are
// to leave it returns how long they would wait by their own limits, or little more
// than their patience when these would let them wait: what others make them wait may
// be over long before it is computed to be.
func (t *turn) take(e *Entry) []time.Duration {
	leaving := make(map[int]time.Duration)
	for {
		rest := t.without(leaving)
		next := e.clone()
		waits, leave := rest.try(&next), make(map[int]time.Duration)
		under := map[Limits][]time.Duration{rest.all: slices.Clone(waits)}
		late := func(w *waiter, at int, l Limits) bool {
			if under[l] == nil {
				trial, other := e.clone(), *rest
				other.all = l
				under[l] = other.try(&trial)
			}
			return w.late(t.ask.Now, under[l][at])
		}
		at := 0
		for i, w := range t.asked {
			if _, left := leaving[i]; left {
				continue
			}
			if late(w, at, rest.all) {
				if late(w, at, w.limits) {
					waits[at] = under[w.limits][at]
				} else {
					waits[at] = min(waits[at], w.patience+1)
				}
				if late(w, at, Least(t.held, w.limits)) {
					leave[i] = waits[at]
				}
			}
			at++
		}
		if len(leave) > 0 {
			maps.Copy(leaving, leave)
			continue
		}
		*e = next
		for _, i := range slices.Sorted(maps.Keys(leaving)) {
			waits = slices.Insert(waits, i, leaving[i])
		}
		return waits
	}
}

// without returns the turn without those that leave. When nobody is left, their
// limits count once more.
func (t *turn) without(leaving map[int]time.Duration) *turn {
	if len(leaving) == 0 {
		return t
	}
	rest := *t
	rest.ask.Waiting, rest.asked = nil, nil
	least := t.held
	for i, w := range t.asked {
		if _, left := leaving[i]; !left {
			rest.ask.Waiting, rest.asked = append(rest.ask.Waiting, w.Waiting), append(rest.asked, w)
			least = Least(least, w.limits)
		}
	}
	if !least.None() {
		rest.all = least
	}
	return &rest
}

// try takes under the turn's limits.
func (t *turn) try(e *Entry) []time.Duration {
	l := t.all
	if t.workers > 1 {
		l = l.part(1, t.workers)
	}
	return e.Take(l, &t.ask)
}
