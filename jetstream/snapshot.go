package jetstream

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
)

// Snapshots keeps the newest snapshot of each session. It is a cache: what it
// returns may be old, and nothing may depend on it being there.
type Snapshots struct {
	Conn *Conn
}

// Put replaces the session's snapshot. One over the server's payload limit is
// an error; the session is then folded from its facts.
func (s *Snapshots) Put(ctx context.Context, key events.Key, data []byte) error {
	at, err := keyPlace(bucketSnapshots, key, "")
	if err != nil {
		return err
	}
	if _, err := s.Conn.publish(ctx, at, s.Conn.timeout, nil, data); err != nil {
		return fmt.Errorf("store the snapshot of session %s: %w", key, err)
	}
	return nil
}

// Remove drops the session's snapshot.
func (s *Snapshots) Remove(ctx context.Context, key events.Key) error {
	at, err := keyPlace(bucketSnapshots, key, "")
	if err == nil {
		_, err = s.Conn.publish(ctx, at, s.Conn.timeout, nats.Header{headerOperation: {"DEL"}}, nil)
	}
	if err != nil {
		return fmt.Errorf("remove the snapshot of session %s: %w", key, err)
	}
	return nil
}

// Get returns a snapshot of the session from the nearest replica, or
// events.ErrNotFound.
func (s *Snapshots) Get(ctx context.Context, key events.Key) ([]byte, error) {
	at, err := keyPlace(bucketSnapshots, key, "")
	if err != nil {
		return nil, err
	}
	return s.Conn.lastNearby(ctx, at, s.Conn.timeout)
}
