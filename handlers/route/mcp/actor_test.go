package mcp_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/agentruntime/agentruntime/handlers/handlerstest"
)

// message is a JSON-RPC message of either side.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// params are those of tools/call.
type params struct {
	Name      string                  `json:"name"`
	Arguments handlerstest.ActRequest `json:"arguments"`
	Meta      map[string]any          `json:"_meta"`
}

func (p *params) header(name string) string {
	s, _ := p.Meta[name].(string)
	return s
}

// tools is what the actor offers. A test of the import reads it.
const tools = `{"tools":[
 {"name":"do","description":"Plays an act.","inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"do":{"type":"string","contentEncoding":"base64"},"n":{"type":"integer","maximum":9007199254740993},"x-ray":{"type":"string"}},"required":["do","n"],"x-order":["do"]},
  "outputSchema":{"type":"object","properties":{"n":{"type":"integer"}}}},
 {"name":"look-up","inputSchema":{"type":"object","properties":{}},"annotations":{"readOnlyHint":true}},
 {"name":"set","inputSchema":{"type":"object"},"annotations":{"idempotentHint":true}},
 {"name":"pair","inputSchema":{"type":"object","properties":{"at":{"type":"array","prefixItems":[{"type":"number"}]}}}},
 {"name":"a.b","inputSchema":{"type":"object"}},{"name":"a-b","inputSchema":{"type":"object"}}]}`

// reply answers what needs no act, or returns the act.
func reply(m *message) (answer *message, act *params) {
	if len(m.ID) == 0 {
		return nil, nil
	}
	answer = &message{Version: "2.0", ID: m.ID}
	switch m.Method {
	case "initialize":
		answer.Result = json.RawMessage(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"actor","version":"1"}}`)
	case "tools/list":
		answer.Result = json.RawMessage(tools)
	case "tools/call":
		act = new(params)
		_ = json.Unmarshal(m.Params, act)
		switch {
		case act.Name == "broken":
			answer.Error, act = json.RawMessage(`{"code":-32603,"message":"it broke"}`), nil
		case act.Name == "ordinary":
			answer.Error, act = json.RawMessage(`{"code":412,"message":"a condition failed"}`), nil
		case act.Name != "do":
			answer.Error, act = json.RawMessage(`{"code":-32602,"message":"unknown tool"}`), nil
		case act.Arguments.Do == handlerstest.ActError:
			answer.Result = json.RawMessage(`{"isError":true,"content":[{"type":"text","text":"` + handlerstest.ActRefusal + `"}]}`)
		default:
			answer.Result = json.RawMessage(`{"content":[],"structuredContent":` + string(act.Arguments.Answer(act.header)) + `}`)
		}
	default:
		answer.Error = json.RawMessage(`{"code":-32601,"message":"no such method"}`)
	}
	return answer, act
}

func encode(m *message) []byte {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return data
}

// witnessVariable makes the test binary an MCP server that tells the witness there.
const witnessVariable = "MCP_ACTOR_WITNESS"

// workerVariable makes the test binary a worker whose server holds the pipe there
// open and answers nothing.
const workerVariable = "MCP_WORKER_PIPE"

func TestMain(m *testing.M) {
	if bad := os.Getenv(badVariable); bad != "" {
		misbehave(bad)
	}
	if address := os.Getenv(witnessVariable); address != "" {
		serve(address, os.Stdin, os.Stdout)
		return
	}
	if fifo := os.Getenv(workerVariable); fifo != "" {
		work(fifo)
		return
	}
	os.Exit(m.Run())
}

// serve plays acts over a pair of streams.
func serve(witness string, in io.Reader, out io.Writer) {
	fmt.Fprintln(os.Stderr, "the actor knows "+os.Getenv("ACTOR_KEY")+" and "+os.Getenv("WORKER_KEY"))
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<22)
	var late []byte
	var mu sync.Mutex // one message is written at a time
	write := func(text []byte) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = out.Write(text)
	}
	for lines.Scan() {
		var m message
		_ = json.Unmarshal(lines.Bytes(), &m)
		answer, act := reply(&m)
		if answer == nil {
			continue
		}
		text := append(encode(answer), '\n')
		if act == nil {
			write(text)
			continue
		}
		if act.Arguments.Do == handlerstest.ActHold {
			go func() {
				handlerstest.Tell(witness, act.Arguments)
				write(text)
			}()
			continue
		}
		handlerstest.Tell(witness, act.Arguments)
		write(late)
		late = nil
		switch act.Arguments.Do {
		case handlerstest.ActNever:
		case handlerstest.ActLate:
			late = text
		case handlerstest.ActDies:
			write(text[:len(text)/2])
			os.Exit(1)
		case handlerstest.ActTwice:
			write(append(text, text...))
		default:
			write(text)
		}
	}
}

// actor plays acts over streamable HTTP.
type actor struct {
	witness string

	mu       sync.Mutex
	sessions int
	session  string // the only one it knows
	late     chan struct{}
	versions []string // of the protocol, as requests named them
	keys     []string // of the configuration
}

func (a *actor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var m message
	_ = json.NewDecoder(r.Body).Decode(&m)
	a.mu.Lock()
	if m.Method == "initialize" {
		a.sessions++
		a.session = fmt.Sprintf("session-%d", a.sessions)
		w.Header().Set("Mcp-Session-Id", a.session)
	} else if id := r.Header.Get("Mcp-Session-Id"); id != "" && id != a.session {
		a.mu.Unlock()
		w.WriteHeader(http.StatusNotFound)
		return
	}
	answer, act := reply(&m)
	var late, mine chan struct{}
	if act != nil {
		a.versions, a.keys = append(a.versions, r.Header.Get("Mcp-Protocol-Version")), append(a.keys, r.Header.Get("X-Key"))
		if late, a.late = a.late, nil; act.Arguments.Do == handlerstest.ActLate {
			a.late = make(chan struct{})
			mine = a.late
		}
	}
	a.mu.Unlock()
	switch {
	case answer == nil:
		w.WriteHeader(http.StatusAccepted)
		return
	case act != nil:
		handlerstest.Tell(a.witness, act.Arguments)
	}
	if late != nil {
		close(late)
	}
	if act != nil && handlerstest.PlayHTTP(w, r, act.Arguments.Do) {
		return
	}
	event := "event: message\ndata: " + string(encode(answer)) + "\n\n"
	w.Header().Set("Content-Type", "text/event-stream")
	if act != nil {
		switch act.Arguments.Do {
		case handlerstest.ActNever:
			<-r.Context().Done()
			return
		case handlerstest.ActLate:
			<-mine
		case handlerstest.ActDies:
			_, _ = io.WriteString(w, event[:len(event)/2])
			panic(http.ErrAbortHandler)
		case handlerstest.ActTwice:
			event = strings.Repeat(event, 2)
		}
	}
	_, _ = io.WriteString(w, event)
}

// forget ends the session at the server, as a restart does.
func (a *actor) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.session = ""
}
