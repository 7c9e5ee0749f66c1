package projector

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// MaxTold is how much is told of the callbacks of one script at most, in bytes.
const MaxTold = 32 << 10

// TellScript is what the model is told of a script whose result is not known: how
// that came, what became of its callbacks, and what to do. The list of callbacks
// has at most the given number of bytes.
func TellScript(how string, list []Callback, most int) string {
	if len(list) == 0 {
		return how + " It made no callback, reads possibly apart: nothing took effect, and it may be run again."
	}
	return how + " Callbacks it made:" + TellCallbacks(list, most) + "\nAnything else was not done, reads possibly apart. " + Advise(list)
}

// TellCallbacks lists in words, for the model, what became of the callbacks of a
// script: one line each, or nothing when there are none. What is too long for so
// many bytes begins with the callbacks whose effect is not known, and ends with
// how many more there are of each kind. What services said stands on one line, so
// that none can write another's.
func TellCallbacks(list []Callback, most int) string {
	order := make([]*Callback, len(list))
	lines := make([]string, len(list))
	results, rest := most/2, most/2
	for i := range list {
		c := &list[i]
		order[i] = c
		what := c.tell()
		if results -= len(what); results < 0 {
			if what = cutTo(what, briefly); c.Done != nil && len(c.Done.Result)+c.Done.Size > 0 {
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
	left := most
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

// Advise says in words, for the model, what to do after a script that did not end
// well, by what became of its callbacks. Whether one that failed took effect is
// told in its own line.
func Advise(list []Callback) string {
	changed, unknown := false, false
	for i := range list {
		c := &list[i]
		unknown = unknown || c.Open()
		changed = changed || c.Changes() && c.Done != nil && c.Done.Outcome != events.OutcomeSkipped
	}
	switch {
	case unknown:
		return "Do not repeat the whole script: what finished has taken effect. What is not known may have taken effect: first find out, by reading, what is there."
	case changed:
		return "Nothing that it did is unknown. Do not repeat the whole script: what finished has taken effect. Go on from there."
	}
	return "None of them has changed anything: the script may be run again."
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
