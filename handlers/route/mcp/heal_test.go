package mcp_test

import (
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

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/route/mcp"
)

// refuses answers with a status and an error of the protocol.
func refuses(w http.ResponseWriter, status int, id json.RawMessage, code int, words string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","error":{"code":%d,"message":%q},"id":%s}`, code, words, id)
}

// forgets are the ways in which a server says that it does not know a session.
var forgets = map[string]func(w http.ResponseWriter, m *message){
	"400 to the request": func(w http.ResponseWriter, m *message) {
		refuses(w, http.StatusBadRequest, m.ID, -32000, "no valid session")
	},
	"400 to nobody": func(w http.ResponseWriter, _ *message) {
		refuses(w, http.StatusBadRequest, json.RawMessage("null"), -32000, "no valid session")
	},
	"400": func(w http.ResponseWriter, _ *message) {
		http.Error(w, "no valid session", http.StatusBadRequest)
	},
	"404 to the request": func(w http.ResponseWriter, m *message) {
		refuses(w, http.StatusNotFound, m.ID, -32001, "no valid session")
	},
	"500":       func(w http.ResponseWriter, _ *message) { http.Error(w, "no valid session", 500) },
	"no answer": func(http.ResponseWriter, *message) { panic(http.ErrAbortHandler) },
	"no JSON":   func(w http.ResponseWriter, _ *message) { kind(w, "text/html") },
}

func TestAServerThatWasBegunAgainHealsHoweverItForgetsTheSession(t *testing.T) {
	for name, forget := range forgets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var again atomic.Bool
			s, pool := serveStranger(t, nil)
			s.before = func(w http.ResponseWriter, r *http.Request, m *message) bool {
				old := again.Load() && r.Header.Get("Mcp-Session-Id") == "session-1"
				if old {
					forget(w, m)
				}
				return old
			}
			if _, err := ask(pool, "fine", patience); err != nil {
				t.Fatal(err)
			}
			again.Store(true)
			if _, err := ask(pool, "fine", patience); err == nil || errors.Is(err, handlers.ErrNoService) {
				t.Errorf("the call that found it out ended with %v", err)
			}
			for range 2 {
				if _, err := ask(pool, "fine", patience); err != nil {
					t.Errorf("it does not heal: %v", err)
				}
			}
			if n := s.begun.Load(); n != 2 {
				t.Errorf("there were %d sessions, want two", n)
			}
		})
	}
}

func TestACallAfterAnAnswerThatBrokeOffIsNotTheOneThatFindsTheSessionGone(t *testing.T) {
	for name, died := range map[string]http.HandlerFunc{
		"before the answer": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"in events": func(w http.ResponseWriter, _ *http.Request) {
			kind(w, "text/event-stream")
			panic(http.ErrAbortHandler)
		},
		"in events, in good order": func(w http.ResponseWriter, _ *http.Request) { kind(w, "text/event-stream") },
		"in JSON": func(w http.ResponseWriter, _ *http.Request) {
			kind(w, "application/json")
			panic(http.ErrAbortHandler)
		},
	} {
		var again atomic.Bool
		s, pool := serveStranger(t, func(w http.ResponseWriter, r *http.Request, _ []byte) {
			again.Store(true)
			died(w, r)
		})
		s.before = func(w http.ResponseWriter, r *http.Request, m *message) bool {
			old := again.Load() && r.Header.Get("Mcp-Session-Id") == "session-1"
			if old {
				refuses(w, http.StatusBadRequest, m.ID, -32000, "no valid session")
			}
			return old
		}
		var told *handlers.ServiceError
		if _, err := ask(pool, "odd", patience); err == nil || errors.Is(err, handlers.ErrNoService) || errors.As(err, &told) {
			t.Errorf("%s: the call that broke off ended with %v, want an error that leaves its effect open", name, err)
		}
		if _, err := ask(pool, "fine", patience); err != nil {
			t.Errorf("%s: the next call ended with %v", name, err)
		}
	}
}

func TestASessionInDoubtThatIsNotAnsweredForIsGivenUp(t *testing.T) {
	s, pool := serveStranger(t, func(w http.ResponseWriter, _ *http.Request, _ []byte) { http.Error(w, "oops", 500) })
	pool.SetPatience(patience, 100*time.Millisecond)
	s.before = func(_ http.ResponseWriter, r *http.Request, m *message) bool {
		if m.Method == "ping" {
			<-r.Context().Done()
		}
		return m.Method == "ping"
	}
	_, _ = ask(pool, "odd", patience)
	if _, err := ask(pool, "fine", patience); err != nil {
		t.Error(err)
	}
	if n := s.begun.Load(); n != 2 {
		t.Errorf("there were %d sessions, want two", n)
	}
}

