package handlers

import (
	"fmt"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

func TestAnAnswerAboutManyChildrenTellsTheRestNextTime(t *testing.T) {
	const children = 2*maxSettled + 500
	run := projector.Run{ID: "s1-aaaaaaaa"}
	for i := range children {
		id := fmt.Sprint(i)
		session := events.ChildSession("ns", run.ID, id)
		call := events.ChildCall{CallID: "call_" + id, Agent: "child", Session: session, Run: events.RunFor("ns", session, run.ID, id)}
		run.Children = append(run.Children, projector.Child{ChildCall: call, Settled: &events.ChildSettled{CallID: call.CallID, Child: call.Run, Outcome: "failed", Error: "no"}})
	}
	s := &store{session: &projector.Session{Runs: []projector.Run{run}}, run: run.ID}
	c := &controller{store: s}
	told := make(map[string]int)
	for _, want := range []int{maxSettled, maxSettled, 500} {
		waited := append([]projector.Child{}, s.session.Runs[0].Children...)
		result, err := c.waitResult(t.Context(), waited, runtime.WaitRequest{}, "wait")
		if err != nil {
			t.Fatal(err)
		}
		if len(result.Settled)+result.MoreSettled != children || len(result.Settled) != maxSettled {
			t.Errorf("%d are told of and %d more have settled", len(result.Settled), result.MoreSettled)
		}
		fresh := 0
		for _, info := range result.Settled {
			if told[info.CallID]++; told[info.CallID] == 1 {
				fresh++
			}
		}
		if fresh != want {
			t.Errorf("%d children are told of for the first time, want %d", fresh, want)
		}
		for i := range s.session.Runs[0].Children {
			child := &s.session.Runs[0].Children[i]
			child.Told = told[child.CallID] > 0
		}
	}
}
