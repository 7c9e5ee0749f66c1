//go:build linux

package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentruntime/agentruntime/runtime/executor"

	loop "github.com/agentruntime/agentruntime/runtime"
)

// begin starts a script that waits in a callback, and returns its process once
// it waits there.
func begin(t *testing.T, ctx context.Context, f *executor.Factory) (*executor.Process, <-chan error) {
	t.Helper()
	p, err := f.New(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	waiting, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := p.Execute(ctx, &executor.Script{
			Code: "console.log('waiting'); await ping(); return 1", Bindings: []string{"ping"},
			Call: func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
				close(waiting)
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})
		ended <- err
	}()
	<-waiting
	return p, ended
}

func TestAChildKilledFromOutsideIsATypedError(t *testing.T) {
	p, ended := begin(t, context.Background(), newFactory(t, nil))
	defer p.Close()
	if err := unix.Kill(p.Pid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if fault := failure(t, <-ended, loop.ScriptKilled); !cmp.Equal(fault.Logs, []string{"waiting"}) || !strings.Contains(fault.Message, "killed") {
		t.Errorf("got %v with logs %q", fault, fault.Logs)
	}
}

func TestACancelledContextKillsTheChild(t *testing.T) {
	cause := errors.New("the run was cancelled")
	ctx, cancel := context.WithCancelCause(context.Background())
	p, ended := begin(t, ctx, newFactory(t, nil))
	cancel(cause)
	if err := <-ended; !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	if err := p.Close(); err != nil || exists(p.Pid()) {
		t.Errorf("close: %v; the process is there: %t", err, exists(p.Pid()))
	}
	if _, err := newFactory(t, nil).New(ctx); !errors.Is(err, cause) {
		t.Errorf("New with an ended context: %v", err)
	}
}

func TestClosingAProcessEndsItsScript(t *testing.T) {
	p, ended := begin(t, context.Background(), newFactory(t, nil))
	for range 2 {
		if err := p.Close(); err != nil || exists(p.Pid()) {
			t.Errorf("close: %v; the process is there: %t", err, exists(p.Pid()))
		}
	}
	var fault *executor.Error
	if err := <-ended; err == nil || errors.As(err, &fault) {
		t.Errorf("got %v, want an error that is not the script's", err)
	}
	if _, err := p.Execute(context.Background(), &executor.Script{}); err == nil {
		t.Error("a closed process ran a script")
	}
}

func TestClosingTheFactoryEndsEverything(t *testing.T) {
	f := &executor.Factory{Warm: 2}
	p, ended := begin(t, context.Background(), f)
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	var fault *executor.Error
	if err := <-ended; err == nil || errors.As(err, &fault) {
		t.Errorf("got %v, want an error that is not the script's", err)
	}
	if children := childProcesses(t); len(children) > 0 {
		t.Errorf("processes %v are left", children)
	}
	if _, err := f.New(context.Background()); err == nil {
		t.Error("a closed factory made a process")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	never := new(executor.Factory)
	if err := never.Close(); err != nil {
		t.Error(err)
	}
	if _, err := never.New(context.Background()); err == nil {
		t.Error("a factory that was closed before its first use made a process")
	}
}

func TestAProcessRunsOneScript(t *testing.T) {
	p, err := newFactory(t, nil).New(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Execute(context.Background(), &executor.Script{Code: "return 1"}); err != nil {
		t.Error(err)
	}
	if _, err := p.Execute(context.Background(), &executor.Script{Code: "return 1"}); err == nil {
		t.Error("it ran a second one")
	}
}

func TestAChildThatDiedIdleIsNotHandedOut(t *testing.T) {
	f := newFactory(t, &executor.Factory{Warm: 3})
	if _, err := execute(t, f, executor.Script{Code: "return 1"}); err != nil {
		t.Fatal(err)
	}
	killed := f.KillIdle()
	for range 4 {
		p, err := f.New(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(killed, p.Pid()) {
			t.Errorf("process %d was handed out dead", p.Pid())
		}
		if result, err := p.Execute(context.Background(), &executor.Script{Code: "return 1"}); err != nil || string(result.Value) != "1" {
			t.Errorf("got %v, %v", result, err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAChildIsContained(t *testing.T) {
	t.Setenv("EXECUTOR_TEST_SECRET", "secret")
	f := newFactory(t, nil)
	p, err := f.New(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	proc := fmt.Sprintf("/proc/%d/", p.Pid())
	environment, err := os.ReadFile(proc + "environ")
	if err != nil || string(environment) != "GOTRACEBACK=none\x00GOGC=50\x00GODEBUG=containermaxprocs=0\x00" {
		t.Errorf("its environment is %q, %v", environment, err)
	}
	if directory, err := os.Readlink(proc + "cwd"); err != nil || directory != "/" {
		t.Errorf("its directory is %q, %v", directory, err)
	}
	if group, err := unix.Getpgid(p.Pid()); err != nil || group != p.Pid() {
		t.Errorf("its group is %d, %v", group, err)
	}
	limits, err := os.ReadFile(proc + "limits")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"Max cpu time": "60 60", "Max file size": "0 0", "Max core file size": "0 0", "Max open files": "0 0",
		"Max data size": "268435456 268435456",
	}
	if executor.RaceBuild {
		delete(want, "Max data size")
	}
	for name, limit := range want {
		_, line, _ := strings.Cut(string(limits), name)
		line, _, _ = strings.Cut(line, "\n")
		if !strings.HasPrefix(strings.Join(strings.Fields(line), " "), limit) {
			t.Errorf("%s is %q, want %s", name, line, limit)
		}
	}
	contained := f.Containment()
	if all := len(contained.Applied) + len(contained.Missing); all != 11 || !slices.Contains(contained.Applied, "memory limit") {
		t.Errorf("containment is %+v", contained)
	}
	if first := "first to go when the host runs out of memory"; slices.Contains(contained.Applied, first) {
		if score, err := os.ReadFile(proc + "oom_score_adj"); err != nil || string(score) != "1000\n" {
			t.Errorf("it is said to be %s, and its score is %q, %v", first, score, err)
		}
	}
	checkHeld(t, p.Pid())
	own, here := namespace(t, proc), namespace(t, "/proc/self/")
	if isolated := slices.Contains(contained.Applied, executor.NamespacesNote); isolated && own == here {
		t.Errorf("its network namespace is %s, which is ours", own)
	}
}

func namespace(t *testing.T, proc string) string {
	t.Helper()
	name, err := os.Readlink(proc + "ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func TestARefusalOfNamespacesThatMayPassIsMetAnew(t *testing.T) {
	for _, c := range []struct {
		refusal error
		asked   int // for three children
	}{
		{syscall.EAGAIN, 3}, {syscall.ENOSPC, 3}, {syscall.ENOMEM, 3},
		{syscall.EPERM, 1}, {syscall.EINVAL, 1}, {syscall.ENOSYS, 1},
	} {
		t.Run(c.refusal.Error(), func(t *testing.T) {
			f := newFactory(t, nil)
			asked := f.RefuseIsolation(c.refusal)
			for range 3 {
				if _, err := execute(t, f, executor.Script{Code: "return 1"}); err != nil {
					t.Fatal(err)
				}
				if said := f.Containment().String(); !strings.Contains(said, executor.NamespacesNote+": ") || !strings.Contains(said, c.refusal.Error()) {
					t.Errorf("the refusal is not told of: %s", said)
				}
			}
			if asked() != c.asked {
				t.Errorf("namespaces were asked for %d times, not %d", asked(), c.asked)
			}
		})
	}
}

func TestTheCPUTimeIsLimited(t *testing.T) {
	_, err := execute(t, newFactory(t, &executor.Factory{Warm: -1, CPU: time.Second}), executor.Script{Code: "for (;;);", Limits: loop.ScriptLimits{Timeout: 20 * time.Second}})
	if fault := failure(t, err, loop.ScriptTimeout); !strings.Contains(fault.Message, "CPU") {
		t.Errorf("got %v", fault)
	}
}

func TestTheHostIsToldWhatAChildWrote(t *testing.T) {
	told := make(chan string, 1)
	f := newFactory(t, &executor.Factory{Warm: -1, Stderr: func(text string) { told <- text }})
	_, err := execute(t, f, executor.Script{Code: "eval('('.repeat(5e6))", Limits: loop.ScriptLimits{Timeout: 20 * time.Second}})
	failure(t, err, loop.ScriptMemory)
	if text := <-told; !strings.Contains(text, "stack exceeds") || len(text) > 4<<10 {
		t.Errorf("the host was told %d bytes: %q", len(text), text)
	}
}

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	for _, f := range []*executor.Factory{
		{Memory: 96<<20 - 1}, {MaxValue: 5 << 20}, {MaxCode: -1}, {CPU: -1}, {MaxCallbacks: -1}, {MaxConcurrent: -1},
	} {
		if _, err := newFactory(t, f).New(context.Background()); err == nil {
			t.Errorf("%+v is accepted", f)
		}
	}
}
