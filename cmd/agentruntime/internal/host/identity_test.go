package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func identity(t *testing.T, name, folder string) Identity {
	t.Helper()
	id, err := NewIdentity(name, folder)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestAnEarlierStartWithTheSameFolderIsGone(t *testing.T) {
	folder := t.TempDir()
	earlier, now := identity(t, "w", folder), identity(t, "w", folder)
	renamed := identity(t, "rack 1/w", folder)
	elsewhere := identity(t, "w", t.TempDir())
	without := identity(t, "w", "")
	for _, test := range []struct {
		name   string
		id     Identity
		worker string
		gone   bool
	}{
		{"an earlier start", now, earlier.String(), true},
		{"an earlier start under another name", now, renamed.String(), true},
		{"an earlier start, seen under a name with slashes", renamed, now.String(), true},
		{"itself", now, now.String(), false},
		{"another folder", now, elsewhere.String(), false},
		{"a worker without a folder", now, without.String(), false},
		{"an earlier start, seen by a worker without a folder", without, earlier.String(), false},
		{"a worker without a folder, seen by another one", without, identity(t, "w", "").String(), false},
		{"no worker", now, "", false},
		{"what is no identity", now, earlier.folder, false},
		{"the folder in another place", now, earlier.folder + "/w/x", false},
	} {
		if got := test.id.Gone(test.worker); got != test.gone {
			t.Errorf("%s: Gone(%q) = %v for %s", test.name, test.worker, got, test.id)
		}
	}
}

func TestAFolderKeepsItsId(t *testing.T) {
	folder := t.TempDir()
	first := identity(t, "w", folder)
	if parts := strings.Split(first.String(), "/"); len(parts) != 3 || parts[0] != "w" || parts[1] == "" || parts[2] == "" {
		t.Errorf("identity %s", first)
	}
	if second := identity(t, "w", folder); second.folder != first.folder || second.start == first.start {
		t.Errorf("first %s, then %s", first, second)
	}
}

// A start that was killed while it wrote leaves an empty file. Left so, no start
// would ever take its runs back at once.
func TestAnEmptyIdIsWrittenAnew(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "worker-id"), []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first := identity(t, "w", folder)
	if second := identity(t, "w", folder); first.folder == "" || !second.Gone(first.String()) {
		t.Errorf("first %s, then %s", first, second)
	}
}

func TestAnIdThatCannotBeReadIsAnError(t *testing.T) {
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "worker-id"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{folder, filepath.Join(folder, "missing")} {
		if _, err := NewIdentity("w", folder); err == nil || !strings.Contains(err.Error(), "worker-id") {
			t.Errorf("folder %s: %v", folder, err)
		}
	}
}
