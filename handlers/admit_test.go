package handlers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// memoryWorld is a world in memory with the test agent applied and a model that
// completes at once.
func memoryWorld(t *testing.T) (*handlerstest.World, *handlerstest.Worker) {
	t.Helper()
	w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
	w.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
		return runtimetest.Complete(`"done"`)(step, r)
	}
	worker := w.Start(t.Context(), nil)
	v := agent()
	if _, err := worker.Dispatcher.Apply(t.Context(), "ns", &v); err != nil {
		t.Fatal(err)
	}
	return w, worker
}

// structured returns a command in structured mode.
func structured(t *testing.T, e events.Event) (map[string][]string, []byte) {
	t.Helper()
	data, err := e.Structured()
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]string{"Content-Type": {"application/cloudevents+json; charset=utf-8"}}, data
}

// runs returns every run of the world.
func runs(t *testing.T, w *handlerstest.World) []projector.Run {
	t.Helper()
	var all []projector.Run
	for _, key := range w.Keys() {
		s, _, err := w.Session(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s.Runs...)
	}
	return all
}

// rejections returns the reasons of the refusals that were published.
func rejections(t *testing.T, w *handlerstest.World) []string {
	t.Helper()
	var reasons []string
	for _, e := range w.Published {
		if p, err := events.PayloadOf[events.RunRejectedData](&e); err == nil && strings.HasSuffix(e.Type, "run.rejected") {
			reasons = append(reasons, p.Reason)
		}
	}
	return reasons
}

func TestTheSameCommandInBothModesAndAtOnceIsOneRun(t *testing.T) {
	w, worker := memoryWorld(t)
	command := handlerstest.Start("1", "tester", "Go.")
	header, data := structured(t, command)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			h, d := header, data
			if i%2 == 0 {
				h, d = command.Header(), command.Data
			}
			if err := worker.Dispatcher.HandleCommand(t.Context(), "ns", "run.start", h, d); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	worker.Settle()
	if r := runs(t, w); len(r) != 1 || r[0].State != projector.StateCompleted {
		t.Errorf("the runs are %+v", r)
	}
	if r := rejections(t, w); len(r) != 0 {
		t.Errorf("rejected: %v", r)
	}
}

