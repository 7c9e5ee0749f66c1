package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// Nobody listens at the address: what is wrong is said before anybody is asked.
func TestWhatNoWorkerCanWorkWithIsSaidBeforeAnythingIsStarted(t *testing.T) {
	folder := t.TempDir()
	junk := write(t, "junk\n", folder, "junk")
	data := filepath.Join(folder, "data")
	for name, c := range map[string]struct{ config, says string }{
		"a policy that is not there":   {"policy: " + filepath.Join(folder, "gone.yaml") + "\n", "gone.yaml"},
		"a policy that is wrong":       {"policy: " + junk + "\n", "junk"},
		"a key that is not set":        {"encryption: { keys: [{ id: a, key_env: NOT_SET_ANYWHERE }] }\n", "NOT_SET_ANYWHERE"},
		"an authority that is no file": {"http: { hosts: { api.example.com: { tls_ca: " + filepath.Join(folder, "gone.pem") + " } } }\n", "http.hosts.api.example.com.tls_ca"},
		"an authority that is none":    {"http: { hosts: { api.example.com: { tls_ca: " + junk + " } } }\n", "must hold certificates"},
	} {
		configured := write(t, c.config, folder, "config.yaml")
		call(t, "serve", "-s", "nats://127.0.0.1:1", "--metrics", "off", "--config", configured).fails(t, exitUsage, c.says)
		call(t, "dev", "--data", data, "--listen", "127.0.0.1:0", "--metrics", "off", "--config", configured).fails(t, exitUsage, c.says)
		if _, err := os.Stat(data); err == nil {
			t.Errorf("%s: a server was started", name)
		}
	}
}

func TestCredentialsThatAreNoneAreSaidBeforeAnybodyIsAsked(t *testing.T) {
	junk := write(t, "junk\n", t.TempDir(), "junk")
	for _, args := range [][]string{
		{"--creds", junk}, {"--nkey", junk}, {"--tlsca", junk}, {"--tlscert", junk, "--tlskey", junk}, {"--inbox-prefix", "a b"}, {"--inbox-prefix", "a.>"}, {"--inbox-prefix", "a..b"},
	} {
		r := call(t, append([]string{"run", "list", "-s", "nats://127.0.0.1:1"}, args...)...)
		r.fails(t, exitUsage, "")
	}
}
