package readmodel

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// Facts hands out the facts of one shard, without their data. Each is handed out
// until it is acknowledged, in order at first, later ones out of it.
type Facts interface {
	Next(ctx context.Context) (fact events.Event, sequence uint64, ack func() error, err error)
}

// Progress says how far a Follower came.
type Progress struct {
	Shard    int
	Position uint64 // newest fact that was applied
	Target   uint64 // as in the Follower
	Rows     int    // written since it began
}

// Follower feeds a model with one shard of the log. Set the fields before Run.
type Follower struct {
	Shard int
	Facts Facts
	Model *Model

	// Load folds a session at least up to a sequence and calls use with it,
	// which returns before Load does. It is called for several sessions at a
	// time. Its error makes the session unreadable, unless it wraps
	// events.ErrUnanswered.
	Load func(ctx context.Context, key events.Key, atLeast uint64, use func(*projector.Session) error) error

	// Redact removes secrets from a text; nil leaves it as it is.
	Redact func(string) string

	// Floor returns a sequence up to which every fact was acknowledged. It
	// becomes the position, since facts may come out of order and those after
	// a missing one do not stand for it. Nil when Facts never does that: then
	// the newest fact is the position.
	Floor func(ctx context.Context) (uint64, error)

	Batch    int            // facts in one transaction; DefaultBatch when zero
	Target   uint64         // sequence that a rebuild is to reach; passed on
	Progress func(Progress) // told after each transaction; may be nil

	taken []taken // handed out and not yet applied
	done  Progress
}

// DefaultBatch is how many facts are applied in one transaction.
const DefaultBatch = 256

// loads is how many sessions are folded at a time: each waits for the log most
// of the time.
const loads = 8

// taken is one fact that was handed out, or why none was.
type taken struct {
	fact     events.Event
	sequence uint64
	ack      func() error
	err      error
}

// Run follows the shard until ctx ends or a step fails, and returns why. Facts
// that were handed out and not applied are kept for the next call. Facts are
// acknowledged after they are applied, so that none is lost.
func (f *Follower) Run(ctx context.Context) error {
	if err := f.reread(ctx); err != nil {
		return f.failed(err)
	}
	reading, stop := context.WithCancel(ctx)
	facts := make(chan taken, f.batch())
	go f.read(reading, facts)
	defer func() {
		stop()
		for t := range facts { // until the reader has ended
			f.keep(t)
		}
	}()
	for {
		ended := f.take(facts)
		for len(f.taken) > 0 {
			if err := f.apply(ctx); err != nil {
				return f.failed(err)
			}
		}
		if ended != nil {
			return f.failed(ended)
		}
	}
}

func (f *Follower) failed(err error) error {
	return fmt.Errorf("follow shard %d for the read model: %w", f.Shard, err)
}

func (f *Follower) batch() int {
	if f.Batch == 0 {
		return DefaultBatch
	}
	return f.Batch
}

// read hands on facts until there is none. It reads ahead, so that whatever came
// during a transaction is the next batch.
func (f *Follower) read(ctx context.Context, facts chan<- taken) {
	defer close(facts)
	for {
		var t taken
		t.fact, t.sequence, t.ack, t.err = f.Facts.Next(ctx)
		facts <- t
		if t.err != nil {
			return
		}
	}
}

// keep adds a fact to those to apply, and returns why there is none.
func (f *Follower) keep(t taken) error {
	if t.err == nil {
		f.taken = append(f.taken, t)
	}
	return t.err
}

// take waits for a fact, unless some are left, and adds those that are there.
func (f *Follower) take(facts <-chan taken) error {
	if len(f.taken) == 0 {
		if err := f.keep(<-facts); err != nil {
			return err
		}
	}
	for len(f.taken) < f.batch() {
		select {
		case t := <-facts:
			if err := f.keep(t); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

// apply applies one batch of what was taken and acknowledges it.
func (f *Follower) apply(ctx context.Context) error {
	batch := f.taken[:min(len(f.taken), f.batch())]
	newest := uint64(0)
	moved := map[events.Key]uint64{}
	for i := range batch {
		t := &batch[i]
		newest = max(newest, t.sequence)
		if moves(t.fact.Type) {
			key := events.Key{Namespace: t.fact.Namespace, Session: t.fact.Session}
			moved[key] = max(moved[key], t.sequence)
		}
	}
	if err := f.Model.unknown(ctx, moved); err != nil {
		return err
	}
	updates, err := f.fold(ctx, moved)
	if err != nil {
		return err
	}
	position := newest
	if f.Floor != nil {
		if position, err = f.Floor(ctx); err != nil {
			return err
		}
	}
	if err := f.Model.ApplyAll(ctx, f.Shard, position, updates); err != nil {
		return err
	}
	f.taken = f.taken[len(batch):]
	f.tell(newest, updates)
	var failed []error
	for i := range batch {
		failed = append(failed, batch[i].ack())
	}
	return errors.Join(failed...)
}

func (f *Follower) tell(newest uint64, updates []Update) {
	f.done.Shard, f.done.Target = f.Shard, f.Target
	f.done.Position = max(f.done.Position, newest)
	for i := range updates {
		f.done.Rows += len(updates[i].Rows)
	}
	if f.Progress != nil {
		f.Progress(f.done)
	}
}

// quiet are the facts after which no run is in another state. A type that this
// binary does not know is none of them: it makes the session unreadable.
var quiet = map[string]bool{
	events.TypeFor[events.CheckpointCommitted]().Name: true,
	events.TypeFor[events.WindowCompacted]().Name:     true,
	events.TypeFor[events.CommandAccepted]().Name:     true,
}

func moves(factType string) bool { return !quiet[factType] }

// fold returns the updates of sessions, in no order.
func (f *Follower) fold(ctx context.Context, sessions map[events.Key]uint64) ([]Update, error) {
	var (
		mu      sync.Mutex
		updates []Update
		failed  error
		open    sync.WaitGroup
	)
	slots := make(chan struct{}, loads)
	for key, atLeast := range sessions {
		slots <- struct{}{}
		open.Go(func() {
			defer func() { <-slots }()
			u, err := f.update(ctx, key, atLeast)
			mu.Lock()
			defer mu.Unlock()
			updates = append(updates, u)
			if failed == nil {
				failed = err
			}
		})
	}
	open.Wait()
	return updates, failed
}

func (f *Follower) update(ctx context.Context, key events.Key, atLeast uint64) (Update, error) {
	u := Update{Namespace: key.Namespace, Session: key.Session, Sequence: atLeast}
	err := f.Load(ctx, key, atLeast, func(s *projector.Session) error {
		u.Sequence, u.Rows = s.At.Sequence, Rows(s, f.Redact)
		return nil
	})
	switch {
	case err == nil:
	case ctx.Err() != nil, errors.Is(err, events.ErrUnanswered):
		return u, err
	case errors.Is(err, events.ErrErased):
		u.Rows = erased(key)
	default:
		u.Rows = unreadable(key, err, f.Redact)
	}
	return u, nil
}

// reread folds the unreadable sessions again: a newer release, or a repair, may
// read them, and no fact tells of it.
func (f *Follower) reread(ctx context.Context) error {
	sessions, err := f.Model.unreadable(ctx, f.Shard)
	if err != nil || len(sessions) == 0 {
		return err
	}
	updates, err := f.fold(ctx, sessions)
	if err != nil {
		return err
	}
	return f.Model.ApplyAll(ctx, f.Shard, 0, updates)
}
