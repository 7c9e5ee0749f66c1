package handlers_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/projector"
)

func TestAFilterIsReadAsItIsWritten(t *testing.T) {
	want := handlers.Filter{State: []projector.State{projector.StateParked, handlers.StateUnreadable}, Agent: "planner", Label: map[string]string{"team": "a"},
		OlderThan: "1h30m", NewerThan: "72h", Parent: "s1-aaaaaaaa", Root: "s1-bbbbbbbb", Reason: "timeout", Stuck: true, Limit: 10, After: "x"}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got handlers.Filter
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, f := range []handlers.Filter{got, {}} {
		if err := f.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestABadFilterIsInvalidUnderTheNameOfItsField(t *testing.T) {
	for field, f := range map[string]handlers.Filter{
		"state":      {State: []projector.State{projector.StateFailed, "done"}},
		"agent":      {Agent: "a planner"},
		"parent":     {Parent: "s1"},
		"root":       {Root: "s1.aaaaaaaa"},
		"older_than": {OlderThan: "3 days"},
		"newer_than": {NewerThan: "-1h"},
		"label":      {Label: map[string]string{"": "a"}},
		"limit":      {Limit: -1},
	} {
		var invalid *handlers.APIError
		if err := f.Validate(); !errors.As(err, &invalid) || invalid.Code != handlers.RejectMalformed || !strings.HasPrefix(invalid.Message, field+": ") {
			t.Errorf("%s: %v", field, err)
		}
	}
	long := handlers.Filter{Label: map[string]string{"a": strings.Repeat("x", 1<<13)}}
	if long.Validate() == nil {
		t.Error("a label that no run has was taken")
	}
}

func TestAPageHasABound(t *testing.T) {
	for limit, want := range map[int]int{0: 1000, 1: 1, 1000: 1000, 5000: 1000} {
		if f := (handlers.Filter{Limit: limit}); f.Most() != want {
			t.Errorf("a limit of %d is %d rows", limit, f.Most())
		}
	}
}
