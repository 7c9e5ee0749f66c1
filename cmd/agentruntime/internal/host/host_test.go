package host

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
)

// ask makes one request of the API, again while nobody serves it yet.
func (s *system) ask(namespace, verb string, header nats.Header, data string) *nats.Msg {
	s.t.Helper()
	var answer *nats.Msg
	jetstreamtest.Eventually(s.t, "an answer", func() bool {
		m := nats.NewMsg("agent.api." + namespace + "." + verb)
		m.Header, m.Data = header, []byte(data)
		var err error
		answer, err = s.conn.NATS().RequestMsg(m, patience)
		return err == nil
	})
	return answer
}

func TestErrorsOfTheAPICarryCodes(t *testing.T) {
	s := newSystem(t)
	h, _ := s.host()
	s.run(h)
	admitted, err := h.Admit(t.Context(), "default", command(t, "first", "go"))
	must(t, err)
	s.told(admitted.Run, 0)
	conflict := nats.Header{"ce-specversion": {"1.0"}, "ce-id": {"first"}, "ce-source": {"/test"}, "ce-type": {"dev.agentruntime.run.start"}, "Content-Type": {"application/json"}}
	for _, test := range []struct {
		namespace, verb string
		header          nats.Header
		data            string
		code, says      string
	}{
		{"default", "run.get", nil, `{"run":"s-00000000"}`, handlers.RejectNoRun, "there is no run s-00000000"},
		{"default", "run.get", nil, `{"run":"x"}`, handlers.RejectMalformed, `"x"`},
		{"default", "run.get", nil, `{"runs":"x"}`, handlers.RejectMalformed, "runs"},
		{"default", "run.get", nil, `{`, handlers.RejectMalformed, "the request"},
		{"default", "run.get", nil, `{"run":7}`, handlers.RejectMalformed, `member "run" takes a string, not number`},
		{"default", "run.list", nil, `{"limit":1.5}`, handlers.RejectMalformed, `member "limit" takes a whole number, not number 1.5`},
		{"default", "run.cancel", nil, `{"run":["x"]}`, handlers.RejectMalformed, `member "run" takes a string, not array`},
		{"default", "run.events", nil, `{"run":"s-00000000"}`, handlers.RejectNoRun, "there is no run s-00000000"},
		{"default", "run.tree", nil, `{"run":"s-00000000"}`, handlers.RejectNoRun, "there is no run s-00000000"},
		{"default", "budget.show", nil, `{"run":"s-00000000"}`, handlers.RejectNoRun, "there is no run s-00000000"},
		{"default", "run.cancel", nil, `{"run":"s-00000000"}`, handlers.RejectNoRun, "there is no run s-00000000"},
		{"default", "run.events", nil, `{"run":"x"}`, handlers.RejectMalformed, `"x"`},
		{"default", "run.list", nil, `[]`, handlers.RejectMalformed, "the request"},
		{"-bad", "run.list", nil, ``, handlers.RejectMalformed, "-bad"},
		{"default", "run.stop", nil, ``, handlers.RejectUnknown, "run.start"},
		{"default", "agents.apply", nil, `{"agent":{}}`, handlers.RejectMalformed, "slug"},
		{"default", "run.start", nil, `{"agent":"nobody","message":"go"}`, handlers.RejectNoAgent, "apply it first"},
		{"default", "run.start", nil, `{"agent":"echo"}`, handlers.RejectMalformed, "message"},
		{"default", "run.start", nil, `go`, handlers.RejectMalformed, "JSON"},
		{"default", "run.start", nats.Header{"ce-id": {"x"}}, `{}`, handlers.RejectMalformed, "specversion"},
		{"default", "run.start", conflict, `{"agent":"echo","message":"other"}`, handlers.RejectConflict, "first"},
		{"default", "run.continue", conflict, `{}`, handlers.RejectMalformed, "run.start"},
		{"default", "run.continue", nil, `{"session":"nowhere","message":"go"}`, handlers.RejectNoSession, "nowhere"},
		{"default", "run.start", nil, `{"agent":"echo","message":"go","session":"` + admitted.Session + `"}`, handlers.RejectSession, admitted.Session},
	} {
		answer := s.ask(test.namespace, test.verb, test.header, test.data)
		code, text := answer.Header.Get(micro.ErrorCodeHeader), answer.Header.Get(micro.ErrorHeader)
		if code != test.code || !strings.Contains(text, test.says) || len(answer.Data) != 0 {
			t.Errorf("%s %s: code %q, %q, data %s; want code %s and %q", test.verb, test.data, code, text, answer.Data, test.code, test.says)
		}
	}
	if answer := s.ask("default", "run.list", nil, ""); answer.Header.Get(micro.ErrorCodeHeader) != "" || !json.Valid(answer.Data) {
		t.Errorf("an answer: %v %s", answer.Header, answer.Data)
	}
}

func TestAnAnswerThatMayYetComeIsUnavailable(t *testing.T) {
	s := newSystem(t)
	h, log := s.host()
	s.run(h)
	s.ask("default", "run.list", nil, "")
	s.remove("KV_AGENT_DEFINITIONS")
	answer := s.ask("default", "run.start", nil, `{"agent":"echo","message":"go"}`)
	if code := answer.Header.Get(micro.ErrorCodeHeader); code != handlers.CodeUnavailable {
		t.Errorf("code %q: %s", code, answer.Header.Get(micro.ErrorHeader))
	}
	if !strings.Contains(log.String(), "a request could not be answered") {
		t.Errorf("it is not logged:\n%s", log)
	}
}

