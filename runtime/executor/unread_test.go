//go:build linux

package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	loop "github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/catalogue"
)

// stuck is a pipe whose other end reads nothing.
type stuck struct{ closed chan struct{} }

func (s stuck) Write([]byte) (int, error) {
	<-s.closed
	return 0, os.ErrClosed
}

func TestAChildThatReadsNoAnswersIsGivenNoMore(t *testing.T) {
	p := stage(nil)
	p.wire.out = stuck{make(chan struct{})}
	returned := make(chan struct{}, 100)
	s := staged()
	s.Call = func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
		returned <- struct{}{}
		return nil, nil
	}
	l := p.factory.limits(loop.ScriptLimits{Callbacks: 100})
	r := &run{process: p, script: s, limits: l, parent: t.Context(), ctx: t.Context(), open: make(map[int]*frame)}
	calls := 0
	for ; calls < 100 && !r.over(); calls++ {
		r.handle(&frame{Type: frameCall, ID: calls + 1, Name: "now", Data: json.RawMessage("1")})
		if !r.over() {
			<-returned
		}
	}
	close(p.wire.out.(stuck).closed)
	r.running.Wait()
	// The first answer that is sent may have been read already.
	if fault, ok := r.err.(*Error); !ok || fault.Kind != loop.ScriptKilled || calls > l.Concurrent+2 {
		t.Errorf("after %d calls: %v", calls, r.err)
	}
}

func TestMoreInputInFlightThanIsAllowedEndsTheRun(t *testing.T) {
	large := json.RawMessage(`"` + strings.Repeat("x", 4_000_000) + `"`)
	for n, kind := range map[int]loop.ScriptErrorKind{4: loop.ScriptException, 5: loop.ScriptKilled} {
		p := stage(nil)
		p.factory = &Factory{MaxInput: 4 << 20}
		l := p.factory.limits(loop.ScriptLimits{})
		ctx, cancel := context.WithCancel(context.Background())
		r := &run{process: p, script: staged(), limits: l, parent: ctx, ctx: ctx, open: make(map[int]*frame)}
		for i := range n {
			r.handle(&frame{Type: frameCall, ID: i + 1, Name: "wait", Data: large})
		}
		r.end(nil, &Error{Kind: loop.ScriptException})
		cancel()
		r.running.Wait()
		if fault, ok := r.err.(*Error); !ok || fault.Kind != kind {
			t.Errorf("%d calls: %v, want kind %s", n, r.err, kind)
		}
	}
}

// sent keeps what is written to it.
type sent struct {
	mu   sync.Mutex
	size int
}

func (s *sent) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size += len(b)
	return len(b), nil
}

func TestNothingIsAnsweredAfterTheRunIsToEnd(t *testing.T) {
	for _, ended := range []bool{false, true} {
		var out sent
		p := stage(nil)
		p.wire.out = &out
		ctx, cancel := context.WithCancel(context.Background())
		r := &run{process: p, script: staged(), limits: p.factory.limits(loop.ScriptLimits{}), parent: ctx, ctx: t.Context(), open: make(map[int]*frame)}
		if ended {
			cancel()
		}
		r.answer(&frame{Type: frameCall, ID: 1, Name: "now", Data: json.RawMessage("1")})
		cancel()
		if (out.size == 0) != ended {
			t.Errorf("ended %t: %d bytes were sent", ended, out.size)
		}
	}
}

func TestAHostThatStartsNoChildIsAskedOnlyWhenOneIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 50
		refused, begun, closed := errors.New("no more processes"), 0, make(chan struct{})
		f := &Factory{Warm: 2, begin: func(*exec.Cmd) error {
			if begun++; begun > most {
				<-closed // else a loop without an end would not let the test end
			}
			return refused
		}}
		for range 4 {
			if _, err := f.New(t.Context()); !errors.Is(err, refused) {
				t.Errorf("got %v", err)
			}
			synctest.Wait()
		}
		// Each start is tried with and without namespaces: by New, and by what
		// keeps children ready, for the first time and after each child it hands over.
		if begun > 2*(4+2+4) {
			t.Errorf("%d children were begun", begun)
		}
		close(closed)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestBindingsAreCounted(t *testing.T) {
	names := make([]string, catalogue.MaxBindings+1)
	for i := range names {
		names[i] = fmt.Sprintf("desk.n%d", i)
	}
	if err := CheckBindings(names); err == nil {
		t.Errorf("%d are accepted", len(names))
	}
	if err := CheckBindings(names[1:]); err != nil {
		t.Error(err)
	}
}
