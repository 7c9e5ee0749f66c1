package events

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Canonical returns the one spelling of a JSON value: two texts have the same
// canonical form exactly when they mean the same value, whatever the order of
// their keys, their white space, and the way they write strings and numbers.
// It refuses what CheckJSON refuses with default limits, and nothing more.
//
//   - Keys are sorted by the bytes of their UTF-8, which is the order of their
//     code points. RFC 8785 sorts by UTF-16 instead; the two differ only above
//     U+FFFF, and ours is the order of Go's strings.
//   - There is no white space. In strings, only what JSON must escape is
//     escaped, in the shortest way.
//   - Numbers are decimals of any size and are never rounded. Up to 20 zeros
//     are written out before or after the digits; beyond that the number has
//     one digit before the point, and an exponent: 1e400. Minus zero is 0.
func Canonical(data []byte) ([]byte, error) {
	w := canonicalWriter{out: make([]byte, 0, min(len(data), defaultJSONBytes))}
	s := newJSONScanner(data, JSONLimits{})
	for {
		token, err := s.next()
		if err != nil {
			return nil, err
		}
		if token.kind == jsonEnd {
			return w.out, nil
		}
		if token.kind == 'k' {
			w.key(s.key())
		} else {
			w.value(token, data[token.start:token.end])
		}
	}
}

// EqualJSON reports whether two texts mean the same value: 1 equals 1.0, and
// the order of keys does not matter. It refuses what Canonical refuses.
func EqualJSON(a, b []byte) (bool, error) {
	ca, err := Canonical(a)
	if err != nil {
		return false, err
	}
	cb, err := Canonical(b)
	if err != nil {
		return false, err
	}
	return bytes.Equal(ca, cb), nil
}

// HashJSON returns the SHA-256 of the canonical form, base64url without
// padding. Equal values have equal hashes.
func HashJSON(data []byte) (string, error) {
	c, err := Canonical(data)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(c)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// Marshal is json.Marshal without the escapes for HTML.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// canonicalWriter writes tokens in the order of the text and puts the members
// of an object in order when the object ends. An object already in order,
// which is what this writer itself makes, costs nothing.
type canonicalWriter struct {
	out     []byte
	objects []int             // for each open object, where its members begin
	members []canonicalMember // of the open objects
	scratch []byte
}

type canonicalMember struct {
	key        []byte
	start, end int // in out, from the key to the end of the value
}

func (w *canonicalWriter) key(key []byte) {
	w.comma()
	w.members = append(w.members, canonicalMember{key: key, start: len(w.out)})
	w.out = append(appendJSONString(w.out, key), ':')
}

func (w *canonicalWriter) value(token jsonToken, text []byte) {
	switch token.kind {
	case '}':
		w.sortMembers()
		w.out = append(w.out, '}')
		return
	case ']':
		w.out = append(w.out, ']')
		return
	}
	w.comma()
	switch {
	case token.kind == '{':
		w.objects = append(w.objects, len(w.members))
		w.out = append(w.out, '{')
	case token.kind == '0':
		w.out = appendNumber(w.out, text)
	case token.escaped:
		w.scratch = unescapeJSON(w.scratch[:0], text[1:len(text)-1])
		w.out = appendJSONString(w.out, w.scratch)
	default:
		w.out = append(w.out, text...)
	}
}

// comma writes a comma unless a value or key comes first in what is open. Of
// all tokens only an opening and a key end in the bytes it looks for.
func (w *canonicalWriter) comma() {
	if n := len(w.out); n > 0 && w.out[n-1] != '{' && w.out[n-1] != '[' && w.out[n-1] != ':' {
		w.out = append(w.out, ',')
	}
}

func (w *canonicalWriter) sortMembers() {
	begin := w.objects[len(w.objects)-1]
	w.objects = w.objects[:len(w.objects)-1]
	members := w.members[begin:]
	w.members = w.members[:begin]
	byKey := func(a, b canonicalMember) int { return bytes.Compare(a.key, b.key) }
	if slices.IsSortedFunc(members, byKey) {
		return
	}
	base := members[0].start
	for i := range members {
		members[i].end = len(w.out)
		if i+1 < len(members) {
			members[i].end = members[i+1].start - 1
		}
	}
	slices.SortFunc(members, byKey)
	w.scratch = append(w.scratch[:0], w.out[base:]...)
	w.out = w.out[:base]
	for i, m := range members {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.out = append(w.out, w.scratch[m.start-base:m.end-base]...)
	}
}

// checkEscape returns the length of the escape that b begins with. A pair of
// surrogates is one escape.
func checkEscape(b []byte) (n int, reason string) {
	const unknown = "a string has an escape that JSON does not know"
	if len(b) < 2 {
		return 0, unknown
	}
	if strings.IndexByte(`"\/bfnrt`, b[1]) >= 0 {
		return 2, ""
	}
	r, ok := unicodeEscape(b)
	if !ok {
		return 0, unknown
	}
	if !utf16.IsSurrogate(r) {
		return 6, ""
	}
	low, ok := unicodeEscape(b[6:])
	if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
		return 0, "a string has a lone surrogate"
	}
	return 12, ""
}

