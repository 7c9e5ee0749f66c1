package handlers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// Delivery is one work item while this process has it.
type Delivery interface {
	Hint() events.Hint

	// Ack ends the work item.
	Ack(ctx context.Context) error

	// Later gives it back, to come again after a while.
	Later(ctx context.Context, delay time.Duration) error

	// Working keeps it from coming again for another ack wait, which is the
	// lease's TTL.
	Working(ctx context.Context) error
}

// Queue delivers work items.
type Queue interface {
	// Next returns the next work item, or an error when ctx ends. Everything
	// else it retries itself.
	Next(ctx context.Context) (Delivery, error)
}

// Models finds the model that a definition names.
type Models interface {
	Model(name string) (runtime.Model, runtime.ModelLimits, error)
}

// Dispatcher is a worker: it takes work items, claims sessions, runs them and
// settles what came of it. Set its fields once, before Run.
type Dispatcher struct {
	*Host
	Worker    string // name and incarnation of this process
	Leases    Leases
	Models    Models
	Executors runtime.ExecutorFactory
	Services  Services
	Carriers  Carriers // of routes that are not NATS

	Tree     TreeLimits
	TTL      time.Duration // of a lease; DefaultTTL when zero
	Slots    int           // runs at a time; DefaultSlots when zero
	Grace    time.Duration // for calls in flight when draining; DefaultGrace when zero
	Requests int           // to models in one run; DefaultRequests when zero
	Fallback time.Duration // how long a model may be unavailable while there is another; DefaultFallback when zero

	// Gone tells that a worker is known to have ended, so that its claim
	// need not be waited out. Optional.
	Gone func(worker string) bool

	mu   sync.Mutex
	busy map[events.Key]bool
	stop chan struct{}
}

// The defaults of a Dispatcher.
const (
	DefaultTTL   = 10 * time.Second
	DefaultSlots = 256
	DefaultGrace = 30 * time.Second
)

// MaxFailures is how many claims may end at one revision without a release and
// without a typed error before the run is set aside.
const MaxFailures = 5

// Run takes work items until ctx ends, and then drains: it takes no more, lets
// calls in flight end within the grace and releases its claims. It returns when
// no run is left in this process. Ending kill ends it without the grace.
func (d *Dispatcher) Run(ctx, kill context.Context, queue Queue) error {
	if d.stop == nil {
		d.Prepare()
	}
	work, cancel := context.WithCancelCause(kill)
	defer cancel(nil)
	slots := make(chan struct{}, d.Slots)
	var running sync.WaitGroup
	for {
		select {
		case <-ctx.Done():
		case slots <- struct{}{}:
		}
		if ctx.Err() != nil {
			break
		}
		delivery, err := queue.Next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				cancel(err)
				running.Wait()
				return fmt.Errorf("take work: %w", err)
			}
			break
		}
		running.Go(func() {
			defer func() { <-slots }()
			d.Attend(work, delivery)
		})
	}
	close(d.stop)
	grace := time.AfterFunc(d.Grace, func() { cancel(errDraining) })
	defer grace.Stop()
	running.Wait()
	return nil
}

// errDraining ends attempts that did not end within the grace.
var errDraining = errors.New("the worker is shutting down")

// Prepare fills in the defaults. Run does it; call it before Attend without Run.
func (d *Dispatcher) Prepare() {
	if d.TTL == 0 {
		d.TTL = DefaultTTL
	}
	if d.Slots == 0 {
		d.Slots = DefaultSlots
	}
	if d.Grace == 0 {
		d.Grace = DefaultGrace
	}
	if d.Fallback == 0 {
		d.Fallback = DefaultFallback
	}
	d.busy = make(map[events.Key]bool)
	d.stop = make(chan struct{})
}

// Draining is closed when the dispatcher has begun to drain.
func (d *Dispatcher) Draining() <-chan struct{} { return d.stop }

// Attend handles one work item to its acknowledgement or its return.
func (d *Dispatcher) Attend(ctx context.Context, delivery Delivery) {
	hint := delivery.Hint()
	after := context.WithoutCancel(ctx)
	if !d.begin(hint.Key) {
		d.giveBack(after, delivery, &BusyError{Retry: d.TTL / 3})
		return
	}
	defer d.end(hint.Key)
	stopWorking := d.keepDelivery(ctx, delivery)
	err := d.attend(ctx, hint)
	stopWorking()
	if err != nil {
		d.giveBack(after, delivery, err)
		return
	}
	if err := delivery.Ack(after); err != nil {
		d.Logger.Debug("a work item was not acknowledged; it comes again", "session", hint.Key.String(), "error", err)
	}
}

