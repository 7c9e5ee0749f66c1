package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// setUp reads the archive's files into a world.
func (p *play) setUp() {
	p.host = newHost()
	in := &p.host.Input
	for name, into := range map[string]any{"definition.json": &in.Definition, "subagents.json": &in.Subagents, "capabilities.json": &in.Capabilities} {
		if text, ok := p.files[name]; ok {
			if err := json.Unmarshal([]byte(text), into); err != nil {
				p.Fatalf("%s: %v", name, err)
			}
		}
	}
	if task, ok := p.files["task"]; ok {
		in.Message = events.Text("task", events.RoleUser, strings.TrimSpace(task))
	}
	var steps []rt.Step
	for paragraph := range strings.SplitSeq(strings.TrimSpace(p.files["model"]), "\n\n") {
		steps = append(steps, p.step(strings.Split(paragraph, "\n")))
	}
	p.host.Model.Respond = rt.Script(steps...)
	for _, line := range lines(p.files["backend"]) {
		name, answer, _ := strings.Cut(line, " ")
		p.answers[name] = answer
	}
	p.host.Backend.Answer = p.answer
	for _, line := range lines(p.files["host"]) {
		p.hostLine(line)
	}
}

func lines(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return strings.TrimSpace(l) == "" })
}

// step makes one response of a paragraph.
func (p *play) step(paragraph []string) rt.Step {
	return func(step int, r *runtime.Request) (*runtime.Response, error) {
		response := &runtime.Response{Finish: runtime.FinishStop, Usage: events.Usage{Input: 100, Output: 10}}
		call := func(c events.ToolCall) {
			c.ID = rt.CallID(step, len(response.Parts))
			response.Parts = append(response.Parts, events.Part{Type: events.PartToolCall, Call: &c})
			response.Finish = runtime.FinishCalls
		}
		for _, line := range paragraph {
			word, rest, _ := strings.Cut(line, " ")
			switch word {
			case "text":
				response.Parts = append(response.Parts, events.Part{Type: events.PartText, Text: rest})
			case "call":
				name, arguments, _ := strings.Cut(rest, " ")
				call(rt.ToolCall(name, arguments))
			case "script":
				call(rt.RunJSCall(strings.TrimSpace(p.files["scripts/"+rest])))
			case "quote":
				call(rt.ToolCall("complete", `{"kind":"output","output":`+string(rt.Quote(r))+`}`))
			case "finish":
				response.Finish = runtime.FinishReason(rest)
			default:
				return nil, errors.New("the scenario's model says " + line)
			}
		}
		return response, nil
	}
}

// answer answers a callback as the scenario's backend says.
func (p *play) answer(_ context.Context, c *runtime.Callback) (rawJSON, error) {
	word, rest, _ := strings.Cut(p.answers[c.Capability.Name], " ")
	switch word {
	case "=":
		return rawJSON(rest), nil
	case "denied":
		return nil, &runtime.DeniedError{Reason: rest}
	case "fatal":
		return nil, &rt.FatalError{Err: errors.New(rest)}
	}
	return nil, errors.New(rest)
}

// hostLine reads one line of the host file:
//
//	killed before|after OPERATION N    a fault at the Nth operation of that name
//	fails before|after OPERATION N
//	parked ACTION; ACTION              what happens at the next park: see act
//	limit N | secret TEXT | notice TEXT
func (p *play) hostLine(line string) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "killed", "fails":
		when, op, _ := strings.Cut(rest, " ")
		p.faults[op] = map[string]rt.Fault{
			"killed before": rt.KilledFirst, "killed after": rt.KilledAfter, "fails before": rt.FailsFirst, "fails after": rt.FailsAfter,
		}[word+" "+when]
	case "parked":
		p.parked = append(p.parked, strings.Split(rest, "; "))
	case "limit":
		p.number(rest, &p.host.Controller.Limit)
	case "secret":
		p.host.Redactor.Secrets = append(p.host.Redactor.Secrets, rest)
	case "notice":
		p.host.Input.RecoveryNotice = rest
	default:
		p.Fatalf("the host cannot %q", line)
	}
}

func (p *play) number(text string, into *int) {
	if err := json.Unmarshal([]byte(text), into); err != nil {
		p.Fatalf("%q: %v", text, err)
	}
}

// act is what happens while a run is parked: settle CALL OUTPUT, fail CALL
// REASON, or advance DURATION.
func (p *play) act(words string) {
	word, rest, _ := strings.Cut(words, " ")
	call, what, _ := strings.Cut(rest, " ")
	switch word {
	case "settle":
		p.host.Controller.Settle(call, what)
	case "fail":
		p.host.Controller.Fail(call, what)
	case "advance":
		d, err := time.ParseDuration(rest)
		if err != nil {
			p.Fatal(err)
		}
		p.host.Controller.Advance(d)
	default:
		p.Fatalf("nobody can %q", words)
	}
}
