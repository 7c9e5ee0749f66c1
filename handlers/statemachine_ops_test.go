package handlers_test

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events/eventstest"
)

// op is one thing that happens to the service.
type op struct {
	Do   string
	W    int // worker that does it
	A, B int
	cut  *cut
}

// cut is what happens in the middle of an op: at an append, at a model request
// or at a request to a service.
type cut struct {
	On      string // type of the facts that count, or what is requested; everything when empty
	At      int    // counted from 1
	Fault   eventstest.Fault
	Kill    bool
	Between []op // by the other worker
}

// What may happen, as often as it stands here.
var (
	doings = []string{"work", "react", "command", "settle", "fire", "work again", "react again", "command again", "work", "react", "message", "cancel", "start",
		"continue", "fire late", "pass", "kill", "top up", "retry", "silence", "command", "settle"}
	between = []string{"stop", "tell", "rival", "settle", "command", "react", "react", "work", "react again", "cancel", "message", "fire", "pass", "fire late"}
	losses  = []string{"sweep", "lose items", "lose timers", "lose item", "lose leases", "lose signals", "lose snapshots"}
	points  = []string{"", "checkpoint.committed", "run.admitted", request, "run.parked", "run.completed", "run.claimed", "budget.reserved", "child.settled", "cancel.requested"}
	faults  = []eventstest.Fault{eventstest.None, eventstest.LostBefore, eventstest.AnswerLost, eventstest.Late, eventstest.Duplicated, eventstest.Phantom, eventstest.PhantomLate}
)

// request is a request to a model or a service, as the point of a cut.
const request = "request"

func drawOp(of []string) *rapid.Generator[op] {
	return rapid.Custom(func(t *rapid.T) op {
		return op{Do: rapid.SampledFrom(of).Draw(t, "do"), W: rapid.IntRange(0, 1).Draw(t, "w"), A: rapid.IntRange(0, 63).Draw(t, "a"), B: rapid.IntRange(0, 7).Draw(t, "b")}
	})
}

// drawCut draws an op that is cut short now and then: work more often than not.
func drawCut(of []string) *rapid.Generator[op] {
	return rapid.Custom(func(t *rapid.T) op {
		o := drawOp(of).Draw(t, "op")
		if rapid.IntRange(0, 3).Draw(t, "cut") == 3 || o.Do == "work" && rapid.Bool().Draw(t, "cut work") {
			o.cut = &cut{On: rapid.SampledFrom(points).Draw(t, "on"), At: rapid.IntRange(1, 3).Draw(t, "at")}
			if o.cut.On == "" {
				o.cut.At *= rapid.IntRange(1, 4).Draw(t, "times")
			}
			how := rapid.IntRange(0, 3).Draw(t, "how")
			if how%2 == 0 {
				o.cut.Between = rapid.SliceOfN(drawOp(between), 1, 3).Draw(t, "between")
			}
			if how > 0 {
				o.cut.Fault, o.cut.Kill = rapid.SampledFrom(faults).Draw(t, "fault"), rapid.Bool().Draw(t, "kill")
			}
		}
		return o
	})
}

func (o op) String() string {
	s := fmt.Sprintf("%s(w%d %d %d)", o.Do, o.W, o.A, o.B)
	if c := o.cut; c != nil {
		s += fmt.Sprintf(" cut at %s %d: %s, kill %t, between %v", c.On, c.At, c.Fault, c.Kill, c.Between)
	}
	return s
}
