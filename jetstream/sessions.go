package jetstream

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// Sessions lists the sessions that have facts, shard by shard, those of one
// namespace or of all when it is empty. No message is read. A session that
// appears while the listing is under way may be missing or come twice. The
// listing ends after an error.
func (l *Log) Sessions(ctx context.Context, namespace string) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		for shard := range l.Conn.layout.Shards {
			prefix, filter, err := l.filter(shard, namespace)
			if err != nil {
				yield(events.Entry{}, err)
				return
			}
			for found, err := range l.Conn.subjects(ctx, logStream(shard), filter) {
				name, session, _ := strings.Cut(strings.TrimPrefix(found.subject, prefix), ".")
				if !yield(events.Entry{Key: events.Key{Namespace: name, Session: session}, Facts: found.count}, err) {
					return
				}
			}
		}
	}
}

// filter returns the subjects of one shard and what they all begin with.
func (l *Log) filter(shard int, namespace string) (prefix, filter string, err error) {
	family := l.Family
	if family == "" {
		family = FamilyLog
	}
	prefix = fmt.Sprintf("agent.%s.%d.", family, shard)
	if namespace == "" {
		return prefix, prefix + "*.*", nil
	}
	return prefix, prefix + namespace + ".*", events.CheckNamespace(namespace)
}
