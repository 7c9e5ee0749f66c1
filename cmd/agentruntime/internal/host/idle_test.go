package host

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
)

func TestAnIdleWorkerGivesItsMemoryBackOnceAMinuteAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		freed := 0
		i := &idle{free: func() { freed++ }}
		pass := func(what string, d time.Duration, want int) {
			t.Helper()
			<-time.After(d) // of the test's own clock
			synctest.Wait()
			if freed != want {
				t.Fatalf("%s: memory was given back %d times, not %d", what, freed, want)
			}
		}
		pass("nothing was ever done", time.Hour, 0)
		one, two := i.begin(), i.begin()
		one()
		pass("one of two is under way", time.Hour, 0)
		two()
		pass("not quiet for long enough", freeAfter-time.Millisecond, 0)
		one = i.begin()
		pass("work began in time", time.Hour, 0)
		one()
		pass("quiet", freeAfter+time.Millisecond, 1)
		pass("still quiet", time.Hour, 1)
		i.begin()()
		pass("quiet after some work, long after", freeAfter+time.Millisecond, 2)
		for range 5 {
			i.begin()()
			<-time.After(freeAfter + time.Second)
		}
		pass("a little work now and then within a minute", 0, 2)
		pass("the minute is over", freeEvery, 3)
		i.begin()()
		i.stop()
		pass("the process ends", time.Hour, 3)
	})
}

// item is a work item that counts how it ended.
type item struct{ ended int }

func (*item) Hint() events.Hint                                 { return events.Hint{} }
func (i *item) Ack(context.Context) error                       { i.ended++; return nil }
func (i *item) Later(context.Context, time.Duration) error      { i.ended++; return nil }
func (*item) Working(context.Context) error                     { return nil }
func (i *item) Next(context.Context) (handlers.Delivery, error) { return i, nil }

func TestAWorkItemIsUnderWayUntilItIsAcknowledgedOrGivenBack(t *testing.T) {
	for name, end := range map[string]func(handlers.Delivery) error{
		"acknowledged": func(d handlers.Delivery) error { return d.Ack(t.Context()) },
		"given back":   func(d handlers.Delivery) error { return d.Later(t.Context(), time.Second) },
	} {
		i, q := &idle{free: func() {}}, &item{}
		d, err := attendedQueue{q, i}.Next(t.Context())
		if err != nil || i.under != 1 {
			t.Fatalf("%s: %d under way, %v", name, i.under, err)
		}
		if err := end(d); err != nil || i.under != 0 || q.ended != 1 {
			t.Errorf("%s: %d under way, the item ended %d times, %v", name, i.under, q.ended, err)
		}
		i.stop()
	}
}
