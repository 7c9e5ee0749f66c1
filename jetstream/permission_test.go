package jetstream_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/jetstream"
)

// guarded starts a server whose user me has the given permissions.
func guarded(t *testing.T, p *server.Permissions) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		Users: []*server.User{{Username: "me", Password: "x", Permissions: p}, {Username: "all", Password: "x"}}})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	return s
}

func connectAs(t *testing.T, s *server.Server, user string) *jetstream.Conn {
	t.Helper()
	conn, err := jetstream.Connect(jetstream.Config{Servers: s.ClientURL(), User: user, Password: "x", Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func TestADeniedRequestFailsAtOnceWithWhatIsMissing(t *testing.T) {
	const secret = "agent.api.other.run.list"
	for name, test := range map[string]struct {
		permissions server.Permissions
		want        func(*jetstream.PermissionError) bool
	}{
		"publish": {server.Permissions{Publish: &server.SubjectPermission{Deny: []string{secret}}},
			func(e *jetstream.PermissionError) bool { return e.Operation == "publish" && e.Subject == secret }},
		"the answers": {server.Permissions{Subscribe: &server.SubjectPermission{Deny: []string{"_INBOX.>"}}},
			func(e *jetstream.PermissionError) bool {
				return e.Operation == "subscribe" && strings.HasPrefix(e.Subject, "_INBOX.")
			}},
	} {
		s := guarded(t, &test.permissions)
		served := connectAs(t, s, "all")
		stop, err := served.Answer(secret, func([]byte) ([]byte, error) { return []byte("answer"), nil })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		if answer, err := served.Request(t.Context(), secret, nil, nil); err != nil || string(answer) != "answer" {
			t.Fatalf("%s: who may ask is answered %q, %v", name, answer, err)
		}
		conn := connectAs(t, s, "me")
		for range 2 { // the second one finds what the first one was told
			began := time.Now()
			_, err = conn.Request(t.Context(), secret, nil, nil)
			var denied *jetstream.PermissionError
			if !errors.As(err, &denied) || !test.want(denied) || errors.Is(err, events.ErrUnanswered) || time.Since(began) > 5*time.Second {
				t.Errorf("%s: after %s: %v", name, time.Since(began), err)
			} else if !strings.Contains(err.Error(), denied.Operation) || !strings.Contains(err.Error(), denied.Subject) {
				t.Errorf("%s: the error says neither what nor where: %v", name, err)
			}
		}
		if list := conn.Denied(); !slices.ContainsFunc(list, func(e jetstream.PermissionError) bool { return test.want(&e) }) {
			t.Errorf("%s: remembered is %v", name, list)
		}
		// Whoever explains how a connection ended needs it after the end.
		closed := make(chan bool)
		conn.NATS().SetClosedHandler(func(*nats.Conn) { close(closed) }) // after the handler of the disconnection
		conn.Close()
		<-closed
		if len(conn.Denied()) == 0 {
			t.Errorf("%s: nothing is remembered of a connection that was closed", name)
		}
	}
}

func TestADeniedRequestConcernsNoOther(t *testing.T) {
	s := guarded(t, &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"secret"}}})
	served := connectAs(t, s, "all")
	release := make(chan struct{})
	stop, err := served.Answer("open", func([]byte) ([]byte, error) { <-release; return []byte("answer"), nil })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := served.NATS().Flush(); err != nil {
		t.Fatal(err)
	}
	conn := connectAs(t, s, "me")
	type result struct {
		answer []byte
		err    error
	}
	got := make(chan result, 1)
	go func() {
		answer, err := conn.Request(t.Context(), "open", nil, nil)
		got <- result{answer, err}
	}()
	var denied *jetstream.PermissionError
	if _, err := conn.Request(t.Context(), "secret", nil, nil); !errors.As(err, &denied) {
		t.Error(err)
	}
	close(release)
	if r := <-got; r.err != nil || string(r.answer) != "answer" {
		t.Errorf("the other request is answered %q, %v", r.answer, r.err)
	}
}