// attend counts the attempt to load before it is made: a session that kills
// every worker that reads it is set aside.
func (d *Dispatcher) attend(ctx context.Context, hint events.Hint) error {
	died, err := d.Leases.BeginLoading(ctx, hint.Key, d.Worker)
	if err != nil {
		return err
	}
	if died >= MaxFailures {
		return d.setAside(ctx, hint, died)
	}
	s, facts, err := d.load(ctx, hint.Key, hint.Sequence)
	// Whatever the error is, this worker did not die of it.
	if err := d.Leases.EndLoading(context.WithoutCancel(ctx), hint.Key, d.Worker, err == nil); err != nil {
		return err
	}
	if errors.Is(err, events.ErrErased) {
		return nil // there is nothing to do, and never will be
	}
	if err != nil {
		return err
	}
	return d.appender().Attend(ctx, hint, &errand{d: d, Session: s, facts: facts})
}

// PoisonError reports a session that workers died of loading. It stays as it
// is; the work item rests and is tried again when the deaths are forgotten.
type PoisonError struct {
	Key    events.Key
	Deaths int
}

func (e *PoisonError) Error() string {
	return fmt.Sprintf("%d workers died while loading session %s; it is set aside", e.Deaths, e.Key)
}

// setAside keeps a dead letter that tells of the session. The work item is not
// acknowledged: the session has not ended.
func (d *Dispatcher) setAside(ctx context.Context, hint events.Hint, deaths int) error {
	poison := &PoisonError{hint.Key, deaths}
	data, err := events.Marshal(hint)
	if err != nil {
		return err
	}
	if err := d.bury(ctx, hint.Key.Namespace, "poison", nil, data, poison); err != nil {
		return err
	}
	return poison
}

// Carry does what there is to do for a session, as a work item would.
func (d *Dispatcher) Carry(ctx context.Context, key events.Key) error {
	return d.attend(ctx, events.Hint{Key: key})
}

// begin reserves a session in this process.
func (d *Dispatcher) begin(key events.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy[key] {
		return false
	}
	d.busy[key] = true
	return true
}

func (d *Dispatcher) end(key events.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.busy, key)
}

// keepDelivery keeps the work item from coming again while it is worked on.
func (d *Dispatcher) keepDelivery(ctx context.Context, delivery Delivery) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(d.TTL / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = delivery.Working(ctx) // coming again early is harmless
			}
		}
	}()
	return func() { cancel(); <-done }
}

// BusyError is an ErrBusy that says when to look again.
type BusyError struct {
	Worker string
	Retry  time.Duration
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%v (worker %s); look again in %s", events.ErrBusy, e.Worker, e.Retry)
}

func (e *BusyError) Unwrap() error { return events.ErrBusy }

// How long a work item rests after an error, by what went wrong.
const (
	restFenced  = 100 * time.Millisecond
	restFailed  = time.Second
	restBlocked = 30 * time.Second // nothing this process does will help
	restPoison  = 10 * time.Minute
)

// giveBack returns a work item with a delay that fits the error.
func (d *Dispatcher) giveBack(ctx context.Context, delivery Delivery, cause error) {
	rest := restFailed
	var (
		busy     *BusyError
		damage   *events.DamageError
		unknown  *projector.UnknownFactError
		contract *runtime.ContractError
		missing  *MissingVersionError
		poison   *PoisonError
		sealed   *KeyError
	)
	log := d.Logger.With("session", delivery.Hint().Key.String())
	switch {
	case errors.As(cause, &busy):
		rest = max(busy.Retry, restFenced)
	case errors.Is(cause, events.ErrFenced), errors.Is(cause, runtime.ErrStopped), errors.Is(cause, errDraining):
		rest = restFenced
	case errors.As(cause, &poison):
		rest = restPoison
		d.Meter.AttemptEnded("poison")
		log.Error("a session is set aside", "error", cause)
	case errors.As(cause, &damage), errors.As(cause, &unknown), errors.As(cause, &contract), errors.As(cause, &missing), errors.As(cause, &sealed):
		rest = restBlocked
		d.Meter.AttemptEnded("blocked")
		log.Error("a session cannot be carried on by this worker", "error", cause)
	default:
		log.Warn("a work item is put back", "error", cause)
	}
	if err := delivery.Later(ctx, rest); err != nil {
		log.Debug("a work item was not put back; it comes again after its ack wait", "error", err)
	}
}
