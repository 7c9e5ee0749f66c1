package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	loop "github.com/agentruntime/agentruntime/runtime"
)

const (
	defaultMemory = 256 << 20
	minMemory     = 96 << 20 // what the engine needs for values, inputs and output of the usual limits
	defaultCPU    = time.Minute
	defaultWarm   = 2
	startTimeout  = 10 * time.Second
)

var errClosed = errors.New("the executor is closed")

// Factory starts single-use children, some ahead of need. Its zero value is
// ready to use; its fields are not changed after the first New. It is safe for
// concurrent use.
type Factory struct {
	Timeout time.Duration // of a script that has none of its own; 30 s

	Memory int64         // of a child, RLIMIT_DATA; 256 MiB, at least 96 MiB
	CPU    time.Duration // of a child, in whole seconds; 1 min
	Warm   int           // children kept ready once New was called; 2, and none when negative

	// What one script may, unless it says so itself. Sizes are in bytes, of JSON where it is JSON, and at most 4 MiB.
	MaxCode    int // of a script; 256 KiB
	MaxValue   int // of what a script returns; 256 KiB
	MaxLogs    int // of all console output of a script; 64 KiB
	MaxMessage int // of an error's message; 4 KiB
	MaxInput   int // of a callback; 256 KiB
	MaxOutput  int // of a callback; 1 MiB
	MaxFile    int // of a file that a script attaches; 2 MiB

	MaxCallbacks  int // of a script; 1000
	MaxConcurrent int // callbacks in flight at once, the others wait; 8

	// Stderr, if set, is told the first few KiB that a child wrote to its
	// standard error, after it ended. It may be called concurrently.
	Stderr func(text string)

	starting sync.Once
	startErr error
	spawns   chan spawn
	warm     chan *Process
	closing  context.Context
	close    context.CancelFunc
	workers  sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	live      map[*Process]struct{}
	refused   error // why no child can have namespaces of its own
	contained Containment

	begin func(*exec.Cmd) error // starts a child; Start of the command
}

// spawn asks for one child to be started.
type spawn struct {
	command *exec.Cmd
	done    chan error
}

// New takes a child that is ready, or starts one. The error is never the fault
// of a script.
func (f *Factory) New(ctx context.Context) (*Process, error) {
	f.starting.Do(f.start)
	if f.startErr != nil {
		return nil, f.startErr
	}
	for f.closing.Err() == nil {
		select {
		case p := <-f.warm:
			if p == nil {
				return f.spawn(ctx)
			}
			if p.alive() {
				return p, nil
			}
			_ = p.Close() // it died while it waited; its end is no error of this call
		default:
			return f.spawn(ctx)
		}
	}
	return nil, errClosed
}

// Close kills all children, those that run a script too, and waits for them.
// New fails from then on. It is idempotent.
func (f *Factory) Close() error {
	f.starting.Do(func() { f.startErr = errClosed })
	if f.startErr != nil {
		return nil
	}
	f.mu.Lock()
	f.closed = true
	live := make([]*Process, 0, len(f.live))
	for p := range f.live {
		live = append(live, p)
	}
	f.mu.Unlock()
	f.close()
	for _, p := range live {
		_ = p.Close()
	}
	f.workers.Wait()
	return nil
}

// Containment tells how the children started so far are contained. Before the
// first New it is empty.
func (f *Factory) Containment() Containment {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Containment{Applied: slices.Clone(f.contained.Applied), Missing: slices.Clone(f.contained.Missing)}
}

func (f *Factory) start() {
	if f.startErr = f.check(); f.startErr != nil {
		return
	}
	if f.begin == nil {
		f.begin = (*exec.Cmd).Start
	}
	f.spawns = make(chan spawn)
	f.warm = make(chan *Process)
	f.live = make(map[*Process]struct{})
	f.closing, f.close = context.WithCancel(context.Background())
	f.workers.Go(f.forkLoop)
	for range max(or(f.Warm, defaultWarm), 0) {
		f.workers.Go(f.keepWarm)
	}
}

func (f *Factory) check() error {
	if self == "" {
		return errors.New("scripts run on Linux only: elsewhere the memory of a child cannot be limited")
	}
	if f.Memory != 0 && f.Memory < minMemory {
		return fmt.Errorf("executor memory of %d bytes is less than %d", f.Memory, int64(minMemory))
	}
	for _, size := range []int{f.MaxCode, f.MaxValue, f.MaxLogs, f.MaxMessage, f.MaxInput, f.MaxOutput, f.MaxFile} {
		if size < 0 || size > maxPart {
			return fmt.Errorf("executor size limit %d is not between 0 and %d", size, maxPart)
		}
	}
	if f.CPU < 0 {
		return errors.New("the executor's CPU time is negative")
	}
	return checkLimits(loop.ScriptLimits{Timeout: f.Timeout, Callbacks: f.MaxCallbacks, Concurrent: f.MaxConcurrent})
}

