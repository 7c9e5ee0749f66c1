package handlers_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// slow is set where the larger tests are run.
var slow = os.Getenv("AGENTRUNTIME_SLOW") != ""

// member is an agent of a tree. Its instructions are its name, by which the
// world's one model tells the agents apart.
func member(slug string, subagents ...string) handlers.Version {
	return handlers.Version{Agent: events.AgentDefinition{Slug: slug, Instructions: slug, Model: "test/model", Subagents: subagents}}
}

// cast gives each agent its script.
func cast(scripts map[string]runtimetest.Step) func(*handlerstest.World) {
	return func(w *handlerstest.World) {
		w.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
			script, ok := scripts[r.System]
			if !ok {
				return nil, fmt.Errorf("there is no script for %q", r.System)
			}
			return script(step, r)
		}
	}
}

func spawn(slug, message string) events.ToolCall {
	return runtimetest.ToolCall("spawn_"+slug, fmt.Sprintf(`{"message":%q}`, message))
}

func wait(arguments string) events.ToolCall { return runtimetest.ToolCall("wait_calls", arguments) }

func begin(agent string) func(string) []events.Event {
	return func(string) []events.Event { return []events.Event{handlerstest.Start("1", agent, "Go.")} }
}

// family is a parent with the given script and a child that completes.
func family(parent runtimetest.Step) func(*handlerstest.World) {
	return cast(map[string]runtimetest.Step{"parent": parent, "child": runtimetest.Script(runtimetest.Complete(`"done"`))})
}

var trees = []handlerstest.Scenario{
	{
		Name: "two children in one response, wait for all", Versions: []handlers.Version{member("parent", "child"), member("child")},
		Prepare: family(runtimetest.Script(
			runtimetest.Calls(spawn("child", "one"), spawn("child", "two")),
			runtimetest.Calls(wait(`{}`)),
			runtimetest.CompleteQuoting())),
		Commands: begin("parent"),
	},
	{
		Name: "spawn and wait in one response, and again for what has settled", Versions: []handlers.Version{member("parent", "child"), member("child")},
		Prepare: family(runtimetest.Script(
			runtimetest.Calls(spawn("child", "one"), spawn("child", "two"), wait(`{}`), wait(`{"calls":["call_0_0"]}`)),
			runtimetest.CompleteQuoting())),
		Commands: begin("parent"),
	},
	{
		Name: "wait for any, then for all", Versions: []handlers.Version{member("parent", "child"), member("child")}, Racy: true,
		Prepare: family(runtimetest.Script(
			runtimetest.Calls(spawn("child", "one"), spawn("child", "two"), wait(`{"mode":"any"}`), wait(`{"calls":["call_0_0","call_0_1"]}`)),
			runtimetest.Complete(`"both"`))),
		Commands: begin("parent"),
	},
	{
		Name: "a time-out, a cancelled child that itself waits, and a look", Versions: []handlers.Version{member("parent", "middle"), member("middle", "child"), member("child")}, Timers: true,
		Prepare: cast(map[string]runtimetest.Step{
			"parent": runtimetest.Script(
				runtimetest.Calls(spawn("middle", "one"), wait(`{"timeout":"1h"}`)),
				runtimetest.Calls(runtimetest.ToolCall("get_calls", `{"calls":["call_0_0"]}`), runtimetest.ToolCall("cancel_calls", `{"calls":["call_0_0"]}`)),
				runtimetest.Calls(runtimetest.ToolCall("cancel_calls", `{"calls":["call_0_0"]}`), wait(`{}`)), // the first one may have been lost
				runtimetest.CompleteQuoting()),
			"middle": runtimetest.Script(runtimetest.Calls(wait(`{"messages":true}`)), runtimetest.Complete(`"never"`)),
		}),
		Commands: begin("parent"),
	},
	{
		Name: "nested to depth three", Versions: []handlers.Version{member("a", "b"), member("b", "c"), member("c", "child"), member("child")},
		Prepare: cast(map[string]runtimetest.Step{
			"a":     runtimetest.Script(runtimetest.Calls(spawn("b", "one"), wait(`{}`)), runtimetest.CompleteQuoting()),
			"b":     runtimetest.Script(runtimetest.Calls(spawn("c", "one"), wait(`{}`)), runtimetest.CompleteQuoting()),
			"c":     runtimetest.Script(runtimetest.Calls(spawn("child", "one"), spawn("child", "two"), wait(`{}`)), runtimetest.CompleteQuoting()),
			"child": runtimetest.Script(runtimetest.Complete(`"leaf"`)),
		}),
		Commands: begin("a"),
	},
	{
		Name: "a child asks and its session is continued", Versions: []handlers.Version{member("parent", "child"), member("child")},
		Prepare: func(w *handlerstest.World) {
			cast(map[string]runtimetest.Step{
				"parent": runtimetest.Script(
					runtimetest.Calls(spawn("child", "one"), wait(`{}`)),
					func(step int, r *runtime.Request) (*runtime.Response, error) {
						session := events.ChildSession(w.Namespace, parentOf(w, "1"), "call_0_0")
						return runtimetest.Calls(runtimetest.ToolCall("continue_agent", fmt.Sprintf(`{"session":%q,"prompt":"The third."}`, session)), wait(`{}`))(step, r)
					},
					runtimetest.CompleteQuoting()),
				"child": runtimetest.Script(runtimetest.Ask("Which floor?"), runtimetest.Complete(`"third"`)),
			})(w)
		},
		Commands: begin("parent"),
	},
	{
		Name: "a message ends a wait", Versions: []handlers.Version{member("parent", "child"), member("child")},
		Prepare: family(runtimetest.Script(
			runtimetest.Calls(wait(`{"messages":true}`)),
			runtimetest.CompleteQuoting())),
		Commands: func(ns string) []events.Event {
			return []events.Event{handlerstest.Start("1", "parent", "Go."), handlerstest.Message("2", runOf(ns, "1"), "Hello?")}
		},
	},
	spent(3),
	{
		Name: "a budget that is spent, held and topped up", Versions: []handlers.Version{limited(member("parent", "child"), events.OnBudgetHold, 2), member("child")},
		Prepare: family(runtimetest.Script(
			runtimetest.Calls(spawn("child", "one"), wait(`{}`)),
			runtimetest.CompleteQuoting())),
		Commands: func(ns string) []events.Event {
			return []events.Event{handlerstest.Start("1", "parent", "Go."), handlerstest.TopUp("2", runOf(ns, "1"), 10)}
		},
	},
	{
		Name: "a provider that asks parent and child for patience", Versions: []handlers.Version{member("parent", "child"), member("child")}, Timers: true,
		Prepare: func(w *handlerstest.World) {
			cast(map[string]runtimetest.Step{
				"parent": first([]error{patience(time.Hour)}, runtimetest.Script(
					runtimetest.Calls(spawn("child", "one"), wait(`{}`)),
					runtimetest.CompleteQuoting())),
				"child": first([]error{patience(time.Hour)}, runtimetest.Script(runtimetest.Complete(`"done"`))),
			})(w)
		},
		Commands: begin("parent"),
	},
	{
		Name: "a model that does not take the key, in the middle", Versions: []handlers.Version{choosing("a/x", "b/y")},
		Prepare: answering(map[string]runtimetest.Step{
			"a/x": runtimetest.Script(runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.Fails(refusal(401, runtime.ClassDenied))),
			"b/y": runtimetest.Script(nil, runtimetest.RunJS("desk.book {\"n\":2}\nreturn"), runtimetest.CompleteQuoting()),
		}),
		Commands: begin("tester"),
	},
	{
		Name: "a deadline while children are open", Versions: []handlers.Version{expiring(member("parent", "middle")), member("middle", "child"), member("child")}, Timers: true,
		Prepare: cast(map[string]runtimetest.Step{
			"parent": runtimetest.Script(runtimetest.Calls(spawn("middle", "one"), wait(`{}`))),
			"middle": runtimetest.Script(runtimetest.Calls(spawn("child", "one"), wait(`{"messages":true,"calls":["call_0_0"]}`), wait(`{"messages":true}`))),
			"child":  runtimetest.Script(runtimetest.Complete(`"leaf"`)),
		}),
		Commands: begin("parent"),
	},
	{
		Name: "a cancellation while children are open", Versions: []handlers.Version{member("parent", "middle"), member("middle", "child"), member("child")},
		Prepare: cast(map[string]runtimetest.Step{
			"parent": runtimetest.Script(runtimetest.Calls(spawn("middle", "one"), spawn("middle", "two"), wait(`{}`))),
			"middle": runtimetest.Script(runtimetest.Calls(wait(`{"messages":true}`))),
		}),
		Commands: func(ns string) []events.Event {
			return []events.Event{handlerstest.Start("1", "parent", "Go."), handlerstest.Cancel("2", runOf(ns, "1"), "enough")}
		},
	},
}

