package handlers_test

import (
	"encoding/json"
	"errors"
	"net/url"
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

// FuzzURLTemplate holds that no input moves a request to another host or path, whatever
// stands around the placeholders.
func FuzzURLTemplate(f *testing.F) {
	for _, s := range []string{"a", "..", ".", "/", "%2e%2e", "2e", "e", "\u2028", "a@b:1", "?x#y", "{id}", ";"} {
		f.Add(s, "")
		f.Add(s, s)
	}
	texts := []string{"{id}/seat?who={id}&n=1", "{id}{to}/seat", "{id}.", ".{id}", ".{id}/seat", "%2e{id}", "{id}%2E/seat", "{id};v={to}/seat", "x{id}?{to}", "{to}/{id}", "{id}-{to}.json"}
	var templates []*handlers.URLTemplate
	for _, text := range texts {
		template, err := handlers.ParseURLTemplate("https://a.example/desks/" + text)
		if err != nil {
			f.Fatal(err)
		}
		templates = append(templates, template)
	}
	f.Fuzz(func(t *testing.T, id, to string) {
		input, err := json.Marshal(map[string]string{"id": id, "to": to})
		if err != nil {
			t.Fatal(err)
		}
		for i, template := range templates {
			address, _, err := template.Expand(input)
			if err != nil {
				continue
			}
			u, err := url.Parse(address)
			if err != nil {
				t.Fatalf("%s with %q and %q makes %s: %v", texts[i], id, to, address, err)
			}
			plain := strings.NewReplacer("{id}", "v", "{to}", "v").Replace(texts[i])
			path, query, _ := strings.Cut(plain, "?")
			if u.Host != "a.example" || u.Fragment != "" || strings.Count(u.EscapedPath(), "/") != strings.Count("/desks/"+path, "/") || strings.Count(u.RawQuery, "&") != strings.Count(query, "&") ||
				strings.Count(address, "?") != strings.Count(plain, "?") || strings.ContainsAny(address, "#@ {}\\") {
				t.Errorf("%s with %q and %q makes %s", texts[i], id, to, address)
			}
			if resolved := u.JoinPath().EscapedPath(); strings.Count(resolved, "/") != strings.Count(u.EscapedPath(), "/") {
				t.Errorf("%s with %q and %q makes %s, which leads to %s", texts[i], id, to, address, resolved)
			}
		}
	})
}

func TestNoInputMakesAStepInThePath(t *testing.T) {
	for _, c := range [][2]string{
		{"https://a.example/v1/users/{a}{b}/items", `{"a":".","b":"."}`},
		{"https://a.example/v1/{a}./items", `{"a":"."}`},
		{"https://a.example/v1/.{a}", `{"a":"."}`},
		{"https://a.example/v1/%2e{a}/items", `{"a":"."}`},
		{"https://a.example/v1/{a}%2E/items?q=/", `{"a":"."}`},
		{"https://a.example/v1/{a};v=1/items", `{"a":".."}`},
	} {
		template, err := handlers.ParseURLTemplate(c[0])
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := template.Expand(json.RawMessage(c[1])); err == nil {
			t.Errorf("%s with %s is %s", c[0], c[1], got)
		}
	}
	for _, text := range []string{"https://a.example/v1/../x", "https://a.example/v1/%2e%2E/{a}", "https://a.example/%{a}", "https://a.example/%2{a}", "https://a.example/x?q=%{a}"} {
		if _, err := handlers.ParseURLTemplate(text); err == nil {
			t.Errorf("%s is taken as a template", text)
		}
	}
	template, err := handlers.ParseURLTemplate("https://a.example/v1/{a}{b}?q={a}")
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := template.Expand(json.RawMessage(`{"a":"..","b":"x"}`)); got != "https://a.example/v1/..x?q=.." || err != nil {
		t.Errorf("a name that begins with dots: %s, %v", got, err)
	}
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
