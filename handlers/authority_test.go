package handlers_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/handlers/policy"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// moment is a policy that a test changes.
type moment struct{ atomic.Pointer[policy.Policy] }

func (m *moment) Policy() *policy.Policy { return m.Load() }

// rule changes what namespace ns may do.
func (m *moment) rule(change func(*policy.Rules)) {
	r := policy.Rules{Agents: []string{"*"}, Subagents: []string{"*"}, Models: []string{"*/*"}, Capabilities: []string{"*"}, Egress: policy.EgressAllow}
	change(&r)
	m.Store(&policy.Policy{Namespaces: map[string]policy.Rules{"ns": r}})
}

// ruled puts a world under a policy that allows everything yet.
func ruled(w *handlerstest.World) *moment {
	m := &moment{}
	m.rule(func(*policy.Rules) {})
	w.Policies = m
	return m
}

// results returns the outcomes of a run's calls, in order, with what was said.
func results(t *testing.T, w *handlerstest.World, session string) (outcomes []events.Outcome, texts []string) {
	t.Helper()
	s, _, err := w.Session(t.Context(), events.Key{Namespace: w.Namespace, Session: session})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Window {
		for _, p := range m.Parts {
			if p.Result != nil {
				outcomes, texts = append(outcomes, p.Result.Outcome), append(texts, p.Result.Parts[0].Text)
			}
		}
	}
	return outcomes, texts
}

func TestWhatAPolicyDoesNotNameIsNotAdmitted(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*policy.Rules)
		says   string
	}{
		"everything named": {func(*policy.Rules) {}, ""},
		"agent":            {func(r *policy.Rules) { r.Agents = []string{"other"} }, "agent tester"},
		"model":            {func(r *policy.Rules) { r.Models = []string{"openai/*"} }, "model test/model"},
		"capability":       {func(r *policy.Rules) { r.Capabilities = []string{"desk.*"} }, "capability mail.send"},
		"subagent":         {func(r *policy.Rules) { r.Subagents = nil }, "subagent tester"},
		"egress":           {func(r *policy.Rules) { r.Egress = "" }, "mail.send does"},
		"nothing":          {func(r *policy.Rules) { *r = policy.Rules{} }, "capability desk.book"},
	} {
		v := agent("desk.book", "mail.send")
		v.Capabilities[1].Egress = true
		v.Agent.Subagents = []string{"tester"}
		w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
		w.Model.Respond = runtimetest.Complete(`"done"`)
		ruled(w).rule(c.change)
		worker := w.Start(t.Context(), nil)
		if _, err := worker.Dispatcher.Apply(t.Context(), "ns", &v); err != nil {
			t.Fatal(err)
		}
		e := handlerstest.Start("1", "tester", "Go.")
		_, err := worker.Dispatcher.Admit(t.Context(), "ns", &e)
		refused, ok := err.(*handlers.Rejection)
		if c.says == "" && err != nil || c.says != "" && (!ok || refused.Reason != handlers.RejectDenied || !strings.Contains(refused.Detail, c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A namespace that no rule is for may do nothing.
	p := &policy.Policy{Namespaces: map[string]policy.Rules{"other": {Agents: []string{"*"}}}}
	if p.Agent("ns", "tester", false) == nil {
		t.Error("a namespace without rules may do something")
	}
}

func TestARevokedCapabilityIsRefusedWithinTheScriptThatUsesIt(t *testing.T) {
	w, _ := started(t, agent("desk.book"),
		runtimetest.RunJS("desk.book {}\ntry desk.book {}\nreturn"), runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.CompleteQuoting())
	m := ruled(w)
	worker := w.Start(t.Context(), nil)
	w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
		m.rule(func(r *policy.Rules) { r.Capabilities = nil })
		return []byte(`1`), nil
	}
	worker.Settle()
	r := only(t, w)
	outcomes, texts := results(t, w, w.Keys()[0].Session)
	if r.State != projector.StateCompleted || len(w.Services.Ledger) != 1 || !slices.Equal(outcomes[:2], []events.Outcome{events.OutcomeOK, events.OutcomeDenied}) {
		t.Fatalf("the run is %s, %d calls reached the service, outcomes %v", r.State, len(w.Services.Ledger), outcomes)
	}
	for i, text := range texts[:2] {
		if !strings.Contains(text, "does not allow the capability desk.book") {
			t.Errorf("call %d is told %q", i, text)
		}
	}
}

func TestARunWhoseAgentOrModelIsRevokedFailsAsDenied(t *testing.T) {
	for name, change := range map[string]func(*policy.Rules){
		"agent": func(r *policy.Rules) { r.Agents = nil }, "model": func(r *policy.Rules) { r.Models = nil }} {
		w, _ := started(t, agent("desk.book"), runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.CompleteQuoting())
		m := ruled(w)
		worker := w.Start(t.Context(), nil)
		w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
			m.rule(change)
			return []byte(`1`), nil
		}
		worker.Settle()
		if r := only(t, w); r.State != projector.StateFailed || r.Reason != events.FailureDenied || len(w.Model.Requests()) != 1 || !strings.Contains(r.Failed.Error, "does not allow the "+name) {
			t.Errorf("%s: the run is %s after %d requests: %+v", name, r.State, len(w.Model.Requests()), r.Failed)
		}
	}
}

