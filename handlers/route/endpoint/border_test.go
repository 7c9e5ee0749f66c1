package endpoint_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers/route/dial"
	"github.com/agentruntime/agentruntime/handlers/route/endpoint"
)

func TestARefusalIsHandedOverBeyondWhatIsToldOfIt(t *testing.T) {
	const secret = "Kq7wVxzJ-0123456789-abcdefghijklmnop"
	for _, status := range []int{http.StatusForbidden, http.StatusBadGateway} {
		for _, border := range []int{1 << 10, 4 << 10} {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, strings.Repeat("x", border-len(secret)+1)+r.Header.Get("X-Key"))
			}))
			c := endpoint.New(dial.Rules{Allow: []string{"127.0.0.1"}}, map[string]endpoint.Secret{"desk": {Value: secret, Hosts: []string{"127.0.0.1"}}})
			_, err := ask(t, c, events.EffectWrite, events.HTTPRoute{Method: "POST", URL: server.URL, Headers: map[string]string{"X-Key": "${desk}"}}, `{}`)
			if err == nil || !strings.HasSuffix(err.Error(), secret) {
				t.Errorf("%d at %d: the secret is not whole: %v", status, border, err)
			}
			server.Close()
			c.Close()
		}
	}
}
