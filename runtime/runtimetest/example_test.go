package runtimetest_test

import (
	"context"
	"fmt"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// A worker is killed after a desk was booked and before the result was stored.
// The next attempt does not book again: it tells the model that the outcome is
// not known.
func ExampleHost() {
	h := runtimetest.NewHost(events.AgentDefinition{Slug: "desk", Model: "scripted/one"})
	h.Input.Capabilities = []events.Capability{{Name: "desk.book"}}
	h.Model.Respond = runtimetest.Script(
		runtimetest.RunJS(`desk.book {"seat":4}`),
		runtimetest.Complete(`"asked somebody to look"`),
	)
	h.Plan = func(op runtimetest.Op) runtimetest.Fault {
		if op.Name == runtimetest.OpCall && op.Attempt == 1 {
			return runtimetest.KilledAfter
		}
		return runtimetest.Works
	}
	for {
		result, err := h.Run(context.Background())
		if err != nil {
			fmt.Println(err)
			continue
		}
		outcome, _ := h.Result(runtimetest.CallID(0, 0))
		fmt.Printf("%s; the script is %s; %d booking\n", result.Reply.Output, outcome, len(h.Backend.Ledger()))
		return
	}
	// Output:
	// the attempt was killed
	// "asked somebody to look"; the script is unknown; 1 booking
}
