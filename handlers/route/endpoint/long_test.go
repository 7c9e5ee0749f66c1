package endpoint_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/route/endpoint"
)

func TestAnInputThatIsTooLongForAURLMakesNoRequest(t *testing.T) {
	asked := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer server.Close()
	for _, value := range []string{strings.Repeat("a", 128<<10), "%" + strings.Repeat("25", 64<<10)} {
		input, err := json.Marshal(map[string]string{"floor": value})
		if err != nil {
			t.Fatal(err)
		}
		_, err = ask(t, endpoint.New(local, nil), events.EffectRead, events.HTTPRoute{Method: "GET", URL: server.URL + "/floors/{floor}"}, string(input))
		var not *handlers.NotMadeError
		if asked || !errors.As(err, &not) || !not.Own || len(err.Error()) > 300 || !strings.Contains(err.Error(), "floor makes the URL longer") {
			t.Errorf("asked: %t; %.300v", asked, err)
		}
	}
}
