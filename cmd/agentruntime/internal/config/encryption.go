package config

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/handlers"
)

// Encryption says how the log's data are encrypted: with a key for each session,
// which the keys here wrap.
type Encryption struct {
	Keys []EncryptionKey `yaml:"keys"` // the newest, which wraps, first; the others unwrap what they wrapped
}

// EncryptionKey is a key that wraps those of sessions. It stands in no file of
// the configuration: KeyEnv names a variable of the environment, or KeyFile a
// file, that holds 32 bytes in base64 or hexadecimal.
type EncryptionKey struct {
	ID      string `yaml:"id"` // stands beside what the key has wrapped, for ever
	KeyEnv  string `yaml:"key_env"`
	KeyFile string `yaml:"key_file"`

	Key     string `yaml:"-"` // what the reference leads to, once the configuration is read
	KeyGone string `yaml:"-"` // why there is no key
}

var keyIDForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}$`)

// readKeys reads the keys of providers and of the encryption. One that is missing
// is no error here: commands that only ask a worker need none.
func (c *Config) readKeys(getenv func(string) string) {
	for name, p := range c.Providers {
		p.readKey(getenv)
		c.Providers[name] = p
	}
	for i := range c.Encryption.Keys {
		k := &c.Encryption.Keys[i]
		p := Provider{KeyEnv: k.KeyEnv, KeyFile: k.KeyFile}
		p.readKey(getenv)
		k.Key, k.KeyGone = p.Key, p.KeyGone
	}
}

// checkKeys repeats no value that may be a key in the wrong place.
func (c *Config) checkKeys() error {
	for i, k := range c.Encryption.Keys {
		at := fmt.Sprintf("encryption.keys[%d]", i)
		switch {
		case !keyIDForm.MatchString(k.ID):
			return &Error{at + ".id", "must be 1 to 32 characters of A-Z a-z 0-9 _ . -"}
		case slices.ContainsFunc(c.Encryption.Keys[:i], func(o EncryptionKey) bool { return o.ID == k.ID }):
			return &Error{at + ".id", "is another key's, too: an id stands for one key for ever"}
		case (k.KeyEnv == "") == (k.KeyFile == ""):
			return &Error{at, "must have one of key_env and key_file"}
		case k.KeyEnv != "" && !variableForm.MatchString(k.KeyEnv):
			return &Error{at + ".key_env", "must be the name of an environment variable, not the key itself"}
		}
	}
	return nil
}

// WrappingKeys returns the keys as a worker needs them: all of them, or an
// *Error.
func (c *Config) WrappingKeys() ([]handlers.WrappingKey, error) {
	var keys []handlers.WrappingKey
	for i, k := range c.Encryption.Keys {
		key, err := k.Wrapping()
		if err != nil {
			return nil, &Error{fmt.Sprintf("encryption.keys[%d]", i), err.Error()}
		}
		keys = append(keys, *key)
	}
	return keys, nil
}

// Wrapping returns the key as a worker needs it. The error says why it is none,
// and nothing of it.
func (k *EncryptionKey) Wrapping() (*handlers.WrappingKey, error) {
	if k.Key == "" {
		return nil, errors.New(k.KeyGone)
	}
	secret, err := decodeKey(k.Key)
	if err != nil {
		return nil, err
	}
	return &handlers.WrappingKey{ID: k.ID, Secret: [handlers.KeySize]byte(secret)}, nil
}

func decodeKey(text string) ([]byte, error) {
	if b, err := hex.DecodeString(text); err == nil && len(b) == handlers.KeySize {
		return b, nil
	}
	text = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
	if b, err := base64.RawStdEncoding.DecodeString(text); err == nil && len(b) == handlers.KeySize {
		return b, nil
	}
	return nil, fmt.Errorf("the key must be %d random bytes in base64 or hexadecimal; make one with: openssl rand -base64 %d", handlers.KeySize, handlers.KeySize)
}
