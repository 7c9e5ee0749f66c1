package jetstream

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// Sessions lists the keys that have facts, shard by shard, those of one
// namespace or of all when it is empty. No message is read. A session that
// appears while the listing is under way may be missing or come twice. The
// listing ends after an error.
func (l *Log) Sessions(ctx context.Context, namespace string) iter.Seq2[events.Key, error] {
	return func(yield func(events.Key, error) bool) {
		for shard := range l.Conn.layout.Shards {
			prefix, filter, err := l.filter(shard, namespace)
			if err != nil {
				yield(events.Key{}, err)
				return
			}
			for subject, err := range l.Conn.subjects(ctx, logStream(shard), filter) {
				name, session, _ := strings.Cut(strings.TrimPrefix(subject, prefix), ".")
				if !yield(events.Key{Namespace: name, Session: session}, err) {
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
