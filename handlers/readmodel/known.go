package readmodel

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
)

// unknown drops the sessions whose rows know of the sequence already: a session
// is folded to its end, so that the facts after the one that caused it need no
// fold of their own.
func (m *Model) unknown(ctx context.Context, sessions map[events.Key]uint64) error {
	for key, sequence := range sessions {
		var known int64
		err := m.puts.session.QueryRowContext(ctx, key.Namespace, key.Session).Scan(new(int64), &known)
		switch {
		case errors.Is(err, sql.ErrNoRows):
		case err != nil:
			return fmt.Errorf("look up session %s in the read model: %w", key, err)
		case uint64(known) >= sequence:
			delete(sessions, key)
		}
	}
	return nil
}

// unreadable returns the sessions of a shard that could not be folded, with the
// sequences of their rows.
func (m *Model) unreadable(ctx context.Context, shard int) (map[events.Key]uint64, error) {
	// The state stands in the text, since the index is of rows in it alone.
	rows, err := m.db.QueryContext(ctx, `SELECT s.namespace, s.session, s.sequence FROM runs r INDEXED BY runs_unreadable
		CROSS JOIN sessions s ON s.id = r.session WHERE r.state = '`+string(handlers.StateUnreadable)+`' AND s.shard = ?`, shard)
	if err != nil {
		return nil, fmt.Errorf("look for unreadable sessions in the read model: %w", err)
	}
	defer rows.Close()
	all := map[events.Key]uint64{}
	for rows.Next() {
		var key events.Key
		var sequence int64
		if err := rows.Scan(&key.Namespace, &key.Session, &sequence); err != nil {
			return nil, err
		}
		all[key] = uint64(sequence)
	}
	return all, rows.Err()
}
