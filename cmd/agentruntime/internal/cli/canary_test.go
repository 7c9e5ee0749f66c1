package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/config"
	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/host"
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/route/dial"
	"github.com/agentruntime/agentruntime/handlers/route/endpoint"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// core begins every canary: whoever finds it, however it is written, has found a
// secret. It has what escapes differ in.
const core = `Kq"7\wV&x<9>zJ`

func canary(n int) string { return fmt.Sprintf("%s-%04d/Tail+Z", core, n) }

// writings are the ways in which a canary is planted.
var writings = []func(string) string{
	func(s string) string { return s },
	func(s string) string { return quoted(s, func(v any) ([]byte, error) { return json.Marshal(v) }) },
	func(s string) string { return quoted(s, events.Marshal) },
	func(s string) string {
		var b strings.Builder
		for _, r := range s {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		return b.String()
	},
	url.QueryEscape,
	url.PathEscape,
	func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte("." + s)) },
	func(s string) string { return base64.StdEncoding.EncodeToString([]byte(".." + s)) },
	func(s string) string { return lined(base64.StdEncoding.EncodeToString([]byte("....." + s))) },
	func(s string) string { return hex.EncodeToString([]byte(s)) },
	func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
}

// lined breaks a text within what its core becomes, as base64(1) would.
func lined(s string) string { return s[:20] + "\n" + s[20:] }

func quoted(s string, marshal func(any) ([]byte, error)) string {
	b, err := marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b[1 : len(b)-1])
}

// traces are what the core leaves in each of them: in base64 its end is another
// text's, and the first characters after an offset are.
func traces() []string {
	var all []string
	for _, write := range writings {
		text := write(core)
		if first, rest, broken := strings.Cut(text, "\n"); broken {
			// The first line has an offset before the core, and the second its end.
			all = append(all, first[8:], rest[:len(rest)-4])
			continue
		}
		if raw, err := base64.StdEncoding.DecodeString(text); err == nil && bytes.Contains(raw, []byte(core)) {
			text = text[4 : len(text)-4]
		} else if raw, err := base64.RawURLEncoding.DecodeString(text); err == nil && bytes.Contains(raw, []byte(core)) {
			text = text[4 : len(text)-4]
		}
		all = append(all, text)
		for range 2 { // as it stands within JSON, and within JSON in JSON
			text = quoted(text, events.Marshal)
			all = append(all, text, quoted(text, func(v any) ([]byte, error) { return json.Marshal(v) }))
		}
	}
	return all
}

// watch looks for canaries in what passes by.
type watch struct {
	t      *testing.T
	traces []string
	mu     sync.Mutex
	looked map[string]int // bytes, by where
}

func (w *watch) look(where string, text []byte) {
	w.mu.Lock()
	w.looked[where] += len(text)
	w.mu.Unlock()
	for _, trace := range w.traces {
		if i := bytes.Index(text, []byte(trace)); i >= 0 {
			w.t.Errorf("a secret stands in %s: …%q…", where, text[max(0, i-80):min(len(text), i+120)])
			return
		}
	}
}

// aviary plants canaries, and is the model, the scripts and the services that do.
type aviary struct {
	*watch
	canaries  int
	mu        sync.Mutex
	plantings int
	summaries int
}

// plant returns every canary, in writings that differ each time.
func (a *aviary) plant(what string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.plantings++
	var b strings.Builder
	b.WriteString(what)
	for n := range a.canaries {
		b.WriteString(" ")
		b.WriteString(writings[(n+a.plantings)%len(writings)](canary(n)))
	}
	return b.String()
}

// one returns a single canary, where there is no room for more.
func (a *aviary) one(n int) string { return writings[n%len(writings)](canary(n)) }

// Model implements handlers.Models.
func (a *aviary) Model(string) (runtime.Model, runtime.ModelLimits, error) {
	return a, runtime.ModelLimits{ContextTokens: 6000 + int64(a.canaries)*50, Files: runtime.FileLimits{Types: []string{"text/*"}}}, nil
}

func text(value any) json.RawMessage {
	b, err := events.Marshal(value)
	if err != nil {
		panic(err)
	}
	return b
}

func arguments(pairs ...any) string {
	m := make(map[string]any)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	return string(text(m))
}

