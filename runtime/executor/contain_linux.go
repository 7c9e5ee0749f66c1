package executor

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

const (
	namespacesNote = "own user, process, network, IPC and host-name namespaces"
	nobody         = 65534
	raceFactor     = 4                // bytes of memory and its shadow for a byte of memory
	self           = "/proc/self/exe" // the program that runs, even after its file was replaced
)

// attributes are those of a child's process, with namespaces of its own or
// without. In its user namespace the child is not root, so that it holds no
// capability there after exec.
func attributes(isolated bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if isolated {
		a.Cloneflags = namespaces
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getgid(), Size: 1}}
	}
	return a
}

// contain limits this process. The limit on open files and the filter come
// last, since they also stop what the others need.
func contain(memory int64, seconds uint64) (Containment, error) {
	var c Containment
	runtime.LockOSThread() // what one thread gives up, the filter has the others give up
	defer runtime.UnlockOSThread()
	runtime.GOMAXPROCS(1)
	// The Go runtime opens a descriptor for its first timer. Have that done.
	time.AfterFunc(time.Hour, func() {}).Stop()
	c.note("nothing inherited", closeInherited())
	c.note("first to go when the host runs out of memory",
		os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0))
	c.note("no new privileges", renouncePrivileges())
	if raceBuild {
		used, err := dataInUse()
		if err != nil {
			return c, err
		}
		memory = used + raceFactor*memory
	}
	c.note(landlockNote, lockPaths())
	for _, l := range []struct {
		what     string
		resource int
		limit    uint64
	}{
		{"memory limit", unix.RLIMIT_DATA, uint64(memory)},
		{"CPU time limit", unix.RLIMIT_CPU, seconds}, // the Go runtime ignores the soft limit's signal
		{"no core dump", unix.RLIMIT_CORE, 0},
		{"no file written", unix.RLIMIT_FSIZE, 0},
		{"no file opened", unix.RLIMIT_NOFILE, 0},
	} {
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.limit, Max: l.limit}); err != nil {
			return c, fmt.Errorf("%s: %w", l.what, err)
		}
		c.note(l.what, nil)
	}
	c.note(seccompNote, filterCalls())
	return c, nil
}

// closeInherited closes what the worker held open without knowing, such as a
// descriptor of the shell that started it. It leaves the pipes, and what the Go
// runtime waits with.
func closeInherited() error {
	held, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, entry := range held {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= 2 {
			continue
		}
		to, err := os.Readlink("/proc/self/fd/" + entry.Name())
		if err != nil || strings.HasPrefix(to, "anon_inode:[event") {
			continue // the directory itself, which is closed again, or one of the runtime's
		}
		if err := unix.Close(fd); err != nil {
			return err
		}
	}
	return nil
}

// dataInUse returns what RLIMIT_DATA counts.
func dataInUse() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmData:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("/proc/self/status has no VmData")
}

// awaitExit waits until the child has ended and leaves it to be waited for, so
// that its number still belongs to it.
func awaitExit(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// killGroup kills every process of the group.
func killGroup(pid int) { _ = unix.Kill(-pid, unix.SIGKILL) }
