package config

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestKeysOfTheEncryptionAreReadByReference(t *testing.T) {
	folder := t.TempDir()
	secret := []byte("0123456789abcdefghijklmnop\xff\xfe\xfb\xef\xbe\xff")
	file, key := filepath.Join(folder, "config.yaml"), filepath.Join(folder, "key")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, "encryption:\n  keys:\n    - {id: k2, key_env: KEY_TWO}\n    - {id: k1, key_file: "+key+"}\n")
	for _, text := range []string{base64.StdEncoding.EncodeToString(secret), base64.RawURLEncoding.EncodeToString(secret), hex.EncodeToString(secret) + "\n"} {
		write(key, text)
		env := map[string]string{"KEY_TWO": text}
		c, err := Read(file, func(name string) string { return env[name] })
		if err != nil {
			t.Fatal(err)
		}
		keys, err := c.WrappingKeys()
		if err != nil || len(keys) != 2 || keys[0].ID != "k2" || keys[1].ID != "k1" || string(keys[0].Secret[:]) != string(secret) || keys[1].Secret != keys[0].Secret {
			t.Errorf("%d keys, %v", len(keys), err)
		}
		if !slices.Contains(c.Secrets(), strings.TrimSpace(text)) {
			t.Error("the redactor does not know a key")
		}
	}
	c, err := Read(file, func(string) string { return "" })
	if err != nil {
		t.Fatalf("a missing key keeps who needs none from working: %v", err)
	}
	var wrong *Error
	if _, err := c.WrappingKeys(); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "KEY_TWO is not set") {
		t.Errorf("WrappingKeys = %v", err)
	}
	if c, err = Read(file, func(name string) string { return map[string]string{"KEY_TWO": "hunter2-is-no-key"}[name] }); err != nil {
		t.Fatal(err)
	}
	if _, err := c.WrappingKeys(); !errors.As(err, &wrong) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("WrappingKeys = %v", err)
	}
	for _, bad := range []string{"{id: 'a/b', key_env: K}", "{key_env: K}", "{id: k}", "{id: k, key_env: K, key_file: f}", "{id: k, key_env: 'hunter2 itself'}"} {
		write(file, "encryption: {keys: ["+bad+"]}\n")
		if _, err := Read(file, func(string) string { return "" }); !errors.As(err, &wrong) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	write(file, "encryption: {keys: [{id: k, key_env: K}, {id: k, key_env: L}]}\n")
	if _, err := Read(file, func(string) string { return "" }); !errors.As(err, &wrong) {
		t.Errorf("two keys of one id: %v", err)
	}
}
