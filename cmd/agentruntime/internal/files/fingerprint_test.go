package files_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/files"
)

func TestAFingerprintChangesWithTheFilesAndNotWithoutThem(t *testing.T) {
	dir := write(t, map[string]string{"a/x.yaml": "1", "b/y.yml": "2", "b/notes.txt": "3", "real": "4"})
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	fingerprint := func() string {
		t.Helper()
		text, err := files.Fingerprint(a, "", b)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	later := time.Now().Add(time.Hour)
	seen := map[string]string{fingerprint(): "at first"}
	for _, change := range []struct {
		what  string
		make  func() error
		stays bool
	}{
		{"nothing", func() error { return nil }, true},
		{"another file", func() error { return os.WriteFile(filepath.Join(b, "notes.txt"), []byte("33"), 0o644) }, true},
		{"a hidden file", func() error { return os.WriteFile(filepath.Join(b, ".y.yaml"), []byte("33"), 0o644) }, true},
		{"a larger file", func() error { return os.WriteFile(filepath.Join(b, "y.yml"), []byte("22"), 0o644) }, false},
		{"a later file", func() error { return os.Chtimes(filepath.Join(b, "y.yml"), later, later) }, false},
		{"a new file", func() error { return os.WriteFile(filepath.Join(a, "z.yaml"), nil, 0o644) }, false},
		{"a renamed file", func() error { return os.Rename(filepath.Join(a, "z.yaml"), filepath.Join(a, "w.yaml")) }, false},
		{"a moved file", func() error { return os.Rename(filepath.Join(a, "w.yaml"), filepath.Join(b, "w.yaml")) }, false},
		{"a link to nothing", func() error { return os.Symlink("../real2", filepath.Join(a, "l.yaml")) }, false},
		{"what a link leads to", func() error { return os.Rename(filepath.Join(dir, "real"), filepath.Join(dir, "real2")) }, false},
		{"a removed file", func() error { return os.Remove(filepath.Join(a, "x.yaml")) }, false},
	} {
		must(change.make())
		text := fingerprint()
		if earlier, same := seen[text]; same != change.stays {
			t.Errorf("%s: the fingerprint is that %s", change.what, earlier)
		}
		seen[text] = "after " + change.what
	}
}

func TestAFolderThatIsGoneHasNoFingerprint(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	text, err := files.Fingerprint(dir)
	if text != "" || err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("fingerprint %q, error %v", text, err)
	}
}
