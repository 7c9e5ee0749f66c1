package handlers

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// Secrets is a runtime.PartsRedactor that removes exact texts and what patterns
// match. The zero value removes nothing.
//
// A secret is found plain, in base64 (either alphabet, padded or not, wherever
// it stands in a longer text) and in hexadecimal, each of them also as an
// encoder of JSON or of URLs may spell it, in whatever mixture of escapes, up
// to three encodings deep. A match that overlaps another is removed with it;
// what is left is looked through again, so that the result holds none.
//
// Lines of base64 are read as one, and so is all else that is broken into lines
// in the middle of a secret. Of a text that was cut and says so with "…", the
// beginning of a secret before it is removed as well, from MinSecret bytes on.
//
// Texts shorter than MinSecret are left: they stand in words that have nothing
// to do with them. So are blanks alone. A plus is taken for a blank, which it is
// in some URLs. A Redacted in a text is a border that no match crosses, so
// that redacting twice is redacting once.
type Secrets struct {
	forms    *automaton
	patterns []*regexp.Regexp
}

var _ runtime.PartsRedactor = Secrets{}

// MinSecret is the length of the shortest text that is taken for a secret, in
// bytes.
const MinSecret = 6

// Redacted stands where a secret was.
const Redacted = "[redacted]"

// NewSecrets prepares the removal of the secrets and of all that the patterns
// match. A pattern sees the text between two removals as a text of its own, with
// its line breaks.
func NewSecrets(secrets []string, patterns ...*regexp.Regexp) Secrets {
	var forms []form
	for _, secret := range secrets {
		if len(secret) >= MinSecret && strings.Trim(secret, " +") != "" {
			forms = append(forms, formsOf(secret)...)
		}
	}
	s := Secrets{patterns: patterns}
	if len(forms) > 0 {
		s.forms = newAutomaton(forms)
	}
	return s
}

// Redact implements runtime.Redactor.
func (s Secrets) Redact(text string) string {
	return cut(text, 0, s.find(text))
}

// RedactParts implements runtime.PartsRedactor. Texts of adjacent parts are
// looked through as one, and what is found goes from each of them.
func (s Secrets) RedactParts(parts []events.Part) []events.Part {
	out := slices.Clone(parts)
	for i := 0; i < len(out); {
		end := i
		var joined strings.Builder
		for end < len(out) && (out[end].Type == events.PartText || out[end].Type == events.PartReasoning) {
			joined.WriteString(out[end].Text)
			end++
		}
		if spans := s.find(joined.String()); len(spans) > 0 {
			at := 0
			for k := i; k < end; k++ {
				text := out[k].Text
				out[k].Text = cut(text, at, spans)
				at += len(text)
			}
		}
		i = max(end, i+1)
	}
	return out
}

// span is a piece of a text that must go.
type span struct{ start, end int }

// cut replaces what the spans have of the text that begins at an offset.
func cut(text string, offset int, spans []span) string {
	var out strings.Builder
	done := 0
	for _, sp := range spans {
		start, end := max(sp.start-offset, 0), min(sp.end-offset, len(text))
		if start < end {
			out.WriteString(text[done:start])
			out.WriteString(Redacted)
			done = end
		}
	}
	if done == 0 {
		return text
	}
	return out.String() + text[done:]
}

// find returns what must go, in order and without overlaps.
func (s Secrets) find(text string) (spans []span) {
	if s.forms == nil && len(s.patterns) == 0 {
		return nil
	}
	for at := 0; at <= len(text); {
		end := len(text)
		if n := strings.Index(text[at:], Redacted); n >= 0 {
			end = at + n
		}
		spans = s.search(spans, text[at:end], at, 0)
		at = end + len(Redacted)
	}
	return spans
}

// maxRounds is how often the rest of a text is looked through. What still holds
// a secret then was made to, and goes as a whole.
const maxRounds = 8

// search appends what must go of a piece of the text that has no border.
func (s Secrets) search(spans []span, piece string, offset, round int) []span {
	hits := s.hits(piece)
	if len(hits) == 0 {
		return spans
	}
	if round == maxRounds {
		return append(spans, span{offset, offset + len(piece)})
	}
	at := 0
	for _, h := range hits {
		spans = s.search(spans, piece[at:h.start], offset+at, round+1)
		spans = append(spans, span{offset + h.start, offset + h.end})
		at = h.end
	}
	return s.search(spans, piece[at:], offset+at, round+1)
}

// hits returns every match in every view of a text, those that overlap as one.
func (s Secrets) hits(text string) []span {
	if len(text) == 0 {
		return nil
	}
	var all []span
	add := func(v view, start, end int) {
		start, end = v.origin(start, end)
		all = append(all, span{start, end})
	}
	// A secret may begin within an escape that only the text before it makes.
	inside := func(v view, c code, i, n int) {
		for k := i + 1; k < i+n && s.forms != nil; k++ {
			s.forms.walk(v.text[k:], c, func(end int) { add(v, k, k+end) })
		}
	}
	for _, v := range viewsOf(text, inside) {
		found := func(start, end int) { add(v, start, end) }
		if s.forms != nil {
			s.forms.scan(v.text, found)
		}
		if v.to != nil {
			continue // a pattern that goes to the end of a line is meant to
		}
		for _, pattern := range s.patterns {
			for _, m := range pattern.FindAllStringIndex(v.text, -1) {
				if m[0] < m[1] {
					found(m[0], m[1])
				}
			}
		}
	}
	if len(all) < 2 {
		return all
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end)) })
	merged := all[:1]
	for _, sp := range all[1:] {
		last := &merged[len(merged)-1]
		if sp.start < last.end {
			last.end = max(last.end, sp.end)
		} else {
			merged = append(merged, sp)
		}
	}
	return merged
}
