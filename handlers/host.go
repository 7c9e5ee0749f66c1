package handlers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers/limit"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// Host is what every handler works with. Its fields are set once, before use.
type Host struct {
	Log         events.Log // with payloads resolved and opened: see Inline
	Stored      events.Log // the same, as it is stored
	Vault       *Vault     // optional: without it nothing is encrypted and nothing erased
	Ledger      events.Log // of budgets; a key's session is the root run of a tree
	Objects     Objects
	Definitions Definitions
	Snapshots   Snapshots
	Work        Hinter
	Timers      Timers
	Signals     Signals
	Public      Publisher
	Dead        DeadLetters
	Redactor    runtime.Redactor
	Prices      Prices // optional: without it costs are not known

	Policies Policies       // optional: without it nothing that was granted is taken away
	Limits   *limit.Limiter // optional: without it capabilities are not limited

	Now    func() time.Time
	NewID  func() string // returns an id never used before
	Pause  events.Pause
	Logger *slog.Logger
	Meter  Meter

	ledgers  cache[projector.Ledger]
	sessions cache[followed] // as the reactions have folded them
}

// Hinter puts a hint into the work queue. A hint may be lost after it was
// accepted; the sweep replaces it.
type Hinter interface {
	Publish(ctx context.Context, h events.Hint) error
}

// Publisher publishes one public event, which tells of the fact at a position.
// It is stored when Publish returns nil; a repetition with the same id may be
// stored again.
type Publisher interface {
	Publish(ctx context.Context, e *events.Event, at events.Position) error
}

// DeadLetters keeps what could not be carried out, with the reason.
type DeadLetters interface {
	Bury(ctx context.Context, namespace, reason string, header map[string][]string, data []byte, cause error) error
}

// Meter counts what operators watch. Every method is cheap and never fails.
type Meter interface {
	RunSettled(state projector.State, reason string)
	RunParked(reason string)
	AttemptEnded(outcome string)
	CommandHandled(kind, outcome string)
	CallMade(capability, outcome string, took time.Duration)
	TokensUsed(model string, usage events.Usage)
	Rebased()
}

// NoMeter counts nothing.
type NoMeter struct{}

// RunSettled implements Meter.
func (NoMeter) RunSettled(projector.State, string) {}

// RunParked implements Meter.
func (NoMeter) RunParked(string) {}

// AttemptEnded implements Meter.
func (NoMeter) AttemptEnded(string) {}

// CommandHandled implements Meter.
func (NoMeter) CommandHandled(string, string) {}

// CallMade implements Meter.
func (NoMeter) CallMade(string, string, time.Duration) {}

// TokensUsed implements Meter.
func (NoMeter) TokensUsed(string, events.Usage) {}

// Rebased implements Meter.
func (NoMeter) Rebased() {}

// appender returns the appender over the host's log.
func (h *Host) appender() *events.Appender {
	return &events.Appender{Log: h.Log, NewID: h.NewID, Pause: h.Pause, Prepare: h.prepare, Rebased: func(events.Key) { h.Meter.Rebased() }}
}

// fact returns an event of the payload's type about a run, without its hashes.
func (h *Host) fact(key events.Key, run string, payload any) (*events.Event, error) {
	e, err := events.New(payload)
	if err != nil {
		return nil, err
	}
	e.Source, e.Namespace, e.Session, e.Run, e.Time = "/agentruntime", key.Namespace, key.Session, run, h.Now().UTC()
	return &e, nil
}

// load folds a session at least up to a sequence, from its snapshot where one
// fits, and returns how many facts it folded beyond the snapshot.
func (h *Host) load(ctx context.Context, key events.Key, atLeast uint64) (*projector.Session, int, error) {
	s := &counted{Session: h.restore(ctx, key)}
	if err := h.appender().Load(ctx, key, s, atLeast); err != nil {
		return nil, 0, err
	}
	return s.Session, s.facts, nil
}

// counted counts the facts it folds.
type counted struct {
	*projector.Session
	facts int
}

// Fold implements events.State.
func (c *counted) Fold(r *events.Record) error {
	c.facts++
	return c.Session.Fold(r)
}