// Generate implements runtime.Model.
func (a *aviary) Generate(_ context.Context, r *runtime.Request) (*runtime.Response, error) {
	a.look("model requests", text(r))
	for _, m := range r.Messages {
		for _, p := range m.Parts {
			a.look("model requests", []byte(p.Text))
			if p.Result != nil {
				for _, part := range p.Result.Parts {
					a.look("model requests", []byte(part.Text))
				}
			}
		}
	}
	if runtime.IsSummaryRequest(r) {
		a.mu.Lock()
		a.summaries++
		a.mu.Unlock()
		return &runtime.Response{Parts: []events.Part{{Type: events.PartText, Text: "summary " + a.one(1) + " " + a.one(2) + " " + a.one(6)}}, Finish: runtime.FinishStop}, nil
	}
	step := runtimetest.Position(r)
	calls := func(list ...events.ToolCall) (*runtime.Response, error) {
		answer, err := runtimetest.Calls(list...)(step, r)
		if err == nil {
			kept := map[string]json.RawMessage{"test": text(map[string]string{"thinking": a.plant("thinking")})}
			answer.Parts = append([]events.Part{{Type: events.PartReasoning, Text: a.plant("reasoning"), Provider: kept}, {Type: events.PartText, Text: a.plant("text")}}, answer.Parts...)
		}
		return answer, err
	}
	complete := func() (*runtime.Response, error) {
		return calls(runtimetest.ToolCall("complete", arguments("kind", "output", "output", a.plant("output"))))
	}
	switch {
	case r.System == "broken":
		return nil, &runtime.ModelError{Class: runtime.ClassInvalid, Err: errors.New(a.plant("provider"))}
	case r.System == "child":
		return complete()
	}
	script := func(code string) (*runtime.Response, error) {
		return calls(runtimetest.ToolCall("run_js", arguments("code", code+"\n// "+a.plant("code"))))
	}
	switch step {
	case 0:
		return script("desk.leak")
	case 1:
		return script("desk.fail")
	case 2:
		return calls(runtimetest.ToolCall("spawn_child", arguments("message", a.plant("prompt"))), runtimetest.ToolCall("spawn_broken", arguments("message", a.plant("prompt"))))
	case 3:
		return calls(runtimetest.ToolCall("wait_calls", "{}"))
	case 4:
		return calls(runtimetest.ToolCall("wait_calls", arguments("messages", true)))
	case 5:
		return calls(runtimetest.ToolCall("no_such_tool_"+a.one(4), arguments("x", a.plant("arguments"))), runtimetest.ToolCall("run_js", arguments("code", "desk.page")), runtimetest.ToolCall("run_js", arguments("code", "desk.tool")))
	case 6:
		return script("desk.leak")
	}
	return complete()
}

// Describe implements runtime.ExecutorFactory.
func (*aviary) Describe() string { return "Runs a script." }

// NewExecutor implements runtime.ExecutorFactory.
func (a *aviary) NewExecutor(context.Context) (runtime.Executor, error) { return a, nil }

// Close implements runtime.Executor.
func (a *aviary) Close() error { return nil }

// Execute implements runtime.Executor: the code's first line is a capability.
func (a *aviary) Execute(ctx context.Context, s *runtime.Script) (*runtime.ScriptResult, error) {
	name, _, _ := strings.Cut(s.Code, "\n")
	result, err := s.Call(ctx, name, text(map[string]string{"input": a.plant("input")}))
	a.look("scripts", result)
	if err != nil {
		a.look("scripts", []byte(err.Error()))
		return nil, &runtime.ScriptError{Kind: runtime.ScriptException, Message: a.plant("exception")}
	}
	return &runtime.ScriptResult{Value: text(map[string]string{"value": a.plant("value")}), Logs: []string{a.plant("log"), a.plant("log")}}, nil
}

// serve answers the capabilities.
func (a *aviary) serve(nc *nats.Conn) {
	for subject, answer := range map[string]func(*nats.Msg) error{
		"svc.leak": func(m *nats.Msg) error { return m.Respond(text(map[string]string{"result": a.plant("result")})) },
		"svc.fail": func(m *nats.Msg) error {
			reply := nats.NewMsg(m.Reply)
			reply.Header.Set(micro.ErrorCodeHeader, "409")
			reply.Header.Set(micro.ErrorHeader, strings.ReplaceAll(a.plant("refusal"), "\n", ""))
			return m.RespondMsg(reply)
		},
	} {
		if _, err := nc.Subscribe(subject, func(m *nats.Msg) {
			if err := answer(m); err != nil {
				a.t.Error(err)
			}
		}); err != nil {
			a.t.Fatal(err)
		}
	}
}

// Carry implements handlers.Carrier: an MCP server whose tool fails.
func (a *aviary) Carry(context.Context, *handlers.Request) ([]byte, error) {
	return nil, &handlers.ServiceError{Code: "tool", Description: strings.Repeat("x", 4<<10-len(core)) + a.plant("tool")}
}

