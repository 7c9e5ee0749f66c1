package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/config"
)

func TestPatternsOfTheConfigurationAreRemoved(t *testing.T) {
	file := write(t, `redact: { patterns: ['\bACME-[0-9]{8}\b'] }`+"\n")
	c, err := config.Read(file, environment{}.get)
	if err != nil {
		t.Fatal(err)
	}
	ghp := "ghp_" + strings.Repeat("a1B2", 9)
	if got, want := c.Redactor().Redact("ACME-12345678 ACME-1 "+ghp), "[redacted] ACME-1 "+ghp; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWellKnownKeysAreRemovedWhereItIsAskedFor(t *testing.T) {
	c := config.Config{Redact: config.Redact{Builtin: true}}
	r := c.Redactor()
	for _, key := range []string{
		"sk-ant-api03-" + strings.Repeat("aB3_", 10), "sk-proj-" + strings.Repeat("aB3-", 10), "sk_" + "live_" + strings.Repeat("aB3x", 6), "AKIA" + "IOSFODNN7EXAMPLE",
		"AIza" + strings.Repeat("aB3x9", 7), "ghp_" + strings.Repeat("aB3x", 9), "github_pat_" + strings.Repeat("aB3_", 8), "glpat-" + strings.Repeat("aB3x", 5), "xoxb-" + strings.Repeat("123-", 5) + "x",
		"SU" + strings.Repeat("AB7X", 14), "eyJhbGciOiJI.eyJzdWIiOiIx.dBjftJeZ4CVP-mB9",
		"-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nabc\n-----END RSA PRIVATE KEY-----", `-----BEGIN PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END PRIVATE KEY-----`,
	} {
		if got := r.Redact("the key " + key + ", and more"); got != "the key [redacted], and more" {
			t.Errorf("%q becomes %q", key, got)
		}
		if off := new(config.Config).Redactor().Redact(key); off != key {
			t.Errorf("%q becomes %q although nobody asked for it", key, off)
		}
	}
	if got := r.Redact("-----BEGIN PRIVATE KEY-----\nMIIEpAIBAAKCAQEA"); got != "[redacted]" {
		t.Errorf("of a key that is cut %q is left", got)
	}
	for _, text := range []string{"risk-free-and-very-long-word-of-many", "SUMMARY of task-oriented work", "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----"} {
		if got := r.Redact(text); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

func TestAPatternThatCannotWorkIsRefused(t *testing.T) {
	for text, word := range map[string]string{`redact: { patterns: [a, '(b'] }`: "RE2: missing closing )", `redact: { patterns: [a, 'b*'] }`: "empty"} {
		_, err := config.Read(write(t, text+"\n"), environment{}.get)
		var wrong *config.Error
		if !errors.As(err, &wrong) || !strings.HasSuffix(wrong.Source, ": redact.patterns[1]") || !strings.Contains(wrong.Reason, word) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestTheCredentialsOfNATSAreSecrets(t *testing.T) {
	seed, token := "SU"+strings.Repeat("AB7X", 14), "eyJ0eXAiOiJKV1Qi.eyJqdGkiOiJBQkMi.c2lnbmF0dXJl-_x"
	creds, nkey := filepath.Join(t.TempDir(), "user.creds"), filepath.Join(t.TempDir(), "user.nk")
	for file, text := range map[string]string{
		creds: "-----BEGIN NATS USER JWT-----\n" + token + "\n------END NATS USER JWT------\n\n*** IMPORTANT ***\n\n-----BEGIN USER NKEY SEED-----\n" + seed + "\n------END USER NKEY SEED------\n",
		nkey:  "SUA" + seed[2:57] + "\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Read("", environment{"NATS_CREDS": creds, "NATS_NKEY": nkey}.get)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{seed, token, "SUA" + seed[2:57]} {
		if got := c.Redactor().Redact("it is " + secret + "."); got != "it is [redacted]." {
			t.Errorf("%q is left", got)
		}
	}
	if got := c.Redactor().Redact("-----BEGIN USER NKEY SEED-----"); got != "-----BEGIN USER NKEY SEED-----" {
		t.Errorf("the frame of a seed becomes %q", got)
	}
	gone := config.Config{NATS: config.NATS{Creds: creds + ".gone"}}
	if list := gone.Secrets(); len(list) != 0 {
		t.Errorf("a file that is not there has the secrets %q", list)
	}
}
