package policy

import (
	"errors"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
)

// What a capability is called says nothing of where it leads.
func TestACapabilityLeadsOnlyWhereItsNamespaceMay(t *testing.T) {
	subject := func(s string) events.Route { return events.Route{NATS: &events.NATSRoute{Subject: s}} }
	tool := func(server, name string) events.Route {
		return events.Route{MCP: &events.MCPRoute{Server: server, Tool: name}}
	}
	address := func(url, header string) events.Route {
		return events.Route{HTTP: &events.HTTPRoute{Method: "POST", URL: url, Headers: map[string]string{"Authorization": header}}}
	}
	rules := Rules{Capabilities: []string{"desk.*"}, Egress: EgressAllow}
	open := &Policy{Namespaces: map[string]Rules{"ns": rules}}
	rules.Routes = &Routes{NATS: []string{"svc.desk.*"}, MCP: []string{"files/read_*"}, HTTP: []string{"desk.example"}, Secrets: []string{"desk"}}
	bound := &Policy{Namespaces: map[string]Rules{"ns": rules}}
	rules.Routes = &Routes{}
	shut := &Policy{Namespaces: map[string]Rules{"ns": rules}}
	inside := subject("svc.desk.book")
	for _, c := range []struct {
		route  events.Route
		status *events.Route
		denied string
	}{
		{inside, nil, ""}, {subject("svc.mail.send"), nil, "svc.mail.send"},
		{tool("files", "read_file"), nil, ""}, {tool("files", "write_file"), nil, "files/write_file"}, {tool("other", "read_file"), nil, "other/read_file"},
		{address("https://desk.example/{id}?q={q}", "Bearer ${desk}"), nil, ""}, {address("https://desk.example:8443/", ""), nil, "8443"},
		{address("https://DESK.example/", "plain"), nil, ""}, {address("https://anywhere.example/desk.example", ""), nil, "anywhere.example"},
		{address("https://desk.example/", "${desk} ${other}"), nil, "secret other"},
		{inside, &inside, ""}, {inside, &events.Route{NATS: &events.NATSRoute{Subject: "other"}}, "subject other"}, {events.Route{}, nil, "nothing"},
	} {
		capability := &events.Capability{Name: "desk.any", Route: c.route, Status: c.status}
		err := bound.Capability("ns", capability, false)
		var denial *Denial
		if c.denied == "" && err != nil || c.denied != "" && (!errors.As(err, &denial) || denial.What != "route" || !strings.Contains(err.Error(), c.denied)) {
			t.Errorf("%+v: %v, want %q", c.route, err, c.denied)
		}
		if err := open.Capability("ns", capability, false); err != nil {
			t.Errorf("without routes: %v", err)
		}
		if shut.Capability("ns", capability, false) == nil {
			t.Errorf("%+v: an absent list allows it", c.route)
		}
	}
}

func TestPatternsOfRoutesAreChecked(t *testing.T) {
	p := &Policy{Namespaces: map[string]Rules{"ns": {Routes: &Routes{NATS: []string{"["}, Secrets: []string{""}}}}}
	if err := p.Check(); err == nil || !strings.Contains(err.Error(), "namespaces.ns.routes.nats") || !strings.Contains(err.Error(), "routes.secrets") {
		t.Error(err)
	}
}
