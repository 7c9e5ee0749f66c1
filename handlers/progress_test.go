package handlers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// everything keeps every public event, the repeated ones too.
type everything struct {
	handlers.Publisher
	list []events.Event
}

func (p *everything) Publish(ctx context.Context, e *events.Event, at events.Position) error {
	p.list = append(p.list, *e)
	return p.Publisher.Publish(ctx, e, at)
}

// progress returns what people were told of how runs got on.
func progress(t *testing.T, list []events.Event) (lines []string, whole []events.RunProgressData) {
	t.Helper()
	for i := range list {
		if list[i].Type != events.TypeFor[events.RunProgressData]().Name {
			continue
		}
		p, err := events.PayloadOf[events.RunProgressData](&list[i])
		if err != nil {
			t.Fatal(err)
		}
		whole = append(whole, p)
		lines = append(lines, fmt.Sprintf("%s %s", p.Phase, p.Reason))
	}
	return lines, whole
}

func TestPeopleAreToldWhenARunWaitsAndGoesOn(t *testing.T) {
	v := limited(agent(), events.OnBudgetHold, 1)
	v.Agent.Subagents = []string{"child"} // only a parent may wait for messages
	w, worker := started(t, v, first([]error{patience(time.Hour)}, runtimetest.Calls(wait(`{"messages":true}`))), runtimetest.Complete(`"done"`))
	child := member("child")
	if _, err := worker.Dispatcher.Apply(t.Context(), "ns", &child); err != nil {
		t.Fatal(err)
	}
	worker.Settle() // it has spent its one step on a request that came to nothing
	run := only(t, w).ID
	worker.Fire()
	worker.Settle()
	w.Send(handlerstest.TopUp("2", run, 10))
	worker.Settle()
	w.Send(handlerstest.Message("3", run, "Hello?"))
	worker.Settle()
	lines, whole := progress(t, w.Published)
	want := []string{"waiting provider", "retrying provider", "waiting budget", "resumed budget", "waiting message", "resumed message"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Fatalf("progress (-want +got):\n%s", diff)
	}
	if p := whole[0]; p.Until == nil || !strings.Contains(p.Note, "slow down") || p.Run != run || p.Session == "" {
		t.Errorf("the first wait is told as %+v", p)
	}
}

// What is told follows from the fact, and not from how the run stands when it is
// told: a repetition long after is the same event.
func TestProgressThatIsToldAgainIsTheSame(t *testing.T) {
	w, worker := started(t, agent(), first([]error{patience(time.Hour), patience(time.Minute)}, runtimetest.Complete(`"done"`)))
	p := &everything{Publisher: worker.Dispatcher.Public}
	worker.Dispatcher.Public = p
	for worker.Settle(); worker.Fire(); worker.Settle() {
	}
	once := slices.Clone(p.list)
	p.list = nil
	for _, f := range w.Facts() {
		if !worker.ReactTo(f) {
			t.Fatalf("%s is put back", f.Type)
		}
	}
	if diff := cmp.Diff(once, p.list); diff != "" {
		t.Errorf("told again (-first +second):\n%s", diff)
	}
	if lines, _ := progress(t, once); len(lines) != 4 {
		t.Errorf("progress %v", lines)
	}
}

func TestProgressHoldsNoSecret(t *testing.T) {
	w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
	w.Redactor = handlers.NewSecrets([]string{"slow down"})
	w.Model.Respond = first([]error{patience(time.Hour)}, runtimetest.Complete(`"done"`))
	worker := w.Start(t.Context(), nil)
	v := agent()
	if _, err := worker.Dispatcher.Apply(t.Context(), "ns", &v); err != nil {
		t.Fatal(err)
	}
	w.Send(handlerstest.Start("1", "tester", "Go."))
	worker.Settle()
	if _, whole := progress(t, w.Published); len(whole) != 1 || strings.Contains(whole[0].Note, "slow") || !strings.Contains(whole[0].Note, handlers.Redacted) {
		t.Errorf("told %+v", whole)
	}
	if note := only(t, w).Wait.Note; strings.Contains(note, "slow") {
		t.Errorf("the log holds %q", note)
	}
}

func TestATakeoverIsNoProgress(t *testing.T) {
	w, worker := started(t, agent("desk.book"), runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.Complete(`"done"`))
	dying := w.Start(t.Context(), func(a handlerstest.Append) (eventstest.Fault, bool) { return eventstest.AnswerLost, a.N == 4 })
	dying.Settle()
	worker.Takeover()
	worker.Settle()
	if lines, _ := progress(t, w.Published); lines != nil {
		t.Errorf("told %v", lines)
	}
}
