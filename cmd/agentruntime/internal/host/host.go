// Package host puts the service together: the handlers over the streams and
// stores of one connection, and the roles a process plays.
package host

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/limit"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/runtime"
)

// Options are what a process decides about its host.
type Options struct {
	Conn      *jetstream.Conn
	Logger    *slog.Logger
	Meter     handlers.Meter
	Redactor  runtime.Redactor
	Wrapping  []handlers.WrappingKey // of the keys of sessions, the newest first; none: new facts stay plain
	Models    handlers.Models
	Prices    handlers.Prices
	Executors runtime.ExecutorFactory
	Carriers  handlers.Carriers
	// EndRoutes ends what the carriers have begun, and with it calls that outlast the
	// grace of a drain. It may be called before Run returns and again later. Optional.
	EndRoutes func()
	Policies  handlers.Policies // see handlers.Host
	Limits    *limit.Limiter    // see NewLimiter
	Version   string

	Worker string                   // name and incarnation
	Gone   func(worker string) bool // see handlers.Dispatcher
	TTL    time.Duration            // of leases, in whole seconds; handlers.DefaultTTL when zero
	Slots  int                      // runs at a time; handlers.DefaultSlots when zero
	Grace  time.Duration            // when draining; handlers.DefaultGrace when zero
	Tree   handlers.TreeLimits

	Requests int           // to models in one run; handlers.DefaultRequests when zero
	Fallback time.Duration // see handlers.Dispatcher

	Sweep    time.Duration // between two sweeps of the keeper; DefaultSweep when zero
	Unkept   bool          // this process never becomes the keeper
	ListPath string        // file of the list of runs; in memory when empty
	Stuck    func(n int)   // told, as keeper, how many runs nothing will wake; optional

	// FreeMemory gives the memory that the process does not use back to the
	// system. It is called when nothing was under way for some seconds, at most
	// once a minute; debug.FreeOSMemory when nil.
	FreeMemory func()
}

// DefaultSweep is the time between two sweeps.
const DefaultSweep = time.Minute

// Host is one process of the service.
type Host struct {
	*handlers.Host
	options    Options
	log        *jetstream.Log
	leases     *leases
	work       *jetstream.Work
	commands   *jetstream.Commands
	public     *jetstream.Public
	timers     *jetstream.Timers
	dispatcher *handlers.Dispatcher
	api        *handlers.API
	keeper     *keeper
	idle       *idle
	ready      chan struct{}
}

// New puts a host together. Nothing runs yet.
func New(o Options) *Host {
	if o.TTL == 0 {
		o.TTL = handlers.DefaultTTL
	}
	log := &jetstream.Log{Conn: o.Conn}
	objects := &jetstream.Objects{Conn: o.Conn}
	public := &jetstream.Public{Conn: o.Conn}
	work := &jetstream.Work{Conn: o.Conn, TTL: o.TTL}
	t := &jetstream.Timers{Conn: o.Conn}
	vault := &handlers.Vault{Keys: &jetstream.Keys{Conn: o.Conn}, Wrapping: o.Wrapping, Random: rand.Reader, Now: time.Now}
	shared := &handlers.Host{
		Log: handlers.Inline{Log: log, Objects: objects, Vault: vault}, Stored: log, Vault: vault, Objects: objects,
		Ledger: &jetstream.Log{Conn: o.Conn, Family: jetstream.FamilyBudget}, Timers: timers{t}, Signals: &jetstream.Signals{Conn: o.Conn},
		Definitions: definitions{&jetstream.Definitions{Conn: o.Conn}}, Snapshots: handlers.SealedSnapshots{Snapshots: snapshots{&jetstream.Snapshots{Conn: o.Conn}}, Vault: vault},
		Work: work, Public: public, Dead: dead{&jetstream.Dead{Conn: o.Conn}}, Redactor: o.Redactor, Prices: o.Prices,
		Policies: o.Policies, Limits: o.Limits, Now: time.Now, NewID: rand.Text, Pause: events.Sleep, Logger: o.Logger, Meter: o.Meter,
	}
	l := newLeases(o.Conn, o.TTL)
	if o.Sweep == 0 {
		o.Sweep = DefaultSweep
	}
	if o.FreeMemory == nil {
		o.FreeMemory = debug.FreeOSMemory
	}
	rest := &idle{free: o.FreeMemory}
	return &Host{Host: shared, options: o, log: log, leases: l, work: work, idle: rest, timers: t, public: public, ready: make(chan struct{}),
		commands: &jetstream.Commands{Conn: o.Conn}, api: &handlers.API{Host: shared, Lister: List{o.Conn}, Notes: l},
		keeper: &keeper{host: shared, conn: o.Conn, log: log, leases: l, ttl: o.TTL, interval: o.Sweep, worker: o.Worker, path: o.ListPath, gone: o.Gone, meter: o.Stuck, idle: rest},
		dispatcher: &handlers.Dispatcher{Host: shared, Worker: o.Worker, Leases: l, Models: o.Models, Executors: o.Executors,
			Services: services{o.Conn}, Carriers: o.Carriers, Tree: o.Tree, TTL: o.TTL, Slots: o.Slots, Grace: o.Grace, Requests: o.Requests, Fallback: o.Fallback, Gone: o.Gone}}
}