func TestThatThereAreTooManyRequestsSaysNothingOfTheSession(t *testing.T) {
	var pings atomic.Int32
	status := http.StatusTooManyRequests // and then another
	s, pool := serveStranger(t, func(w http.ResponseWriter, _ *http.Request, _ []byte) { http.Error(w, "wait", status) })
	s.before = func(w http.ResponseWriter, _ *http.Request, m *message) bool {
		if m.Method == "ping" {
			pings.Add(1)
			http.Error(w, "wait", http.StatusTooManyRequests)
		}
		if m.Method == "notifications/cancelled" {
			w.WriteHeader(http.StatusAccepted)
		}
		return m.Method == "ping" || m.Method == "notifications/cancelled"
	}
	_, _ = ask(pool, "slow", 100*time.Millisecond) // a call without time does not, either
	for want := range int32(2) {
		_, _ = ask(pool, "odd", patience)
		if _, err := ask(pool, "fine", patience); err != nil {
			t.Error(err)
		}
		if pings.Load() != want || s.begun.Load() != 1 {
			t.Errorf("after %d there were %d pings in %d sessions, want %d in one", status, pings.Load(), s.begun.Load(), want)
		}
		status = 500
	}
}

func TestAnErrorThatNamesTheCallIsItsAnswerWhateverTheStatus(t *testing.T) {
	for _, c := range []struct {
		status int
		effect events.Effect
		code   string // "" for a call that is left open
	}{
		{400, events.EffectWrite, "-32602"}, {404, events.EffectWrite, "-32602"}, {302, events.EffectWrite, "-32602"},
		{500, events.EffectWrite, ""}, {503, events.EffectRead, "-32602"},
	} {
		var calls atomic.Int32
		s, pool := serveStranger(t, nil)
		s.before = func(w http.ResponseWriter, _ *http.Request, m *message) bool {
			if m.Method == "tools/call" {
				calls.Add(1)
				refuses(w, c.status, m.ID, -32602, "the desk is shut")
			}
			return m.Method == "tools/call"
		}
		_, err := call(t, pool, c.effect, route("s", "fine"), `{}`)
		var told *handlers.ServiceError
		if is := errors.As(err, &told); err == nil || is != (c.code != "") || is && told.Code != c.code || errors.Is(err, handlers.ErrNoService) || !strings.Contains(err.Error(), "the desk is shut") {
			t.Errorf("%d: the call ended with %v", c.status, err)
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("%d: the call was made %d times", c.status, n)
		}
	}
}

func TestWhatAServerSaysInARefusalIsTold(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusBadGateway} {
		_, pool := serveStranger(t, func(w http.ResponseWriter, _ *http.Request, _ []byte) { http.Error(w, "the firewall says no", status) })
		if _, err := ask(pool, "odd", patience); err == nil || !strings.Contains(err.Error(), fmt.Sprintf(": the answer is %d %s: the firewall says no", status, http.StatusText(status))) || strings.Contains(err.Error(), "tools/call") {
			t.Errorf("%d: the call ended with %v", status, err)
		}
	}
}

func TestAServerOfTheSDKWithoutSessionsSaysItselfWhatIsWrong(t *testing.T) {
	var made atomic.Int32
	server := sdk.NewServer(&sdk.Implementation{Name: "x", Version: "1"}, nil)
	server.AddTool(&sdk.Tool{Name: "book", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		made.Add(1)
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "the desk is shut"}
	})
	web := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{Stateless: true}))
	defer web.Close()
	pool := mcp.New(mcp.Options{Servers: map[string]mcp.Server{"s": {URL: web.URL}}, Rules: local, Logger: slog.New(slog.DiscardHandler), Version: "1", Now: time.Now})
	defer pool.Close()
	for tool, want := range map[string][2]string{"book": {"-32601", "method not found"}, "missing": {"-32602", "unknown tool"}} {
		_, err := ask(pool, tool, patience)
		var told *handlers.ServiceError
		if !errors.As(err, &told) || told.Code != want[0] || !strings.Contains(told.Description, want[1]) {
			t.Errorf("%s: %v, want %v", tool, err, want)
		}
	}
	if n := made.Load(); n != 1 {
		t.Errorf("the tool was called %d times, want once", n)
	}
}

