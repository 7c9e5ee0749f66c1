package executor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentruntime/agentruntime/runtime/executor"
)

// The names under which the tests' program is a worker that is killed, and a
// process that takes the file system from itself.
const (
	workerName = "agentruntime-worker"
	lockedName = "agentruntime-locked"
)

// worker runs a script that never ends and never looks at its pipes again. It
// prints the process number of the child once that is so.
func worker() {
	f := &executor.Factory{Warm: -1}
	p, err := f.New(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = p.Execute(context.Background(), &executor.Script{Code: "ping(); for (;;);", Bindings: []string{"ping"},
		Call: func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
			fmt.Println(p.Pid())
			<-ctx.Done()
			return nil, ctx.Err()
		}})
	fmt.Println(err)
}

func TestAChildDiesWithItsWorker(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{workerName}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var child int
	_, scanned := fmt.Fscan(out, &child)
	fd := -1
	if scanned == nil {
		fd, scanned = unix.PidfdOpen(child, 0)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	if scanned != nil {
		t.Fatal(scanned)
	}
	defer unix.Close(fd)
	// It is readable once the process has ended.
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 5000); n != 1 {
		t.Errorf("the child is still running (%d, %v)", n, err)
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
			t.Error(err)
		}
	}
}

// locked has threads, takes the file system from itself, and prints what one of
// them can still open.
func locked() {
	const threads = 4
	ready, lock, done := make(chan struct{}), make(chan struct{}), make(chan error)
	for range threads {
		go func() {
			runtime.LockOSThread()
			ready <- struct{}{}
			<-lock
			fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY, 0)
			if err == nil {
				_ = unix.Close(fd)
			}
			done <- err
		}()
	}
	for range threads {
		<-ready
	}
	if privileges, paths := executor.Lock(); privileges != nil || paths != nil {
		fmt.Println("not here:", privileges, paths)
		return
	}
	close(lock)
	for range threads {
		if err := <-done; err != unix.EACCES {
			fmt.Println("a thread that was there before opened a folder:", err)
		}
	}
}

// What the filter of system calls refuses hides what this refuses, so it is
// looked at alone.
func TestEveryThreadLosesTheFileSystem(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{lockedName}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if text := string(out); strings.HasPrefix(text, "not here:") {
		t.Log(text)
	} else if text != "" {
		t.Error(text)
	}
}
