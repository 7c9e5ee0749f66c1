package handlers_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// agent returns a version whose scripts may call the named capabilities.
func agent(capabilities ...string) handlers.Version {
	v := handlers.Version{Agent: events.AgentDefinition{Slug: "tester", Instructions: "Test.", Model: "test/model", Capabilities: capabilities}}
	for _, name := range capabilities {
		v.Capabilities = append(v.Capabilities, events.Capability{Name: name, Effect: events.EffectWrite, Route: events.Route{NATS: &events.NATSRoute{Subject: "svc." + name}}})
	}
	return v
}

// within gives an agent a context of so many tokens.
func within(v handlers.Version, tokens int64) handlers.Version {
	v.Agent.Limits.ContextTokens, v.Agent.Limits.OutputTokens = tokens, 500
	return v
}

func steps(list ...runtimetest.Step) func(*handlerstest.World) {
	return func(w *handlerstest.World) { w.Model.Respond = runtimetest.Script(list...) }
}

func start(message string) func(string) []events.Event {
	return func(string) []events.Event { return []events.Event{handlerstest.Start("1", "tester", message)} }
}

var scenarios = []handlerstest.Scenario{
	{
		Name: "one script, then completion", Versions: []handlers.Version{agent("desk.book")},
		Prepare:  steps(runtimetest.RunJS("desk.book {\"seat\":1}\nreturn"), runtimetest.CompleteQuoting()),
		Commands: start("Book a desk."),
	},
	{
		Name: "several calls in one response", Versions: []handlers.Version{agent("desk.book", "desk.free")},
		Prepare: steps(
			runtimetest.Calls(runtimetest.RunJSCall("desk.book {\"seat\":1}\nreturn"), runtimetest.RunJSCall("desk.free {\"seat\":1}\nreturn"), runtimetest.ToolCall("nosuch", `{}`), runtimetest.RunJSCall("desk.book {\"seat\":2}\nreturn")),
			runtimetest.CompleteQuoting()),
		Commands: start("Book desks."),
	},
	{
		Name: "a failing script", Versions: []handlers.Version{agent("desk.book")},
		Prepare:  steps(runtimetest.RunJS("desk.book {\"seat\":1}\nlog half way\nthrow no more desks"), runtimetest.CompleteQuoting()),
		Commands: start("Book a desk."),
	},
	{
		Name: "a question and its answer in a second run of the session", Versions: []handlers.Version{agent("desk.book")},
		Prepare: steps(runtimetest.RunJS("desk.book {\"seat\":1}\nreturn"), runtimetest.Ask("Which floor?"),
			runtimetest.RunJS("desk.book {\"floor\":3}\nreturn"), runtimetest.CompleteQuoting()),
		Commands: func(namespace string) []events.Event {
			return []events.Event{handlerstest.Start("1", "tester", "Book a desk."),
				handlerstest.Continue("2", events.SessionFor(namespace, "/test", "1"), "The third.")}
		},
	},
	{
		Name: "an oversize result", Versions: []handlers.Version{within(agent("archive.read"), 1_000_000)},
		Prepare: func(w *handlerstest.World) {
			steps(runtimetest.RunJS("archive.read {}\nreturn"), runtimetest.Complete(`"read"`))(w)
			w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) { return handlerstest.Large(400 << 10), nil }
		},
		Commands: start("Read it."),
	},
	{
		Name: "a conversation that is compacted twice", Versions: []handlers.Version{within(agent("desk.book"), 4500)},
		Prepare: func(w *handlerstest.World) {
			w.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
				if step == 13 {
					return runtimetest.Complete(`"done"`)(step, r)
				}
				return runtimetest.RunJS(fmt.Sprintf("desk.book {\"seat\":%d}\nlog %s\nreturn", step, strings.Repeat("x", 900)))(step, r)
			}
		},
		Commands: start("Book desks."),
	},
	{
		Name: "completion with a tail that is skipped, and text", Versions: []handlers.Version{agent()},
		Prepare: steps(runtimetest.Text("Let me think."), runtimetest.Calls(
			runtimetest.ToolCall("complete", `{"kind":"output","output":"done"}`), runtimetest.RunJSCall("return 1"))),
		Commands: start("Finish."),
	},
}

var worlds atomic.Int64

// crashEverywhere runs every scenario over a log.
func crashEverywhere(t *testing.T, scenarios []handlerstest.Scenario, sample bool, open func() *handlerstest.World) {
	var total handlerstest.Points
	for _, s := range scenarios {
		p := handlerstest.CrashEverywhere(t, s, sample, open)
		t.Logf("%s: %d points, %d with an unknown outcome", s.Name, p.Crashes, p.Unknown)
		total.Crashes += p.Crashes
		total.Unknown += p.Unknown
	}
	t.Logf("%d crash points, %d of them with an unknown outcome", total.Crashes, total.Unknown)
	if total.Unknown == 0 && !sample {
		t.Error("no crash fell between a predispatch and its result: the test tests nothing")
	}
}

// inMemory is a world of its own.
func inMemory() *handlerstest.World {
	return handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, fmt.Sprintf("ns%d", worlds.Add(1)))
}

// on returns worlds of their own on one JetStream.
func on(conn *jetstream.Conn) func() *handlerstest.World {
	return func() *handlerstest.World {
		return handlerstest.New(&jetstream.Log{Conn: conn}, &jetstream.Log{Conn: conn, Family: jetstream.FamilyBudget}, fmt.Sprintf("ns%d", worlds.Add(1)))
	}
}

func TestAKillOrALostAppendAnywhereChangesNothingInMemory(t *testing.T) {
	crashEverywhere(t, scenarios, false, inMemory)
}

func TestAKillOrALostAppendAnywhereChangesNothingOnJetStream(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) { crashEverywhere(t, scenarios, !slow, on(conn)) })
}
