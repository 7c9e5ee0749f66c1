package executor_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentruntime/agentruntime/runtime/executor"
)

// slow is set where the larger tests are run.
var slow = os.Getenv("AGENTRUNTIME_SLOW") != ""

// opens tells which processes of the machine have opened a file. Only root may
// ask the kernel; for others it stays silent.
type opens struct{ fd int }

func watchFiles(t *testing.T) *opens {
	t.Helper()
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_FID|unix.FAN_UNLIMITED_QUEUE|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK, 0)
	if err != nil {
		t.Logf("no watch over opened files: %v", err)
		return &opens{-1}
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	for _, place := range []string{"/", os.TempDir()} {
		if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD|unix.FAN_MARK_FILESYSTEM, unix.FAN_OPEN|unix.FAN_OPEN_EXEC, unix.AT_FDCWD, place); err != nil {
			t.Logf("no watch over opened files: %v", err)
			return &opens{-1}
		}
	}
	o := &opens{fd}
	if f, err := os.Create(filepath.Join(t.TempDir(), "control")); err == nil {
		_ = f.Close()
	}
	if !o.since()[os.Getpid()] {
		t.Error("the watch does not see that this process opens a file")
	}
	return o
}

// since returns the processes that have opened a file since it was last asked.
// The kernel queues an event before open returns.
func (o *opens) since() map[int]bool {
	seen := make(map[int]bool)
	buf := make([]byte, 64<<10)
	for o.fd >= 0 {
		n, err := unix.Read(o.fd, buf)
		if err != nil || n == 0 {
			break
		}
		for at := 0; at+24 <= n; at += int(binary.NativeEndian.Uint32(buf[at:])) {
			seen[int(int32(binary.NativeEndian.Uint32(buf[at+20:])))] = true
		}
	}
	return seen
}

// checkHeld looks at a child from outside: it holds nothing but its pipes and
// what the Go runtime waits with, and can get nothing more.
func checkHeld(t *testing.T, pid int) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", pid)
	held, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range held {
		to, err := os.Readlink(proc + "fd/" + fd.Name())
		if err != nil || !strings.HasPrefix(to, "pipe:") && !strings.HasPrefix(to, "anon_inode:[event") {
			t.Errorf("it holds descriptor %s: %s, %v", fd.Name(), to, err)
		}
	}
	threads, err := filepath.Glob(proc + "task/*/status")
	if err != nil || len(threads) == 0 {
		t.Fatalf("it has no threads: %v", err)
	}
	for _, thread := range threads {
		status, err := os.ReadFile(thread)
		if err != nil {
			continue // the thread has ended
		}
		for _, line := range []string{"NoNewPrivs:\t1", "Seccomp:\t2"} {
			if !strings.Contains(string(status), line) {
				t.Errorf("%s lacks %q", thread, line)
			}
		}
	}
}

// What is tried here is what a script that broke out of the engine would try.
func TestAContainedProcessReachesNothing(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{executor.ProbeName}
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "" {
		t.Errorf("%v\n%s", err, out)
	}
}

// probe contains this process and prints what it can still do.
func probe() {
	parent := os.Getppid()
	if _, err := executor.Contain(256<<20, 60); err != nil {
		fmt.Println("contain:", err)
	}
	// With the limit on descriptors lifted only the filter would be left, but
	// it cannot be lifted.
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 100, Max: 100}); err == nil {
		fmt.Println("it raised its limit of open files")
	}
	for _, try := range []struct {
		what string
		do   func() error
	}{
		{"opened a file", func() error { _, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0); return err }},
		{"made a file", func() error { return unix.Mknod(filepath.Join(os.TempDir(), "made"), unix.S_IFREG|0o600, 0) }},
		{"removed a file", func() error { return denied(unix.Unlink("/nowhere")) }},
		{"looked at a file", func() error { return unix.Stat("/etc/passwd", new(unix.Stat_t)) }},
		{"made a socket", func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); return err }},
		{"made a pipe", func() error { return unix.Pipe(make([]int, 2)) }},
		{"signalled its parent", func() error { return unix.Kill(parent, 0) }},
		{"signalled a thread of its parent", func() error { return denied(unix.Tgkill(parent, parent, 0)) }},
		{"executed a program", func() error { return denied(unix.Exec("/bin/true", []string{"true"}, nil)) }},
		{"traced its parent", func() error { return unix.PtraceAttach(parent) }},
		{"started a process", func() error { return call(unix.SYS_CLONE, uintptr(unix.SIGCHLD)) }},
		{"started a process by clone3", func() error { return call(unix.SYS_CLONE3, 0) }},
		{"made an io_uring", func() error { return denied(call(unix.SYS_IO_URING_SETUP, 1)) }},
		{"moved its root", func() error { return unix.Chroot("/") }},
		{"left its namespaces", func() error { return unix.Unshare(unix.CLONE_NEWUSER) }},
	} {
		if try.do() == nil {
			fmt.Println("it", try.what)
		}
	}
}

// denied returns an error only if it is the one of a refusal.
func denied(err error) error {
	if err == unix.EPERM {
		return err
	}
	return nil
}

func call(number, argument uintptr) error {
	pid, _, errno := unix.RawSyscall(number, argument, 0, 0)
	if errno != 0 {
		return errno
	}
	if pid == 0 && number == unix.SYS_CLONE {
		unix.Exit(0) // the child that must not be
	}
	return nil
}

// The tests above run as whoever runs them, in CI as root. Here the hostile
// scripts run as somebody whom the host gives nothing.
func TestAnOrdinaryUserIsProtectedAlike(t *testing.T) {
	if os.Getuid() != 0 {
		return // the test of the corpus has just done that
	}
	chosen := "^(eval_of_deep_source|large_repeat|string_doubling|loop|back-reference_regex|flood_of_callbacks|proxy_as_input|constructor_walk_to_the_host|huge_value)$"
	if slow {
		chosen = "."
	}
	cmd := exec.Command("/proc/self/exe", "-test.count=1", "-test.v", "-test.run=^TestAHostileScriptEndsAloneAndInTime$/"+chosen)
	cmd.Env = []string{"TMPDIR=/tmp", "PATH=/", "AGENTRUNTIME_SLOW=1"} // it chooses by name
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if ran := strings.Count(string(out), "\n    --- PASS"); err != nil || ran < 9 {
		t.Errorf("%d scripts passed, %v\n%s", ran, err, out)
	}
}
