package projector

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// The bounds of what is told of the callbacks of one script, in bytes.
const (
	maxTold  = 16 << 10 // results and texts; beyond it only their begin
	maxLines = 16 << 10 // what a line says besides; beyond it lines are counted
)

// TellCallbacks lists in words, for the model, what became of the callbacks of a
// script: one line each, or nothing when there are none. A list that is too long
// begins with those whose effect is not known, and ends with how many more there
// are of each kind.
func TellCallbacks(list []Callback) string {
	order := make([]*Callback, len(list))
	lines := make([]string, len(list))
	results, rest := maxTold, maxLines
	for i := range list {
		c := &list[i]
		order[i] = c
		what := c.tell()
		if results -= len(what); results < 0 {
			if what = cutTo(what, briefly); c.Done != nil && c.Done.Outcome == events.OutcomeOK {
				what = "finished; its result is left out here"
			}
			rest -= len(what)
		}
		lines[i] = fmt.Sprintf("\n%d. %s: %s", c.Index+1, c.Capability, what)
		rest -= len(lines[i]) - len(what)
	}
	if rest >= 0 {
		return strings.Join(lines, "")
	}
	slices.SortStableFunc(order, func(a, b *Callback) int { return cmp.Compare(a.rank(), b.rank()) })
	var b strings.Builder
	left := maxTold + maxLines
	var more [len(kinds)]int
	for _, c := range order {
		what := cutTo(c.tell(), briefly)
		line := fmt.Sprintf("\n%d. %s: %s", c.Index+1, c.Capability, what)
		if left -= len(line); left < 0 {
			more[c.rank()]++
			continue
		}
		b.WriteString(line)
	}
	for rank, n := range more {
		if n > 0 {
			fmt.Fprintf(&b, "\nAnd %d more: %s.", n, kinds[rank])
		}
	}
	return b.String()
}

// kinds are what callbacks came to, the most important first.
var kinds = [...]string{"not known whether they took effect", "failed", "finished", "not made", "reads that were under way"}

// rank is the place of a callback's kind.
func (c *Callback) rank() int {
	switch {
	case c.Open():
		return 0
	case c.Done == nil || c.Done.Outcome == events.OutcomeUnknown:
		return 4
	case c.Done.Outcome == events.OutcomeOK:
		return 2
	case c.Done.Outcome == events.OutcomeSkipped:
		return 3
	}
	return 1
}
