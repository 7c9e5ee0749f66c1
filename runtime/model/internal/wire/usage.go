package wire

import "github.com/agentruntime/agentruntime/events"

// maxTokens is more than one request can have, and little enough for sums.
const maxTokens = 1 << 40

// Counted returns what an endpoint reports of one request as a usage that can be
// added and priced: nothing is negative or out of all bounds, and no part is more
// than its whole.
func Counted(u events.Usage) events.Usage {
	bounded := func(n, most int64) int64 { return min(max(n, 0), most) }
	u.Input, u.Output = bounded(u.Input, maxTokens), bounded(u.Output, maxTokens)
	u.Cached, u.Reasoning = bounded(u.Cached, u.Input), bounded(u.Reasoning, u.Output)
	return u
}
