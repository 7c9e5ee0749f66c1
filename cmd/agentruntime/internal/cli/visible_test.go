package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/projector"
)

func TestNothingThatOthersWroteSteersTheTerminal(t *testing.T) {
	const bad = "\x1b[2J\x07\r\u009b1m\u202e"
	reply := &events.Reply{Kind: events.ReplyNeedsInput, Question: bad}
	summary := projector.Summary{Run: aRun, Session: "s1", Agent: bad, State: projector.StateParked, Reason: bad, Wake: bad, Worker: bad}
	url := answering(t, func(verb string, _ []byte) any {
		switch verb {
		case handlers.VerbGet:
			return handlers.RunDetail{Summary: summary, Reply: reply, Error: bad, Note: bad}
		case handlers.VerbList:
			return handlers.ListAnswer{Runs: []handlers.Row{{Summary: summary}}, Next: bad}
		case handlers.VerbTree:
			return handlers.TreeNode{Summary: summary, Error: bad}
		case handlers.VerbBudget:
			return handlers.Budget{Root: bad}
		case handlers.VerbAgentsList:
			return handlers.AgentsAnswer{Agents: map[string]string{bad: bad}}
		case handlers.VerbEvents:
			e, err := events.New(events.RunFailed{Reason: bad, Error: bad})
			if err != nil {
				t.Error(err)
			}
			e.ID, e.Source, e.Time, e.Run, e.Namespace, e.Session = "1", "/test", time.Now(), aRun, "default", "s1"
			data, err := e.Structured()
			if err != nil {
				t.Error(err)
			}
			return handlers.RunFactsAnswer{Events: []handlers.FactAnswer{{Sequence: 1, Event: data}}}
		}
		return &handlers.APIError{Code: "session_busy", Message: bad}
	})
	for _, args := range [][]string{{"run", "get", aRun}, {"run", "list", "--limit", "1"}, {"run", "tree", aRun}, {"budget", "show", aRun}, {"agents", "list"}, {"run", "events", aRun}, {"run", "cancel", aRun}} {
		r := call(t, append(args, "-s", url)...)
		if r.out+r.err == "" {
			t.Errorf("%v prints nothing", args)
		}
		if i := strings.IndexAny(r.out+r.err, "\x1b\x07\r\u009b\u202e"); i >= 0 {
			t.Errorf("%v prints %q", args, r.out+r.err)
		}
	}
}

func TestEscapedTextIsWhole(t *testing.T) {
	const text = "Füße\t☂\n\x1b[31mred\x7f \u2066x\xc3"
	const want = "Füße\t☂\n\\x1b[31mred\\x7f \\u2066x"
	for size := 1; size <= len(text); size++ {
		var out bytes.Buffer
		v := &visible{w: &out, raw: func() bool { return false }}
		for at := 0; at < len(text); at += size {
			part := text[at:min(at+size, len(text))]
			if n, err := v.Write([]byte(part)); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		if out.String() != want { // the last byte may be the beginning of a letter
			t.Errorf("in parts of %d bytes: %q", size, out.String())
		}
	}
	if got := escape("\xc3"); got != `\xc3` {
		t.Errorf("a byte that is no letter is shown as %q", got)
	}
}

func TestADeniedRequestIsShownWithThePermissionThatIsMissing(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		Users: []*server.User{{Username: "me", Password: "x", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"nothing"}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server is not ready")
	}
	as := []string{"-s", s.ClientURL(), "--user", "me", "--password", "x"}
	call(t, append([]string{"run", "get", aRun}, as...)...).fails(t, exitFailed, "run.get: NATS does not let this user publish", "agent.api.default.run.get", "permission")
	r := call(t, append([]string{"provision", "--timeout", "2s"}, as...)...)
	if r.code == exitOK || !strings.Contains(r.err, `NATS does not let this user publish to "$JS.API.`) {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
}
