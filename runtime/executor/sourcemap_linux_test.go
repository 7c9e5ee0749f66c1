package executor

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	loop "github.com/agentruntime/agentruntime/runtime"
)

// The child may open no file at all, so this looks at the engine alone, in a
// process that may.
func TestTheEngineOpensNoSourceMap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "map")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	opened := watchOpens(t, path)
	if _, err := os.ReadFile(path); err != nil || !opened() {
		t.Fatalf("the watch does not see that a file is opened (%v)", err)
	}
	comment := `//# sourceMappingURL=file://` + path
	for _, code := range []string{
		"return 1\n" + comment,
		"return eval(`1\n" + comment + "`)",
		"return (0, eval)(`1\n" + comment + "`)",
		"return new Function(`return 1\n" + comment + "`)()",
		"return Object.getPrototypeOf(function*(){}).constructor(`return 1\n" + comment + "`)().next().value",
		"return await Object.getPrototypeOf(async () => {}).constructor(`return 1\n" + comment + "`)()",
	} {
		r := newRealm(&wire{in: new(bytes.Buffer), out: new(bytes.Buffer)})
		r.limit(new(Factory).limits(loop.ScriptLimits{}))
		if last := r.run(code); last.Type != frameDone || string(last.Data) != "1" {
			t.Errorf("%s: got %+v", code, last)
		}
		if opened() {
			t.Errorf("%s: the file was opened", code)
		}
	}
}

// watchOpens returns a function that reports whether the file was opened since
// it was last asked.
func watchOpens(t *testing.T, path string) func() bool {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	return func() bool {
		n, _ := unix.Read(fd, make([]byte, 4<<10))
		return n > 0
	}
}
