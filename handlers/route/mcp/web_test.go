package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/route/mcp"
)

// stranger is a server at an address that answers calls of the tool "slow" when it is
// let, and others in its own way.
type stranger struct {
	answer  func(w http.ResponseWriter, r *http.Request, right []byte)
	arrived chan struct{} // told of each slow call
	let     chan struct{} // closed to let them be answered
	begun   atomic.Int32
	ended   chan string   // told of each session that is ended by the client
	replied chan string   // told of each answer to a request of the server
	deaf    chan struct{} // closed to take those answers; nil takes them at once
	listed  []string      // pages of tools/list, instead of the actor's

	// before answers a message instead, when it reports true; nil answers none.
	before func(w http.ResponseWriter, r *http.Request, m *message) bool
}

// serveStranger returns a pool that knows the stranger as s.
func serveStranger(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, right []byte)) (*stranger, *mcp.Pool) {
	t.Helper()
	s := &stranger{answer: answer, arrived: make(chan struct{}, 8), let: make(chan struct{}), ended: make(chan string, 8), replied: make(chan string, 128)}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	pool := mcp.New(mcp.Options{Servers: map[string]mcp.Server{"s": {URL: server.URL}}, Rules: local, Logger: slog.New(slog.DiscardHandler), Version: "1", Now: time.Now})
	t.Cleanup(pool.Close)
	return s, pool
}