func TestRefusedCommandsAreAnsweredAndKept(t *testing.T) {
	start := func(data string) events.Event {
		return events.Event{ID: "x", Source: "/test", Type: "dev.agentruntime.run.start", DataContentType: "application/json", Data: []byte(data)}
	}
	for name, c := range map[string]struct {
		before []events.Event
		send   events.Event
		want   string
	}{
		"the same id with another body": {[]events.Event{handlerstest.Start("1", "tester", "Go.")}, handlerstest.Start("1", "tester", "Go elsewhere."), handlers.RejectConflict},
		"the same id with another session": {[]events.Event{handlerstest.Start("1", "tester", "Go.")},
			withID(start(`{"agent":"tester","message":"Go.","session":"other"}`), "1"), handlers.RejectConflict},
		"the same id first with a session and then without": {[]events.Event{withID(start(`{"agent":"tester","message":"Go.","session":"other"}`), "1")},
			handlerstest.Start("1", "tester", "Go."), handlers.RejectConflict},
		"the same id as another command": {[]events.Event{handlerstest.Start("1", "tester", "Go.")}, handlerstest.Continue("1", "any", "Go."), handlers.RejectConflict},
		"a session that has a run":       {[]events.Event{withID(start(`{"agent":"tester","message":"a","session":"mine"}`), "a")}, start(`{"agent":"tester","message":"b","session":"mine"}`), handlers.RejectSession},
		"an unknown agent":               {nil, start(`{"agent":"nobody","message":"hi"}`), handlers.RejectNoAgent},
		"a name that no agent can have":  {nil, start(`{"agent":"../../x","message":"hi"}`), handlers.RejectNoAgent},
		"no agent":                       {nil, start(`{"message":"hi"}`), handlers.RejectMalformed},
		"neither message nor input":      {nil, start(`{"agent":"tester"}`), handlers.RejectMalformed},
		"message and input":              {nil, start(`{"agent":"tester","message":"hi","input":1}`), handlers.RejectMalformed},
		"an unknown field":               {nil, start(`{"agent":"tester","message":"hi","mesage":"ho"}`), handlers.RejectMalformed},
		"a duplicate key":                {nil, start(`{"agent":"tester","agent":"other","message":"hi"}`), handlers.RejectMalformed},
		"data that is not JSON":          {nil, start(`{"agent":`), handlers.RejectMalformed},
		"no data":                        {nil, start(``), handlers.RejectMalformed},
		"a session that is no name":      {nil, start(`{"agent":"tester","message":"hi","session":"a.b"}`), handlers.RejectMalformed},
		"an unknown type":                {nil, events.Event{ID: "x", Source: "/test", Type: "dev.agentruntime.run.stop", Data: []byte(`{}`)}, handlers.RejectUnknown},
		"continuing nothing":             {nil, handlerstest.Continue("x", "nowhere", "Go."), handlers.RejectNoSession},
		"continuing without a message":   {nil, handlerstest.Continue("x", "nowhere", ""), handlers.RejectMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			w, worker := memoryWorld(t)
			for _, b := range c.before {
				w.Send(b)
				worker.Settle()
			}
			before := len(runs(t, w))
			for range 2 { // a repetition is answered the same
				w.Send(c.send)
				worker.Settle()
			}
			if err := w.Idle(); err != nil {
				t.Error(err)
			}
			if got := rejections(t, w); !slices.Equal(got, []string{c.want}) {
				t.Errorf("rejected as %v, want %s once", got, c.want)
			}
			if len(w.Buried) == 0 || w.Buried[0].Reason != c.want || string(w.Buried[0].Data) != string(c.send.Data) {
				t.Errorf("the dead letters are %v", w.Buried)
			}
			if after := len(runs(t, w)); after != before {
				t.Errorf("%d runs became %d", before, after)
			}
		})
	}
}

func withID(e events.Event, id string) events.Event {
	e.ID = id
	return e
}

func TestAMessageThatIsNoCloudEventIsRefusedAndNothingStops(t *testing.T) {
	w, worker := memoryWorld(t)
	w.SendRaw("ns", "run.start", nil, []byte("hello"))
	w.SendRaw("ns", "run.start", map[string][]string{"ce-id": {"1"}, "ce-type": {"t"}, "ce-source": {"/s"}, "ce-specversion": {"0.3"}}, nil)
	w.SendRaw("ns", "run.start", map[string][]string{"content-type": {"application/cloudevents+json"}}, []byte(`{"specversion":"1.0","id":"1","id":"2"}`))
	w.SendRaw("not a namespace", "run.start", nil, []byte("hello"))
	w.Send(handlerstest.Start("1", "tester", "Go."))
	worker.Settle()
	if err := w.Idle(); err != nil {
		t.Error(err)
	}
	if got := rejections(t, w); len(got) != 4 {
		t.Errorf("rejected: %v", got)
	}
	if r := runs(t, w); len(r) != 1 || r[0].State != projector.StateCompleted {
		t.Errorf("the runs are %+v", r)
	}
}

