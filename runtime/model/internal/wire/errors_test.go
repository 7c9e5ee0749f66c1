package wire

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestTheMessageOfAnErrorIsWholeForThoseWhoRedactIt(t *testing.T) {
	message := strings.Repeat("x", 2000) + "the end"
	for name, body := range map[string]string{"object": `{"error":{"message":"` + message + `","code":"c"}}`, "text": `"` + message + `"`} {
		err := statusError(&http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))})
		if !strings.Contains(err.Error(), message) {
			t.Errorf("%s: %d bytes are left", name, len(err.Error()))
		}
	}
}