func (s *stranger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodDelete {
		s.ended <- r.Header.Get("Mcp-Session-Id")
		return
	}
	body, _ := io.ReadAll(r.Body)
	var m message
	_ = json.Unmarshal(body, &m)
	if s.before != nil && s.before(w, r, &m) {
		return
	}
	if len(m.ID) == 0 {
		if m.Method == "notifications/cancelled" {
			w.WriteHeader(http.StatusBadRequest) // which is nothing to end a session for
			return
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if m.Method == "" {
		s.replied <- string(body)
		if s.deaf != nil {
			<-s.deaf
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	answer, _ := reply(&m)
	if m.Method == "tools/list" && s.listed != nil {
		var p struct {
			Cursor string `json:"cursor"`
		}
		_ = json.Unmarshal(m.Params, &p)
		answer.Result = json.RawMessage(s.listed[len(p.Cursor)])
	}
	if m.Method != "tools/call" {
		if m.Method == "initialize" {
			w.Header().Set("Mcp-Session-Id", fmt.Sprint("session-", s.begun.Add(1)))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(encode(answer))
		return
	}
	var p struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(m.Params, &p)
	answer.Error, answer.Result = nil, json.RawMessage(`{"content":[],"structuredContent":{"n":1}}`)
	if p.Name == "odd" {
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.answer(w, r, encode(answer))
		return
	}
	if p.Name == "slow" {
		s.arrived <- struct{}{}
		select {
		case <-s.let:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(encode(answer))
}

// ask calls a tool of the stranger within a time.
func ask(p *mcp.Pool, tool string, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	out, err := p.Carry(ctx, &handlers.Request{Capability: &events.Capability{Name: "mcp.s." + tool, Effect: events.EffectWrite, Route: route("s", tool)}, Header: map[string]string{}, Input: json.RawMessage(`{}`)})
	return string(out), err
}

// begin makes a call in the background.
func begin(p *mcp.Pool, tool string, limit time.Duration) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := ask(p, tool, limit)
		ended <- err
	}()
	return ended
}

// patience bounds the waits of these tests.
const patience = 20 * time.Second

// within waits for a call that is under way.
func within(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
		t.Fatal("it goes on")
		return nil
	}
}

func kind(w http.ResponseWriter, contentType string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
}

func TestAnAnswerThatBreaksTheProtocolIsOfItsOwnCallAlone(t *testing.T) {
	const (
		answered = iota // what the call comes to
		refused
		open
	)
	other := func(right []byte) []byte { return bytes.Replace(right, []byte(`"id":`), []byte(`"id":1`), 1) }
	for name, c := range map[string]struct {
		want   int
		short  bool // the call has little time
		answer func(w http.ResponseWriter, r *http.Request, right []byte)
	}{
		"401": {refused, false, func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			http.Error(w, "who are you", http.StatusUnauthorized)
		}},
		"403": {refused, false, func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			http.Error(w, "the firewall says no", http.StatusForbidden)
		}},
		"a refusal without end": {refused, false, func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write(bytes.Repeat([]byte("x"), 5<<20))
		}},
		"500": {open, false, func(w http.ResponseWriter, _ *http.Request, _ []byte) { http.Error(w, "oops", 500) }},
		"a redirect": {open, false, func(w http.ResponseWriter, r *http.Request, _ []byte) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}},
		"another type": {open, false, func(w http.ResponseWriter, _ *http.Request, right []byte) {
			kind(w, "text/html")
			_, _ = w.Write(right)
		}},
		"a body that stalls": {open, true, func(w http.ResponseWriter, r *http.Request, _ []byte) {
			kind(w, "application/json")
			<-r.Context().Done()
		}},
		"a refusal that stalls": {open, true, func(w http.ResponseWriter, r *http.Request, _ []byte) {
			w.WriteHeader(http.StatusForbidden)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}},
		"a body that is too large": {open, false, func(w http.ResponseWriter, _ *http.Request, right []byte) {
			kind(w, "application/json")
			_, _ = w.Write(append(bytes.Repeat([]byte(" "), 5<<20), right...))
		}},
		"no JSON": {open, false, func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			kind(w, "application/json")
			_, _ = io.WriteString(w, "<html>")
		}},
		"the answer to another call": {open, false, func(w http.ResponseWriter, _ *http.Request, right []byte) {
			kind(w, "application/json")
			_, _ = w.Write(other(right))
		}},
		"a session of another name": {answered, false, func(w http.ResponseWriter, _ *http.Request, right []byte) {
			w.Header().Set("Mcp-Session-Id", "session-of-another")
			kind(w, "application/json")
			_, _ = w.Write(right)
		}},
		"events that break off behind a name": {open, false, func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			kind(w, "text/event-stream")
			_, _ = io.WriteString(w, "id: 1\ndata: \n\n")
		}},
		"an event that is too large": {open, false, func(w http.ResponseWriter, _ *http.Request, right []byte) {
			kind(w, "text/event-stream")
			_, _ = fmt.Fprintf(w, "data: %s%s\n\n", strings.Repeat(" ", 5<<20), right)
		}},
		"an event that is no message": {open, false, func(w http.ResponseWriter, r *http.Request, _ []byte) {
			kind(w, "text/event-stream")
			_, _ = io.WriteString(w, "data: <html>\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done() // the client does not wait for more
		}},
		"events that stall": {open, true, func(w http.ResponseWriter, r *http.Request, _ []byte) {
			kind(w, "text/event-stream")
			<-r.Context().Done()
		}},
		"more requests than have room": {open, false, func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			kind(w, "text/event-stream")
			for n := range 100 {
				_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"q%d\",\"method\":\"ping\"}\n\n", n)
			}
		}},
		"other events before the answer": {answered, false, func(w http.ResponseWriter, _ *http.Request, right []byte) {
			kind(w, "text/event-stream")
			_, _ = fmt.Fprintf(w, ": hello\nretry: 5\nid: 1\ndata:\n\nno colon\nevent: other\ndata: <html>\n\ndata: %s\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\nevent: message\r\ndata: %s\r\n\r\nid: 2\ndata: <html>\n\n",
				other(right), bytes.Replace(right, []byte(`,"result"`), []byte("\ndata: ,\"result\""), 1))
		}},
		"101": {open, false, func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			conn, buffered, err := w.(http.Hijacker).Hijack()
			if err != nil {
				panic(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			_ = buffered.Flush()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pool := serveStranger(t, c.answer)
			bystander := begin(pool, "slow", patience)
			<-s.arrived
			limit := patience
			if c.short {
				limit = 200 * time.Millisecond
			}
			odd := begin(pool, "odd", limit)
			err := within(t, odd)
			var told *handlers.ServiceError
			is := open
			if err == nil {
				is = answered
			} else if errors.As(err, &told) {
				is = refused
			}
			if is != c.want || errors.Is(err, handlers.ErrNoService) || c.short != errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the call ended with %v", err)
			}
			if err := within(t, begin(pool, "fine", patience)); err != nil {
				t.Errorf("the next call ended with %v", err)
			}
			close(s.let)
			if err := within(t, bystander); err != nil {
				t.Errorf("the call of another ended with %v", err)
			}
			if n := s.begun.Load(); n != 1 {
				t.Errorf("there were %d sessions, want one", n)
			}
		})
	}
}

func TestASessionThatIsGivenUpLeavesTheCallsOfOthersTheirTime(t *testing.T) {
	lost := atomic.Bool{}
	s, pool := serveStranger(t, func(w http.ResponseWriter, _ *http.Request, right []byte) {
		if lost.CompareAndSwap(false, true) {
			http.Error(w, "no such session", http.StatusNotFound)
			return
		}
		kind(w, "application/json")
		_, _ = w.Write(right)
	})
	bystander := begin(pool, "slow", patience)
	<-s.arrived
	if err := within(t, begin(pool, "odd", patience)); err != nil {
		t.Errorf("the call that found the session gone ended with %v", err)
	}
	if n := s.begun.Load(); n != 2 {
		t.Errorf("there were %d sessions, want two", n)
	}
	close(s.let)
	if err := within(t, bystander); err != nil {
		t.Errorf("the call of another ended with %v", err)
	}
	select {
	case ended := <-s.ended:
		if ended != "session-1" {
			t.Errorf("the server was told that %s ends", ended)
		}
	case <-time.After(patience):
		t.Error("the server was not told that the session ends")
	}
}

