package handlers_test

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// move is one call that a scripted agent makes; what it means depends on the
// transcript.
type move struct {
	Do string
	A  int
}

var moves = []string{"spawn", "js", "wait both", "spawn", "continue", "get", "cancel", "wait", "wait", "wait", "wait any", "wait time-out", "wait time-out", "wait messages", "wait one", "wait both", "js", "complete", "complete", "ask", "text", "invalid", "stray"}

// play is what one agent says, response by response, over and over.
type play [][]move

func drawPlay() *rapid.Generator[play] {
	one := rapid.Custom(func(t *rapid.T) move {
		return move{rapid.SampledFrom(moves).Draw(t, "move"), rapid.IntRange(0, 3).Draw(t, "a")}
	})
	return rapid.Custom(func(t *rapid.T) play {
		return rapid.SliceOfN(rapid.SliceOfN(one, 1, 3), 1, 5).Draw(t, "play")
	})
}

// lastAct is the response with which a scripted agent begins to come to its end.
const lastAct = 6

// subagents of the cast: a recursion is ended by the limits of the tree.
var subagents = map[string][]string{"a": {"b", "c"}, "b": {"b", "c"}, "c": nil}

// drawCast draws the definitions.
func drawCast(t *rapid.T) []handlers.Version {
	var list []handlers.Version
	for _, slug := range []string{"a", "b", "c"} {
		v := agent("desk.book")
		v.Agent.Slug, v.Agent.Instructions, v.Agent.Subagents = slug, slug, subagents[slug]
		if steps := rapid.SampledFrom([]int64{0, 0, 1, 2, 4, 8}).Draw(t, "steps of "+slug); steps > 0 {
			v.Agent.Budget = &events.Budget{Steps: steps}
			v.Agent.OnBudget = rapid.SampledFrom([]events.OnBudget{"", events.OnBudgetHold}).Draw(t, "on budget")
		}
		v.Agent.Limits.Timeout = rapid.SampledFrom([]string{"", "", "2h"}).Draw(t, "time-out of "+slug)
		v.Agent.Events = rapid.SampledFrom([][]string{nil, {"call_settled", "call_dispatched"}}).Draw(t, "events of "+slug)
		list = append(list, v)
	}
	return list
}

// scene is what a scripted agent sees in its transcript.
type scene struct {
	task     string // id of the message that began the run
	acts     int    // responses since
	children []string
	sessions []string
}

func look(r *runtime.Request) scene {
	var s scene
	calls := make(map[string]bool) // that start children
	for i := range r.Messages {
		m := &r.Messages[i]
		switch {
		case strings.HasPrefix(m.ID, "task-"):
			s.task, s.acts, s.children = m.ID, 0, nil
		case m.Role == events.RoleAssistant:
			s.acts++
		}
		for _, p := range m.Parts {
			if c := p.Call; c != nil {
				calls[c.ID] = strings.HasPrefix(c.Name, events.SpawnPrefix) || c.Name == events.ToolContinue
			}
			if o := p.Result; o != nil && calls[o.CallID] && o.Outcome == events.OutcomeOK {
				var info runtime.AgentRunInfo
				if json.Unmarshal([]byte(o.Parts[0].Text), &info) == nil {
					s.children, s.sessions = append(s.children, o.CallID), append(s.sessions, info.Session)
				}
			}
		}
	}
	return s
}

// respond answers a request: a function of the plays and the transcript.
func (m *machine) respond(step int, r *runtime.Request) (*runtime.Response, error) {
	s := look(r)
	m.mu.Lock()
	m.requests[s.task]++
	m.mu.Unlock()
	m.point(nil, request)
	switch {
	case s.acts > lastAct+3:
		return runtimetest.Text("There is nothing more to say.")(step, r)
	case s.acts >= lastAct && len(s.children) > 0:
		return runtimetest.Calls(called(events.ToolCancelCalls, "calls", s.children), wait(`{}`), complete(step))(step, r)
	case s.acts >= lastAct:
		return runtimetest.Calls(complete(step))(step, r)
	}
	h := fnv.New32a()
	h.Write([]byte(s.task))
	script := m.plays[r.System]
	var list []events.ToolCall
	for _, move := range script[(s.acts+int(h.Sum32()%3))%len(script)] {
		if move.Do == "text" {
			return runtimetest.Text("Let me think.")(step, r)
		}
		list = append(list, s.call(r.System, move))
	}
	return runtimetest.Calls(list...)(step, r)
}

func called(tool, name string, value any) events.ToolCall {
	arguments, err := events.Marshal(map[string]any{name: value})
	if err != nil {
		panic(err)
	}
	return runtimetest.ToolCall(tool, string(arguments))
}

func complete(n int) events.ToolCall {
	return runtimetest.ToolCall(events.ToolComplete, fmt.Sprintf(`{"kind":"output","output":%d}`, n))
}

// pick returns an element of a list, or what none of the run's is called.
func pick(list []string, n int) string {
	if len(list) == 0 {
		return "nobody"
	}
	return list[n%len(list)]
}

func (s *scene) call(agent string, m move) events.ToolCall {
	child := pick(s.children, m.A)
	switch m.Do {
	case "spawn":
		return spawn(pick(subagents[agent], m.A), fmt.Sprintf("Go %d.", m.A))
	case "continue":
		arguments, _ := events.Marshal(map[string]string{"session": pick(s.sessions, m.A), "prompt": "Go on."})
		return runtimetest.ToolCall(events.ToolContinue, string(arguments))
	case "get":
		return called(events.ToolGetCalls, "calls", append([]string{child}, s.children...))
	case "cancel":
		return called(events.ToolCancelCalls, "calls", []string{child})
	case "wait":
		return wait(`{}`)
	case "wait any":
		return wait(`{"mode":"any"}`)
	case "wait time-out":
		return wait(fmt.Sprintf(`{"timeout":"%dm","messages":%t}`, 30*(m.A/2+1), m.A%2 == 1))
	case "wait messages":
		return wait(`{"messages":true}`)
	case "wait one":
		return called(events.ToolWaitCalls, "calls", []string{child})
	case "wait both":
		arguments, _ := events.Marshal(map[string]any{"calls": s.children, "mode": "any", "messages": true, "timeout": (time.Duration(m.A+1) * time.Hour).String()})
		return wait(string(arguments))
	case "js":
		return runtimetest.RunJSCall([]string{"desk.book {\"n\":1}\ndesk.book {\"n\":2}\nreturn", "desk.book {}\nthrow enough", "try nosuch {}\nreturn", "log x\nreturn 1"}[m.A])
	case "complete":
		return complete(m.A)
	case "ask":
		return runtimetest.ToolCall(events.ToolComplete, `{"kind":"needs_input","question":"Which?"}`)
	case "invalid":
		return []events.ToolCall{wait(`{"timeout":"soon"}`), spawn("nobody", "Go."), wait(`{`), runtimetest.ToolCall(events.ToolGetCalls, `{"calls":["nobody"]}`)}[m.A]
	}
	return runtimetest.ToolCall("stray", fmt.Sprintf(`{"n":%d}`, m.A))
}
