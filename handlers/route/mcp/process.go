package mcp

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// inherited are the variables that a server has of the worker's environment. The
// others may hold keys.
var inherited = []string{"PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "TZ"}

// closing is how long a server has to end by itself once its input is closed.
const closing = 2 * time.Second

// process is a server that was started here.
type process struct {
	command *exec.Cmd
	in, out *os.File
	taking  time.Duration // in which it must take a message
	exited  chan struct{}
	stderr  *lines

	mu     sync.Mutex
	gone   bool // its number may belong to another process
	killed bool // before it ended by itself
}

// startProcess starts a server. The kernel kills it when the thread that started it
// ends, so that thread stays until the server has ended.
func startProcess(s *Server, stderr *lines, taking time.Duration) (*process, error) {
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
	p := &process{in: in, out: out, taking: taking, stderr: stderr, exited: make(chan struct{}), command: exec.Command(s.Command[0], s.Command[1:]...)}
	p.command.Dir, p.command.Env = s.Dir, environment(s.Env)
	p.command.Stdin, p.command.Stdout, p.command.Stderr = childIn, childOut, stderr
	p.command.SysProcAttr, p.command.WaitDelay = attributes(), closing
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.command.Start()
		started <- err
		if err == nil {
			p.wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	return p, nil
}

func environment(own map[string]string) []string {
	var env []string
	for _, name := range inherited {
		if value, set := os.LookupEnv(name); set {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range own {
		env = append(env, name+"="+value) // the last one counts
	}
	return env
}

// input is the server's input, as a transport writes to it.
type input struct{ *process }

// Write writes one message. A server that does not take it in time is killed: the rest
// of the message could not be told from the next one.
func (i input) Write(message []byte) (int, error) {
	if err := i.in.SetWriteDeadline(time.Now().Add(i.taking)); err != nil {
		return 0, err
	}
	n, err := i.in.Write(message)
	if err != nil {
		i.kill()
	}
	return n, err
}

// Close closes the input, which tells the server to end.
func (i input) Close() error { return i.in.Close() }

// wait waits for the server. What is left of its group goes with it.
func (p *process) wait() {
	pid := p.command.Process.Pid
	awaitExit(pid)
	p.mu.Lock()
	killGroup(pid)
	p.gone = true
	p.mu.Unlock()
	_ = p.command.Wait() // how it ended is asked for by whoever could not begin it
	close(p.exited)
}

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the server at once.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		p.killed = true
		killGroup(p.command.Process.Pid)
	}
}

// close closes the server's input, which tells it to end, and ends it when it does
// not. It returns when nothing of it is left.
func (p *process) close() {
	_ = p.in.Close()
	late := time.AfterFunc(closing, p.kill)
	<-p.exited
	late.Stop()
	_ = p.out.Close()
}

// epitaph says how a server failed that has ended, and what it wrote last. It is "" when
// there is nothing to say.
func (p *process) epitaph() string {
	<-p.exited
	p.mu.Lock()
	defer p.mu.Unlock()
	said := ""
	if state := p.command.ProcessState; !p.killed && state != nil && !state.Success() {
		said = "; it ended with " + state.String()
	}
	if last := p.stderr.latest(); last != "" {
		said += "; it wrote on its standard error: " + last
	}
	return said
}

// The bounds of what a server may write to the log, in bytes: of one line, and of
// one process.
const (
	maxLine  = 1 << 10
	maxLines = 256 << 10
)

// maxLatest is how many lines are kept of what a server wrote last.
const maxLatest = 3

// lines writes what a server says on its standard error to the log.
type lines struct {
	server string
	logger *slog.Logger

	mu   sync.Mutex
	line []byte
	said int
	last []string
}

// Write never fails: a server is not to stand still for its log.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range b {
		if c != '\n' {
			switch n := len(l.line); {
			case n < maxLine:
				l.line = append(l.line, c)
			case n == maxLine:
				l.line = append(l.line, "…"...) // what is cut says so, to the redactor too
			}
			continue
		}
		l.say()
	}
	return len(b), nil
}

func (l *lines) say() {
	text := strings.ToValidUTF8(strings.TrimSpace(string(l.line)), "\uFFFD")
	l.line = l.line[:0]
	if text != "" {
		l.last = append(l.last[max(0, len(l.last)-maxLatest+1):], text)
	}
	switch before := l.said; {
	case text == "" || before > maxLines:
	default:
		if l.said += len(text); l.said > maxLines {
			l.logger.Warn("an MCP server writes too much to its standard error; the rest is dropped", "server", l.server)
			return
		}
		l.logger.Info("an MCP server wrote to its standard error", "server", l.server, "text", text)
	}
}

// latest returns the last lines of a server that has ended. They are whole, so that a
// secret in them can be told.
func (l *lines) latest() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.say() // a last line may have no end
	return strings.Join(l.last, "\n")
}

// commandOf names a program in an error, without its arguments, which may hold what
// is not to be shown.
func commandOf(s *Server) string { return fmt.Sprintf("%q", s.Command[0]) }
