package config

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/agentruntime/agentruntime/handlers"
)

// Redact says what is removed beside the secrets of the configuration, wherever
// they are.
type Redact struct {
	Patterns []string `yaml:"patterns"` // regular expressions of RE2; what one matches goes as a whole
	Builtin  bool     `yaml:"builtin"`  // whether the forms of well-known keys go too; false
}

// wellKnown are the forms of keys that say what they are.
var wellKnown = []*regexp.Regexp{
	regexp.MustCompile(`\bsk-[A-Za-z0-9_-]{20,}`),                                         // OpenAI, Anthropic and others
	regexp.MustCompile(`\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,}`),                          // Stripe
	regexp.MustCompile(`\b(?:AKIA|ASIA)[0-9A-Z]{16}\b`),                                   // AWS access key ids
	regexp.MustCompile(`\bAIza[0-9A-Za-z_-]{35}`),                                         // Google
	regexp.MustCompile(`\bgh[opsur]_[A-Za-z0-9]{36,}`),                                    // GitHub
	regexp.MustCompile(`\bgithub_pat_[A-Za-z0-9_]{22,}`),                                  // GitHub
	regexp.MustCompile(`\bglpat-[A-Za-z0-9_-]{20,}`),                                      // GitLab
	regexp.MustCompile(`\bxox[a-z]-[A-Za-z0-9-]{10,}`),                                    // Slack
	regexp.MustCompile(`\bS[ACNOUX][A-Z2-7]{56}\b`),                                       // seeds of NATS
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}`), // JSON web tokens
	regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`), // PEM; to the end where it is cut
}

// Redactor returns what removes the secrets of the configuration and what its
// patterns match.
func (c *Config) Redactor() handlers.Secrets {
	var patterns []*regexp.Regexp
	for _, p := range c.Redact.Patterns {
		if expression, err := regexp.Compile(p); err == nil { // one that is refused is an error of Check
			patterns = append(patterns, expression)
		}
	}
	if c.Redact.Builtin {
		patterns = append(patterns, wellKnown...)
	}
	return handlers.NewSecrets(c.Secrets(), patterns...)
}

// check repeats no pattern: it may be a secret in the wrong place.
func (r *Redact) check() error {
	for i, p := range r.Patterns {
		at := fmt.Sprintf("redact.patterns[%d]", i)
		expression, err := regexp.Compile(p)
		var wrong *syntax.Error
		switch {
		case errors.As(err, &wrong):
			return &Error{at, "must be a regular expression of RE2: " + wrong.Code.String()}
		case err != nil:
			return &Error{at, "must be a regular expression of RE2"}
		case expression.MatchString(""):
			return &Error{at, "must not match the empty text: then it matches everywhere"}
		}
	}
	return nil
}

var (
	natsSeed  = regexp.MustCompile(`\bS[ACNOUX][A-Z2-7]{20,}`)
	natsToken = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+`)
)

// credentials returns the tokens and the seeds in the files that the connection
// is made with. A file that cannot be read has none; the connection says so.
func (n *NATS) credentials() (list []string) {
	for _, file := range []string{n.Creds, n.NKey} {
		if file == "" {
			continue
		}
		data, err := readBounded(file)
		if err != nil {
			continue
		}
		text := string(data)
		found := append(natsSeed.FindAllString(text, -1), natsToken.FindAllString(text, -1)...)
		if len(found) == 0 {
			found = []string{strings.TrimSpace(text)}
		}
		list = append(list, found...)
	}
	return list
}
