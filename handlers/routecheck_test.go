package handlers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
)

// wrong demands that a capability is refused at one field, or, without a field, that
// nothing is wrong with it.
func wrong(t *testing.T, c *events.Capability, field, says string) {
	t.Helper()
	err := handlers.CheckCapability(c)
	var at *handlers.FieldError
	switch {
	case field == "" && err != nil:
		t.Errorf("%v, want that nothing is wrong", err)
	case field != "" && (!errors.As(err, &at) || at.Field != field || !strings.Contains(at.Reason, says)):
		t.Errorf("%v, want that %s is wrong: %s", err, field, says)
	}
}

func at(method, url string) events.Route {
	return events.Route{HTTP: &events.HTTPRoute{Method: method, URL: url}}
}

func TestAnInquiryHasAPlaceForItsKeyAndAnAnswer(t *testing.T) {
	for _, c := range []struct {
		status      events.Route
		field, says string
	}{
		{at("GET", "https://a.example/status/{key}"), "", ""},
		{at("GET", "https://a.example/status?key={key}"), "", ""},
		{at("POST", "https://a.example/status"), "", ""},
		{at("POST", "https://a.example/status/{key}"), "", ""},
		{at("GET", "https://a.example/status"), "status.http.url", "does not hold key"},
		{at("POST", "https://a.example/status/{id}"), "status.http.url", "needs id"},
		{events.Route{MCP: &events.MCPRoute{Server: "desk", Tool: "status", Structured: true}}, "", ""},
		{events.Route{MCP: &events.MCPRoute{Server: "desk", Tool: "status"}}, "status.mcp.structured", "must be true"},
	} {
		wrong(t, &events.Capability{Name: "desk.book", Effect: events.EffectWrite, Route: events.Route{NATS: &events.NATSRoute{Subject: "a"}}, Status: &c.status}, c.field, c.says)
	}
}

func TestOneHeaderIsGivenOnce(t *testing.T) {
	route := at("POST", "https://a.example/")
	route.HTTP.Headers = map[string]string{"X-Key": "${a}", "x-key": "${b}", "X-Keys": "c"}
	wrong(t, &events.Capability{Name: "desk.book", Effect: events.EffectWrite, Route: route}, "route.http.headers.x-key", "X-Key once more")
	delete(route.HTTP.Headers, "X-Key")
	wrong(t, &events.Capability{Name: "desk.book", Effect: events.EffectWrite, Route: route}, "", "")
}

func TestAPortCanBeDialled(t *testing.T) {
	for _, port := range []string{"", ":", ":1", ":443", ":65535"} {
		wrong(t, &events.Capability{Name: "desk.book", Effect: events.EffectWrite, Route: at("POST", "https://a.example"+port+"/")}, "", "")
	}
	for _, port := range []string{":0", ":00", ":65536", ":99999", ":18446744073709551617"} {
		wrong(t, &events.Capability{Name: "desk.book", Effect: events.EffectWrite, Route: at("POST", "https://a.example"+port+"/")}, "route.http.url", "port from 1 to 65535")
	}
}

func TestANameThatIsTooLongIsToldSo(t *testing.T) {
	for n, says := range map[int]string{100: "", 101: "has 101 characters, more than 100"} {
		field := map[bool]string{true: "name"}[says != ""]
		wrong(t, &events.Capability{Name: strings.Repeat("a", n), Effect: events.EffectWrite, Route: at("POST", "https://a.example/")}, field, says)
	}
	wrong(t, &events.Capability{Name: "a..b", Effect: events.EffectWrite, Route: at("POST", "https://a.example/")}, "name", "JavaScript names")
}

// What a server decodes, splits or cuts off makes no step of an input.
func TestNoInputMakesAStepToAnyServer(t *testing.T) {
	expand := func(url string, input map[string]string) (string, error) {
		t.Helper()
		template, err := handlers.ParseURLTemplate(url)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(input)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := template.Expand(text)
		return got, err
	}
	for _, value := range []string{"..", ".", "../admin", "x/..", "x/../../admin", "x/./y", `..\admin`, `x\..`, `x\.\y`, "..;v=1", "x/..;v=1/y", "x;v=1/../y", "%2e%2e", "%2E./admin", "..%2fadmin", "x%5c..", "%252e%252e%252fadmin", "/..", "x//.."} {
		got, err := expand("https://a.example/floors/{floor}/rooms?all={floor}", map[string]string{"floor": value})
		if err == nil || !strings.Contains(err.Error(), "the input's floor would make a step") || strings.Contains(err.Error(), "admin") {
			t.Errorf("%q makes %s, %v", value, got, err)
		}
	}
	for _, value := range []string{"a/b", "...", "..a", "a..", "a/..b", ".a/b.", "100%", "%2e%2ea", "a;..", "%zz"} {
		if got, err := expand("https://a.example/floors/{floor}", map[string]string{"floor": value}); err != nil {
			t.Errorf("%q makes %s, %v", value, got, err)
		}
		if got, err := expand("https://a.example/floors?floor={floor}", map[string]string{"floor": "../" + value}); err != nil {
			t.Errorf("%q in the query makes %s, %v", value, got, err)
		}
	}
	// Every member of the segment has its part in it, and no other one.
	_, err := expand("https://a.example/{a}/{b}{c}/{d}", map[string]string{"a": "x/y", "b": ".", "c": ".", "d": "z"})
	if want := "the input's b and c would make a step"; err == nil || !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("%v, want %s", err, want)
	}
	for _, url := range []string{"https://a.example/x%2F..%2Fy", `https://a.example/x%5C..`, "https://a.example/%252e%252e/x"} {
		if _, err := handlers.ParseURLTemplate(url); err == nil || !strings.Contains(err.Error(), "steps") {
			t.Errorf("%s is taken as a template: %v", url, err)
		}
	}
}
