package host

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/executor"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// caller puts a host together whose agent caller runs scripts that call the
// capabilities.
func (s *system) caller(scripts runtime.ExecutorFactory, model handlers.Models, capabilities ...events.Capability) *Host {
	s.t.Helper()
	h := New(Options{Conn: s.conn, Logger: slog.New(slog.DiscardHandler), Meter: handlers.NoMeter{}, Redactor: handlers.NewSecrets(nil),
		Models: model, Executors: scripts, Version: "1.0.0", Worker: "w//" + s.t.Name(), TTL: 2 * time.Second, Sweep: time.Hour})
	v := handlers.Version{Agent: member("caller"), Capabilities: capabilities}
	for _, c := range capabilities {
		v.Agent.Capabilities = append(v.Agent.Capabilities, c.Name)
	}
	if _, err := h.Apply(s.t.Context(), "default", &v); err != nil {
		s.t.Fatal(err)
	}
	return h
}

func served(name string, effect events.Effect) events.Capability {
	return events.Capability{Name: name, Effect: effect, Output: json.RawMessage(`{"type":"object","required":["ok"]}`), Route: events.Route{NATS: &events.NATSRoute{Subject: "test." + name}}}
}

// serve answers the requests of a capability on a connection of its own.
func (s *system) serve(name string, answer func(nc *nats.Conn, m *nats.Msg)) {
	s.t.Helper()
	conn, err := s.server.Connect(jetstream.Config{Name: name})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(conn.Close)
	nc := conn.NATS()
	if _, err := nc.Subscribe("test."+name, func(m *nats.Msg) { answer(nc, m) }); err != nil {
		s.t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		s.t.Fatal(err)
	}
}

// Whatever a service does, each callback has one outcome and the run goes on.
func TestAServiceThatMisbehavesGivesOneOutcomeAndTheRunGoesOn(t *testing.T) {
	s := newSystem(t)
	var late *nats.Msg
	says := func(text string) func(*nats.Conn, *nats.Msg) {
		return func(_ *nats.Conn, m *nats.Msg) { _ = m.Respond([]byte(text)) }
	}
	cases := []struct {
		name    string
		answer  func(*nats.Conn, *nats.Msg) // nil: nobody serves it
		says    string
		unknown bool
	}{
		{"c.good", says(`{"ok":1}`), `{"ok":1}`, false},
		{"c.nobody", nil, "was not called", false},
		{"c.never", func(*nats.Conn, *nats.Msg) {}, "did not answer within 300ms", true},
		{"c.twice", func(_ *nats.Conn, m *nats.Msg) { _ = m.Respond([]byte(`{"ok":1}`)); _ = m.Respond([]byte(`{"ok":2}`)) }, `{"ok":1}`, false},
		{"c.late", func(_ *nats.Conn, m *nats.Msg) { late = m }, "did not answer within 300ms", true},
		{"c.shape", says(`{"wrong":1}`), "was carried out, but its answer does not fit its output schema", false},
		{"c.half", says(`{"ok":`), "was carried out, but its answer is not JSON", false},
		{"c.nothing", says(``), "does not fit its output schema", false},
		{"c.big", func(nc *nats.Conn, m *nats.Msg) { // which NATS does not carry
			if err := m.Respond([]byte(`{"ok":"` + strings.Repeat("x", int(nc.MaxPayload())) + `"}`)); err == nil {
				t.Error("an answer over the server's limit was sent")
			}
		}, "did not answer within 300ms", true},
		{"c.long", says(`{"ok":"` + strings.Repeat("x", 900_000) + `"}`), `finished; its result has 900009 bytes and begins with {"ok":"xxx`, false},
		{"c.dies", func(nc *nats.Conn, _ *nats.Msg) { nc.Close() }, "did not answer within 300ms", true},
		{"c.refuses", func(_ *nats.Conn, m *nats.Msg) {
			reply := nats.NewMsg(m.Reply)
			reply.Header.Set(micro.ErrorCodeHeader, "409")
			reply.Header.Set(micro.ErrorHeader, "taken")
			_ = m.RespondMsg(reply)
		}, "code 409): taken", false},
	}
	var list []events.Capability
	var code strings.Builder
	asked := make(chan string, 100)
	var unknown []string
	for _, c := range cases {
		capability := served(c.name, events.EffectWrite)
		if c.unknown {
			capability.Timeout = "300ms"
		}
		list = append(list, capability)
		fmt.Fprintf(&code, "try %s {}\n", c.name)
		if c.unknown {
			unknown = append(unknown, c.name)
		}
		if c.answer != nil {
			s.serve(c.name, func(nc *nats.Conn, m *nats.Msg) { asked <- c.name; c.answer(nc, m) })
		}
	}
	h := s.caller(&runtimetest.Factory{}, cast{"caller": plays(runtimetest.RunJS(code.String()+"throw enough"), runtimetest.CompleteQuoting())}, list...)
	s.run(h)
	run := begin(t, h, "1", "caller")
	d := s.ended(h, run.Run)
	if d.State != projector.StateCompleted || d.Unknown != len(unknown) {
		t.Fatalf("the run is %s, %d callbacks are unknown: %.3000s", d.State, d.Unknown, d.Reply.Output)
	}
	told := string(d.Reply.Output)
	for i, c := range cases {
		line := told[max(0, strings.Index(told, fmt.Sprintf(`\n%d. %s: `, i+1, c.name))):]
		line, _, _ = strings.Cut(line[2:], `\n`)
		if want := strings.ReplaceAll(c.says, `"`, `\"`); !strings.Contains(line, want) || strings.Contains(line, "not known whether") != c.unknown {
			t.Errorf("%s: the model is told %.300s", c.name, line)
		}
		if c.answer != nil {
			if got := <-asked; got != c.name {
				t.Errorf("%s was asked, not %s", got, c.name)
			}
		}
	}
	if len(asked) != 0 {
		t.Errorf("%d requests more", len(asked))
	}
	api := &handlers.API{Host: h.Host}
	answer, err := api.Handle(t.Context(), "default", handlers.VerbCalls, nil, fmt.Appendf(nil, `{"unknown":true,"run":%q}`, run.Run))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, c := range answer.(handlers.CallsAnswer).Calls {
		listed = append(listed, c.Capability)
	}
	if !slices.Equal(listed, unknown) {
		t.Errorf("unknown are %v, not %v", listed, unknown)
	}
	before := s.conn.LateAnswers()
	if err := late.Respond([]byte(`{"ok":3}`)); err != nil {
		t.Fatal(err)
	}
	jetstreamtest.Eventually(t, "the late answer to be counted", func() bool { return s.conn.LateAnswers() > before })
	if again, err := h.GetRun(t.Context(), "default", run.Run); err != nil || string(again.Reply.Output) != told {
		t.Errorf("after the late answer: %v, %v", again, err)
	}
}