// What a model asks for is refused when its agent was revoked while it answered.
func TestARevokedAgentDoesNothingMore(t *testing.T) {
	for name, last := range map[string]runtimetest.Step{
		"wait": runtimetest.Calls(wait(`{}`)), "get": runtimetest.Call("get_calls", `{"calls":["call_0_0"]}`), "cancel": runtimetest.Call("cancel_calls", `{"calls":["call_0_0"]}`),
		"start": runtimetest.Calls(spawn("child", "two")), "complete": runtimetest.Complete(`"done"`),
	} {
		t.Run(name, func(t *testing.T) {
			w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
			m := ruled(w)
			cast(map[string]runtimetest.Step{
				"parent": runtimetest.Script(runtimetest.Calls(spawn("child", "one")), func(step int, r *runtime.Request) (*runtime.Response, error) {
					m.rule(func(r *policy.Rules) { r.Agents = []string{"child"} })
					return last(step, r)
				}),
				"child": runtimetest.Script(runtimetest.Complete(`"done"`)),
			})(w)
			inTree(t, w, member("parent", "child"), member("child")).Settle()
			parent := runIn(t, w, parentOf(w, "1"))
			if parent.State != projector.StateFailed || parent.Reason != events.FailureDenied || len(parent.Children) != 1 {
				t.Errorf("the run is %s (%s) with %d children", parent.State, parent.Reason, len(parent.Children))
			}
			session, _ := events.SessionOf(parent.ID)
			outcomes, texts := results(t, w, session)
			if n := len(outcomes); n != 2 || outcomes[1] != events.OutcomeDenied || !strings.Contains(texts[1], "does not allow the agent") {
				t.Errorf("outcomes %v, told %q", outcomes, texts)
			}
		})
	}
}

func TestARunWhoseModelIsRevokedAsksItsNext(t *testing.T) {
	w, _ := started(t, choosing("a/x", "b/y"))
	m := ruled(w)
	answering(map[string]runtimetest.Step{
		"a/x": runtimetest.Script(runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.Complete(`"never"`)),
		"b/y": runtimetest.Script(nil, runtimetest.Complete(`"done"`)),
	})(w)
	worker := w.Start(t.Context(), nil)
	w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
		m.rule(func(r *policy.Rules) { r.Models = []string{"b/*"} })
		return []byte(`1`), nil
	}
	worker.Settle()
	if r := only(t, w); r.State != projector.StateCompleted || r.Model() != "b/y" || !slices.Equal(switches(t, w), []string{"denied b/y"}) {
		t.Errorf("the run is %s at %s, switches %v", r.State, r.Model(), switches(t, w))
	}
}

// inTree applies agents and starts the first one.
func inTree(t *testing.T, w *handlerstest.World, versions ...handlers.Version) *handlerstest.Worker {
	t.Helper()
	worker := w.Start(t.Context(), nil)
	for i := range versions {
		if _, err := worker.Dispatcher.Apply(t.Context(), w.Namespace, &versions[i]); err != nil {
			t.Fatal(err)
		}
	}
	w.Send(handlerstest.Start("1", versions[0].Agent.Slug, "Go."))
	return worker
}

func TestARevokedSubagentIsNotStarted(t *testing.T) {
	w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
	m := ruled(w)
	cast(map[string]runtimetest.Step{
		"parent": runtimetest.Script(
			func(step int, r *runtime.Request) (*runtime.Response, error) {
				m.rule(func(r *policy.Rules) { r.Subagents = []string{"no*"} })
				return runtimetest.Calls(spawn("child", "one"))(step, r)
			},
			runtimetest.CompleteQuoting()),
	})(w)
	inTree(t, w, member("parent", "child"), member("child")).Settle()
	outcomes, _ := results(t, w, events.SessionFor("ns", "/test", "1"))
	if r := only(t, w); r.State != projector.StateCompleted || outcomes[0] != events.OutcomeDenied {
		t.Errorf("the run is %s, outcomes %v", r.State, outcomes)
	}
}

