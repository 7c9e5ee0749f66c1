package readmodel_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/readmodel"
	"github.com/agentruntime/agentruntime/projector"
)

// pathOf has what a URL and a file name disagree about.
func pathOf(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "runs 100%25?#.db")
}

func position(t testing.TB, m *readmodel.Model, shard int) uint64 {
	t.Helper()
	positions, err := m.Positions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return positions[shard]
}

func closed(t testing.TB, m *readmodel.Model) {
	t.Helper()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAnOlderRowDoesNotReplaceANewerOne(t *testing.T) {
	m := open(t, "")
	running := row(1, func(r *handlers.Row) { r.State = projector.StateRunning })
	parked := row(1, func(r *handlers.Row) { r.State = projector.StateParked })
	for _, step := range []struct {
		sequence uint64
		row      handlers.Row
		want     projector.State
		position uint64
	}{
		{5, running, projector.StateRunning, 5},
		{9, row(1), projector.StateCompleted, 9},
		{7, parked, projector.StateCompleted, 9},
		{9, parked, projector.StateParked, 9}, // the same facts, folded by another release
		{12, running, projector.StateRunning, 12},
	} {
		apply(t, m, step.sequence, step.row)
		rows := list(t, m, handlers.Filter{})
		if len(rows) != 1 || rows[0].State != step.want || position(t, m, 0) != step.position {
			t.Fatalf("after sequence %d: %+v at position %d", step.sequence, rows, position(t, m, 0))
		}
		// No index holds what was.
		if found := list(t, m, handlers.Filter{State: []projector.State{step.want}}); len(found) != 1 {
			t.Fatalf("after sequence %d, %d runs are %s", step.sequence, len(found), step.want)
		}
	}
}

func TestTheRowsOfASessionAreReplacedTogether(t *testing.T) {
	m := open(t, "")
	named := func(n int, label string) handlers.Row {
		return row(n, func(r *handlers.Row) {
			r.Session, r.Labels = "s", map[string]string{"name": label}
			r.Run = fmt.Sprintf("s-0000000%d", n)
		})
	}
	for i, rows := range [][]handlers.Row{
		{named(1, "a")},
		{named(1, "a"), named(2, "b")},
		{{Summary: projector.Summary{Session: "s", State: handlers.StateUnreadable, Reason: "damaged"}}},
		{named(1, "a"), named(2, "c"), named(3, "d")},
		{named(2, "a")},
		nil,
	} {
		if err := m.Apply(t.Context(), 0, uint64(i+1), "ns", "s", rows); err != nil {
			t.Fatal(err)
		}
		labelled := 0
		for _, label := range []string{"a", "b", "c", "d"} {
			labelled += len(list(t, m, handlers.Filter{Label: map[string]string{"name": label}}))
		}
		want := len(rows)
		if want == 1 && rows[0].Run == "" {
			want = 0
		}
		if got := list(t, m, handlers.Filter{}); len(got) != len(rows) || labelled != want {
			t.Errorf("step %d: %d rows, of which %d are found by label; want %d", i, len(got), labelled, len(rows))
		}
	}
}

func TestAModelIsKeptAndReset(t *testing.T) {
	path := pathOf(t)
	m := open(t, path)
	sample(t, m)
	want := list(t, m, handlers.Filter{})
	closed(t, m)
	m = open(t, path)
	if diff := cmp.Diff(want, list(t, m, handlers.Filter{})); diff != "" || m.Anew != nil || position(t, m, 0) != 2 {
		t.Errorf("after a restart (%v), at position %d (-want +got):\n%s", m.Anew, position(t, m, 0), diff)
	}
	if err := m.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := list(t, m, handlers.Filter{}); len(left) != 0 || position(t, m, 0) != 0 {
		t.Errorf("after a reset: %v at position %d", left, position(t, m, 0))
	}
	sample(t, m)
	if diff := cmp.Diff(want, list(t, m, handlers.Filter{})); diff != "" {
		t.Errorf("made again (-want +got):\n%s", diff)
	}
}

func TestAFileThatCannotBeUsedIsBegunAnew(t *testing.T) {
	overwrite := func(at int64, text string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt([]byte(text), at); err != nil {
				t.Fatal(err)
			}
		}
	}
	execute := func(text string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath())
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Exec(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, harm := range map[string]func(t *testing.T, path string){
		"another version":       execute(fmt.Sprintf("PRAGMA user_version = %d", readmodel.FileVersion+1)),
		"no version":            execute("PRAGMA user_version = 0"),
		"a table is missing":    execute("DROP TABLE positions"),
		"a damaged header":      overwrite(0, "not a database at all"),
		"a damaged page":        overwrite(3*4096, string(make([]byte, 2*4096))),
		"a damaged page's head": overwrite(4096, "\xff\xff\xff\xff\xff"),
		"cut off":               func(t *testing.T, path string) { truncate(t, path, 4096) },
		"a short text": func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("hello"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := pathOf(t)
			m := open(t, path)
			sample(t, m)
			closed(t, m)
			harm(t, path)
			m = open(t, path)
			if m.Anew == nil {
				t.Error("nobody is told")
			}
			if rows := list(t, m, handlers.Filter{}); len(rows) != 0 || position(t, m, 0) != 0 {
				t.Errorf("%d rows are left, at position %d", len(rows), position(t, m, 0))
			}
			sample(t, m)
			closed(t, m)
			if m = open(t, path); m.Anew != nil || position(t, m, 0) != 2 {
				t.Errorf("opened again: %v, at position %d", m.Anew, position(t, m, 0))
			}
		})
	}
}

