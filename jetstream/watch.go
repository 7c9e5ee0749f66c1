package jetstream

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
)

// LeaseWatch sees the renewals of every lease as they are stored, so that a
// worker knows at once for how long a session's holder has been silent. It must
// be running (Run) before it can say anything but "not long".
type LeaseWatch struct {
	Leases *Leases

	mu    sync.Mutex
	since time.Time // from when on no renewal can have been missed
	seen  map[events.Key]renewal
	prune int // forget when so many are seen
}

// renewal is the newest one that was seen of a session's lease, whose claim it
// is, and when.
type renewal struct {
	revision uint64
	claim    string
	at       time.Time
}

// watchPause is the pause before a watch that could not begin is tried again.
const watchPause = 250 * time.Millisecond

// Run watches until ctx ends. After an interruption it begins to count anew.
func (w *LeaseWatch) Run(ctx context.Context) {
	for ctx.Err() == nil {
		w.follow(ctx)
		w.restart(time.Time{})
		_ = events.Sleep(ctx, watchPause)
	}
}

// restart forgets what was seen; from the given time on the watch is whole.
func (w *LeaseWatch) restart(since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.seen, w.prune = since, make(map[events.Key]renewal), fewest
}

func (w *LeaseWatch) follow(ctx context.Context) {
	stream := "KV_" + bucketLeases
	info, err := w.Leases.Conn.stored(ctx, stream)
	if err != nil || info == nil {
		return
	}
	t := tail{conn: w.Leases.Conn, stream: stream, subject: "$KV." + bucketLeases + ".*.*", after: info.State.LastSeq}
	t.interrupted = func() { w.restart(time.Now()) }
	t.each = func(sequence uint64, m *nats.Msg) error {
		if tokens := strings.Split(lastText(m, "Nats-Subject"), "."); len(tokens) == 4 {
			var lease Lease
			if json.Unmarshal(m.Data, &lease) == nil { // a removed entry has no data
				w.note(events.Key{Namespace: tokens[2], Session: tokens[3]}, renewal{sequence, lease.ClaimID, time.Now()})
			}
		}
		return nil
	}
	w.restart(time.Now())
	_ = t.run(ctx) // whatever ended it, the watch begins anew
}

func (w *LeaseWatch) note(key events.Key, r renewal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[key] = r
	if len(w.seen) >= w.prune {
		w.forget()
	}
}

// fewest is the number of leases below which nothing is forgotten.
const fewest = 1024

// forget drops leases that ended long ago: the server has removed them.
func (w *LeaseWatch) forget() {
	for key, r := range w.seen {
		if time.Since(r.at) > 2*w.Leases.ttl() {
			delete(w.seen, key)
		}
	}
	w.prune = max(fewest, 2*len(w.seen))
}

// Silent returns for how long this process has seen nothing of a session's
// claim. It asks the leader once more: a renewal that the watch has missed
// counts as made now, and so does a claim of which it has seen no lease and is
// asked for the first time. Zero while the watch is not running.
func (w *LeaseWatch) Silent(ctx context.Context, key events.Key, claim string) (time.Duration, error) {
	o, err := w.Leases.Observe(ctx, key)
	if err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() {
		return 0, nil
	}
	last := w.seen[key]
	switch {
	case o.Held && o.Lease.ClaimID == claim && last.revision != o.Revision:
		w.seen[key] = renewal{o.Revision, claim, time.Now()}
		return 0, nil
	case last.claim != claim:
		w.seen[key] = renewal{last.revision, claim, time.Now()}
		return 0, nil
	case last.at.Before(w.since):
		last.at = w.since
	}
	return time.Since(last.at), nil
}