func TestAnInputMustFitTheAgentsSchema(t *testing.T) {
	w, worker := memoryWorld(t)
	v := agent()
	v.Agent.Input = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`)
	if _, err := worker.Dispatcher.Apply(t.Context(), "ns", &v); err != nil {
		t.Fatal(err)
	}
	for i, input := range []string{`{"n":9007199254740993}`, `{"n":"x"}`} {
		e := handlerstest.Start(fmt.Sprint(i), "", "")
		e.Data = []byte(`{"agent":"tester","input":` + input + `}`)
		w.Send(e)
	}
	worker.Settle()
	if got := rejections(t, w); !slices.Equal(got, []string{handlers.RejectInput}) {
		t.Errorf("rejected: %v", got)
	}
	r := runs(t, w)
	if len(r) != 1 || !strings.HasSuffix(r[0].Admitted.Message.Parts[0].Text, `{"n":9007199254740993}`) {
		t.Errorf("the runs are %+v", r)
	}
}

func TestOfTwoContinuationsAtOnceOneWins(t *testing.T) {
	w, worker := memoryWorld(t)
	w.Send(handlerstest.Start("1", "tester", "Go."))
	worker.Settle()
	session := runs(t, w)[0].Summary().Session
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			c := handlerstest.Continue(fmt.Sprint("c", i), session, "On.")
			_, errs[i] = worker.Dispatcher.Admit(t.Context(), "ns", &c)
		})
	}
	wg.Wait()
	var refused *handlers.Rejection
	if (errs[0] == nil) == (errs[1] == nil) || !errors.As(errors.Join(errs...), &refused) || refused.Reason != handlers.RejectBusy {
		t.Errorf("the answers are %v", errs)
	}
	worker.Settle()
	if r := runs(t, w); len(r) != 2 || r[1].State != projector.StateCompleted {
		t.Errorf("the runs are %+v", r)
	}
}

func TestDefinitionsThatAskForMoreThanIsServedAreRefused(t *testing.T) {
	_, worker := memoryWorld(t)
	for field, change := range map[string]func(*handlers.Version){
		"subagents":             func(v *handlers.Version) { v.Agent.Subagents = []string{"a.b"} },
		"named twice":           func(v *handlers.Version) { v.Agent.Subagents = []string{"other", "other"} },
		"budget":                func(v *handlers.Version) { v.Agent.Budget = &events.Budget{} },
		"budget.steps":          func(v *handlers.Version) { v.Agent.Budget = &events.Budget{Steps: -1} },
		"budget.timeout":        func(v *handlers.Version) { v.Agent.Budget = &events.Budget{Timeout: "0s"} },
		"on_budget":             func(v *handlers.Version) { v.Agent.OnBudget = events.OnBudgetHold },
		"slug":                  func(v *handlers.Version) { v.Agent.Slug = "a b" },
		"instructions":          func(v *handlers.Version) { v.Agent.Instructions = " " },
		"model":                 func(v *handlers.Version) { v.Agent.Model = "gpt" },
		"output":                func(v *handlers.Version) { v.Agent.Output = json.RawMessage(`{"type":"strnig"}`) },
		"input":                 func(v *handlers.Version) { v.Agent.Input = json.RawMessage(`{"$id":"x"}`) },
		"events":                func(v *handlers.Version) { v.Agent.Events = []string{"run_text"} },
		"limits.timeout":        func(v *handlers.Version) { v.Agent.Limits.Timeout = "soon" },
		"limits.repeated_calls": func(v *handlers.Version) { v.Agent.Limits.RepeatedCalls = -1 },
		"capabilities":          func(v *handlers.Version) { v.Agent.Capabilities = []string{"no.such"} },
		"route.nats.subject":    func(v *handlers.Version) { *v = agent("a.b"); v.Capabilities[0].Route.NATS.Subject = "agent.log.0.x.y" },
		"effect":                func(v *handlers.Version) { *v = agent("a.b"); v.Capabilities[0].Effect = "maybe" },
		"name":                  func(v *handlers.Version) { *v = agent("a-b") },
		"timeout":               func(v *handlers.Version) { *v = agent("a.b"); v.Capabilities[0].Timeout = "-1s" },
	} {
		t.Run(field, func(t *testing.T) {
			v := agent()
			change(&v)
			if _, err := worker.Dispatcher.Apply(t.Context(), "ns", &v); err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("got %v", err)
			}
		})
	}
}
