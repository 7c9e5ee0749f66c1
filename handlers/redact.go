package handlers

import (
	"slices"
	"strings"
)

// Secrets is a runtime.Redactor that removes exact texts, longer ones first.
type Secrets []string

// Redacted stands where a secret was.
const Redacted = "[redacted]"

// Redact implements runtime.Redactor.
func (s Secrets) Redact(text string) string {
	for _, secret := range slices.SortedFunc(slices.Values(s), func(a, b string) int { return len(b) - len(a) }) {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, Redacted)
		}
	}
	return text
}
