package readmodel

import (
	"context"
	"fmt"
	"slices"

	"github.com/agentruntime/agentruntime/handlers"
)

// What is deleted is overwritten in the pages of the file (secure_delete, see
// Open), but stands in SQLite's log of writes beside it until that is emptied.

// isErased reports whether the update tells that the session was erased.
func (u *Update) isErased() bool {
	return slices.ContainsFunc(u.Rows, func(r handlers.Row) bool { return r.State == handlers.StateErased })
}

// forget empties the log of writes when an erased session had rows in it. While a
// reader is in its way that stays to be done, after the next update.
func (m *Model) forget(ctx context.Context) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	if !m.erased {
		return nil
	}
	emptied, err := m.empty(ctx)
	m.erased = !emptied
	return err
}

// empty moves the log of writes into the file and cuts it to nothing. It reports
// whether no reader was in its way.
func (m *Model) empty(ctx context.Context) (bool, error) {
	var busy, pages, moved int
	if err := m.db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &moved); err != nil {
		return false, fmt.Errorf("empty the read model's log of writes: %w", err)
	}
	return busy == 0, nil
}
