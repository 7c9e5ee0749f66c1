package handlers

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// VerbErase erases a session.
const VerbErase = "session.erase"

// RejectErased is the reason of every answer about a session that was erased.
const RejectErased = "session_erased"

// Reasons for which a session is not erased, beyond unknown_session and
// session_busy.
const (
	RejectNotEncrypted = "not_encrypted" // it has facts that dropping a key leaves readable
)

// StateErased stands in lists for a session that was erased, and in a tree for a
// child in one.
const StateErased projector.State = "erased"

// EraseRequest is what session.erase is asked, and EraseAnswer what it answers.
type EraseRequest struct {
	Session string `json:"session"`
}

// EraseAnswer tells that nobody can read the session any more.
type EraseAnswer struct {
	Session string `json:"session"`
	Erased  bool   `json:"erased"`
}

// Erase makes a session unreadable for ever: it appends session.erased and drops
// the session's key, its snapshot and the objects that its facts refer to. The
// facts stay, encrypted, and verify. It is refused, as a *Rejection, while a run
// of the session, one below it or the parent of one has not ended, and for a
// session that has plain facts. Any other error leaves open how much of it is
// done; the reactions do the rest, or repeat it.
func (h *Host) Erase(ctx context.Context, namespace, session string) error {
	key := events.Key{Namespace: namespace, Session: session}
	if err := key.Check(); err != nil {
		return err
	}
	err := h.mayErase(ctx, key)
	if err == nil {
		_, err = h.openWith(ctx, key, func(s *projector.Session) (*events.Event, error) {
			if err := ended(s); err != nil {
				return nil, err
			}
			return h.fact(key, "", events.SessionErased{})
		})
	}
	// The fold says so of the fact that was committed just now, too.
	if err != nil && !errors.Is(err, events.ErrErased) {
		return err
	}
	return h.dropKey(ctx, key)
}

func ended(s *projector.Session) error {
	switch run := s.Current(); {
	case run == nil:
		return reject(RejectNoSession, "there is no session %s with a run", s.Key)
	case !run.State.Terminal():
		return reject(RejectBusy, "run %s of session %s has not ended; cancel it first", run.ID, s.Key)
	}
	return nil
}

// mayErase looks at what is not the session's own to say: its stored facts, the
// runs below it and the parents of its own.
func (h *Host) mayErase(ctx context.Context, key events.Key) error {
	s, err := h.Latest(ctx, key)
	if err != nil {
		return err
	}
	s.Key = key
	if err := ended(s); err != nil {
		return err
	}
	for after := uint64(0); after < s.At.Sequence; {
		records, err := h.Stored.Read(ctx, key, after, events.MaxRead)
		if err == nil && len(records) == 0 {
			err = h.Pause(ctx, readPause)
		}
		if err != nil {
			return err
		}
		for i := range records {
			if after = records[i].Sequence; records[i].Encryption == "" {
				return reject(RejectNotEncrypted, "the fact at sequence %d of session %s is plain, and the log keeps every fact: only sessions that were encrypted from their first fact on can be erased", after, key)
			}
		}
	}
	for i := range s.Runs {
		run := &s.Runs[i]
		tree, err := h.TreeCounts(ctx, key.Namespace, run.ID)
		if err != nil {
			return err
		}
		if !tree.Settled {
			return reject(RejectBusy, "a run below run %s has not ended; cancel it first", run.ID)
		}
		if run.Parent == "" {
			continue
		}
		parent, err := h.GetRun(ctx, key.Namespace, run.Parent)
		if err != nil && !errors.Is(err, events.ErrErased) {
			return err
		}
		if err == nil && !parent.State.Terminal() {
			return reject(RejectBusy, "run %s, the parent of run %s, has not ended and may need what it said", run.Parent, run.ID)
		}
	}
	return nil
}

// dropKey makes what session.erased says true. The key goes first: what follows
// is of no use without it.
func (h *Host) dropKey(ctx context.Context, key events.Key) error {
	if h.Vault == nil {
		return &KeyError{key, "no store of keys is configured"}
	}
	if err := h.Vault.erase(ctx, key); err != nil {
		return err
	}
	_ = h.sessions.with(key, func(*followed) error { return events.ErrErased }) // which forgets the fold
	if err := h.Snapshots.Remove(ctx, key); err != nil {
		return fmt.Errorf("remove the snapshot of session %s: %w", key, err)
	}
	for after := uint64(0); ; {
		records, err := h.Stored.Read(ctx, key, after, events.MaxRead)
		if err != nil {
			return err
		}
		if len(records) == 0 {
			return nil
		}
		for i := range records {
			r := &records[i]
			if after = r.Sequence; r.DataRef == "" || r.Encryption == "" {
				continue
			}
			if err := h.Objects.Remove(ctx, r.DataRef); err != nil {
				return fmt.Errorf("remove the payload of %s at sequence %d of session %s: %w", r.Type, r.Sequence, key, err)
			}
		}
	}
}
