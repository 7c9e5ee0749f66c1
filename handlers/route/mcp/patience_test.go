package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/handlers/route/mcp"
)

// badVariable makes the actor misbehave once a session has begun, in one of these ways
// and, with a file after a colon, only if it can take the file away.
const badVariable = "MCP_ACTOR_BAD"

const (
	badDeaf     = "deaf"     // reads no more
	badMute     = "mute"     // reads on and says nothing
	badRequests = "requests" // sends requests without end
	badNotes    = "notes"    // sends notifications without end
)

func misbehave(bad string) {
	bad, file, once := strings.Cut(bad, ":")
	if once && os.Remove(file) != nil {
		return
	}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			os.Exit(1)
		}
		var m message
		_ = json.Unmarshal(line, &m)
		if answer, _ := reply(&m); answer != nil {
			_, _ = os.Stdout.Write(append(encode(answer), '\n'))
		}
		if m.Method == "notifications/initialized" {
			break
		}
	}
	pad := json.RawMessage(`{"pad":"` + strings.Repeat("x", 1000) + `"}`)
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	for n := 0; ; n++ {
		m := message{Version: "2.0", Method: "ping", Params: pad}
		switch bad {
		case badDeaf:
			select {}
		case badMute:
			if _, err := in.ReadBytes('\n'); err != nil {
				os.Exit(1)
			}
			continue
		case badRequests:
			m.ID, _ = json.Marshal(n)
		case badNotes:
			m.Method = "notifications/message"
		}
		if _, err := out.Write(append(encode(&m), '\n')); err != nil {
			os.Exit(1)
		}
	}
}

// timed makes one request of the actor that has some time.
func timed(p *mcp.Pool, limit time.Duration, input string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err := p.Carry(ctx, &handlers.Request{Capability: &events.Capability{Name: "x", Effect: events.EffectWrite, Route: route("s", "do")}, Header: map[string]string{}, Input: json.RawMessage(input)})
	return err
}

const large = 300_000 // bytes, more than a pipe holds

func TestACallEndsWithItsTimeAndAServerThatIsStuckIsBegunAgain(t *testing.T) {
	for _, bad := range []string{badDeaf, badMute} {
		witness := handlerstest.NewWitness(t)
		file := filepath.Join(t.TempDir(), "once")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s := program(witness)
		s.Env[badVariable] = bad + ":" + file
		pool, _ := newPool(t, map[string]mcp.Server{"s": s}, time.Now)
		pool.SetPatience(300*time.Millisecond, 300*time.Millisecond)
		input := `{"do":"answer","n":1,"pad":"` + strings.Repeat("x", large) + `"}`
		began := time.Now()
		err := timed(pool, 2*time.Second, input)
		if took := time.Since(began); err == nil || errors.Is(err, handlers.ErrNoService) || took > 5*time.Second {
			t.Errorf("%s: the call ended after %s with %v, want an error that leaves the effect open within its time", bad, took, err)
		}
		// What is under way when the server is killed ends with it; then there is a new one.
		for n := 0; err != nil; n++ {
			if err = timed(pool, 5*time.Second, input); n > 3 {
				t.Fatalf("%s: the server is still stuck: %v", bad, err)
			}
		}
	}
}

func TestAServerThatIsSlowWithOneCallAndAnswersOthersIsKept(t *testing.T) {
	pool, log := newPool(t, map[string]mcp.Server{"s": program(handlerstest.NewWitness(t))}, time.Now)
	pool.SetPatience(200*time.Millisecond, 200*time.Millisecond)
	if err := timed(pool, 10*time.Second, `{"do":"answer","n":1}`); err != nil {
		t.Fatal(err)
	}
	if err := timed(pool, 100*time.Millisecond, `{"do":"never","n":2}`); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 500*time.Millisecond; {
		var refused *handlers.ServiceError
		if _, err := call(t, pool, events.EffectWrite, route("s", "nosuch"), `{}`); !errors.As(err, &refused) {
			t.Fatal(err)
		}
	}
	pool.Close()
	if n := strings.Count(log.String(), "the actor knows"); n != 1 {
		t.Errorf("the server was begun %d times, want once: %s", n, log)
	}
}

func TestAServerThatFloodsIsEnded(t *testing.T) {
	for _, bad := range []string{badRequests, badNotes} {
		s := program(handlerstest.NewWitness(t))
		s.Env[badVariable] = bad
		pool, _ := newPool(t, map[string]mcp.Server{"s": s}, time.Now)
		err := timed(pool, 20*time.Second, `{}`)
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: the call ended with %v, want that the server was ended", bad, err)
		}
		pool.Close()
	}
}

func TestClosingThePoolEndsACallThatAServerDoesNotRead(t *testing.T) {
	pipe, read, closed := openPipe(t)
	s := program(handlerstest.NewWitness(t))
	s.Env[badVariable] = badDeaf
	s.Command = []string{"sh", "-c", "echo up >" + pipe + "; exec 9>" + pipe + ` "$0"`, os.Args[0]}
	pool, _ := newPool(t, map[string]mcp.Server{"s": s}, time.Now)
	ended := make(chan error, 1)
	go func() {
		ended <- timed(pool, time.Minute, `{"pad":"`+strings.Repeat("x", large)+`"}`)
	}()
	up(t, read)
	pool.Close()
	if err := <-ended; err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call ended with %v", err)
	}
	closed()
	gone(t, read)
}