func TestAPathThatCannotBeAFileIsAnError(t *testing.T) {
	folder := t.TempDir()
	for _, path := range []string{folder, filepath.Join(folder, "missing", "runs.db")} {
		if m, err := readmodel.Open(path); err == nil {
			m.Close()
			t.Errorf("%s was opened", path)
		}
	}
}

func truncate(t testing.TB, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// TestACrashLeavesAStateThatTheModelHad crashes at every byte of interest: the
// database and what is in its log of writes are copied as a crash would leave
// them, cut anywhere. Session i is applied at position i, together with a row
// that counts.
func TestACrashLeavesAStateThatTheModelHad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	m := open(t, path)
	const n = 12
	counter := func(i int) handlers.Row { return row(0, func(r *handlers.Row) { r.Steps = i }) }
	for i := 1; i <= n; i++ {
		apply(t, m, uint64(i), row(i), counter(i))
	}
	database, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	writes, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	const header, frame = 32, 24 + 4096
	if len(writes) < header+n*frame {
		t.Fatalf("the log of writes has only %d bytes", len(writes))
	}
	seen := map[uint64]bool{}
	for cut := header; cut <= len(writes); cut += frame {
		for _, torn := range []int{0, 1000} {
			folder := t.TempDir()
			crashed := filepath.Join(folder, "runs.db")
			for name, data := range map[string][]byte{crashed: database, crashed + "-wal": writes[:min(cut+torn, len(writes))]} {
				if err := os.WriteFile(name, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			again, err := readmodel.Open(crashed)
			if err != nil {
				t.Fatal(err)
			}
			at := position(t, again, 0)
			seen[at] = true
			var want []handlers.Row
			for i := int(at); i > 0; i-- {
				want = append(want, row(i))
			}
			if at > 0 {
				want = append(want, counter(int(at)))
			}
			if diff := cmp.Diff(want, list(t, again, handlers.Filter{})); diff != "" {
				t.Errorf("cut at %d, position %d (-want +got):\n%s", cut+torn, at, diff)
			}
			closed(t, again)
		}
	}
	if len(seen) != n+1 {
		t.Errorf("%d states were left by crashes, want %d", len(seen), n+1)
	}
}

func TestABatchThatFailsChangesNothing(t *testing.T) {
	m := open(t, "")
	apply(t, m, 1, row(1))
	same := row(2)
	err := m.ApplyAll(t.Context(), 0, 5, []readmodel.Update{
		{Namespace: "ns", Session: row(1).Session, Sequence: 5},
		{Namespace: "ns", Session: same.Session, Sequence: 5, Rows: []handlers.Row{same, same}}, // a run is in a list once
	})
	if err == nil {
		t.Fatal("a session with the same run twice was applied")
	}
	if rows := list(t, m, handlers.Filter{}); len(rows) != 1 || position(t, m, 0) != 1 {
		t.Errorf("%d rows, at position %d", len(rows), position(t, m, 0))
	}
	apply(t, m, 5, same)
}

func TestShardsHavePositionsOfTheirOwn(t *testing.T) {
	m := open(t, "")
	for shard, sequence := range map[int]uint64{0: 3, 1: 7, 5: 1} {
		if err := m.Apply(t.Context(), shard, sequence, "ns", fmt.Sprint("s", shard), nil); err != nil {
			t.Fatal(err)
		}
	}
	got, err := m.Positions(t.Context())
	if diff := cmp.Diff(map[int]uint64{0: 3, 1: 7, 5: 1}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
