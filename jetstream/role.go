package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

// Role is something that one process at a time does for all. It is kept like a
// lease; what is done under it must be harmless when two do it for a moment.
type Role struct {
	Conn   *Conn
	Name   string        // letters, digits, _ and -
	Holder string        // this process
	TTL    time.Duration // how long the role outlives its last renewal, in whole seconds; DefaultLeaseTTL when zero

	// Gone tells that a holder is known to have ended, so that its role need
	// not be waited out. Optional.
	Gone func(holder string) bool

	revision uint64 // of this process's entry; 0 when it has none
}

// roleEntry is what stands in the bucket.
type roleEntry struct {
	Holder string `json:"holder"`
}

// Hold takes the role, or keeps it, and reports whether this process has it. The
// role is held for one TTL from before the call; on an error only as long as the
// call before it said.
func (r *Role) Hold(ctx context.Context) (bool, error) {
	at := r.place()
	if r.revision != 0 {
		revision, err := r.put(ctx, at, r.revision)
		if err == nil {
			r.revision = revision
			return true, nil
		}
		if !errors.Is(err, events.ErrConflict) {
			return false, err
		}
		// It may be this process's own renewal, whose answer was lost.
		r.revision = 0
	}
	m, err := r.Conn.last(ctx, at, r.Conn.timeout)
	if err != nil {
		return false, fmt.Errorf("look for the holder of role %s: %w", r.Name, err)
	}
	var entry roleEntry
	held := !m.gone() && json.Unmarshal(m.Data, &entry) == nil && entry.Holder != r.Holder
	if held && (r.Gone == nil || !r.Gone(entry.Holder)) {
		return false, nil
	}
	r.revision, err = r.put(ctx, at, m.Sequence)
	if errors.Is(err, events.ErrConflict) {
		return false, nil // another one was first
	}
	return err == nil, err
}

// Release gives the role up, so that another process has it at once.
func (r *Role) Release(ctx context.Context) error {
	if r.revision == 0 {
		return nil
	}
	revision := r.revision
	r.revision = 0
	err := (&Leases{Conn: r.Conn, TTL: r.TTL}).remove(ctx, r.place(), revision)
	if errors.Is(err, events.ErrConflict) {
		return nil
	}
	return err
}

func (r *Role) put(ctx context.Context, at place, expected uint64) (uint64, error) {
	data, err := json.Marshal(roleEntry{r.Holder})
	if err != nil {
		return 0, err
	}
	header := expecting(expected)
	setTTL(header, (&Leases{TTL: r.TTL}).ttl())
	return r.Conn.publish(ctx, at, r.Conn.timeout, header, data)
}

// place is an entry beside the leases, under a namespace that none can have.
func (r *Role) place() place {
	return place{"KV_" + bucketLeases, "$KV." + bucketLeases + "._role." + r.Name}
}
