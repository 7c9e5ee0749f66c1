package readmodel

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlitecodes "modernc.org/sqlite/lib"

	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/projector"
)

// Model is the read model of the runs of all namespaces. Its methods may be
// called at the same time. Set the exported fields before the first use.
type Model struct {
	// Now tells the time that ages count from; time.Now when nil.
	Now func() time.Time

	// Anew says why the file that was there was deleted and the model begun
	// without rows; nil when it was not.
	Anew error

	db      *sql.DB
	writing sync.Mutex // one transaction at a time, without waiting in SQLite
	erased  bool       // the log of writes may hold what an erased session said
	puts    statements
}

var _ handlers.Lister = (*Model)(nil)

// schemaVersion is of the tables below. The version in the file holds that of
// the folds too: another fold says something else of the same facts.
const (
	schemaVersion = 2
	fileVersion   = schemaVersion<<16 | projector.FoldVersion
)

// The key of a row is its run, or the session and a slash for a session that
// cannot be folded: no run's id holds a slash. Every index ends in what rows are
// ordered by, so that a page is read from it and never sorted. A label's table
// repeats that order for the same reason.
const schema = `
CREATE TABLE sessions (
	id        INTEGER PRIMARY KEY,
	namespace TEXT NOT NULL,
	session   TEXT NOT NULL,
	shard     INTEGER NOT NULL,
	sequence  INTEGER NOT NULL, -- up to which its rows say what the log says
	UNIQUE (namespace, session)
);
CREATE TABLE runs (
	id        INTEGER PRIMARY KEY,
	session   INTEGER NOT NULL,
	key       TEXT NOT NULL,
	namespace TEXT NOT NULL,
	state     TEXT NOT NULL,
	agent     TEXT NOT NULL,
	parent    TEXT NOT NULL,
	root      TEXT NOT NULL,
	reason    TEXT NOT NULL,
	started   INTEGER NOT NULL, -- in nanoseconds; 0 when it is not known
	stuck     INTEGER NOT NULL,
	unknown   INTEGER NOT NULL, -- callbacks whose effect is not known
	body      BLOB NOT NULL,    -- the row as JSON, without stuck
	UNIQUE (session, key)
);
CREATE INDEX runs_started ON runs (namespace, started, key);
CREATE INDEX runs_state   ON runs (namespace, state, started, key);
CREATE INDEX runs_agent   ON runs (namespace, agent, started, key);
CREATE INDEX runs_root    ON runs (namespace, root, started, key);
CREATE INDEX runs_parent  ON runs (namespace, parent, started, key) WHERE parent <> '';
CREATE INDEX runs_reason  ON runs (namespace, reason, started, key) WHERE reason <> '';
CREATE INDEX runs_stuck   ON runs (namespace, started, key) WHERE stuck <> 0;
CREATE INDEX runs_unknown ON runs (namespace, started, key) WHERE unknown <> 0;
CREATE INDEX runs_unreadable ON runs (session) WHERE state = 'unreadable';
CREATE TABLE labels (
	namespace TEXT NOT NULL,
	name      TEXT NOT NULL,
	value     TEXT NOT NULL,
	started   INTEGER NOT NULL,
	key       TEXT NOT NULL,
	run       INTEGER NOT NULL,
	PRIMARY KEY (namespace, name, value, started, key)
) WITHOUT ROWID;
CREATE TABLE positions (
	shard    INTEGER PRIMARY KEY,
	sequence INTEGER NOT NULL
);`

// unfitError says why a file cannot be used and may be deleted.
type unfitError struct{ reason string }

func (e *unfitError) Error() string { return e.reason }

// Open opens the model in a file, which it makes when there is none. An empty
// path is a model in memory. A file that is damaged, of another version or no
// such database is deleted, and Anew says so: the log holds all of it. The file
// belongs to one process.
func Open(path string) (*Model, error) {
	if path == "" {
		return open("file::memory:?", 1) // each connection would be a database of its own
	}
	const readers = 4
	location := (&url.URL{Path: filepath.ToSlash(filepath.Clean(path))}).EscapedPath()
	dsn := "file:" + location + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&"
	m, err := open(dsn, readers)
	if isDamage(err) {
		anew := err
		if err = remove(path); err == nil {
			if m, err = open(dsn, readers); err == nil {
				m.Anew = anew
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the read model %s: %w", path, err)
	}
	return m, nil
}

// isDamage reports whether the file is at fault, and not the system.
func isDamage(err error) bool {
	var unfit *unfitError
	var failed *sqlite.Error
	if errors.As(err, &failed) {
		switch failed.Code() & 0xff { // the rest is detail
		case sqlitecodes.SQLITE_NOTADB, sqlitecodes.SQLITE_CORRUPT, sqlitecodes.SQLITE_ERROR: // the last: its tables are others
			return true
		}
	}
	return errors.As(err, &unfit)
}

// remove deletes a database with the files beside it: a log of writes that
// stayed would be played into the new one.
func remove(path string) error {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// open opens a database and makes its tables when it is empty.
func open(dsn string, connections int) (*Model, error) {
	db, err := sql.Open("sqlite", dsn+"_pragma=cache_size(-16000)&_pragma=secure_delete(ON)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	m := &Model{db: db}
	if err := m.prepare(context.Background()); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return m, nil
}

func (m *Model) prepare(ctx context.Context) error {
	var version, tables int
	if err := m.db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if err := m.db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return err
	}
	switch {
	case tables == 0:
		if err := m.create(ctx); err != nil {
			return err
		}
	case version != fileVersion:
		return &unfitError{fmt.Sprintf("its version is %d and not %d", version, fileVersion)}
	default:
		var found string
		if err := m.db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&found); err != nil {
			return err
		}
		if found != "ok" {
			return &unfitError{"it is damaged: " + found}
		}
	}
	if _, err := m.empty(ctx); err != nil { // a process that was killed may not have
		return err
	}
	return m.puts.prepare(ctx, m.db)
}

// create makes the tables and the version together: a file with one of them
// alone is deleted by the next start.
func (m *Model) create(ctx context.Context) error {
	return m.write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, schema+fmt.Sprintf("PRAGMA user_version = %d;", fileVersion))
		return err
	})
}

// write makes one transaction.
func (m *Model) write(ctx context.Context, f func(*sql.Tx) error) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	tx, err := m.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		if back := tx.Rollback(); back != nil && !errors.Is(back, sql.ErrTxDone) {
			err = errors.Join(err, back)
		}
		return err
	}
	return tx.Commit()
}

// Close ends the model. What was applied is kept, unless it is in memory.
func (m *Model) Close() error {
	return errors.Join(m.puts.close(), m.db.Close())
}

func (m *Model) now() time.Time {
	if m.Now == nil {
		return time.Now()
	}
	return m.Now()
}
