package handlers_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

func TestASecretInLinesOfBase64IsRemoved(t *testing.T) {
	secret := "sk-proj-" + strings.Repeat("aB3xY9", 20)
	s := handlers.NewSecrets([]string{secret})
	for before := range 3 {
		whole := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("=", before) + "key=" + secret + "\nmore=of it"))
		for _, brk := range []string{"\n", "\r\n", "\n    ", `\n`, `\r\n`, "%0A", `\u000a`} {
			for _, width := range []int{4, 64, 76} {
				var b strings.Builder
				for i := 0; i < len(whole); i += width {
					b.WriteString(whole[i:min(i+width, len(whole))] + brk)
				}
				got := s.Redact("before" + brk + b.String() + "after")
				if !strings.HasPrefix(got, "before"+brk) || !strings.HasSuffix(got, "after") || !strings.Contains(got, handlers.Redacted) {
					t.Errorf("lines of %d that end in %q become %q", width, brk, got)
				}
				left := strings.NewReplacer("before", "", "after", "", brk, "").Replace(got)
				for _, piece := range strings.Split(left, handlers.Redacted) {
					if len(piece) > 24 {
						t.Errorf("%q of the secret is left of lines of %d that end in %q", piece, width, brk)
					}
				}
				if again := s.Redact(got); again != got {
					t.Errorf("again %q becomes %q", got, again)
				}
			}
		}
	}
	for _, text := range []string{"key: " + secret + "\nnext: line", "a\n" + secret + "\nb"} {
		if got, want := s.Redact(text), strings.ReplaceAll(text, secret, handlers.Redacted); got != want {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

func TestTheBeginningOfASecretThatWasCutIsRemoved(t *testing.T) {
	const secret = `Kq7w"VxzJ-0123456789`
	s := handlers.NewSecrets([]string{secret})
	quoted, _ := events.Marshal(secret)
	for _, written := range []string{secret, string(quoted[1 : len(quoted)-1]), "%4bq7w%22VxzJ-0123456789", base64.StdEncoding.EncodeToString([]byte(secret))} {
		for n := range written {
			got := s.Redact("it said " + written[:n] + "… [code]")
			if n > 12 && !strings.HasPrefix(got, "it said "+handlers.Redacted) || !strings.HasSuffix(got, "… [code]") || n > 12 && strings.Contains(got, written[:6]) {
				t.Errorf("%q of %q becomes %q", written[:n], written, got)
			}
		}
	}
	if text := "Kq7w… and " + secret[:10] + " is no…"; s.Redact(text) != text {
		t.Errorf("%q becomes %q", text, s.Redact(text))
	}
}

func TestWhatAServiceRefusesWithIsCutOnceItIsRedacted(t *testing.T) {
	const secret = "Kq7wVxzJ-0123456789-abcdefghijklmnop"
	for _, border := range []int{512, 1 << 10, 4 << 10} {
		w, _ := started(t, agent("desk.book"), runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.Complete(`1`))
		w.Redactor = handlers.NewSecrets([]string{secret})
		worker := w.Start(t.Context(), nil)
		w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
			return nil, &handlers.ServiceError{Code: "403", Description: strings.Repeat("x", border-len(secret)/2) + secret + strings.Repeat("y", 8<<10)}
		}
		w.Send(handlerstest.Start("2", "tester", "Go."))
		worker.Settle()
		seen := ""
		for _, r := range w.Model.Requests() {
			seen += runtimetest.Render(r)
		}
		if !strings.Contains(seen, "xxxx") || strings.Contains(seen, secret[:6]) || strings.Contains(seen, strings.Repeat("y", 5<<10)) {
			t.Errorf("at %d the model reads …%.200s…", border, seen[strings.LastIndex(seen, "xxxx")+4:])
		}
	}
}

func TestARefusalShowsNoSecretOfWhatItRefuses(t *testing.T) {
	const secret = "hunter2-secret"
	w, _ := started(t, agent(), runtimetest.Complete(`1`))
	w.Redactor = handlers.NewSecrets([]string{secret})
	worker := w.Start(t.Context(), nil)
	worker.Settle()
	api := handlers.API{Host: worker.Dispatcher.Host}
	for _, q := range [][2]string{
		{handlers.VerbStart, `{"agent":"` + secret + `","message":"x"}`},
		{handlers.VerbGet, `{"run":"` + secret + `"}`},
		{handlers.VerbGet, `{"` + secret + `":1}`},
		{handlers.VerbContinue, `{"session":"` + secret + `","message":"x"}`},
		{handlers.VerbResolve, `{"run":"` + secret + `"}`},
		{secret, `{}`},
	} {
		_, err := api.Handle(t.Context(), "ns", q[0], nil, []byte(q[1]))
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s %s is answered %v", q[0], q[1], err)
		}
	}
	for i, command := range []events.Event{handlerstest.Start(secret, "nobody", "Go."), handlerstest.Start(secret+"-2", "tester", "Go.")} {
		command.Source = "/" + secret
		before := len(w.Published)
		w.Send(command)
		worker.Settle()
		if len(w.Published) == before {
			t.Errorf("nothing was published of command %d", i)
		}
		for _, p := range w.Published[before:] {
			if text := fmt.Sprintf("%+v", p); strings.Contains(text, secret) || strings.Contains(string(p.Data), secret) {
				t.Errorf("public %s: %s", p.Type, text)
			}
		}
	}
}
