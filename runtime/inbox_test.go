package runtime_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// inboxOf gives a host an inbox that holds what the transcript does not have.
func inboxOf(h *runtimetest.Host, mail func() []events.Message) {
	h.Input.Inbox = func() []events.Message {
		return slices.DeleteFunc(slices.Clone(mail()), func(m events.Message) bool {
			return slices.ContainsFunc(h.Transcript(), func(o events.Message) bool { return o.ID == m.ID })
		})
	}
}

func TestAMessageIsDeliveredOnceAtTheNextBoundary(t *testing.T) {
	runtimetest.CrashEverywhere(t, runtimetest.Scenario{
		New: func(testing.TB) *runtimetest.Host {
			h := runtimetest.NewHost(events.AgentDefinition{})
			h.Model.Respond = runtimetest.Script(runtimetest.RunJS("return 1"), runtimetest.CompleteQuoting())
			inboxOf(h, func() []events.Message {
				// What came is told by the transcript, in every attempt alike.
				if !slices.ContainsFunc(h.Transcript(), func(m events.Message) bool { return m.Role == events.RoleTool }) {
					return nil
				}
				return []events.Message{events.Text("mail-1", events.RoleUser, "Hurry."), events.Text("mail-2", events.RoleUser, "Please.")}
			})
			return h
		},
	})
}

func TestMessagesStandBetweenTheResultsAndTheNextResponse(t *testing.T) {
	h := runtimetest.NewHost(events.AgentDefinition{})
	h.Model.Respond = runtimetest.Script(
		runtimetest.Calls(runtimetest.RunJSCall("return 1"), runtimetest.RunJSCall("return 2")),
		func(step int, r *runtime.Request) (*runtime.Response, error) {
			if last := r.Messages[len(r.Messages)-1]; last.Role != events.RoleUser || !strings.Contains(last.Parts[0].Text, "Hurry") {
				t.Errorf("the last message of the request is %+v", last)
			}
			return runtimetest.Complete(`"done"`)(step, r)
		})
	inboxOf(h, func() []events.Message {
		if len(h.Model.Requests()) == 0 {
			return nil
		}
		return []events.Message{{ID: "mail", Parts: []events.Part{{Type: events.PartText, Text: "Hurry."}}}}
	})
	if _, err := h.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Check(); err != nil {
		t.Error(err)
	}
	var roles []string
	for _, m := range h.Transcript() {
		roles = append(roles, string(m.Role))
	}
	if got := strings.Join(roles, " "); got != "user assistant tool tool user assistant tool" {
		t.Errorf("the transcript is %s", got)
	}
}