func TestAnAnswerToWhatIsNoCallBreaksNoSession(t *testing.T) {
	s, pool := serveStranger(t, nil)
	s.answer = func(w http.ResponseWriter, r *http.Request, right []byte) {
		kind(w, "text/event-stream")
		for n := range 2 {
			_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"ping\"}\n\n", n)
			w.(http.Flusher).Flush()
			select {
			case <-s.replied:
			case <-r.Context().Done():
				return
			}
		}
		_, _ = fmt.Fprintf(w, "data: %s\n\n", right)
	}
	s.before = func(w http.ResponseWriter, _ *http.Request, m *message) bool {
		if m.Method != "tools/call" && m.Method != "initialize" {
			w.Header().Set("Mcp-Session-Id", "session-of-another")
		}
		return false
	}
	bystander := begin(pool, "slow", patience)
	<-s.arrived
	for _, tool := range []string{"odd", "fine"} {
		if _, err := ask(pool, tool, patience); err != nil {
			t.Errorf("%s: %v", tool, err)
		}
	}
	close(s.let)
	if err := within(t, bystander); err != nil || s.begun.Load() != 1 {
		t.Errorf("the call of another ended with %v, in %d sessions", err, s.begun.Load())
	}
}

func TestAServerMaySayMuchBeforeItAnswersButNotAllAtOnce(t *testing.T) {
	note := `data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + strings.Repeat("x", 4<<10) + "\"}}\n\n"
	for name, c := range map[string]struct {
		fine bool
		say  func(s *stranger, w http.ResponseWriter, r *http.Request)
	}{
		"more than a message may have, in many": {true, func(_ *stranger, w http.ResponseWriter, _ *http.Request) {
			for range 1500 {
				_, _ = io.WriteString(w, note)
			}
		}},
		"requests one by one": {true, func(s *stranger, w http.ResponseWriter, r *http.Request) {
			for n := range 100 {
				_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"ping\"}\n\n", n)
				w.(http.Flusher).Flush()
				select {
				case <-s.replied:
				case <-r.Context().Done():
					return
				}
			}
		}},
		"a byte order mark": {true, func(_ *stranger, w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "\uFEFF") }},
		"comments without end": {false, func(_ *stranger, w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, ":\n\n")
			}
		}},
		"answers to others without end": {false, func(_ *stranger, w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"other\",\"result\":{}}\n\n")
			}
		}},
		"one event without end": {false, func(_ *stranger, w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, ": again\n")
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pool := serveStranger(t, nil)
			s.answer = func(w http.ResponseWriter, r *http.Request, right []byte) {
				kind(w, "text/event-stream")
				c.say(s, w, r)
				_, _ = fmt.Fprintf(w, "data: %s\n\n", right)
			}
			if _, err := ask(pool, "odd", patience); (err == nil) != c.fine || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the call ended with %v", err)
			}
		})
	}
}

func TestAListThatTheServerWasNotAskedForIsNoEmptyOne(t *testing.T) {
	s, pool := serveStranger(t, nil)
	s.before = func(w http.ResponseWriter, _ *http.Request, m *message) bool {
		result := `"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0`
		switch m.Method {
		case "tools/list":
			result = `"tools":[{"name":"a","inputSchema":{"type":"object"}}],"ttlMs":60000`
		case "server/discover":
		default:
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","cacheScope":"private",%s}}`, m.ID, result)
		return true
	}
	if kept, _, err := pool.Import(t.Context(), "s"); err != nil || len(kept) != 1 {
		t.Fatalf("%v, %v", kept, err)
	}
	if kept, _, err := pool.Import(t.Context(), "s"); err == nil && len(kept) != 1 {
		t.Errorf("the tools of a list that is kept are %v, without an error", kept)
	}
}

func TestTheNameOfAToolCommandsNoTerminal(t *testing.T) {
	out := mcp.LeftOut{Server: "s", Tool: "\x1b[2Jx\ny\u202e", Schema: "input", Pointer: "/a", Reason: "no\ta"}
	if got, want := out.Error(), "tool \uFFFD[2Jx\uFFFDy\uFFFD of MCP server s is left out: its input schema at \"/a\": no\uFFFDa"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
