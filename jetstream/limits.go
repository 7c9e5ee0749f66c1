package jetstream

import (
	"context"
	"fmt"
	"regexp"
	"time"
)

// Limits keeps what workers share of limits: one small value for each key,
// beside the leases, whose bucket costs no sync and forgets by itself. It is no
// truth: whatever is lost is made anew.
type Limits struct {
	Conn *Conn
}

// limitKey is the form of a key: one token of a subject.
var limitKey = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

func (l *Limits) place(key string) (place, error) {
	if !limitKey.MatchString(key) {
		return place{}, fmt.Errorf("limit %q: a key has 1 to 100 characters of A-Z a-z 0-9 _ -", key)
	}
	// Not the two tokens of a lease: watches of leases do not hear of it.
	return place{"KV_" + bucketLeases, "$KV." + bucketLeases + "._limit.of." + key}, nil
}

// Load returns the value of a key, as the leader knows it, and its revision; of
// a key without one nil, and the revision to expect.
func (l *Limits) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	at, err := l.place(key)
	if err != nil {
		return nil, 0, err
	}
	m, err := l.Conn.last(ctx, at, l.Conn.timeout)
	if err != nil {
		return nil, 0, fmt.Errorf("load limit %s: %w", key, err)
	}
	if m.gone() {
		return nil, m.Sequence, nil
	}
	return m.Data, m.Sequence, nil
}

// Swap puts a value in the place of the one at a revision (0: there is none) and
// returns its revision. The server forgets it after ttl. events.ErrConflict means
// that another one stands there; after any other error it may be stored or not.
func (l *Limits) Swap(ctx context.Context, key string, data []byte, revision uint64, ttl time.Duration) (uint64, error) {
	at, err := l.place(key)
	if err != nil {
		return 0, err
	}
	header := expecting(revision)
	setTTL(header, ttl)
	next, err := l.Conn.publish(ctx, at, l.Conn.timeout, header, data)
	if err != nil {
		return 0, fmt.Errorf("swap limit %s: %w", key, err)
	}
	return next, nil
}
