package mcp

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/handlers"
)

func TestTheErrorOfAToolIsWholeForThoseWhoRedactIt(t *testing.T) {
	text := strings.Repeat("x", 5000) + "the end"
	if got := words([]byte(`[{"text":"` + text + `"},{"text":"more"}]`)); got != text+"\nmore" {
		t.Errorf("%d bytes are left", len(got))
	}
}

func TestALineOfAServerThatIsCutShowsNoBeginningOfASecret(t *testing.T) {
	const secret = "Kq7wVxzJ-0123456789-abcdefghijklmnop"
	redact := handlers.NewSecrets([]string{secret}).Redact
	var log bytes.Buffer
	l := lines{server: "s", logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindString {
			a.Value = slog.StringValue(redact(a.Value.String()))
		}
		return a
	}}))}
	for n := range secret {
		log.Reset()
		if _, err := l.Write([]byte(strings.Repeat("x", maxLine-n) + secret + " and more\n")); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(log.String(), secret[:handlers.MinSecret]) || !strings.Contains(log.String(), "x") {
			t.Errorf("with %d bytes of the secret: …%s", n, log.String()[max(0, log.Len()-60):])
		}
	}
}
