package events_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/agentruntime/agentruntime/events"
)

// The names and kinds of events are promises to stored logs and to clients.
func TestCodecTable(t *testing.T) {
	var got []string
	for _, ty := range events.Types {
		got = append(got, [...]string{"?", "owner", "opening", "external", "command", "public"}[ty.Kind]+" "+ty.Name)
	}
	want := []string{
		"opening dev.agentruntime.log.run.admitted", "opening dev.agentruntime.log.run.claimed", "opening dev.agentruntime.log.command.accepted",
		"opening dev.agentruntime.log.session.erased",
		"owner dev.agentruntime.log.checkpoint.committed", "owner dev.agentruntime.log.window.compacted", "owner dev.agentruntime.log.model.switched",
		"owner dev.agentruntime.log.callbacks.recorded", "owner dev.agentruntime.log.run.parked", "owner dev.agentruntime.log.run.released",
		"owner dev.agentruntime.log.run.completed", "owner dev.agentruntime.log.run.failed", "owner dev.agentruntime.log.run.cancelled",
		"external dev.agentruntime.log.child.settled", "external dev.agentruntime.log.cancel.requested", "external dev.agentruntime.log.timer.fired",
		"external dev.agentruntime.log.budget.raised", "external dev.agentruntime.log.call.answered", "external dev.agentruntime.log.message.received", "external dev.agentruntime.log.call.resolved",
		"opening dev.agentruntime.log.budget.reserved", "opening dev.agentruntime.log.budget.refused", "opening dev.agentruntime.log.budget.settled", "opening dev.agentruntime.log.budget.topped_up",
		"command dev.agentruntime.run.start", "command dev.agentruntime.run.continue", "command dev.agentruntime.run.retry", "command dev.agentruntime.run.cancel",
		"command dev.agentruntime.run.message", "command dev.agentruntime.budget.topup", "command dev.agentruntime.call.settle", "command dev.agentruntime.call.resolve",
		"public dev.agentruntime.run.started", "public dev.agentruntime.run.text", "public dev.agentruntime.run.progress", "public dev.agentruntime.run.completed", "public dev.agentruntime.run.failed",
		"public dev.agentruntime.run.cancelled", "public dev.agentruntime.run.rejected", "public dev.agentruntime.call.dispatched", "public dev.agentruntime.call.settled",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the table is\n%q", got)
	}
}

func TestEveryPayloadGoesRound(t *testing.T) {
	for _, payload := range []any{
		events.RunAdmitted{Agent: "a", Message: events.Text("m", events.RoleUser, "<hi> & \u2028")},
		events.CheckpointCommitted{Delta: events.CheckpointDelta{Revision: 3, Append: []events.Message{{ID: "x", Role: events.RoleAssistant, Parts: []events.Part{{Type: events.PartToolCall, Call: &events.ToolCall{ID: "c", Name: "run_js", Arguments: []byte(`{"n":1e400}`)}}}}}}},
		events.RunCompletedData{Run: "r", Reply: events.Reply{Kind: events.ReplyOutput, Output: []byte(`9007199254740993`)}},
	} {
		e, err := events.New(payload)
		if err != nil {
			t.Fatal(err)
		}
		back, err := e.Payload()
		if err != nil || !reflect.DeepEqual(back, payload) {
			t.Errorf("%s: got %+v, %v", e.Type, back, err)
		}
	}
	if _, err := events.New(struct{}{}); err == nil {
		t.Error("a type outside the table was encoded")
	}
	unknown := events.Event{Type: "dev.agentruntime.log.later.thing", Data: []byte(`{}`)}
	if p, err := unknown.Payload(); p != nil || err != nil {
		t.Errorf("an unknown type gave %v, %v", p, err)
	}
	bad := events.Event{Type: events.FactPrefix + "run.claimed", Data: []byte(`[]`)}
	if _, err := bad.Payload(); err == nil {
		t.Error("data of another shape was decoded")
	}
}
