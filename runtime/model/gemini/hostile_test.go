package gemini_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/agentruntime/agentruntime/runtime"
)

func TestARequestThatIsTooLargeIsAnOverflow(t *testing.T) {
	m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}`)
	}, nil)
	_, err := m.Generate(t.Context(), &runtime.Request{})
	if failed := modelError(t, err); failed.Class != runtime.ClassOverflow {
		t.Errorf("error %v", err)
	}
}

func TestTheUsageOfARequestThatFailedIsInItsError(t *testing.T) {
	m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"candidates":[{"content":{"parts":[{"text":"Hal"}],"role":"model"}}],"usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":3,"cachedContentTokenCount":40}}`+"\n\n")
	}, nil)
	_, err := m.Generate(t.Context(), &runtime.Request{})
	if u := modelError(t, err).Usage; u.Input != 12 || u.Output != 3 || u.Cached != 12 {
		t.Errorf("usage %+v of %v", u, err)
	}
}
