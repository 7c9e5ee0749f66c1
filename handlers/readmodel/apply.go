package readmodel

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/projector"
)

// Update is what the log says of one session.
type Update struct {
	Namespace string
	Session   string
	Sequence  uint64         // of the newest fact that the rows know
	Rows      []handlers.Row // all of the session's
}

// Apply replaces the rows of one session and advances the position of its shard.
// See ApplyAll.
func (m *Model) Apply(ctx context.Context, shard int, sequence uint64, namespace, session string, rows []handlers.Row) error {
	return m.ApplyAll(ctx, shard, sequence, []Update{{namespace, session, sequence, rows}})
}

// ApplyAll replaces the rows of sessions of one shard and advances the shard's
// position, all of it or nothing. What is older than what is stored of a session
// changes nothing, and a position never goes back. A row that changes is stuck
// or not as it says; one that stays the same keeps what SetStuck said.
func (m *Model) ApplyAll(ctx context.Context, shard int, position uint64, updates []Update) error {
	err := m.write(ctx, func(tx *sql.Tx) error {
		w := writer{ctx, tx, &m.puts, &m.erased}
		for i := range updates {
			if err := w.replace(shard, &updates[i]); err != nil {
				return fmt.Errorf("session %s/%s: %w", updates[i].Namespace, updates[i].Session, err)
			}
		}
		_, err := w.exec(m.puts.position, shard, int64(position))
		return err
	})
	if err == nil {
		err = m.forget(ctx)
	}
	if err != nil {
		return fmt.Errorf("apply shard %d up to sequence %d to the read model: %w", shard, position, err)
	}
	return nil
}

// statements are what ApplyAll runs for each session, prepared once.
type statements struct {
	session, addSession, advance, rows, add, change, drop, addLabel, dropLabel, position *sql.Stmt
}

func (s *statements) each() map[**sql.Stmt]string {
	return map[**sql.Stmt]string{
		&s.session:    "SELECT id, sequence FROM sessions WHERE namespace = ? AND session = ?",
		&s.addSession: "INSERT INTO sessions (namespace, session, shard, sequence) VALUES (?, ?, ?, ?) RETURNING id",
		&s.advance:    "UPDATE sessions SET shard = ?, sequence = ? WHERE id = ?",
		&s.rows:       "SELECT id, key, body FROM runs WHERE session = ?",
		&s.add: `INSERT INTO runs (session, key, namespace, state, agent, parent, root, reason, started, stuck, unknown, body)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id`,
		&s.change:    "UPDATE runs SET state = ?, reason = ?, stuck = ?, unknown = ?, body = ? WHERE id = ?",
		&s.drop:      "DELETE FROM runs WHERE id = ?",
		&s.addLabel:  "INSERT INTO labels (namespace, name, value, started, key, run) VALUES (?, ?, ?, ?, ?, ?)",
		&s.dropLabel: "DELETE FROM labels WHERE namespace = ? AND name = ? AND value = ? AND started = ? AND key = ?",
		&s.position: `INSERT INTO positions (shard, sequence) VALUES (?, ?)
			ON CONFLICT (shard) DO UPDATE SET sequence = max(sequence, excluded.sequence)`,
	}
}

func (s *statements) prepare(ctx context.Context, db *sql.DB) (err error) {
	for to, text := range s.each() {
		if *to, err = db.PrepareContext(ctx, text); err != nil {
			return errors.Join(err, s.close())
		}
	}
	return nil
}

func (s *statements) close() error {
	var failed []error
	for statement := range s.each() {
		if *statement != nil {
			failed = append(failed, (*statement).Close())
		}
	}
	return errors.Join(failed...)
}

// writer is one transaction of ApplyAll.
type writer struct {
	ctx    context.Context
	tx     *sql.Tx
	puts   *statements
	erased *bool // set when rows of an erased session go
}

func (w writer) exec(s *sql.Stmt, args ...any) (sql.Result, error) {
	return w.tx.StmtContext(w.ctx, s).ExecContext(w.ctx, args...)
}

func (w writer) scan(s *sql.Stmt, into []any, args ...any) error {
	return w.tx.StmtContext(w.ctx, s).QueryRowContext(w.ctx, args...).Scan(into...)
}

// stored is a row of a session as it stands.
type stored struct {
	id   int64
	body []byte
}

func (w writer) replace(shard int, u *Update) error {
	var session, known int64
	err := w.scan(w.puts.session, []any{&session, &known}, u.Namespace, u.Session)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		err = w.scan(w.puts.addSession, []any{&session}, u.Namespace, u.Session, shard, int64(u.Sequence))
	case err == nil && known > int64(u.Sequence):
		return nil
	case err == nil:
		_, err = w.exec(w.puts.advance, shard, int64(u.Sequence), session)
	}
	if err != nil {
		return err
	}
	old, err := w.stored(session)
	if err != nil {
		return err
	}
	for i := range u.Rows {
		row := u.Rows[i]
		stuck := row.Stuck
		row.Stuck = false
		body, err := events.Marshal(row)
		if err != nil {
			return err
		}
		before, found := old[keyOf(&row)]
		delete(old, keyOf(&row))
		if found && bytes.Equal(before.body, body) {
			continue
		}
		was, err := before.row()
		if err != nil {
			return err
		}
		if found && sameRun(was, &row) {
			if _, err := w.exec(w.puts.change, row.State, row.Reason, stuck, row.Unknown, body, before.id); err != nil {
				return err
			}
			continue
		}
		if found {
			if err := w.drop(u.Namespace, before); err != nil {
				return err
			}
		}
		if err := w.add(session, u.Namespace, &row, stuck, body); err != nil {
			return err
		}
	}
	if len(old) > 0 && u.isErased() {
		*w.erased = true
	}
	for _, gone := range old {
		if err := w.drop(u.Namespace, gone); err != nil {
			return err
		}
	}
	return nil
}

