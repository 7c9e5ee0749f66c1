package handlers_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

func TestARouteThatCannotWorkIsRefusedAtItsField(t *testing.T) {
	const input = `{"type":"object","properties":{"id":{"type":"string"},"seat":{"type":"integer"}},"required":["id"]}`
	post := func(url string, headers map[string]string) events.Route {
		return events.Route{HTTP: &events.HTTPRoute{Method: "POST", URL: url, Headers: headers}}
	}
	for name, c := range map[string]struct {
		route  events.Route
		effect events.Effect
		field  string // "" when nothing is wrong
	}{
		"none":                        {events.Route{}, events.EffectWrite, "route"},
		"two":                         {events.Route{NATS: &events.NATSRoute{Subject: "a"}, MCP: &events.MCPRoute{Server: "s", Tool: "t"}}, events.EffectWrite, "route"},
		"a tool":                      {events.Route{MCP: &events.MCPRoute{Server: "files", Tool: "read-file"}}, events.EffectWrite, ""},
		"a server that no name has":   {events.Route{MCP: &events.MCPRoute{Server: "Files", Tool: "t"}}, events.EffectWrite, "route.mcp.server"},
		"no tool":                     {events.Route{MCP: &events.MCPRoute{Server: "files"}}, events.EffectWrite, "route.mcp.tool"},
		"an endpoint":                 {post("https://a.example/desks/{id}?x=1", map[string]string{"Authorization": "Bearer ${desk}"}), events.EffectWrite, ""},
		"a method":                    {events.Route{HTTP: &events.HTTPRoute{Method: "post", URL: "https://a.example/"}}, events.EffectWrite, "route.http.method"},
		"a GET that writes":           {events.Route{HTTP: &events.HTTPRoute{Method: "GET", URL: "https://a.example/{id}/{seat}"}}, events.EffectWrite, "effect"},
		"a GET that loses an input":   {events.Route{HTTP: &events.HTTPRoute{Method: "GET", URL: "https://a.example/{id}"}}, events.EffectRead, "route.http.url"},
		"another scheme":              {post("ftp://a.example/", nil), events.EffectWrite, "route.http.url"},
		"a placeholder as the host":   {post("https://{id}/x", nil), events.EffectWrite, "route.http.url"},
		"a placeholder in the host":   {post("https://a.{id}.example/x", nil), events.EffectWrite, "route.http.url"},
		"a placeholder in the port":   {post("https://a.example:{id}/x", nil), events.EffectWrite, "route.http.url"},
		"a placeholder in the scheme": {post("{id}://a.example/x", nil), events.EffectWrite, "route.http.url"},
		"an expression":               {post("https://a.example/{+id}", nil), events.EffectWrite, "route.http.url"},
		"a password":                  {post("https://u:p@a.example/{id}", nil), events.EffectWrite, "route.http.url"},
		"a fragment":                  {post("https://a.example/#{id}", nil), events.EffectWrite, "route.http.url"},
		"an input that need not be":   {post("https://a.example/{seat}", nil), events.EffectWrite, "route.http.url"},
		"an input that is not":        {post("https://a.example/{who}", nil), events.EffectWrite, "route.http.url"},
		"a header of ours":            {post("https://a.example/", map[string]string{"agent-epoch": "1"}), events.EffectWrite, "route.http.headers.agent-epoch"},
		"a header of the connection":  {post("https://a.example/", map[string]string{"host": "b"}), events.EffectWrite, "route.http.headers.host"},
		"a header of two lines":       {post("https://a.example/", map[string]string{"X-A": "a\r\nX-B: b"}), events.EffectWrite, "route.http.headers.X-A"},
		"a secret without an end":     {post("https://a.example/", map[string]string{"X-A": "${desk"}), events.EffectWrite, "route.http.headers.X-A"},
	} {
		err := handlers.CheckCapability(&events.Capability{Name: "desk.book", Effect: c.effect, Input: json.RawMessage(input), Route: c.route})
		var wrong *handlers.FieldError
		switch {
		case c.field == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.field != "" && (!errors.As(err, &wrong) || wrong.Field != c.field):
			t.Errorf("%s: %v, want that %s is wrong", name, err, c.field)
		}
	}
}

// FuzzURLTemplate holds that no input moves a request to another host or path.
func FuzzURLTemplate(f *testing.F) {
	for _, s := range []string{"a", "..", "/", "%2e%2e", "\u2028", "a@b:1", "?x#y", "{id}"} {
		f.Add(s)
	}
	template, err := handlers.ParseURLTemplate("https://a.example/desks/{id}/seat?who={id}&n=1")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, id string) {
		input, err := json.Marshal(map[string]string{"id": id, "rest": "x"})
		if err != nil {
			t.Fatal(err)
		}
		address, rest, err := template.Expand(input)
		if err != nil {
			return
		}
		value := strings.TrimSuffix(strings.TrimPrefix(address, "https://a.example/desks/"), "&n=1")
		path, query, ok := strings.Cut(value, "/seat?who=")
		if !ok || path != query || path == "" || path == "." || path == ".." || strings.ContainsAny(path, "/?#&@: {}\\") || string(rest) != `{"rest":"x"}` {
			t.Errorf("%q makes %s with the rest %s", id, address, rest)
		}
	})
}

func TestAWorkerWithoutACarrierMakesNoRequest(t *testing.T) {
	v := agent("desk.book")
	v.Capabilities[0].Route = events.Route{MCP: &events.MCPRoute{Server: "files", Tool: "t"}}
	w, worker := started(t, v, runtimetest.RunJS("try desk.book {}\nreturn"), runtimetest.CompleteQuoting())
	worker.Settle()
	text, err := json.Marshal(w.Model.Requests())
	if r := only(t, w); err != nil || r.State != projector.StateCompleted || !strings.Contains(string(text), "was not called") {
		t.Errorf("the run is %s, and its model was told %s", r.State, text)
	}
}
