package host

import (
	"context"
	"sync"
	"time"

	"github.com/agentruntime/agentruntime/handlers"
)

// idle gives the memory that the process does not use back to the system once
// nothing has been under way for a while. The collector alone keeps what a burst
// of work needed, up to as much again as is live, and hands it back only slowly:
// runs that wait would seem to occupy what it took to begin them. While there is
// work it does nothing, since that memory would be asked for again at once.
type idle struct {
	free func() // runs a collection and gives back what it leaves unused

	mu    sync.Mutex
	under int         // pieces of work under way
	timer *time.Timer // set when the last one ended
	freed time.Time
}

// freeAfter is how long nothing must have been under way, and freeEvery the least
// time between two collections for this reason.
const (
	freeAfter = 5 * time.Second
	freeEvery = time.Minute
)

// begin notes that a piece of work is under way until end is called, once.
func (i *idle) begin() (end func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.under++
	if i.timer != nil {
		i.timer.Stop()
	}
	return i.end
}

func (i *idle) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.under--; i.under > 0 {
		return
	}
	wait := max(freeAfter, time.Until(i.freed.Add(freeEvery)))
	if i.timer == nil {
		i.timer = time.AfterFunc(wait, i.give)
		return
	}
	i.timer.Reset(wait)
}

// give frees, unless work began while the timer fired.
func (i *idle) give() {
	i.mu.Lock()
	busy := i.under > 0
	if !busy {
		i.freed = time.Now()
	}
	i.mu.Unlock()
	if !busy {
		i.free()
	}
}

// stop keeps what is idle from being given back any more: the process ends.
func (i *idle) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.under++ // for good
	if i.timer != nil {
		i.timer.Stop()
	}
}

// attended is a work item that is under way until it is acknowledged or given
// back.
type attended struct {
	handlers.Delivery
	end func()
}

// Ack implements handlers.Delivery.
func (d attended) Ack(ctx context.Context) error {
	defer d.end()
	return d.Delivery.Ack(ctx)
}

// Later implements handlers.Delivery.
func (d attended) Later(ctx context.Context, delay time.Duration) error {
	defer d.end()
	return d.Delivery.Later(ctx, delay)
}

// attendedQueue is a queue whose work items count as work under way.
type attendedQueue struct {
	handlers.Queue
	idle *idle
}

// Next implements handlers.Queue.
func (q attendedQueue) Next(ctx context.Context) (handlers.Delivery, error) {
	d, err := q.Queue.Next(ctx)
	if err != nil {
		return nil, err
	}
	return attended{d, q.idle.begin()}, nil
}

// sweepAll is one sweep, which counts as work under way.
func (k *keeper) sweepAll(ctx context.Context, w *handlers.Sweeper) (handlers.Swept, error) {
	swept, err := w.Sweep(ctx)
	if swept.Hinted > 0 || swept.Told > 0 {
		k.idle.begin()() // a sweep that finds nothing to do is no work
	}
	return swept, err
}
