package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/config"
)

// oneTool is an MCP server with one tool, which says that it reads a closed world.
func oneTool(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if json.NewDecoder(r.Body).Decode(&asked) != nil || len(asked.ID) == 0 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result := `{"tools":[{"name":"read","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"openWorldHint":false}}]}`
	if asked.Method == "initialize" {
		result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, asked.ID, result)
}

func TestToolsAreMarkedAsTheConfigurationOfTheirServerSays(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(oneTool))
	defer server.Close()
	for _, marks := range []config.MCPServer{{}, {Egress: true}, {Untrusted: true}} {
		marks.URL = server.URL
		a := &app{ctx: t.Context(), err: t.Output(), config: &config.Config{MCP: map[string]config.MCPServer{"web": marks}, HTTP: config.HTTP{Allow: []string{"127.0.0.1"}}}}
		kept, left, err := a.tools("web")
		if err != nil || len(kept) != 1 || len(left) != 0 {
			t.Fatalf("%v, %v, %v", kept, left, err)
		}
		if kept[0].Egress != marks.Egress || kept[0].Untrusted != marks.Untrusted {
			t.Errorf("with %+v the tool is %+v", marks, kept[0])
		}
	}
}
