package host

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/config"
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
)

func TestANATSServiceKeepsTheRulesOfRoutes(t *testing.T) {
	conn := newSystem(t).conn
	witness := handlerstest.NewWitness(t)
	var mu sync.Mutex
	late := func() {}
	sub, err := conn.NATS().Subscribe("svc.act", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		var q handlerstest.ActRequest
		_ = json.Unmarshal(m.Data, &q)
		if q.Do == handlerstest.ActHold {
			go func() {
				handlerstest.Tell(witness.Address(), q)
				_ = m.Respond(q.Answer(m.Header.Get))
			}()
			return
		}
		handlerstest.Tell(witness.Address(), q)
		late()
		late = func() {}
		answer := q.Answer(m.Header.Get)
		switch q.Do {
		case handlerstest.ActNever:
		case handlerstest.ActLate:
			late = func() { _ = m.Respond(answer) }
		case handlerstest.ActTwice:
			_ = m.Respond(answer)
			_ = m.Respond(answer)
		case handlerstest.ActError:
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{micro.ErrorCodeHeader: {"409"}, micro.ErrorHeader: {handlerstest.ActRefusal}}})
		default:
			_ = m.Respond(answer)
		}
	})
	must(t, err)
	defer func() { _ = sub.Unsubscribe() }()
	must(t, conn.NATS().Flush())
	at := func(subject string) events.Route {
		return events.Route{NATS: &events.NATSRoute{Subject: subject}}
	}
	// A message is whole or is not there, and is never larger than a server takes.
	handlerstest.TestRoute(t, handlerstest.Route{Route: at("svc.act"), Nowhere: at("svc.nobody"), Services: services{conn}, Witness: witness,
		Without: []handlerstest.Act{handlerstest.ActDies, handlerstest.ActLarge}})
}

func TestARouteWithoutItsSecretOrItsFilesSaysSo(t *testing.T) {
	c := &config.Config{Named: map[string]config.Secret{"desk": {KeyEnv: "DESK", Gone: "DESK is not set"}},
		MCP: map[string]config.MCPServer{"files": {Command: []string{"true"}, Env: map[string]string{"TOKEN": "${desk}"}}}}
	routes, err := NewRoutes(c, slog.New(slog.DiscardHandler), "1")
	must(t, err)
	defer routes.Close()
	_, err = routes.Carriers().MCP.Carry(t.Context(), &handlers.Request{Capability: &events.Capability{Route: events.Route{MCP: &events.MCPRoute{Server: "files", Tool: "x"}}}})
	if !errors.Is(err, handlers.ErrNoService) || !strings.Contains(err.Error(), "DESK is not set") {
		t.Errorf("without its secret the request ended with %v", err)
	}
	c.HTTP.Hosts = map[string]config.HTTPHost{"a.b": {TLSCA: "no-such-file"}}
	var wrong *config.Error
	if _, err := NewRoutes(c, slog.New(slog.DiscardHandler), "1"); !errors.As(err, &wrong) || wrong.Source != "http.hosts.a.b.tls_ca" {
		t.Errorf("without its file: %v", err)
	}
}
