package executor

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	loop "github.com/agentruntime/agentruntime/runtime"
)

// Process is one child. It runs one script.
type Process struct {
	factory *Factory
	command *exec.Cmd
	wire    *wire
	in, out *os.File
	stderr  *head
	refused error // why it has no namespaces of its own

	exited chan struct{}    // closed once the child is waited for
	state  *os.ProcessState // set before that

	mu     sync.Mutex
	gone   bool // its number may belong to another process
	used   bool
	closed bool
}

// newProcess starts a child, which is not ready yet.
func newProcess(f *Factory, attributes *syscall.SysProcAttr) (*Process, error) {
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer childIn.Close()
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	defer childOut.Close()
	p := &Process{
		factory: f, in: in, out: out, stderr: new(head), exited: make(chan struct{}),
		wire: &wire{in: bufio.NewReaderSize(out, 16<<10), out: in, max: f.limits(loop.ScriptLimits{}).fromChild()},
	}
	p.command = &exec.Cmd{
		Path: self, Args: childArguments(or(f.Memory, defaultMemory), or(f.CPU, defaultCPU)),
		Env: []string{"GOTRACEBACK=none", "GOGC=50", "GODEBUG=containermaxprocs=0"}, Dir: "/",
		Stdin: childIn, Stdout: childOut, Stderr: p.stderr, SysProcAttr: attributes,
	}
	if err := f.fork(p.command); err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	go p.wait()
	return p, nil
}

// wait waits for the child. What is left of its group goes with it.
func (p *Process) wait() {
	pid := p.command.Process.Pid
	awaitExit(pid)
	p.mu.Lock()
	killGroup(pid)
	p.gone = true
	p.mu.Unlock()
	_ = p.command.Wait() // the state says it all
	p.state = p.command.ProcessState
	if text := p.stderr.text(); text != "" && p.factory.Stderr != nil {
		p.factory.Stderr(text)
	}
	close(p.exited)
}

func (p *Process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the child and does not wait for that.
func (p *Process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		killGroup(p.command.Process.Pid)
	}
}

// Close kills the child and waits for it. A script that runs ends with an
// error. It is idempotent and always returns nil.
func (p *Process) Close() error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.mu.Unlock()
	p.kill()
	<-p.exited
	if first {
		_ = p.in.Close()
		_ = p.out.Close()
		p.factory.forget(p)
	}
	return nil
}

// autopsy says what ended a child that nobody here killed.
//
// The Go runtime exits with 2 on what no recover sees, and of that a script can
// cause only an end of memory or stack. The text is no sign of it: when memory
// ends inside the collector, the runtime says that it met a nil pointer.
func (p *Process) autopsy() *Error {
	if p.state == nil {
		return &Error{Kind: loop.ScriptKilled, Message: "the process of the script cannot be waited for"}
	}
	cpu := or(p.factory.CPU, defaultCPU)
	stderr := p.stderr.text()
	switch used := p.state.UserTime() + p.state.SystemTime(); {
	case p.state.ExitCode() == -1 && used > cpu-cpu/8:
		return &Error{Kind: loop.ScriptTimeout, Message: fmt.Sprintf("the script used more than %s of CPU time", cpu)}
	case strings.Contains(stderr, "stack exceeds"):
		return &Error{Kind: loop.ScriptMemory, Message: "the script, or a value of it, is nested too deeply"}
	case p.state.ExitCode() == 2 || raceBuild && p.state.ExitCode() == raceExit:
		return &Error{Kind: loop.ScriptMemory, Message: fmt.Sprintf("the script needs more than %d MiB of memory", or(p.factory.Memory, defaultMemory)>>20)}
	}
	return &Error{Kind: loop.ScriptKilled, Message: fmt.Sprintf("the process of the script ended (%s)", p.state)}
}

// raceExit is how the race detector ends a process that has no memory for it.
const raceExit = 66

// head keeps the beginning of what is written to it.
type head struct {
	mu   sync.Mutex
	kept []byte
}

const headSize = 4 << 10

func (h *head) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = append(h.kept, b[:min(len(b), headSize-len(h.kept))]...)
	return len(b), nil
}

func (h *head) text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.TrimSpace(cut(string(h.kept), headSize))
}
