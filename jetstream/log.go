package jetstream

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
)

// Families of subjects in the log's streams.
const (
	FamilyLog    = "log"    // facts of sessions
	FamilyBudget = "budget" // ledgers, by the root run of a tree
)

// Log implements events.Log over one family of subjects of the log's streams.
// It has no state: two Logs over the same streams are one log.
type Log struct {
	Conn *Conn

	// Family is FamilyLog when empty. In FamilyBudget a key's session is
	// the id of a root run, and its shard is that of the run's session.
	Family string

	// Timeout bounds one request; the connection's when zero. An append
	// that is not answered within it is an unknown outcome.
	Timeout time.Duration
}

var _ events.Log = (*Log)(nil)

// Append implements events.Log. The fence is the sequence of the last message
// on the session's own literal subject: a guard with a wildcard is unsound on
// replicated streams.
func (l *Log) Append(ctx context.Context, key events.Key, event *events.Event, expected uint64) (uint64, error) {
	header := nats.Header(event.Header())
	header[headerExpected] = []string{strconv.FormatUint(expected, 10)}
	return l.append(ctx, key, header, event.Data)
}

// AppendUnfenced implements events.Log.
func (l *Log) AppendUnfenced(ctx context.Context, key events.Key, event *events.Event) (uint64, error) {
	return l.append(ctx, key, event.Header(), event.Data)
}

func (l *Log) append(ctx context.Context, key events.Key, header nats.Header, data []byte) (uint64, error) {
	at, err := l.place(key)
	if err != nil {
		return 0, err
	}
	return l.Conn.publish(ctx, at, l.timeout(), header, data)
}

// Read implements events.Log by one batch direct get from the nearest replica.
func (l *Log) Read(ctx context.Context, key events.Key, after uint64, limit int) ([]events.Record, error) {
	at, err := l.place(key)
	if err != nil {
		return nil, err
	}
	if limit <= 0 || limit > events.MaxRead {
		limit = events.MaxRead
	}
	var records []events.Record
	err = l.Conn.readBatch(ctx, at.stream, batchRequest{after + 1, at.subject, limit}, l.timeout(), func(sequence uint64, m *nats.Msg) error {
		event, err := events.Decode(m.Header, m.Data)
		if err != nil {
			return fmt.Errorf("sequence %d: %w", sequence, err)
		}
		records = append(records, events.Record{Event: event, Sequence: sequence})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s after sequence %d: %w", at.subject, after, err)
	}
	return records, nil
}

// Last implements events.Log. Only the stream's leader answers it.
func (l *Log) Last(ctx context.Context, key events.Key) (uint64, error) {
	at, err := l.place(key)
	if err != nil {
		return 0, err
	}
	m, err := l.Conn.last(ctx, at, l.timeout())
	if err != nil {
		return 0, err
	}
	return m.Sequence, nil
}

func (l *Log) timeout() time.Duration {
	if l.Timeout == 0 {
		return l.Conn.timeout
	}
	return l.Timeout
}

// place checks the key before it becomes part of a subject.
func (l *Log) place(key events.Key) (place, error) {
	home, family := key, l.Family
	switch family {
	case "", FamilyLog:
		family = FamilyLog
	case FamilyBudget:
		root, err := events.KeyOfRun(key.Namespace, key.Session)
		if err != nil {
			return place{}, err
		}
		home = root
	default:
		return place{}, fmt.Errorf("the log has no subjects agent.%s", family)
	}
	if err := home.Check(); err != nil {
		return place{}, err
	}
	shard := events.Shard(home, l.Conn.layout.Shards)
	return place{
		stream:  logStream(shard),
		subject: "agent." + family + "." + strconv.Itoa(shard) + "." + key.Namespace + "." + key.Session,
	}, nil
}
