package handlers_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/handlers"
)

// expand puts a member named id into a template.
func expand(t *testing.T, text, id string) (string, error) {
	t.Helper()
	template, err := handlers.ParseURLTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	input, err := json.Marshal(map[string]string{"id": id})
	if err != nil {
		t.Fatal(err)
	}
	address, _, err := template.Expand(input)
	return address, err
}

func TestWhatServersCutOffOrStripHidesNoStep(t *testing.T) {
	const text = "https://a.example/desks/{id}/seat"
	for _, value := range []string{
		"..?x", "..#x", "..\x00", "..\tx", ".. ", "..\r\n", "..\x7f", ".\t.", " ..", "\t.", "x/..?y", "%2e%2e%3fx", "..%00.json", "x%2f..%09",
		"%zz/%2e%2e", "%2e%2e/%", "100%/%252e%252e%252fadmin",
	} {
		if got, err := expand(t, text, value); err == nil || !strings.Contains(err.Error(), "the input's id would make a step") {
			t.Errorf("%q makes %s, %v", value, got, err)
		}
	}
	for _, value := range []string{"a ..", "x?..", "x #.", "...?", "..a\x00", "a b", "100% of it", "%", "%2", "%zz%2e"} {
		if got, err := expand(t, text, value); err != nil {
			t.Errorf("%q makes %s, %v", value, got, err)
		}
	}
}

func TestWhatIsEncodedOverAndOverIsTakenForAStep(t *testing.T) {
	const text = "https://a.example/desks/{id}"
	nested := func(times int) string { return "%" + strings.Repeat("25", times-1) + "41" }
	if got, err := expand(t, text, nested(3)); err != nil { // the fourth time is when it is put into the URL
		t.Errorf("%s, %v", got, err)
	}
	for _, times := range []int{4, 1000} {
		if got, err := expand(t, text, nested(times)); err == nil || !strings.Contains(err.Error(), "percent-encoded over and over") {
			t.Errorf("%d times: %s, %v", times, got, err)
		}
	}
	if got, err := expand(t, "https://a.example/desks?q={id}", nested(1000)); err != nil {
		t.Errorf("in the query %s, %v", got, err)
	}
	if _, err := handlers.ParseURLTemplate("https://a.example/" + nested(5) + "/{id}"); err == nil {
		t.Error("a template is encoded over and over")
	}
}

func TestAURLIsBoundedWithWhatTheInputPutsInIt(t *testing.T) {
	for text, fits := range map[string]int{
		"https://a.example/desks/{id}":             8<<10 - len("https://a.example/desks/"),
		"https://a.example/{id}/seat?who={id}&n=1": (8<<10 - len("https://a.example//seat?who=&n=1")) / 2,
	} {
		if got, err := expand(t, text, strings.Repeat("a", fits)); err != nil || len(got) > 8<<10 {
			t.Errorf("%s with %d makes %d bytes, %v", text, fits, len(got), err)
		}
		for _, value := range []string{strings.Repeat("a", fits+1), strings.Repeat(" ", fits/3+1), strings.Repeat("a", 128<<10), "%" + strings.Repeat("25", 64<<10)} {
			if got, err := expand(t, text, value); err == nil || !strings.Contains(err.Error(), "the input's id makes the URL longer than 8192 bytes") || len(err.Error()) > 100 {
				t.Errorf("%s with %d makes %d bytes, %v", text, len(value), len(got), err)
			}
		}
	}
}