// bury keeps a dead letter. A body over the inline limit goes to the object
// store, where it stays, and the letter holds its reference.
func (h *Host) bury(ctx context.Context, namespace, reason string, header map[string][]string, data []byte, cause error) error {
	if len(data) > InlineLimit {
		ref, err := SealedObjects{h.Objects, h.Vault, events.KeptKey(namespace, "letters"), useLetter}.Put(ctx, data)
		if err != nil {
			return fmt.Errorf("store the body of a dead letter (%d bytes): %w", len(data), err)
		}
		if data, err = events.Marshal(map[string]string{"dataref": ref}); err != nil {
			return err
		}
	}
	return h.Dead.Bury(ctx, namespace, reason, header, data, cause)
}

// Latest folds everything the log's leader knows of a session.
func (h *Host) Latest(ctx context.Context, key events.Key) (*projector.Session, error) {
	s := h.restore(ctx, key)
	if err := h.appender().LoadLatest(ctx, key, s); err != nil {
		return nil, err
	}
	return s, nil
}

// Objects stores bytes by their content.
type Objects interface {
	// Put stores data and returns its reference. Storing the same data
	// again is harmless.
	Put(ctx context.Context, data []byte) (ref string, err error)

	// Get returns the data of a reference, whose digest it has checked. An
	// absent object is an error that wraps events.ErrNotFound, one whose
	// bytes are others an error that wraps events.ErrDamaged.
	Get(ctx context.Context, ref string) ([]byte, error)

	// Remove drops the data of a reference. An absent object is no error.
	Remove(ctx context.Context, ref string) error
}

// InlineLimit is the largest payload that a fact holds itself, in bytes.
// Larger messages spoil the grouping of a replicated log's writes.
const InlineLimit = 256 << 10

// prepare makes of a fact what is stored of it: its data are encrypted, and over
// the inline limit they move to the object store.
func (h *Host) prepare(ctx context.Context, key events.Key, e *events.Event) error {
	if err := h.Vault.sealEvent(ctx, key, e); err != nil {
		return fmt.Errorf("encrypt %s: %w", e.Type, err)
	}
	if len(e.Data) <= InlineLimit {
		return nil
	}
	ref, err := h.Objects.Put(ctx, e.Data)
	if err != nil {
		return fmt.Errorf("store the payload of %s (%d bytes): %w", e.Type, len(e.Data), err)
	}
	if e.Encryption == "" {
		e.Body = e.Data
	}
	e.DataRef, e.Data = ref, nil
	return nil
}

// Inline is a log whose facts come with the payloads they refer to, and open.
type Inline struct {
	events.Log
	Objects Objects
	Vault   *Vault // optional
}

// Read implements events.Log. A payload that cannot be fetched or opened fails
// the read.
func (l Inline) Read(ctx context.Context, key events.Key, after uint64, limit int) ([]events.Record, error) {
	records, err := l.Log.Read(ctx, key, after, limit)
	for i := range records {
		r := &records[i]
		if err != nil || r.DataRef == "" && r.Encryption == "" {
			continue
		}
		stored := r.Data
		if r.DataRef != "" {
			if stored, err = l.payload(ctx, key, r); err != nil {
				return nil, fmt.Errorf("fetch the payload of %s at sequence %d: %w", r.Type, r.Sequence, err)
			}
		}
		if r.Body = stored; r.Encryption == "" {
			continue
		}
		if err := l.Vault.openEvent(ctx, key, r, stored); err != nil {
			return nil, err
		}
	}
	return records, err
}

// payload fetches what a fact refers to. Of a session that was erased it may be
// gone with the key.
func (l Inline) payload(ctx context.Context, key events.Key, r *events.Record) ([]byte, error) {
	stored, err := l.Objects.Get(ctx, r.DataRef)
	if err == nil || r.Encryption == "" || !errors.Is(err, events.ErrNotFound) {
		return stored, err
	}
	if _, keyErr := l.Vault.key(ctx, key, false); errors.Is(keyErr, events.ErrErased) {
		return nil, keyErr
	}
	return nil, err
}