// spent is a tree that spends its budget: each child takes a step, and the parent
// one for each.
func spent(steps int64) handlerstest.Scenario {
	s := handlerstest.Scenario{
		Name: "a budget that is spent", Versions: []handlers.Version{limited(member("parent", "child"), "", steps), member("child")},
		Prepare: family(runtimetest.Script(
			runtimetest.Calls(spawn("child", "one"), wait(`{}`)),
			runtimetest.Calls(spawn("child", "two"), wait(`{}`)),
			runtimetest.Complete(`"never"`))),
		Commands: begin("parent"), Racy: true,
	}
	if steps > 2 {
		less := spent(steps - 1)
		s.Charged = &less
	}
	return s
}

func limited(v handlers.Version, on events.OnBudget, steps int64) handlers.Version {
	v.Agent.Budget, v.Agent.OnBudget = &events.Budget{Steps: steps}, on
	return v
}

func expiring(v handlers.Version) handlers.Version {
	v.Agent.Limits.Timeout = "1h"
	return v
}

// runOf is the run that a command starts, and parentOf the same in a world.
func runOf(namespace, id string) string {
	return events.RunFor(namespace, events.SessionFor(namespace, "/test", id), "/test", id)
}

func parentOf(w *handlerstest.World, id string) string { return runOf(w.Namespace, id) }

func TestAKillOrALostAppendAnywhereInATreeChangesNothingInMemory(t *testing.T) {
	crashEverywhere(t, trees, false, inMemory)
}

func TestAKillOrALostAppendAnywhereInATreeChangesNothingOnJetStream(t *testing.T) {
	jetstreamtest.Each(t, func(t *testing.T, conn *jetstream.Conn) { crashEverywhere(t, trees, !slow, on(conn)) })
}
