package sample

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode"

	"github.com/agentruntime/agentruntime/events"
)

// categories are what a ticket can be about, the most urgent first: the first
// one of whose words the ticket has a word is its category.
var categories = []struct {
	name     string
	priority int
	words    []string
}{
	{"outage", 2, []string{"down", "outage", "offline", "unavailable", "unreachable", "crash", "crashes", "crashed", "502", "503", "broken"}},
	{"billing", 3, []string{"invoice", "invoices", "bill", "billing", "refund", "charge", "charged", "payment", "price", "subscription"}},
	{"account", 3, []string{"password", "login", "log-in", "account", "locked", "mfa", "2fa", "permission", "access"}},
	{"feature", 4, []string{"feature", "features", "wish", "suggest", "suggestion", "idea"}},
	{"other", 4, nil},
}

// urgent are words that make a ticket more urgent by one.
var urgent = []string{"urgent", "urgently", "immediately", "asap", "emergency", "critical", "everyone", "nobody"}

// Classify tells what a ticket is about and how urgent it is, from 1 to 4, by
// the words in it. The same text has always the same answer.
func Classify(text string) (category string, priority int) {
	words := make(map[string]bool)
	for _, word := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-'
	}) {
		words[word] = true
	}
	any := func(list []string) bool {
		for _, word := range list {
			if words[word] {
				return true
			}
		}
		return false
	}
	for _, c := range categories {
		if category, priority = c.name, c.priority; any(c.words) {
			break
		}
	}
	if any(urgent) {
		priority--
	}
	return category, priority
}

// Serve answers one request of the capability.
func Serve(data []byte) ([]byte, error) {
	var input struct {
		Text *string `json:"text"`
	}
	if err := json.Unmarshal(data, &input); err != nil || input.Text == nil {
		return nil, errors.New("the request must be an object with the ticket's text: {\"text\": \"…\"}")
	}
	category, priority := Classify(*input.Text)
	return events.Marshal(struct {
		Category string `json:"category"`
		Priority int    `json:"priority"`
	}{category, priority})
}