// guarded is an agent that reads untrusted pages, sends mails, and may not do both.
func guarded(slug string, subagents ...string) handlers.Version {
	v := agent("page.read", "mail.send")
	v.Agent.Slug, v.Agent.Instructions, v.Agent.Subagents = slug, slug, subagents
	v.Capabilities[0].Untrusted, v.Capabilities[1].Egress = true, true
	v.Agent.Limits.NoEgressAfterUntrusted = true
	return v
}

// sent returns how many mails left a world, and read how many pages came.
func sent(w *handlerstest.World) int { return reached(w, "svc.mail.send") }
func read(w *handlerstest.World) int { return reached(w, "svc.page.read") }

func reached(w *handlerstest.World, subject string) (n int) {
	for _, c := range w.Services.Ledger {
		if c.Subject == subject {
			n++
		}
	}
	return n
}

const (
	readPage = "page.read {}\nreturn"
	sendMail = "mail.send {}\nreturn"
)

func TestNothingLeavesOnceUntrustedOutputWasRead(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*handlers.Version)
		rules  policy.Egress
		codes  []string
		sent   int
	}{
		"before it was read":              {nil, "allow", []string{sendMail, readPage}, 1},
		"after it was read":               {nil, "allow", []string{readPage, sendMail}, 0},
		"within one script":               {nil, "allow", []string{"mail.send {}\npage.read {}\ntry mail.send {}\nreturn"}, 1},
		"by a script that failed":         {nil, "allow", []string{"page.read {}\nthrow no", sendMail}, 0},
		"what may be trusted":             {func(v *handlers.Version) { v.Capabilities[0].Untrusted = false }, "allow", []string{readPage, sendMail}, 1},
		"where nobody forbids it":         {func(v *handlers.Version) { v.Agent.Limits.NoEgressAfterUntrusted = false }, "allow", []string{readPage, sendMail}, 1},
		"where the policy alone forbids":  {func(v *handlers.Version) { v.Agent.Limits.NoEgressAfterUntrusted = false }, "until_untrusted", []string{sendMail, readPage, sendMail}, 1},
		"where it is far back, compacted": {func(v *handlers.Version) { *v = within(*v, 4500) }, "allow", append(append([]string{readPage}, slices.Repeat([]string{"log " + strings.Repeat("x", 900)}, 14)...), sendMail), 0},
	} {
		v := guarded("tester")
		if c.change != nil {
			c.change(&v)
		}
		var list []runtimetest.Step
		for i, code := range c.codes {
			list = append(list, runtimetest.RunJS(fmt.Sprintf("log %d\n%s", i, code)))
		}
		w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
		w.Model.Respond = runtimetest.Script(append(list, runtimetest.Complete(`"done"`))...)
		ruled(w).rule(func(r *policy.Rules) { r.Egress = c.rules })
		inTree(t, w, v).Settle()
		if r := only(t, w); r.State != projector.StateCompleted || sent(w) != c.sent || read(w) != 1 {
			t.Errorf("%s: the run is %s; %d mails left and %d pages came: %+v", name, r.State, sent(w), read(w), r.Failed)
		}
		if list, _ := compactions(t, w); strings.Contains(name, "compacted") && len(list) == 0 {
			t.Error("nothing was compacted")
		}
	}
}

func TestAContinuationKeepsWhatItsConversationHasRead(t *testing.T) {
	w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
	w.Model.Respond = runtimetest.Script(runtimetest.RunJS(readPage), runtimetest.Ask("Well?"), runtimetest.RunJS(sendMail), runtimetest.Complete(`"done"`))
	v := guarded("tester")
	worker := inTree(t, w, v)
	worker.Settle()
	// A newer definition without the rule lifts it for no conversation that had it.
	v.Agent.Limits.NoEgressAfterUntrusted = false
	if _, err := worker.Dispatcher.Apply(t.Context(), "ns", &v); err != nil {
		t.Fatal(err)
	}
	w.Send(handlerstest.Continue("2", w.Keys()[0].Session, "Go on."))
	worker.Settle()
	all := runs(t, w)
	if len(all) != 2 || all[1].State != projector.StateCompleted || !all[1].Untrusted || sent(w) != 0 {
		t.Errorf("%d runs, %d mails left: %+v", len(all), sent(w), all[len(all)-1].Failed)
	}
	if outcomes, _ := results(t, w, w.Keys()[0].Session); !slices.Contains(outcomes, events.OutcomeDenied) {
		t.Errorf("outcomes %v", outcomes)
	}
}