// ServeHTTP implements http.Handler: an endpoint that refuses.
func (a *aviary) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, strings.Repeat("x", 1<<10-len(core))+a.plant("page"), http.StatusForbidden)
}

// command asks for a start as an event whose own fields are planted, with a file,
// and returns the answer.
func (a *aviary) command(nc *nats.Conn, n int, agent, message string) string {
	data := text(events.StartRun{Agent: agent, Message: message, Files: []events.GivenFile{{Name: "x/" + strings.Repeat("n", 190) + a.one(0) + ".txt", MediaType: "text/plain", Data: []byte(a.plant("file"))}}})
	m := nats.NewMsg("agent.api.default.run.start")
	m.Header.Set("Content-Type", "application/cloudevents+json")
	m.Data = text(map[string]any{"specversion": "1.0", "id": a.one(n), "source": "/from?" + a.one(5), "type": events.TypePrefix + handlers.VerbStart, "datacontenttype": "application/json", "data": data})
	answer, err := nc.RequestMsg(m, 20*time.Second)
	if err != nil {
		a.t.Fatal(err)
	}
	said := fmt.Sprint(answer.Header) + string(answer.Data)
	a.look("answers of the API", []byte(said))
	return said
}

func TestPlantedSecretsReachNobody(t *testing.T) {
	const n = 1000
	a := &aviary{watch: &watch{t: t, traces: traces(), looked: make(map[string]int)}, canaries: 100}
	if os.Getenv("AGENTRUNTIME_SLOW") != "" {
		a.canaries = n
	}
	process := &app{err: &terminal{}, config: &config.Config{Providers: make(map[string]config.Provider), Log: config.Log{Level: "debug"}}}
	for i := range n {
		process.config.Providers[fmt.Sprint(i)] = config.Provider{Key: canary(i)}
	}
	secrets, logged := process.config.Secrets(), process.err.(*terminal)
	folder := filepath.Join(t.TempDir(), "nats")
	server := &jetstream.Embedded{StoreDir: folder, Listen: "127.0.0.1:0"}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(server.Shutdown)
	defer stop()
	conn, err := server.Connect(jetstream.Config{Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.serve(conn.NATS())
	if _, err := conn.NATS().Subscribe("agent.event.>", func(m *nats.Msg) { a.look("public events", []byte(fmt.Sprint(m.Header)+string(m.Data))) }); err != nil {
		t.Fatal(err)
	}
	refusing := httptest.NewServer(a)
	defer refusing.Close()
	endpoints := endpoint.New(dial.Rules{Allow: []string{"127.0.0.1"}}, nil)
	defer endpoints.Close()
	listPath := filepath.Join(t.TempDir(), "runs.sqlite")
	metrics := host.NewMetrics()
	h := host.New(host.Options{Conn: conn, Logger: process.logger("json", "debug"), Meter: metrics, Redactor: handlers.NewSecrets(secrets),
		Wrapping: []handlers.WrappingKey{{ID: "k1", Secret: [handlers.KeySize]byte([]byte("a key of the test that is secret"))}},
		Models:   a, Executors: a, Version: "1.0.0", Worker: "w//1", TTL: 10 * time.Second, Sweep: time.Hour, ListPath: listPath,
		Carriers: handlers.Carriers{MCP: a, HTTP: endpoints}})
	capability := func(name string) events.Capability {
		return events.Capability{Name: "desk." + name, Effect: events.EffectWrite, Route: events.Route{NATS: &events.NATSRoute{Subject: "svc." + name}}}
	}
	for _, v := range []handlers.Version{
		{Agent: events.AgentDefinition{Slug: "parent", Instructions: "parent", Model: "test/model", Subagents: []string{"child", "broken"}, Capabilities: []string{"desk.leak", "desk.fail", "desk.page", "desk.tool"}, Events: handlers.CallEvents},
			Capabilities: []events.Capability{capability("leak"), capability("fail"),
				{Name: "desk.page", Effect: events.EffectWrite, Route: events.Route{HTTP: &events.HTTPRoute{Method: "POST", URL: refusing.URL}}},
				{Name: "desk.tool", Effect: events.EffectWrite, Route: events.Route{MCP: &events.MCPRoute{Server: "s", Tool: "t"}}}}},
		{Agent: events.AgentDefinition{Slug: "child", Instructions: "child", Model: "test/model"}},
		{Agent: events.AgentDefinition{Slug: "broken", Instructions: "broken", Model: "test/model"}},
	} {
		if _, err := h.Apply(t.Context(), "default", &v); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx, context.Background()) }()
	<-h.Ready()
	halt := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	defer halt()

	verb := func(codes []int, args ...string) string {
		t.Helper()
		r := call(t, append(args, "-s", server.ClientURL(), "--timeout", "20s")...)
		a.look("command output", []byte(r.out))
		a.look("command output", []byte(r.err))
		for _, code := range codes {
			if r.code == code {
				return r.out
			}
		}
		t.Fatalf("%v: exit %d\n%s\n%s", args[:2], r.code, r.out, r.err)
		return ""
	}
	ok, any := []int{exitOK}, []int{exitOK, exitFailed}
	begin := func(id string) string {
		t.Helper()
		var admitted handlers.Admission
		out := verb(ok, "run", "start", "parent", "--id", id, "-m", a.plant("task"), "--label", "who="+a.one(3), "-o", "json")
		if err := json.Unmarshal([]byte(out), &admitted); err != nil {
			t.Fatal(err)
		}
		return admitted.Run
	}
	parked := func(run string) {
		t.Helper()
		jetstreamtest.Eventually(t, "the run to wait for a message", func() bool {
			d, err := h.GetRun(t.Context(), "default", run)
			if err == nil && d.State.Terminal() {
				t.Fatalf("the run is %s: %s", d.State, d.Error)
			}
			return err == nil && d.State == projector.StateParked && d.Reason == events.ParkMessage
		})
	}
	run, other := begin("one"), begin("two")
	parked(run)
	parked(other)
	verb(ok, "run", "message", run, "-m", a.plant("message"))
	verb(ok, "run", "cancel", other, "--reason", a.plant("reason"), "--wait")
	out := verb(any, "run", "watch", run, "-o", "json") + verb(any, "run", "watch", other)
	if !strings.Contains(out, handlers.Redacted) {
		t.Error("nothing of what was planted was to be seen")
	}
	for _, form := range []string{"json", "text"} {
		for _, of := range []string{run, other} {
			for _, show := range [][]string{{"run", "get", of}, {"run", "tree", of}, {"run", "events", of}, {"budget", "show", of}} {
				verb(any, append(show, "-o", form)...)
			}
		}
		verb(ok, "run", "list", "-o", form)
	}
	var started handlers.Admission
	if said := a.command(conn.NATS(), 0, "child", a.plant("task")); json.Unmarshal([]byte(said[strings.Index(said, "{"):]), &started) != nil || started.Run == "" {
		t.Errorf("a command with a file is answered %.300s", said)
	}
	verb(ok, "run", "watch", started.Run)
	if said := a.command(conn.NATS(), 3, a.one(0), strings.Repeat(a.plant("task"), 10)); strings.Contains(said, `"run"`) {
		t.Errorf("a command for no agent is answered %.300s", said)
	}
	key, err := events.KeyOfRun("default", run)
	if err != nil {
		t.Fatal(err)
	}
	wrapped, err := (&jetstream.Keys{Conn: conn}).Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := h.GetRun(t.Context(), "default", run); err != nil || d.State != projector.StateCompleted {
		t.Errorf("the run is %+v, %v", d, err)
	}
	verb([]int{exitUsage}, "session", "erase", key.Session)
	verb(ok, "session", "erase", key.Session, "--yes")
	for _, args := range [][]string{{"run", "get", run}, {"run", "events", run}, {"run", "continue", key.Session, "-m", "On."}} {
		if verb([]int{exitFailed}, append(args, "-o", "json")...); t.Failed() {
			break
		}
	}
	jetstreamtest.Eventually(t, "the list to say so", func() bool {
		return strings.Contains(verb(ok, "run", "list", "--state", string(handlers.StateErased), "-o", "json"), key.Session)
	})
	address, err := metrics.Serve(t.Context(), "127.0.0.1:0", func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	a.look("metrics", page)
	halt()
	a.look("the process's log", []byte(logged.String()))
	rows, err := os.ReadFile(listPath)
	if err != nil {
		t.Fatal(err)
	}
	a.look("the list of runs", rows)
	conn.Close()
	stop()
	if err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		a.look("the server's files", data)
		if bytes.Contains(data, wrapped) {
			t.Errorf("%s holds the key of the session that was erased", path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if a.summaries == 0 {
		t.Error("no conversation was compacted")
	}
	for _, where := range []string{"model requests", "scripts", "public events", "command output", "metrics", "the process's log", "the server's files", "answers of the API", "the list of runs"} {
		if a.looked[where] == 0 {
			t.Errorf("nothing was looked at in %s", where)
		}
	}
	t.Logf("%d canaries, %d plantings, %d summaries, looked at %v", a.canaries, a.plantings, a.summaries, a.looked)
}
