package handlers_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/projector"
)

func TestARowWithoutARunHasNothingThatOnlyARunHas(t *testing.T) {
	run := handlers.Row{Summary: projector.Summary{Run: "s-00000000", Session: "s", Root: "s-00000000", State: projector.StateFailed, Started: time.Unix(1, 0).UTC()},
		Stuck: true, Cost: &events.Cost{Amount: "1", Currency: "USD"}}
	for _, test := range []struct {
		value any
		want  []string
	}{
		{handlers.Row{Summary: projector.Summary{Session: "s", State: handlers.StateErased}}, []string{`{"session":"s","state":"erased"}`}},
		{handlers.Row{Summary: projector.Summary{Session: "s", State: handlers.StateUnreadable, Reason: "a < b"}}, []string{`{"session":"s","state":"unreadable","reason":"a < b"}`}},
		{run, []string{`{"run":"s-00000000",`, `"root":"s-00000000"`, `"started":"1970-01-01T00:00:01Z"`, `"usage":{`, `"stuck":true`, `"cost":{"amount":"1"`}},
	} {
		data, err := events.Marshal(test.value)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range test.want {
			if !strings.Contains(string(data), want) {
				t.Errorf("%s has no %s", data, want)
			}
		}
		var back handlers.Row
		if err := json.Unmarshal(data, &back); err != nil || back.Session != "s" || back.State == "" {
			t.Errorf("%s is read as %+v, %v", data, back, err)
		}
	}
	// In a tree a session that was erased has a run, and no beginning that is known.
	data, err := events.Marshal(handlers.TreeNode{Summary: projector.Summary{Run: "s-00000000", State: handlers.StateErased}})
	if err != nil || strings.Contains(string(data), "started") {
		t.Errorf("%s, %v", data, err)
	}
}