func TestWhatAChildHasReadIsReadByWhoIsToldOfIt(t *testing.T) {
	get := runtimetest.ToolCall("get_calls", `{"calls":["call_0_0"]}`)
	for name, c := range map[string]struct {
		calls []events.ToolCall
		sent  int
	}{
		"by a wait":       {[]events.ToolCall{spawn("child", "one"), runtimetest.RunJSCall(sendMail), wait(`{}`), runtimetest.RunJSCall(sendMail)}, 1},
		"by a look":       {[]events.ToolCall{spawn("child", "one"), spawn("sender", "one"), wait(`{"calls":["call_0_1"]}`), get, runtimetest.RunJSCall(sendMail)}, 1}, // the sender's
		"by nothing yet":  {[]events.ToolCall{spawn("child", "one"), runtimetest.RunJSCall(sendMail)}, 1},
		"the other way":   {[]events.ToolCall{runtimetest.RunJSCall(readPage), spawn("sender", "one"), wait(`{}`)}, 0},
		"before it reads": {[]events.ToolCall{spawn("sender", "one"), wait(`{}`), runtimetest.RunJSCall(readPage)}, 1},
	} {
		w := handlerstest.New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
		// The one who sends has no rule of its own: that of its parent holds.
		sender := guarded("sender")
		sender.Agent.Limits.NoEgressAfterUntrusted = false
		cast(map[string]runtimetest.Step{
			"parent": runtimetest.Script(runtimetest.Calls(c.calls...), runtimetest.Calls(wait(`{}`)), runtimetest.Complete(`"done"`)),
			"child":  runtimetest.Script(runtimetest.RunJS(readPage), runtimetest.Complete(`"told"`)),
			"sender": runtimetest.Script(runtimetest.RunJS(sendMail), runtimetest.Complete(`"tried"`)),
		})(w)
		inTree(t, w, guarded("parent", "child", "sender"), guarded("child"), sender).Settle()
		for _, r := range runs(t, w) {
			if r.State != projector.StateCompleted {
				t.Errorf("%s: run %s of %s is %s: %+v", name, r.ID, r.Admitted.Agent, r.State, r.Failed)
			}
		}
		if sent(w) != c.sent {
			t.Errorf("%s: %d mails left, want %d", name, sent(w), c.sent)
		}
	}
}

// Whatever is lost or killed, no mail leaves after a page was read.
func TestACrashAnywhereLetsNothingLeave(t *testing.T) {
	reads := func(w *handlerstest.World) {
		sentBefore := false
		w.Services.Answer = func(subject string, _ map[string]string, _ []byte) ([]byte, error) {
			switch {
			case subject == "svc.page.read":
				sentBefore = true
			case sentBefore:
				t.Error("a mail left after a page was read")
			}
			return []byte(`1`), nil
		}
	}
	scenario := handlerstest.Scenario{
		Name: "read and send", Versions: []handlers.Version{guarded("tester")}, Racy: true,
		Prepare: func(w *handlerstest.World) {
			steps(runtimetest.RunJS("mail.send {}\npage.read {}\nreturn"), runtimetest.RunJS(sendMail), runtimetest.Complete(`"done"`))(w)
			reads(w)
		},
		Commands: start("Go."),
	}
	// Where the first script was lost before it read anything, the second may send:
	// what nobody knows counts as read, so that it may not.
	crashEverywhere(t, []handlerstest.Scenario{scenario}, false, inMemory)
}

func TestAServiceThatHasSeenANewerEpochStopsTheWorker(t *testing.T) {
	w, worker := started(t, agent("desk.book"), runtimetest.RunJS("try desk.book {}\nreturn"), runtimetest.CompleteQuoting())
	heir := w.Start(t.Context(), nil)
	w.Services.Answer = func(_ string, header map[string]string, _ []byte) ([]byte, error) {
		if header[handlers.HeaderEpoch] == "1" {
			heir.Takeover()
			heir.Settle()
			return nil, &handlers.ServiceError{Code: handlers.CodeStaleEpoch, Description: "I have seen epoch 2"}
		}
		return []byte(`1`), nil
	}
	ended := attempts{handlers.NoMeter{}, make(map[string]int)}
	worker.Dispatcher.Meter = ended
	worker.Settle()
	// The script was told nothing, and the call has no result of that worker: who
	// claims next does not know.
	outcomes, _ := results(t, w, w.Keys()[0].Session)
	if r := only(t, w); r.State != projector.StateCompleted || outcomes[0] != events.OutcomeUnknown || ended.ended["fenced"] != 1 || len(w.Services.Ledger) != 1 {
		t.Errorf("the run is %s, outcomes %v, attempts %v", r.State, outcomes, ended.ended)
	}
}
