package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

// Lease is what a worker writes beside its claim: the sign that it is alive.
// It owns nothing; the claim's append does.
type Lease struct {
	Worker  string `json:"worker"`
	ClaimID string `json:"claim_id"`
	Epoch   uint64 `json:"epoch"`
	Note    string `json:"note,omitempty"` // for people: why the run does not get on
}

// Leases keeps one entry per session, which the server removes when it was not
// renewed in time.
type Leases struct {
	Conn *Conn
	TTL  time.Duration // whole seconds; DefaultLeaseTTL when zero
}

// DefaultLeaseTTL is how long a lease outlives its last renewal.
const DefaultLeaseTTL = 30 * time.Second

// Observation is what stands in a session's entry. Revision changes with each
// renewal: an observer that sees the same one for a whole TTL of its own clock
// knows that the holder has not renewed.
type Observation struct {
	Lease    Lease
	Held     bool   // the entry is there; its absence is not the end of a claim
	Revision uint64 // to expect in Acquire
}

// Observe returns what the leader knows of the session's lease.
func (l *Leases) Observe(ctx context.Context, key events.Key) (Observation, error) {
	at, err := l.place(key, "")
	if err != nil {
		return Observation{}, err
	}
	m, err := l.Conn.last(ctx, at, l.Conn.timeout)
	if err != nil {
		return Observation{}, fmt.Errorf("observe the lease of session %s: %w", key, err)
	}
	o := Observation{Revision: m.Sequence, Held: !m.gone()}
	if !o.Held {
		return o, nil
	}
	if err := json.Unmarshal(m.Data, &o.Lease); err != nil {
		return Observation{}, fmt.Errorf("observe the lease of session %s: %w", key, err)
	}
	return o, nil
}

// Acquire writes the entry in place of what was observed (0: nothing) and
// returns its revision. events.ErrConflict means that the entry has changed
// since.
func (l *Leases) Acquire(ctx context.Context, key events.Key, lease Lease, observed uint64) (uint64, error) {
	revision, err := l.put(ctx, key, lease, observed)
	if err != nil {
		return 0, fmt.Errorf("acquire the lease of session %s: %w", key, err)
	}
	return revision, nil
}

// Renew extends the lease written at revision by a whole TTL, counted from
// before the call: the holder must take the time at which it called, not the
// one at which it was answered. Any error means not renewed.
func (l *Leases) Renew(ctx context.Context, key events.Key, lease Lease, revision uint64) (uint64, error) {
	next, err := l.put(ctx, key, lease, revision)
	if err != nil {
		return 0, fmt.Errorf("renew the lease of session %s: %w", key, err)
	}
	return next, nil
}

// put publishes the entry as a plain message: the bucket's own update drops the
// TTL.
func (l *Leases) put(ctx context.Context, key events.Key, lease Lease, expected uint64) (uint64, error) {
	at, err := l.place(key, "")
	if err != nil {
		return 0, err
	}
	data, err := json.Marshal(lease)
	if err != nil {
		return 0, err
	}
	header := expecting(expected)
	setTTL(header, l.ttl())
	return l.Conn.publish(ctx, at, l.Conn.timeout, header, data)
}

// Release removes the entry written at revision. An entry that has changed
// since, or is gone, is left: it is not ours.
func (l *Leases) Release(ctx context.Context, key events.Key, revision uint64) error {
	at, err := l.place(key, "")
	if err != nil {
		return err
	}
	if err := l.remove(ctx, at, revision); err != nil && !errors.Is(err, events.ErrConflict) {
		return fmt.Errorf("release the lease of session %s: %w", key, err)
	}
	return nil
}

// remove leaves a marker that the server removes in turn.
func (l *Leases) remove(ctx context.Context, at place, revision uint64) error {
	header := expecting(revision)
	header[headerOperation] = []string{"DEL"}
	setTTL(header, l.ttl())
	_, err := l.Conn.publish(ctx, at, l.Conn.timeout, header, nil)
	return err
}

// loading is the entry beside the lease that tells who is loading a session, and
// how many before it died of it.
type loading struct {
	Worker string    `json:"worker"`
	Since  time.Time `json:"since"`
	Deaths int       `json:"deaths"`
}

// loadingTTL is how long a death is remembered: beyond every restart loop, short
// of for ever.
const loadingTTL = 24 * time.Hour

// BeginLoading notes that a worker is about to load the session and returns how
// many died of it. A note that another worker left a TTL ago and never took
// back is a death; a younger one may be of a worker that is loading right now,
// and stays.
func (l *Leases) BeginLoading(ctx context.Context, key events.Key, worker string) (deaths int, err error) {
	err = l.changeLoading(ctx, key, func(e *loading) bool {
		deaths = e.Deaths
		switch {
		case e.Worker == worker:
			return false
		case e.Worker != "" && time.Since(e.Since) < l.ttl():
			return false
		case e.Worker != "":
			e.Deaths++
		}
		deaths = e.Deaths
		e.Worker, e.Since = worker, time.Now()
		return true
	})
	if err != nil {
		return 0, fmt.Errorf("mark the loading of session %s: %w", key, err)
	}
	return deaths, nil
}

// EndLoading takes the worker's note back. Loaded tells that the session could
// be loaded, which ends the count of deaths.
func (l *Leases) EndLoading(ctx context.Context, key events.Key, worker string, loaded bool) error {
	err := l.changeLoading(ctx, key, func(e *loading) bool {
		if !loaded && e.Worker != worker {
			return false
		}
		e.Worker = ""
		if loaded {
			e.Deaths = 0
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("end the loading of session %s: %w", key, err)
	}
	return nil
}

// changeLoading changes the entry, which is removed when it says nothing.
func (l *Leases) changeLoading(ctx context.Context, key events.Key, change func(*loading) bool) error {
	at, err := l.place(key, ".loading")
	if err != nil {
		return err
	}
	for {
		var entry loading
		m, err := l.Conn.last(ctx, at, l.Conn.timeout)
		if err == nil && !m.gone() {
			err = json.Unmarshal(m.Data, &entry)
		}
		if err != nil {
			return err
		}
		if !change(&entry) || entry == (loading{}) && m.gone() {
			return nil
		}
		if entry.Worker == "" && entry.Deaths == 0 {
			err = l.remove(ctx, at, m.Sequence)
		} else {
			var data []byte
			if data, err = json.Marshal(entry); err != nil {
				return err
			}
			header := expecting(m.Sequence)
			setTTL(header, loadingTTL)
			_, err = l.Conn.publish(ctx, at, l.Conn.timeout, header, data)
		}
		if !errors.Is(err, events.ErrConflict) || ctx.Err() != nil {
			return err
		}
	}
}

func (l *Leases) ttl() time.Duration {
	if l.TTL == 0 {
		return DefaultLeaseTTL
	}
	return l.TTL
}

func (l *Leases) place(key events.Key, suffix string) (place, error) {
	return keyPlace(bucketLeases, key, suffix)
}

// keyPlace is a session's entry in a bucket.
func keyPlace(bucket string, key events.Key, suffix string) (place, error) {
	if err := key.Check(); err != nil {
		return place{}, err
	}
	return entryPlace(bucket, key, suffix), nil
}

func entryPlace(bucket string, key events.Key, suffix string) place {
	return place{"KV_" + bucket, "$KV." + bucket + "." + key.Namespace + "." + key.Session + suffix}
}
