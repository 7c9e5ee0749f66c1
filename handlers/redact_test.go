package handlers_test

import (
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

func TestASecretReachesNeitherModelNorScriptNorPublicEvent(t *testing.T) {
	const secret = "s3cr\"et\\value"
	w, _ := started(t, agent("desk.book"), runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.CompleteQuoting())
	w.Redactor = handlers.NewSecrets([]string{secret})
	worker := w.Start(t.Context(), nil)
	seen := ""
	w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
		return []byte(`{"plain":"s3cr\"et\\value","escaped":"\u0073\u0033cr\"et\\value"}`), nil
	}
	e := handlerstest.Start("2", "tester", "Use "+secret+".")
	data, err := events.Marshal(events.StartRun{Agent: "tester", Message: "Use " + secret + ".", Labels: map[string]string{"key": secret}})
	if err != nil {
		t.Fatal(err)
	}
	e.Data = data
	w.Send(e)
	worker.Settle()
	for _, r := range w.Model.Requests() {
		seen += runtimetest.Render(r)
	}
	for _, p := range w.Published {
		seen += string(p.Data)
	}
	for _, r := range runs(t, w) {
		if r.State != projector.StateCompleted {
			t.Errorf("a run is %s", r.State)
		}
		d, err := worker.Dispatcher.GetRun(t.Context(), "ns", r.ID)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := events.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		seen += string(shown)
	}
	for _, form := range []string{secret, `s3cr\"et\\value`, `s3cr\\\"et`} {
		if strings.Contains(seen, form) {
			t.Errorf("the secret is seen as %s", form)
		}
	}
}
