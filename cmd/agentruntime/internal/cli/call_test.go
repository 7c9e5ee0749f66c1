package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
)

func TestUnknownCallsAreListedPageByPageAndSettled(t *testing.T) {
	var settled events.ResolveCall
	url := answering(t, func(verb string, request []byte) any {
		switch verb {
		case handlers.VerbCalls:
			var r handlers.CallsRequest
			_ = json.Unmarshal(request, &r)
			one := handlers.UnknownCall{Run: aRun, Call: "call_" + r.After, Index: 2, Capability: "desk.book", Key: "k", Reason: "desk.book did not answer within 30s"}
			if r.After == "" && r.Run == "" {
				return handlers.CallsAnswer{Calls: []handlers.UnknownCall{one}, Next: "b"}
			}
			return handlers.CallsAnswer{Calls: []handlers.UnknownCall{one}}
		case handlers.VerbResolve:
			_ = json.Unmarshal(request, &settled)
			if settled.Index == 9 {
				return &handlers.APIError{Code: handlers.RejectNotUnknown, Message: "it has an outcome"}
			}
			return handlers.Admission{Run: settled.Run, Session: "s1"}
		}
		return &handlers.APIError{Code: handlers.RejectUnknown, Message: verb}
	})
	if all := read[[]handlers.UnknownCall](t, call(t, "call", "list", "--unknown", "-o", "json", "-s", url).ok(t)); len(all) != 2 || all[1].Call != "call_b" || all[1].Reason != "desk.book did not answer within 30s" {
		t.Errorf("listed: %+v", all)
	}
	demand(t, call(t, "call", "list", "--unknown", "--run", aRun, "-s", url).ok(t), "RUN", "INDEX", aRun, "desk.book", "desk.book did not answer within 30s")
	settled.Result = json.RawMessage(`"before"`)
	call(t, "call", "resolve", aRun, "call_b", "2", "--as", "done", "-s", url).ok(t)
	if string(settled.Result) != `"before"` {
		t.Errorf("without a result the command has %s", settled.Result)
	}
	demand(t, call(t, "call", "resolve", aRun, "call_b", "2", "--as", "done", "--result", `{"seat":1}`, "-s", url).ok(t), "callback 2 of call call_b of run "+aRun+" is settled: done")
	if settled.Call != "call_b" || settled.As != "done" || string(settled.Result) != `{"seat":1}` {
		t.Errorf("sent: %+v", settled)
	}
	call(t, "call", "resolve", aRun, "call_b", "9", "--as", "not-done", "-s", url).fails(t, exitFailed, "not_unknown")
	for _, wrong := range [][]string{
		{"list"}, {"list", "--unknown", "--run", "x"}, {"resolve", aRun, "c", "x", "--as", "done"}, {"resolve", aRun, "c", "-1", "--as", "done"},
		{"resolve", aRun, "c", "0"}, {"resolve", aRun, "c", "0", "--as", "maybe"}, {"resolve", aRun, "c", "0", "--as", "done", "--result", "{"},
		{"resolve", aRun, "c", "0", "--as", "not-done", "--result", "1"}, {"resolve", "x", "c", "0", "--as", "done"},
		{"resolve", aRun, "c", "0", "--as", "done", "--result", ""}, {"resolve", aRun, "c", "0", "--as", "not-done", "--result", ""},
		{"settle", aRun, "c"}, {"settle", aRun, "c", "--result", ""}, {"settle", aRun, "c", "--error", ""}, {"settle", aRun, "c", "--result", "1", "--error", "no"},
		{"settle", aRun, "c", "--result", "", "--error", "no"}, {"settle", aRun, "c", "--result", "{"},
	} {
		call(t, append(append([]string{"call"}, wrong...), "-s", url)...).exits(t, exitUsage)
	}
}

func TestRunsThatAListOfCallsLeavesOutAreTold(t *testing.T) {
	url := answering(t, func(_ string, request []byte) any {
		var r handlers.CallsRequest
		_ = json.Unmarshal(request, &r)
		if r.Open {
			return handlers.OpenCallsAnswer{Unreadable: []string{aRun}}
		}
		return handlers.CallsAnswer{Unreadable: []string{aRun}}
	})
	for _, which := range []string{"--unknown", "--open"} {
		if r := call(t, "call", "list", which, "-s", url); r.code != exitOK || strings.Count(r.err, "run "+aRun+" is left out") != 1 {
			t.Errorf("%s: exit %d, the run that is left out is told as %q", which, r.code, r.err)
		}
	}
}