func TestAToolThatIsNowhereIsNotMade(t *testing.T) {
	_, pool := serveStranger(t, func(w http.ResponseWriter, _ *http.Request, _ []byte) { http.NotFound(w, nil) })
	if err := within(t, begin(pool, "odd", patience)); !errors.Is(err, handlers.ErrNoService) {
		t.Errorf("the call ended with %v, want that it was not made", err)
	}
}

func TestClosingThePoolEndsTheCallsAtAnAddress(t *testing.T) {
	s, pool := serveStranger(t, nil)
	bystander := begin(pool, "slow", time.Hour)
	<-s.arrived
	closed := make(chan error)
	go func() {
		pool.Close()
		close(closed)
	}()
	_ = within(t, closed)
	if err := within(t, bystander); err == nil || errors.Is(err, handlers.ErrNoService) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call ended with %v, want an error that leaves its effect open", err)
	}
	if ended := <-s.ended; ended != "session-1" {
		t.Errorf("the server was told that %s ends", ended)
	}
}

func TestAServerMayAskBeforeItAnswersAndOneThatTakesNoAnswerHoldsNothingUp(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		var s *stranger
		s, pool := serveStranger(t, func(w http.ResponseWriter, r *http.Request, right []byte) {
			kind(w, "text/event-stream")
			_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"ping\",\"params\":{\"x\":1}}\n\n")
			w.(http.Flusher).Flush()
			select {
			case said := <-s.replied:
				if !strings.Contains(said, `"id":"q"`) || !strings.Contains(said, `"result"`) {
					right = nil
				}
			case <-r.Context().Done():
				return
			}
			_, _ = fmt.Fprintf(w, "data: %s\n\n", right)
		})
		if deaf {
			s.deaf = make(chan struct{})
		}
		if err := within(t, begin(pool, "odd", patience)); err != nil {
			t.Errorf("deaf: %v: the call ended with %v", deaf, err)
		}
		closed := make(chan error)
		go func() {
			pool.Close()
			close(closed)
		}()
		_ = within(t, closed)
		if deaf {
			close(s.deaf)
		}
	}
}

func TestAMemberOfAResultIsMetByItsExactName(t *testing.T) {
	for result, want := range map[string]string{
		`{"isError":true,"content":[{"type":"text","text":"no","TEXT":"yes"}],"structuredContent":{"n":1},"iserror":false,"ISERROR":false}`: "error no",
		`{"structuredContent":{"n":1},"StructuredContent":{"n":2},"content":[]}`:                                                            `{"n":1}`,
		`{"StructuredContent":{"n":2},"content":[]}`:                                                                                        "open structured content",
		`{"structuredContent":null,"content":[]}`:                                                                                           "open structured content",
		`{"content":[]}`: "open structured content",
		`{"structuredContent":{"n":1},"isError":"no"}`:              "open cannot be read",
		`{"structuredContent":{"n":1},"structuredContent":{"n":2}}`: "open cannot be read",
		`[]`:   "open cannot be read",
		`null`: "open cannot be read",
		`{"resultType":"input_required","structuredContent":{"n":1}}`: "error input",
		`{"resultType":"complete","structuredContent":{"n":1}}`:       `{"n":1}`,
	} {
		_, pool := serveStranger(t, func(w http.ResponseWriter, _ *http.Request, right []byte) {
			kind(w, "application/json")
			_, _ = w.Write(bytes.Replace(right, []byte(`{"content":[],"structuredContent":{"n":1}}`), []byte(result), 1))
		})
		out, err := ask(pool, "odd", patience)
		var told *handlers.ServiceError
		kind, words, _ := strings.Cut(want, " ")
		switch is := errors.As(err, &told); {
		case words == "" && (err != nil || out != want):
			t.Errorf("%s: %s, %v", result, out, err)
		case words != "" && (err == nil || !strings.Contains(err.Error(), words) || is != (kind == "error") || errors.Is(err, handlers.ErrNoService)):
			t.Errorf("%s: %s, %v, want %s", result, out, err, want)
		}
		pool.Close()
	}
}

func TestAnAnswerWithoutStructureIsItsContent(t *testing.T) {
	_, pool := serveStranger(t, nil)
	r := route("s", "fine")
	r.MCP.Structured = false
	if out, err := call(t, pool, events.EffectWrite, r, `{}`); err != nil || out != `{"content":[]}` {
		t.Errorf("%s, %v", out, err)
	}
}
