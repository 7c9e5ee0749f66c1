package handlers

import (
	"slices"
	"strings"
)

// Secrets is a runtime.Redactor that removes exact texts, longer ones first.
// Texts shorter than MinSecret are left: they stand in words that have nothing
// to do with them.
type Secrets []string

// MinSecret is the length of the shortest text that is taken for a secret, in
// bytes.
const MinSecret = 6

// Redacted stands where a secret was.
const Redacted = "[redacted]"

// Redact implements runtime.Redactor.
func (s Secrets) Redact(text string) string {
	for _, secret := range slices.SortedFunc(slices.Values(s), func(a, b string) int { return len(b) - len(a) }) {
		if len(secret) >= MinSecret {
			text = strings.ReplaceAll(text, secret, Redacted)
		}
	}
	return text
}
