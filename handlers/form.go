package handlers

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/agentruntime/agentruntime/events"
)

// form is a text that gives a secret away. In base64, the characters before and
// after may hold some of its bits as well.
type form struct {
	text        string
	left, right bool
}

// formsOf returns the forms of a secret whose escapes are not a matter of
// spelling; the others are found by their views. What is encoded may be the
// secret within a JSON document.
func formsOf(secret string) []form {
	forms := []form{{text: secret}}
	spellings := []string{secret}
	if quoted, err := events.Marshal(secret); err == nil {
		if inner := string(quoted[1 : len(quoted)-1]); inner != secret {
			spellings = append(spellings, inner)
		}
	}
	for _, spelling := range spellings {
		digits := hex.EncodeToString([]byte(spelling))
		forms = append(forms, form{text: digits}, form{text: strings.ToUpper(digits)})
		for before := range 3 { // bytes since the last whole group
			for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
				text := encoding.EncodeToString(append(make([]byte, before), spelling...))
				first, bits := (8*before+5)/6, 8*(before+len(spelling))
				forms = append(forms, form{text: text[first : bits/6], left: before > 0, right: bits%6 > 0})
			}
		}
	}
	return forms
}

// view is a text as a reader of an encoding sees it, with where each byte comes
// from.
type view struct {
	text string
	from []int32 // for each byte and the end, where what spells it begins; nil: the text itself
	to   []int32 // for each byte, where that ends; nil: where the next begins
}

// origin returns where what spells a piece of the view stands in the text.
func (v view) origin(start, end int) (int, int) {
	switch {
	case v.from == nil:
		return start, end
	case v.to != nil:
		return int(v.from[start]), int(v.to[end-1])
	}
	last := v.from[end-1]
	for end < len(v.text) && v.from[end] == last {
		end++ // the rest of a character that is spelled as one
	}
	return int(v.from[start]), int(v.from[end])
}

// maxDepth is how many encodings inside one another are looked through.
const maxDepth = 3

// viewsOf returns the text and its decodings, each also without its line breaks.
// Inside is told of every escape
// that a decoding reads: what stands before it may have made it one.
func viewsOf(text string, inside func(v view, c code, i, n int)) []view {
	views := []view{{text: text}}
	for depth, at := 0, 0; depth < maxDepth; depth++ {
		end := len(views)
		for ; at < end; at++ {
			for _, c := range codes {
				if v, changed := c.decode(views[at], inside); changed && !seen(views, v) {
					views = append(views, v)
				}
			}
		}
	}
	for _, v := range views {
		if joined, changed := v.joined(); changed && !seen(views, joined) {
			views = append(views, joined)
		}
	}
	return views
}

// joined returns the view without the line breaks that something follows, and
// without what indents it, and whether there are any.
func (v view) joined() (view, bool) {
	if strings.IndexByte(v.text, '\n') < 0 {
		return view{}, false
	}
	out := view{from: make([]int32, 0, len(v.text)+1), to: make([]int32, 0, len(v.text))}
	text := make([]byte, 0, len(v.text))
	for i := 0; i < len(v.text); {
		n := lineBreak(v.text[i:])
		if n > 0 && i > 0 && i+n < len(v.text) {
			i += n
			continue
		}
		start, end := v.origin(i, i+1)
		text, out.from, out.to = append(text, v.text[i]), append(out.from, int32(start)), append(out.to, int32(end))
		i++
	}
	out.text, out.from = string(text), append(out.from, v.at(len(v.text)))
	return out, len(text) < len(v.text)
}

// lineBreak returns the length of the line break at the beginning of a text, with
// what indents the next line; 0: there is none.
func lineBreak(text string) int {
	n := 0
	if strings.HasPrefix(text, "\r\n") {
		n = 2
	} else if text[0] == '\n' {
		n = 1
	}
	for n > 0 && n < len(text) && (text[n] == ' ' || text[n] == '\t') {
		n++
	}
	return n
}

// seen reports whether a view says nothing new: two ways led to it.
func seen(views []view, v view) bool {
	for _, other := range views {
		if other.text == v.text {
			return true
		}
	}
	return false
}

// code is an encoding that writes most characters as they are.
type code struct {
	marks string // an escape begins with one of these
	// read returns what the escape at the beginning of a text says, and how long
	// it is; 0: there is none.
	read func(text string) (said rune, n int)
	// bytes: what it says is a byte, not a character
	bytes bool
}

var codes = []code{{marks: `\`, read: readJSON}, {marks: "%", read: readURL, bytes: true}}

// next returns what stands at an index, escape or not.
func (c code) next(text string, i int, said []byte) ([]byte, int) {
	if strings.IndexByte(c.marks, text[i]) >= 0 {
		if r, n := c.read(text[i:]); n > 0 {
			if c.bytes {
				return append(said, byte(r)), n
			}
			return utf8.AppendRune(said, r), n
		}
	}
	return append(said, text[i]), 1
}

// decode returns what a decoder reads from left to right, and whether that is
// anything else than the text.
func (c code) decode(v view, inside func(v view, c code, i, n int)) (view, bool) {
	done := 0 // of v, copied
	var text []byte
	var from []int32
	keep := func(end int) {
		if from == nil {
			text, from = make([]byte, 0, len(v.text)), make([]int32, 0, len(v.text)+1)
		}
		text = append(text, v.text[done:end]...)
		for i := done; i < end; i++ {
			from = append(from, v.at(i))
		}
		done = end
	}
	for i := strings.IndexAny(v.text, c.marks); i >= 0 && i < len(v.text); {
		_, n := c.read(v.text[i:])
		if n > 0 {
			keep(i)
			text, _ = c.next(v.text, i, text)
			for len(from) < len(text) {
				from = append(from, v.at(i))
			}
			done = i + n
			inside(v, c, i, n)
		}
		n = max(n, 1)
		k := strings.IndexAny(v.text[i+n:], c.marks)
		if k < 0 {
			break
		}
		i += n + k
	}
	if from == nil {
		return view{}, false
	}
	keep(len(v.text))
	return view{text: string(text), from: append(from, v.at(len(v.text)))}, true
}

// at returns where a byte of the view comes from.
func (v view) at(i int) int32 {
	if v.from == nil {
		return int32(i)
	}
	return v.from[i]
}

const escapes = "\"\"\\\\//b\bf\fn\nr\rt\t" // each escaped character, and what it says

func readJSON(text string) (rune, int) {
	if len(text) < 2 {
		return 0, 0
	}
	for k := 0; k < len(escapes); k += 2 {
		if escapes[k] == text[1] {
			return rune(escapes[k+1]), 2
		}
	}
	high, ok := fourDigits(text)
	if !ok {
		return 0, 0
	}
	if utf16.IsSurrogate(high) {
		if low, ok := fourDigits(text[6:]); ok {
			if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
				return r, 12
			}
		}
		return utf8.RuneError, 6
	}
	return high, 6
}

func fourDigits(text string) (r rune, ok bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	for i := 2; i < 6; i++ {
		digit := hexDigit(text[i])
		if digit < 0 {
			return 0, false
		}
		r = r<<4 | rune(digit)
	}
	return r, true
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// readURL leaves a plus, which is a blank in the query of a URL: the automaton
// takes both for the same sign.
func readURL(text string) (rune, int) {
	if len(text) < 3 {
		return 0, 0
	}
	high, low := hexDigit(text[1]), hexDigit(text[2])
	if high < 0 || low < 0 {
		return 0, 0
	}
	return rune(high<<4 | low), 3
}