// unicodeEscape reads a backslash, u and four hexadecimal digits.
func unicodeEscape(b []byte) (r rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		digit, ok := fromHex(c)
		if !ok {
			return 0, false
		}
		r = r<<4 | rune(digit)
	}
	return r, true
}

func fromHex(c byte) (digit byte, ok bool) {
	switch {
	case isDigit(c):
		return c - '0', true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}

// unescapeJSON appends the text of a string that the scanner has accepted, the
// quotes left out.
func unescapeJSON(dst, raw []byte) []byte {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		raw = raw[i:]
		if r, ok := unicodeEscape(raw); ok {
			raw = raw[6:]
			if utf16.IsSurrogate(r) {
				low, _ := unicodeEscape(raw)
				r = utf16.DecodeRune(r, low)
				raw = raw[6:]
			}
			dst = utf8.AppendRune(dst, r)
			continue
		}
		c := raw[1]
		if i := strings.IndexByte("bfnrt", c); i >= 0 {
			c = "\b\f\n\r\t"[i]
		}
		dst = append(dst, c)
		raw = raw[2:]
	}
}

// appendJSONString appends a string of valid UTF-8 in its canonical form.
func appendJSONString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	done := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[done:i]...)
		done = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		}
	}
	return append(append(dst, s[done:]...), '"')
}

// decimal is the number ±digits × 10^exp. Its digits neither begin nor end
// with a zero; zero has none.
type decimal struct {
	negative bool
	digits   []byte
	exp      int64
}

// maxExponentDigits bounds the exponent of a number, written and normal: sums
// of it and the length of a text stay far from overflow.
const maxExponentDigits = 18

// parseDecimal reads the text of a JSON number. The digits are kept in buf. It
// reports false when the exponent has more digits than maxExponentDigits, as
// written or as the exponent of the number with one digit before the point.
func parseDecimal(buf, text []byte) (decimal, bool) {
	var d decimal
	text, d.negative = bytes.CutPrefix(text, []byte("-"))
	if i := bytes.IndexAny(text, "eE"); i >= 0 {
		exp := bytes.TrimPrefix(text[i+1:], []byte("+"))
		exp, negative := bytes.CutPrefix(exp, []byte("-"))
		exp = bytes.TrimLeft(exp, "0")
		if len(exp) > maxExponentDigits {
			return decimal{}, false
		}
		for _, c := range exp {
			d.exp = d.exp*10 + int64(c-'0')
		}
		if negative {
			d.exp = -d.exp
		}
		text = text[:i]
	}
	whole, fraction, _ := bytes.Cut(text, []byte("."))
	d.exp -= int64(len(fraction))
	digits := bytes.TrimLeft(append(append(buf, whole...), fraction...), "0")
	d.digits = bytes.TrimRight(digits, "0")
	if len(d.digits) == 0 {
		return decimal{}, true
	}
	d.exp += int64(len(digits) - len(d.digits))
	const limit = 1_000_000_000_000_000_000
	if first := d.exp + int64(len(d.digits)) - 1; first <= -limit || first >= limit {
		return decimal{}, false
	}
	return d, true
}

// writtenZeros are the zeros a canonical number may have before or after its
// digits. More become an exponent.
const writtenZeros = "00000000000000000000"

// appendNumber appends a number that the scanner has accepted.
func appendNumber(dst, text []byte) []byte {
	if isCanonicalInteger(text) {
		return append(dst, text...)
	}
	var scratch [64]byte
	d, _ := parseDecimal(scratch[:0], text)
	if len(d.digits) == 0 {
		return append(dst, '0')
	}
	if d.negative {
		dst = append(dst, '-')
	}
	point := int64(len(d.digits)) + d.exp // digits before the point
	switch {
	case d.exp >= 0 && d.exp <= int64(len(writtenZeros)):
		return append(append(dst, d.digits...), writtenZeros[:d.exp]...)
	case d.exp < 0 && point > 0:
		dst = append(append(dst, d.digits[:point]...), '.')
		return append(dst, d.digits[point:]...)
	case d.exp < 0 && point > -int64(len(writtenZeros)):
		dst = append(append(dst, "0."...), writtenZeros[:-point]...)
		return append(dst, d.digits...)
	}
	dst = append(dst, d.digits[0])
	if len(d.digits) > 1 {
		dst = append(append(dst, '.'), d.digits[1:]...)
	}
	return strconv.AppendInt(append(dst, 'e'), point-1, 10)
}

// isCanonicalInteger reports, for most integers, that their text is canonical
// as it stands: no point, no exponent, few zeros at the end, not minus zero.
func isCanonicalInteger(text []byte) bool {
	for _, c := range text {
		if !isDigit(c) && c != '-' {
			return false
		}
	}
	return len(text) <= len(writtenZeros) && text[0] != '-' || text[len(text)-1] != '0'
}
