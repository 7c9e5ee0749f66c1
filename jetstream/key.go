package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/agentruntime/agentruntime/events"
)

// Keys keeps the wrapped key of each session, and those that a namespace has
// beside its sessions (events.KeptKey): written once, never replaced, and those of
// sessions erased for ever. What is erased leaves a marker, so that no new key
// takes its place.
type Keys struct {
	Conn *Conn
}

// Get returns the session's wrapped key as the leader knows it:
// events.ErrNotFound when there never was one, events.ErrErased when it was
// erased.
func (k *Keys) Get(ctx context.Context, key events.Key) ([]byte, error) {
	_, m, err := k.last(ctx, key)
	switch {
	case err != nil:
		return nil, err
	case m.Sequence == 0:
		return nil, fmt.Errorf("the key of session %s: %w", key, events.ErrNotFound)
	case m.gone():
		return nil, fmt.Errorf("session %s: %w", key, events.ErrErased)
	}
	return m.Data, nil
}

func wrappedPlace(key events.Key) (place, error) {
	if err := key.CheckKept(); err != nil {
		return place{}, err
	}
	return entryPlace(bucketKeys, key, ""), nil
}

func (k *Keys) last(ctx context.Context, key events.Key) (place, stored, error) {
	at, err := wrappedPlace(key)
	if err != nil {
		return place{}, stored{}, err
	}
	m, err := k.Conn.last(ctx, at, k.Conn.timeout)
	return at, m, err
}

// Create stores the key of a session that never had one. events.ErrConflict
// means that it has one now, or is about to.
func (k *Keys) Create(ctx context.Context, key events.Key, wrapped []byte) error {
	at, err := wrappedPlace(key)
	if err == nil {
		_, err = k.Conn.publish(ctx, at, k.Conn.timeout, expecting(0), wrapped)
	}
	return err
}

// Erase puts a marker in place of the session's key and has the server overwrite
// the key's bytes where it stored them. It may be repeated, by several at a time.
// What the servers' replication keeps for a while, and backups, are not reached.
// The key of no session is refused.
func (k *Keys) Erase(ctx context.Context, key events.Key) error {
	if err := key.Check(); err != nil {
		return err
	}
	for {
		at, m, err := k.last(ctx, key)
		if err != nil {
			return err
		}
		marker := m.Sequence
		if m.Sequence == 0 || !m.gone() {
			header := expecting(m.Sequence)
			header[headerOperation] = []string{"DEL"}
			if marker, err = k.Conn.publish(ctx, at, k.Conn.timeout, header, nil); errors.Is(err, events.ErrConflict) && ctx.Err() == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		return k.overwrite(ctx, at, marker)
	}
}

// overwrite deletes what stands on a subject below a sequence.
func (k *Keys) overwrite(ctx context.Context, at place, below uint64) error {
	for from := uint64(1); ; {
		m, err := k.next(ctx, at, from)
		if err != nil || m.Sequence == 0 || m.Sequence >= below {
			return err
		}
		body := []byte(`{"seq":` + strconv.FormatUint(m.Sequence, 10) + `}`)
		answer, err := k.Conn.replies.request(ctx, k.Conn.timeout, &nats.Msg{Subject: "$JS.API.STREAM.MSG.DELETE." + at.stream, Data: body})
		if err != nil {
			return fmt.Errorf("overwrite message %d of %s: %w", m.Sequence, at.stream, err)
		}
		var deleted struct {
			Error *natsjs.APIError `json:"error"`
		}
		if err := json.Unmarshal(answer.Data, &deleted); err != nil {
			return fmt.Errorf("overwrite message %d of %s: %w", m.Sequence, at.stream, err)
		}
		if deleted.Error != nil && deleted.Error.ErrorCode != codeDeleteFailed {
			return fmt.Errorf("overwrite message %d of %s: %w", m.Sequence, at.stream, translateAPI(deleted.Error))
		}
		if deleted.Error != nil { // somebody else has, or it cannot be: the next look tells
			if again, err := k.next(ctx, at, from); err != nil || again.Sequence == m.Sequence {
				return errors.Join(err, fmt.Errorf("overwrite message %d of %s: %w", m.Sequence, at.stream, deleted.Error))
			}
		}
		from = m.Sequence + 1
	}
}

// next asks the leader for the first message of a subject from a sequence on.
func (k *Keys) next(ctx context.Context, at place, from uint64) (stored, error) {
	body := []byte(`{"seq":` + strconv.FormatUint(from, 10) + `,"next_by_subj":"` + at.subject + `"}`)
	return k.Conn.ask(ctx, at, k.Conn.timeout, body)
}
