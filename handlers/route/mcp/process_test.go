package mcp_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/route/mcp"
)

// stubborn is a server that does not end when its input does, and holds a pipe open
// as long as it lives.
func stubborn(pipe string) mcp.Server {
	return mcp.Server{Command: []string{"sh", "-c", "trap '' TERM HUP; echo up >" + pipe + "; exec sleep 1000 9>" + pipe}}
}

// work is a worker that begins the stubborn server.
func work(pipe string) {
	pool := mcp.New(mcp.Options{Servers: map[string]mcp.Server{"s": stubborn(pipe)}, Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	_, _ = pool.Carry(context.Background(), &handlers.Request{Capability: &events.Capability{Route: events.Route{MCP: &events.MCPRoute{Server: "s", Tool: "t"}}}})
}

// openPipe returns the reading end of a new pipe with a name. Both ends are open, so
// that the server's end can come and go: closed ends the test's own.
func openPipe(t *testing.T) (name string, read *os.File, closed func()) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	both, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	read, err = os.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = read.Close(); _ = both.Close() })
	return name, read, func() { _ = both.Close() }
}

// gone returns when nobody holds the pipe open any more.
func gone(t *testing.T, read *os.File) {
	t.Helper()
	if err := read.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(read)
	if err != nil || strings.Contains(string(rest), "up") {
		t.Errorf("the server still lives: %q, %v", rest, err)
	}
}

func up(t *testing.T, read *os.File) {
	t.Helper()
	line := make([]byte, 3)
	if _, err := io.ReadFull(read, line); err != nil || string(line) != "up\n" {
		t.Fatalf("the server did not begin: %q, %v", line, err)
	}
}

func TestAKilledWorkerTakesItsServersWithIt(t *testing.T) {
	pipe, read, closed := openPipe(t)
	worker := exec.Command(os.Args[0])
	worker.Env = append(os.Environ(), workerVariable+"="+pipe)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	up(t, read)
	_ = worker.Process.Kill()
	_ = worker.Wait()
	closed()
	gone(t, read)
}

func TestACallWithoutTimeDoesNotEndAServerThatIsBegunAndClosingDoes(t *testing.T) {
	pipe, read, closed := openPipe(t)
	pool, _ := newPool(t, map[string]mcp.Server{"s": stubborn(pipe)}, time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := pool.Carry(ctx, &handlers.Request{Capability: &events.Capability{Route: route("s", "t")}})
		ended <- err
	}()
	up(t, read)
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "still being begun") {
		t.Errorf("the call ended with %v", err)
	}
	pool.Close()
	closed()
	gone(t, read)
}

func TestAProgramThatCannotBeBegunIsHeard(t *testing.T) {
	pool, _ := newPool(t, map[string]mcp.Server{"s": {Command: []string{"sh", "-c", "for n in one two three four; do echo line $n >&2; done; printf 'no such folder: /nonexistent' >&2; exit 3"}}}, time.Now)
	_, err := call(t, pool, events.EffectRead, route("s", "t"), `{}`)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "line three\nline four\nno such folder: /nonexistent") || strings.Contains(err.Error(), "line two") {
		t.Errorf("the call ended with %v", err)
	}
}