// Ready is closed when every role has begun and requests reach the API.
func (h *Host) Ready() <-chan struct{} { return h.ready }

// Run plays every role until ctx ends, and then drains. Ending kill ends it
// without the grace. It returns the first error that ends a role.
func (h *Host) Run(ctx, kill context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(kill, func() { cancel(nil) })()
	// The watch and the API outlive the drain: runs end meanwhile.
	support, endSupport := context.WithCancel(kill)
	defer endSupport()
	var roles, supporting sync.WaitGroup
	play := func(group *sync.WaitGroup, f func() error) {
		group.Go(func() {
			if err := f(); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	play(&supporting, func() error { h.leases.watch.Run(support); return nil })
	play(&supporting, func() error { return h.serve(support) })
	play(&roles, func() error { return h.admitAll(ctx) })
	for shard := range h.options.Conn.Layout().Shards {
		play(&roles, func() error { return h.react(ctx, shard) })
	}
	play(&roles, func() error { return h.fire(ctx) })
	play(&roles, func() error { return h.keeper.sweepOnce(ctx) })
	if h.options.Unkept {
		play(&roles, func() error { return h.keeper.sweepNowAndThen(ctx) })
	} else {
		play(&roles, func() error { return h.keeper.run(ctx) })
	}
	defer h.idle.stop()
	drained := make(chan struct{})
	supporting.Go(func() { h.endRoutes(ctx, kill, drained) })
	err := h.dispatcher.Run(ctx, kill, attendedQueue{queue{h.work}, h.idle})
	close(drained)
	roles.Wait()
	endSupport()
	supporting.Wait()
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

// endRoutes ends the routes when the grace does, unless the drain is over before.
func (h *Host) endRoutes(ctx, kill context.Context, drained <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-drained:
		return
	}
	grace := time.NewTimer(cmp.Or(h.options.Grace, handlers.DefaultGrace))
	defer grace.Stop()
	select {
	case <-grace.C:
	case <-kill.Done():
	case <-drained:
		return
	}
	if h.options.EndRoutes != nil {
		h.options.EndRoutes()
	}
}

// retryPause is the pause after a role's step has failed.
const retryPause = time.Second

// follow repeats one step until ctx ends. Its errors are said and tried again.
func (h *Host) follow(ctx context.Context, role string, step func(context.Context) error) error {
	for ctx.Err() == nil {
		if err := step(ctx); err != nil && ctx.Err() == nil {
			h.Logger.Warn("a step failed and is made again", "role", role, "error", err)
			_ = events.Sleep(ctx, retryPause)
		}
	}
	return nil
}

// maxCommands is how many commands are carried out at a time: one that waits
// for its shard holds up no other. commandTimeout bounds each, below the time
// after which the stream hands it out again.
const (
	maxCommands    = 32
	commandTimeout = 20 * time.Second
)

// admitAll carries out commands until ctx ends.
func (h *Host) admitAll(ctx context.Context) error {
	slots := make(chan struct{}, maxCommands)
	var open sync.WaitGroup
	defer open.Wait()
	return h.follow(ctx, "commands", func(ctx context.Context) error {
		c, err := h.commands.Next(ctx)
		if err != nil {
			return err
		}
		slots <- struct{}{}
		open.Go(func() {
			defer func() { <-slots }()
			h.admit(ctx, c)
		})
		return nil
	})
}

// admit carries out one command.
func (h *Host) admit(ctx context.Context, c jetstream.Command) {
	defer h.idle.begin()()
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	err := h.HandleCommand(ctx, c.Namespace, c.Name, c.Header, c.Data)
	if err == nil {
		err = c.Ack()
	} else {
		h.Logger.Warn("a command is put back", "error", err)
		err = c.Later(c.Backoff())
	}
	if err != nil {
		h.Logger.Debug("a command was neither acknowledged nor put back; it comes again", "error", err)
	}
}

// reactionName is the durable name of the reactions on a shard.
const reactionName = "reactions"

// reactionTimeout bounds one reaction, below the time after which the fact is
// handed out again.
const reactionTimeout = 20 * time.Second

// react follows one shard of the log. Facts of one session are reacted to in
// their order; one that fails is put back and comes again after later ones.
func (h *Host) react(ctx context.Context, shard int) error {
	r := &jetstream.Reaction{Conn: h.options.Conn, Name: reactionName, Shard: shard}
	if err := h.rewind(ctx, r, shard); err != nil {
		return err
	}
	var open sync.WaitGroup
	defer open.Wait()
	var queues [lanes]chan jetstream.Fact
	for i := range queues {
		queues[i] = make(chan jetstream.Fact, laneLength)
		defer close(queues[i])
		open.Go(func() {
			for f := range queues[i] {
				h.reactTo(ctx, f)
			}
		})
	}
	return h.follow(ctx, fmt.Sprintf("reactions of shard %d", shard), func(ctx context.Context) error {
		f, err := r.Next(ctx)
		var broken *jetstream.UndecodableError
		if errors.As(err, &broken) {
			h.Logger.Error("a message of the log is no event; verify the log", "error", broken)
			return broken.Ack()
		}
		if err != nil {
			return err
		}
		queues[events.Shard(f.Key(), lanes)] <- f
		return nil
	})
}

// reactTo reacts to one fact.
func (h *Host) reactTo(ctx context.Context, f jetstream.Fact) {
	defer h.idle.begin()()
	ctx, cancel := context.WithTimeout(ctx, reactionTimeout)
	defer cancel()
	err := h.React(ctx, &f.Event, events.Position{Shard: f.Shard, Sequence: f.Sequence})
	if err == nil {
		err = f.Ack()
	} else if ctx.Err() == nil || !errors.Is(err, context.Canceled) {
		h.Logger.Warn("a fact is put back", "error", err)
		err = f.Later(f.Backoff())
	}
	if err != nil {
		h.Logger.Debug("a fact was neither acknowledged nor put back; it comes again", "error", err)
	}
}

// Facts of a shard are handled in so many lanes, by their session: most of a
// reaction is waiting for the server. Those in a lane's queue must be handled
// before they are handed out again.
const (
	lanes      = 16
	laneLength = 8
)

// unordered is how many facts before the newest one that was told are told again
// when public events were lost: a fact that was put back is told later than those
// after it.
const unordered = 2 * lanes * laneLength

// rewind goes back to where the public stream may have lost what was told.
func (h *Host) rewind(ctx context.Context, r *jetstream.Reaction, shard int) error {
	floor, err := r.Acknowledged(ctx)
	if err != nil || floor == 0 {
		return err
	}
	told, err := h.public.Positions(ctx)
	if err != nil {
		return err
	}
	newest, found := told[shard]
	if !found {
		end, err := h.public.End(ctx)
		if err != nil {
			return err
		}
		if end > 0 {
			newest = floor // the events of this shard have aged out
		}
	}
	if newest < floor {
		return r.Rewind(ctx, newest-min(newest, unordered)+1)
	}
	return nil
}

// timerTimeout bounds what follows from one timer, below the time after which
// its firing is handed out again.
const timerTimeout = 20 * time.Second

// maxTimers is how many timers are handled at a time: many may have one moment.
const maxTimers = 32

// fire tells runs of the timers that have fired, until ctx ends.
func (h *Host) fire(ctx context.Context) error {
	slots := make(chan struct{}, maxTimers)
	var open sync.WaitGroup
	defer open.Wait()
	return h.follow(ctx, "timers", func(ctx context.Context) error {
		fired, err := h.timers.Next(ctx)
		if err != nil {
			return err
		}
		slots <- struct{}{}
		open.Go(func() {
			defer func() { <-slots }()
			h.fired(ctx, fired)
		})
		return nil
	})
}

// fired handles one firing.
func (h *Host) fired(ctx context.Context, fired jetstream.FiredTimer) {
	defer h.idle.begin()()
	ctx, cancel := context.WithTimeout(ctx, timerTimeout)
	defer cancel()
	err := h.Fire(ctx, handlers.Timer{Namespace: fired.Namespace, Run: fired.Run, CallID: fired.CallID, At: fired.At})
	var early *handlers.EarlyError
	switch {
	case err == nil:
		err = fired.Ack()
	case errors.As(err, &early):
		err = fired.Later(early.By)
	case ctx.Err() == nil || !errors.Is(err, context.Canceled):
		h.Logger.Warn("a timer is put back", "run", fired.Run, "error", err)
		err = fired.Later(fired.Backoff())
	}
	if err != nil {
		h.Logger.Debug("a firing was neither acknowledged nor put back; it comes again", "error", err)
	}
}

// serve answers the API.
func (h *Host) serve(ctx context.Context) error {
	s := &jetstream.Service{Conn: h.options.Conn, Version: h.options.Version, Started: func() { close(h.ready) }, Answer: func(ctx context.Context, namespace, verb string, header map[string][]string, data []byte) ([]byte, string, error) {
		answer, err := h.api.Handle(ctx, namespace, verb, header, data)
		var failed *handlers.APIError
		if errors.As(err, &failed) {
			return nil, failed.Code, errors.New(failed.Message)
		}
		out, err := json.Marshal(answer)
		return out, handlers.CodeUnavailable, err
	}}
	return s.Run(ctx)
}