// BenchmarkCallback does a run whose one script makes callbacks, in a process of
// its own, and measures from the model's answer to its next request: the
// predispatch, the script, the callbacks with their journal, and the result.
// ratio is that over the same callbacks as bare requests; raw-appends is it as a
// multiple of a raw fenced append; appends/callback is what the journal took.
func BenchmarkCallback(b *testing.B) {
	for _, c := range []struct {
		name, code string
		n          int
	}{
		{"one read", "await c.read({})", 1},
		{"one write", "await c.write({})", 1},
		{"ten writes in turn", "for (let i = 0; i < 10; i++) await c.write({i})", 10},
		{"eight writes at once", "await Promise.all([0,1,2,3,4,5,6,7].map(i => c.write({i})))", 8},
	} {
		b.Run(strings.ReplaceAll(c.name, " ", "-"), func(b *testing.B) {
			s := newSystem(b)
			for _, name := range []string{"c.read", "c.write"} {
				s.serve(name, func(_ *nats.Conn, m *nats.Msg) { _ = m.Respond([]byte(`{"ok":1}`)) })
			}
			scripts := &executor.Factory{}
			b.Cleanup(func() { _ = scripts.Close() })
			var answered time.Time
			var took, bare time.Duration
			model := cast{"caller": func(_ context.Context, step int, r *runtime.Request) (*runtime.Response, error) {
				if step == 0 {
					defer func() { answered = time.Now() }()
				} else {
					took += time.Since(answered)
				}
				return runtimetest.Script(runtimetest.RunJS(c.code), runtimetest.Complete(`"done"`))(step, r)
			}}
			h := s.caller(scripts, model, served("c.read", events.EffectRead), served("c.write", events.EffectWrite))
			s.run(h)
			facts := uint64(0)
			for i := 0; b.Loop(); i++ {
				before := s.held("AGENT_LOG_0")
				s.ended(h, begin(b, h, fmt.Sprint(i), "caller").Run)
				facts += s.held("AGENT_LOG_0") - before - 7 // admitted, claimed, task, two responses, result, completion
				began := time.Now()
				for range c.n {
					if _, err := s.conn.Request(b.Context(), "test.c.write", nil, []byte(`{}`)); err != nil {
						b.Fatal(err)
					}
				}
				bare += time.Since(began)
			}
			b.StopTimer()
			b.ReportMetric(took.Seconds()/bare.Seconds(), "ratio")
			b.ReportMetric(float64(took)/float64(b.N)/float64(s.rawAppends(100)), "raw-appends")
			b.ReportMetric(float64(facts)/float64(b.N)/float64(c.n), "appends/callback")
		})
	}
}
