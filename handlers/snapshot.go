package handlers

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// Snapshots caches folds. Losing one costs a longer read, nothing else.
type Snapshots interface {
	// Get returns the newest snapshot of a session, or nil.
	Get(ctx context.Context, key events.Key) ([]byte, error)
	Put(ctx context.Context, key events.Key, data []byte) error

	// Remove drops the session's snapshot, if there is one.
	Remove(ctx context.Context, key events.Key) error
}

// SnapshotEvery is the number of facts after which a worker writes a snapshot.
const SnapshotEvery = 256

// compress packs a snapshot: a parent of a thousand children has close to a
// megabyte of it, which is what the server carries, and most of that repeats.
func compress(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	return b.Bytes(), err
}

func decompress(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// snapshot is a fold with what proves that it is one of this log.
type snapshot struct {
	Fold  int             `json:"fold"` // projector.FoldVersion
	Hash  string          `json:"hash"` // of State
	State json.RawMessage `json:"state"`
}

// restore returns the session's fold from its snapshot, or an empty one. A
// snapshot counts only when its version and hash fit and the log holds, at its
// position, the fact with its chain value; whatever fails, the facts are read
// from the beginning instead.
func (h *Host) restore(ctx context.Context, key events.Key) *projector.Session {
	fresh := &projector.Session{}
	data, err := h.Snapshots.Get(ctx, key)
	if err != nil || data == nil {
		return fresh
	}
	if data, err = decompress(data); err != nil {
		return fresh
	}
	var s snapshot
	if json.Unmarshal(data, &s) != nil || s.Fold != projector.FoldVersion || s.Hash != events.Derive(52, string(s.State)) {
		return fresh
	}
	var session projector.Session
	if json.Unmarshal(s.State, &session) != nil || session.Key != key || session.At.Sequence == 0 {
		return fresh
	}
	at, err := h.Log.Read(ctx, key, session.At.Sequence-1, 1)
	if err != nil || len(at) != 1 || at[0].Sequence != session.At.Sequence || at[0].ChainHash != session.At.Chain {
		return fresh
	}
	return &session
}

// keep writes a snapshot of a fold whose last fact is a fenced one; after an
// external fact there is no chain value to check it by.
func (h *Host) keep(ctx context.Context, s *projector.Session, fenced bool) {
	if !fenced {
		return
	}
	state, err := events.Marshal(s)
	if err != nil {
		return
	}
	data, err := events.Marshal(snapshot{projector.FoldVersion, events.Derive(52, string(state)), state})
	if err == nil {
		data, err = compress(data)
	}
	if err == nil {
		err = h.Snapshots.Put(ctx, s.Key, data)
	}
	if err != nil {
		h.Logger.Warn("a snapshot was not written; loading the session takes longer", "session", s.Key.String(), "error", err)
	}
}
