package runtime

import (
	"fmt"
	"slices"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// keptResult is how much of a result is left whatever room there is, in bytes: a
// result within it is never cut.
const keptResult = 2 << 10

// fit cuts the text of call k's result when it is more than the window has room
// for: the task and the newest step are never left out of a request, so a result
// that does not fit beside them would end the run. What is left is shared with the
// calls that are still to be made. The result says what was left out of it.
func (l *loop) fit(c *projector.Checkpoint, k int, o *outcome, message func() events.Message) {
	whole := o.text
	if len(whole) <= keptResult {
		return
	}
	window := slices.Concat(l.window, c.Append)
	task := max(taskIn(window, c.Task), 0)
	step := slices.Concat(window[task:task+1], window[keptFrom(window, task, 1):])
	without := l.size(step)
	r := l.roomFor(0)
	left := r.trigger - r.summary - without
	for _, later := range c.Calls[k+1:] {
		if later.State == events.CallPending {
			left -= left / 2
			break
		}
	}
	for keep := len(whole); ; {
		size := l.size(append(slices.Clip(step), message())) - without
		if size <= left || keep <= keptResult {
			return
		}
		keep = max(int(int64(keep)*max(left, 0)/size*9/10), keptResult)
		if o.brief != nil {
			o.text = redactText(l.in.Redactor, o.brief(keep))
			continue
		}
		o.text = cutMiddle(whole, keep) + fmt.Sprintf("\n\nNotice: this result had %d bytes, more than there is room for, and was cut in its middle. Ask for less at a time, or have a script work on it and return what counts.", len(whole))
	}
}
