package projector_test

import (
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

func TestTheJournalOfAScriptKeepsBoundedInputsAndResults(t *testing.T) {
	var s projector.Script
	big := raw(`"` + strings.Repeat("x", 200<<10) + `"`)
	one := func(i int, outcome events.Outcome) {
		m := made(i, events.EffectIdempotent)
		m.Input = big
		s.Record(&events.CallbacksRecorded{Made: []events.CallbackMade{m}})
		if outcome != "" {
			s.Record(&events.CallbacksRecorded{Done: []events.CallbackDone{{Index: i, Outcome: outcome, Result: raw(`"` + strings.Repeat("é", 1000) + `"`)}}})
		}
	}
	for i := range 500 {
		one(i, events.OutcomeOK)
	}
	if s.Inputs != 0 || s.Callbacks[0].Input != nil || len(s.Callbacks[0].Done.Result) == 0 || s.Callbacks[499].Done.Size != 2002 || len(s.Callbacks[499].Done.Text) > 100 {
		t.Errorf("%d bytes of inputs and %d of results are kept; the last is %+v", s.Inputs, s.Results, s.Callbacks[499].Done)
	}
	for i := 500; i < 600; i++ {
		one(i, "")
	}
	size := 0
	for _, c := range s.Callbacks {
		size += len(c.Input)
	}
	if size != s.Inputs || size > projector.MaxScriptInputs || size < projector.MaxScriptInputs/2 || s.Callbacks[599].InputHash == "" || s.Callbacks[599].Input != nil {
		t.Errorf("%d bytes of open inputs are kept, counted as %d", size, s.Inputs)
	}
	one(600, events.OutcomeUnknown)
	s.Record(&events.CallbacksRecorded{Done: []events.CallbackDone{{Index: 500, Outcome: events.OutcomeUnknown}}})
	if s.Callbacks[500].Input == nil {
		t.Error("the input of a callback that may be sent again is gone")
	}
}

// A record costs the same however long the journal is.
func TestARecordOfCallbacksCostsNothingForThoseBeforeIt(t *testing.T) {
	var s projector.Script
	record := func() {
		i := len(s.Callbacks)
		s.Record(&events.CallbacksRecorded{Made: []events.CallbackMade{{Index: i, Capability: "a.b", Effect: events.EffectWrite}}, Done: []events.CallbackDone{{Index: i - 1, Outcome: events.OutcomeOK}}})
	}
	for range 20_000 {
		record()
	}
	s.Callbacks = append(make([]projector.Callback, 0, 30_000), s.Callbacks...)
	if n := testing.AllocsPerRun(1000, record); n > 3 || len(s.Callbacks) != 21_001 {
		t.Errorf("a record makes %.0f allocations; %d callbacks", n, len(s.Callbacks))
	}
}

func TestAVeryLongListOfCallbacksTellsFirstWhatIsUnknownAndCountsTheRest(t *testing.T) {
	var list []projector.Callback
	for i := range 5000 {
		done := events.CallbackDone{Index: i, Outcome: events.OutcomeError, Text: strings.Repeat("no ", 600)}
		if i%2 == 0 {
			done = events.CallbackDone{Index: i, Outcome: events.OutcomeOK, Result: raw(`1`)}
		}
		list = append(list, projector.Callback{CallbackMade: made(i, events.EffectWrite), Done: &done})
	}
	list[4000].Done = nil
	text := projector.TellCallbacks(list, projector.MaxTold)
	if len(text) > 34<<10 || !strings.HasPrefix(text, "\n4001. svc.c4000: not known") || !strings.HasSuffix(text, "\nAnd 2499 more: finished.") || !strings.Contains(text, "more: failed.") {
		t.Errorf("%d bytes: %s … %s", len(text), text[:100], text[len(text)-200:])
	}
}