// checkLimits refuses what no script can be given.
func checkLimits(l loop.ScriptLimits) error {
	if l.Timeout < 0 || l.Callbacks < 0 || l.Callbacks > loop.MaxScriptCallbacks || l.Concurrent < 0 || l.Concurrent > loop.MaxScriptConcurrent ||
		min(l.Output, l.Logs) < 0 || max(l.Output, l.Logs) > loop.MaxScriptBytes {
		return fmt.Errorf("a limit of the script is out of range: a positive time-out, at most %d callbacks, %d at once, and %d bytes of output and of logs: %+v",
			loop.MaxScriptCallbacks, loop.MaxScriptConcurrent, loop.MaxScriptBytes, l)
	}
	return nil
}

// or returns v, or the default when v is zero.
func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// limits are those of one script.
func (f *Factory) limits(s loop.ScriptLimits) limits {
	return limits{
		Value: or(s.Output, or(f.MaxValue, 256<<10)), Logs: or(s.Logs, or(f.MaxLogs, 64<<10)), Message: or(f.MaxMessage, 4<<10),
		Input: or(f.MaxInput, 256<<10), Output: or(f.MaxOutput, 1<<20),
		Callbacks: or(s.Callbacks, or(f.MaxCallbacks, 1000)), Concurrent: or(s.Concurrent, or(f.MaxConcurrent, loop.DefaultScriptConcurrent)),
		File: or(f.MaxFile, 2<<20),
	}
}

// keepWarm has one child ready at a time. When it cannot start one it hands
// over nil, so that the next New starts a child itself and gets the error, and
// only then tries again.
func (f *Factory) keepWarm() {
	for f.closing.Err() == nil {
		p, err := f.spawn(f.closing)
		if err != nil {
			p = nil
		}
		select {
		case f.warm <- p:
		case <-f.closing.Done(): // Close ends p
		}
	}
}

// forkLoop starts the children. The kernel kills a child when the thread that
// started it ends, so all are started from one thread that stays.
func (f *Factory) forkLoop() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		select {
		case s := <-f.spawns:
			s.done <- f.begin(s.command)
		case <-f.closing.Done():
			return
		}
	}
}

// fork starts the command on the thread of forkLoop.
func (f *Factory) fork(command *exec.Cmd) error {
	s := spawn{command: command, done: make(chan error, 1)}
	select {
	case f.spawns <- s:
		return <-s.done
	case <-f.closing.Done():
		return errClosed
	}
}

// spawn starts a child and waits until it is ready.
func (f *Factory) spawn(ctx context.Context) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	p, err := f.startProcess()
	if err != nil {
		return nil, fmt.Errorf("start script process: %w", err)
	}
	stop := context.AfterFunc(ctx, p.kill)
	late := time.AfterFunc(startTimeout, p.kill)
	ready, err := p.wire.receive()
	inTime := stop() && late.Stop() // else it is being killed
	if err == nil && ready.Type == frameReady && inTime {
		if err = f.record(ready, p.refused); err == nil {
			return p, nil
		}
	}
	_ = p.Close()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, fmt.Errorf("start script process: it was not ready in %s (%v; %s): %s", startTimeout, err, p.state, p.stderr.text())
}

// record keeps how the child is contained, and why it has no namespaces of its own.
func (f *Factory) record(ready *frame, refused error) error {
	var contained Containment
	if err := json.Unmarshal(ready.Data, &contained); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	contained.note(namespacesNote, refused)
	f.contained = contained
	return nil
}

// startProcess starts a child in namespaces of its own, or without when the
// host does not allow them. What the host will never allow is not asked again;
// any other refusal, such as of one process too many, is this child's only.
func (f *Factory) startProcess() (*Process, error) {
	f.mu.Lock()
	refused := f.refused
	f.mu.Unlock()
	if refused == nil {
		p, err := f.fresh(attributes(true))
		if err == nil || f.closing.Err() != nil {
			return p, err
		}
		refused = err
	}
	p, err := f.fresh(attributes(false))
	if err != nil {
		return nil, err
	}
	p.refused = refused
	if slices.ContainsFunc([]error{syscall.EPERM, syscall.EACCES, syscall.EINVAL, syscall.ENOSYS}, func(lasting error) bool { return errors.Is(refused, lasting) }) {
		f.mu.Lock()
		f.refused = refused
		f.mu.Unlock()
	}
	return p, nil
}

func (f *Factory) fresh(attributes *syscall.SysProcAttr) (*Process, error) {
	p, err := newProcess(f, attributes)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	closed := f.closed
	f.live[p] = struct{}{}
	f.mu.Unlock()
	if closed {
		_ = p.Close()
		return nil, errClosed
	}
	return p, nil
}

func (f *Factory) forget(p *Process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.live, p)
}