// message is a command as either mode writes it.
func message(t testing.TB, e *events.Event, structured bool) *nats.Msg {
	t.Helper()
	m := nats.NewMsg("agent.cmd.default.run.start")
	if !structured {
		m.Header, m.Data = nats.Header(e.Header()), e.Data
		return m
	}
	data, err := e.Structured()
	must(t, err)
	m.Header.Set("content-type", "application/cloudevents+json")
	m.Data = data
	return m
}

func TestACommandThatComesManyTimesInBothModesIsOneRun(t *testing.T) {
	s := newSystem(t)
	h, _ := s.host()
	s.run(h)
	e := command(t, "many", "go")
	var sent sync.WaitGroup
	for i := range 6 {
		m := message(t, e, i%2 == 0)
		sent.Go(func() {
			if answer, err := s.conn.NATS().RequestMsg(m, patience); err != nil || !strings.Contains(string(answer.Data), `"seq"`) {
				t.Errorf("publish: %v, %v", answer, err)
			}
		})
	}
	sent.Wait()
	session := events.SessionFor("default", e.Source, e.ID)
	run := events.RunFor("default", session, e.Source, e.ID)
	if ids := s.told(run, 0); len(ids) != 2 {
		t.Errorf("%d public events tell of the run, want its start and its end", len(ids))
	}
	jetstreamtest.Eventually(t, "every command to be acknowledged", func() bool { return s.held("AGENT_COMMANDS") == 0 })
	var runs []handlers.Row
	jetstreamtest.Eventually(t, "the list of runs", func() bool {
		list, _, err := h.api.Lister.List(t.Context(), "default", handlers.Filter{})
		runs = list
		return err == nil
	})
	if len(runs) != 1 || runs[0].Run != run {
		t.Errorf("runs %+v", runs)
	}
	if n := s.held("AGENT_DEAD"); n != 0 {
		t.Errorf("%d of the commands were refused", n)
	}
	s.settled(h)
	if n := s.held("AGENT_EVENTS"); n != 2 {
		t.Errorf("%d public events", n)
	}
}

func TestPublicEventsThatWereLostAreToldAgain(t *testing.T) {
	for name, lose := range map[string]func(s *system){
		"the stream": func(s *system) { s.remove("AGENT_EVENTS") },
		"the newest": func(s *system) { must(s.t, s.stream("AGENT_EVENTS").DeleteMsg(s.t.Context(), 2)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t)
			h, _ := s.host()
			stop := s.run(h)
			admitted, err := h.Admit(t.Context(), "default", command(t, "first", "go"))
			must(t, err)
			before := s.told(admitted.Run, 0)
			s.settled(h)
			stop()
			if len(before) != 2 || s.held("AGENT_EVENTS") != 2 {
				t.Fatalf("%d events were told", len(before))
			}
			lose(s)
			// The server forgets which ids it has seen, as after a crash.
			s.end()
			s.begin()
			h, _ = s.host()
			s.run(h)
			after := s.told(admitted.Run, 0)
			if slices.Sort(before); !slices.Equal(before, slices.Compact(slices.Sorted(slices.Values(after)))) {
				t.Errorf("told %v, and after the loss %v", before, after)
			}
		})
	}
}

func TestNothingIsToldTwiceWithoutALoss(t *testing.T) {
	for name, test := range map[string]struct {
		age  func(s *system)
		left uint64
	}{
		"all is there":     {func(*system) {}, 2},
		"all has aged out": {func(s *system) { s.purge("AGENT_EVENTS") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t)
			h, _ := s.host()
			stop := s.run(h)
			admitted, err := h.Admit(t.Context(), "default", command(t, "first", "go"))
			must(t, err)
			s.told(admitted.Run, 0)
			s.settled(h)
			stop()
			test.age(s)
			s.end()
			s.begin()
			h, log := s.host()
			stop = s.run(h)
			jetstreamtest.Eventually(t, "the sweep", func() bool { return strings.Contains(log.String(), "swept the log") })
			s.settled(h)
			stop()
			if n := s.held("AGENT_EVENTS"); n != test.left {
				t.Errorf("%d public events, want %d", n, test.left)
			}
		})
	}
}

func TestTheSweepFindsARunWhoseHintWasLost(t *testing.T) {
	s := newSystem(t)
	h, _ := s.host()
	admitted, err := h.Admit(t.Context(), "default", command(t, "first", "go"))
	must(t, err)
	// The reaction to the admission is over as well, and sends no other hint. It
	// has a connection of its own, which takes no fact that comes later.
	conn, err := s.server.Connect(jetstream.Config{Name: "reactions"})
	must(t, err)
	r := &jetstream.Reaction{Conn: conn, Name: reactionName}
	fact, err := r.Next(t.Context())
	must(t, err)
	must(t, h.React(t.Context(), &fact.Event, events.Position{Sequence: fact.Sequence}))
	must(t, fact.Ack())
	s.settled(h)
	conn.Close()
	s.purge("AGENT_WORK")
	s.run(h)
	s.told(admitted.Run, 0) // nothing but a sweep, at the start or the keeper's, leads to it
}

func TestAHostThatIsKilledEndsWithoutItsGrace(t *testing.T) {
	s := newSystem(t)
	h, _ := s.host()
	kill, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(t.Context(), kill) }()
	<-h.Ready()
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