// row returns the row as it stands, or an empty one when there is none.
func (s *stored) row() (*handlers.Row, error) {
	row := &handlers.Row{}
	if s.id == 0 {
		return row, nil
	}
	return row, json.Unmarshal(s.body, row)
}

// sameRun reports whether two rows agree in what a run is admitted with. They
// do, unless secrets are others now, and so most indexes stay as they are.
func sameRun(a, b *handlers.Row) bool {
	return a.Started.Equal(b.Started) && a.Agent == b.Agent && a.Parent == b.Parent && a.Root == b.Root && maps.Equal(a.Labels, b.Labels)
}

func (w writer) stored(session int64) (map[string]stored, error) {
	rows, err := w.tx.StmtContext(w.ctx, w.puts.rows).QueryContext(w.ctx, session)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string]stored{}
	for rows.Next() {
		var key string
		var s stored
		if err := rows.Scan(&s.id, &key, &s.body); err != nil {
			return nil, err
		}
		all[key] = s
	}
	return all, rows.Err()
}

func (w writer) add(session int64, namespace string, row *handlers.Row, stuck bool, body []byte) error {
	var id int64
	key, started := keyOf(row), nanoseconds(row.Started)
	err := w.scan(w.puts.add, []any{&id}, session, key, namespace, row.State, row.Agent, row.Parent, row.Root, row.Reason, started, stuck, row.Unknown, body)
	if err != nil {
		return err
	}
	for name, value := range row.Labels {
		if _, err := w.exec(w.puts.addLabel, namespace, name, value, started, key, id); err != nil {
			return err
		}
	}
	return nil
}

// drop deletes a row and its labels, which its body names.
func (w writer) drop(namespace string, gone stored) error {
	row, err := gone.row()
	if err != nil {
		return err
	}
	for name, value := range row.Labels {
		if _, err := w.exec(w.puts.dropLabel, namespace, name, value, nanoseconds(row.Started), keyOf(row)); err != nil {
			return err
		}
	}
	_, err = w.exec(w.puts.drop, gone.id)
	return err
}

func keyOf(row *handlers.Row) string {
	if row.Run == "" {
		return row.Session + "/"
	}
	return row.Run
}

func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// Positions returns up to where each shard was followed.
func (m *Model) Positions(ctx context.Context) (map[int]uint64, error) {
	rows, err := m.db.QueryContext(ctx, "SELECT shard, sequence FROM positions")
	if err != nil {
		return nil, fmt.Errorf("read the positions of the read model: %w", err)
	}
	defer rows.Close()
	all := map[int]uint64{}
	for rows.Next() {
		var shard int
		var sequence int64
		if err := rows.Scan(&shard, &sequence); err != nil {
			return nil, err
		}
		all[shard] = uint64(sequence)
	}
	return all, rows.Err()
}

// Reset drops all rows and positions.
func (m *Model) Reset(ctx context.Context) error {
	err := m.write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM labels; DELETE FROM runs; DELETE FROM sessions; DELETE FROM positions")
		return err
	})
	if err != nil {
		return fmt.Errorf("reset the read model: %w", err)
	}
	return nil
}

// SetStuck replaces the set of runs that nothing will wake, given by namespace.
// Runs that are not known here, or have ended meanwhile, are left out.
func (m *Model) SetStuck(ctx context.Context, runs map[string][]string) error {
	err := m.write(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE runs SET stuck = 0 WHERE stuck <> 0"); err != nil {
			return err
		}
		mark, err := tx.PrepareContext(ctx, `UPDATE runs SET stuck = 1 WHERE key = ? AND state IN (?, ?, ?)
			AND session = (SELECT id FROM sessions WHERE namespace = ? AND session = ?)`)
		if err != nil {
			return err
		}
		defer mark.Close()
		for namespace, list := range runs {
			for _, run := range slices.Compact(slices.Sorted(slices.Values(list))) {
				key, err := events.KeyOfRun(namespace, run)
				if err != nil {
					continue // a session that cannot be read, whose row says so
				}
				if _, err := mark.ExecContext(ctx, run, projector.StatePending, projector.StateRunning, projector.StateParked, namespace, key.Session); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("mark the stuck runs in the read model: %w", err)
	}
	return nil
}

// Count returns how many rows a namespace has.
func (m *Model) Count(ctx context.Context, namespace string) (n int, err error) {
	err = m.db.QueryRowContext(ctx, "SELECT count(*) FROM runs INDEXED BY runs_started WHERE namespace = ?", namespace).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the runs of %s: %w", namespace, err)
	}
	return n, nil
}
