package events

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// JSONLimits bound a JSON text. The zero value is the default limits.
type JSONLimits struct {
	MaxBytes int // size of the text; 16 MiB
	MaxDepth int // objects and arrays inside one another; 128, and at most 10000, which is what encoding/json takes
}

const (
	defaultJSONBytes = 16 << 20
	defaultJSONDepth = 128
	maxJSONDepth     = 10000
)

// JSONError says why a text is refused as JSON. It shows keys, never values.
type JSONError struct {
	Offset  int    // byte at which reading stopped
	Pointer string // JSON Pointer of the innermost value read so far; "" is the whole text
	Reason  string
}

func (e *JSONError) Error() string {
	if e.Pointer == "" {
		return fmt.Sprintf("not valid JSON at byte %d: %s", e.Offset, e.Reason)
	}
	return fmt.Sprintf("not valid JSON at byte %d, in %q: %s", e.Offset, e.Pointer, e.Reason)
}

// CheckJSON refuses a text that is not exactly one JSON value of RFC 8259, or
// that two readers could understand differently: a key twice in one object
// (escapes decoded), invalid UTF-8, a lone surrogate. It also refuses what is
// larger or deeper than the limits, and a number whose decimal exponent has
// more than 18 digits. The error is a *JSONError.
//
// Whatever CheckJSON accepts, encoding/json accepts. Numbers are never
// evaluated, so that 1e5000000 costs no more than its nine bytes.
func CheckJSON(data []byte, limits JSONLimits) error {
	s := newJSONScanner(data, limits)
	for {
		token, err := s.next()
		if err != nil {
			return err
		}
		if token.kind == jsonEnd {
			return nil
		}
	}
}

// jsonEnd is the kind of the token after the last one.
const jsonEnd = 0

// jsonToken is one token. Its kind is the first character of the token's text,
// with three exceptions: 'k' is a key with its colon, '0' any number, and
// jsonEnd the end of the text.
type jsonToken struct {
	kind       byte
	start, end int  // of the text; quotes are part of it, the colon is not
	escaped    bool // a string or key with a backslash in it
}

type jsonState byte

const (
	jsonWantValue  jsonState = iota // at the start, after a colon, after a comma in an array
	jsonOpened                      // after { or [
	jsonAfterValue                  // after a whole value
)

// jsonFrame is one object or array that is open.
type jsonFrame struct {
	close byte // } or ]
	index int  // of the current element of an array
	keys  int  // where the keys of an object begin in jsonScanner.keys
	seen  map[string]struct{}
}

// jsonScanner reads a JSON text token by token. It is the only JSON reader of
// this package: everything that accepts JSON goes through next, and so refuses
// the same texts. It keeps its own stack and does not recurse.
type jsonScanner struct {
	data     []byte
	pos      int
	state    jsonState
	maxBytes int
	maxDepth int
	frames   []jsonFrame

	// keys holds the decoded keys of the open objects, the innermost last.
	// Of an object with many keys it holds the first few and the current
	// one; the frame's seen holds them all.
	keys [][]byte
}

func newJSONScanner(data []byte, limits JSONLimits) jsonScanner {
	s := jsonScanner{
		data: data, maxBytes: limits.MaxBytes, maxDepth: limits.MaxDepth,
		frames: make([]jsonFrame, 0, 8), keys: make([][]byte, 0, fewKeys),
	}
	if s.maxBytes == 0 {
		s.maxBytes = defaultJSONBytes
	}
	if s.maxDepth == 0 {
		s.maxDepth = defaultJSONDepth
	}
	s.maxDepth = min(s.maxDepth, maxJSONDepth)
	return s
}

// next returns the next token, or jsonEnd after the value. An error is a
// *JSONError; the scanner is of no use after it.
func (s *jsonScanner) next() (jsonToken, error) {
	if len(s.data) > s.maxBytes {
		return s.fail(s.maxBytes, fmt.Sprintf("it is larger than %d bytes", s.maxBytes))
	}
	c := s.peek()
	switch s.state {
	case jsonAfterValue:
		return s.follow(c)
	case jsonOpened:
		f := &s.frames[len(s.frames)-1]
		if c == f.close {
			return s.leave()
		}
		if f.close == '}' {
			return s.member(c)
		}
	}
	return s.value(c)
}

// key returns the decoded key of the current member of the innermost object.
func (s *jsonScanner) key() []byte { return s.keys[len(s.keys)-1] }

// skip reads the rest of the value that begins with the token and returns
// where the value ends.
func (s *jsonScanner) skip(token jsonToken) (end int, err error) {
	for depth := 0; ; {
		switch token.kind {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if depth == 0 {
			return token.end, nil
		}
		if token, err = s.next(); err != nil {
			return 0, err
		}
	}
}

// peek passes white space and returns the byte after it, or 0 at the end.
func (s *jsonScanner) peek() byte {
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// follow reads what comes after a whole value.
func (s *jsonScanner) follow(c byte) (jsonToken, error) {
	if len(s.frames) == 0 {
		if s.pos < len(s.data) {
			return s.fail(s.pos, "there is something after the value")
		}
		return jsonToken{kind: jsonEnd, start: s.pos, end: s.pos}, nil
	}
	f := &s.frames[len(s.frames)-1]
	if c == f.close {
		return s.leave()
	}
	if c != ',' {
		return s.unexpected("a comma or the end of the object or array")
	}
	s.pos++
	f.index++
	if f.close == '}' {
		return s.member(s.peek())
	}
	return s.value(s.peek())
}

func (s *jsonScanner) leave() (jsonToken, error) {
	last := len(s.frames) - 1
	f := s.frames[last]
	s.keys = s.keys[:f.keys]
	s.frames = s.frames[:last]
	s.state = jsonAfterValue
	s.pos++
	return jsonToken{kind: f.close, start: s.pos - 1, end: s.pos}, nil
}

// member reads a key and its colon.
func (s *jsonScanner) member(c byte) (jsonToken, error) {
	if c != '"' {
		return s.unexpected("a key in double quotes")
	}
	token, err := s.text('k')
	if err != nil {
		return token, err
	}
	key := s.data[token.start+1 : token.end-1]
	if token.escaped {
		key = unescapeJSON(make([]byte, 0, len(key)), key)
	}
	if !s.addKey(key) {
		return s.fail(token.start, "the object has this key twice")
	}
	if s.peek() != ':' {
		return s.unexpected("a colon after the key")
	}
	s.pos++
	s.state = jsonWantValue
	return token, nil
}

// fewKeys is up to how many keys of an object are compared one by one.
const fewKeys = 16

// addKey makes key the current one and reports whether it is the first of its
// kind in the innermost object.
func (s *jsonScanner) addKey(key []byte) (first bool) {
	f := &s.frames[len(s.frames)-1]
	known := s.keys[f.keys:]
	if len(known) < fewKeys {
		first = true
		for _, k := range known {
			first = first && !bytes.Equal(k, key)
		}
		s.keys = append(s.keys, key)
		return first
	}
	if f.seen == nil {
		f.seen = make(map[string]struct{}, 4*fewKeys)
		for _, k := range known {
			f.seen[string(k)] = struct{}{}
		}
	}
	_, dup := f.seen[string(key)]
	f.seen[string(key)] = struct{}{}
	s.keys[len(s.keys)-1] = key
	return !dup
}

// value reads a scalar, or the opening of an object or array.
func (s *jsonScanner) value(c byte) (jsonToken, error) {
	switch c {
	case '{', '[':
		if len(s.frames) >= s.maxDepth {
			return s.fail(s.pos, fmt.Sprintf("it is nested deeper than %d", s.maxDepth))
		}
		s.frames = append(s.frames, jsonFrame{close: c + 2, keys: len(s.keys)}) // ASCII: } is { + 2, ] is [ + 2
		s.state = jsonOpened
		s.pos++
		return jsonToken{kind: c, start: s.pos - 1, end: s.pos}, nil
	case '"':
		s.state = jsonAfterValue
		return s.text('"')
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	}
	if c == '-' || isDigit(c) {
		return s.number()
	}
	return s.unexpected("a value")
}

func (s *jsonScanner) literal(word string) (jsonToken, error) {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(word)) {
		return s.unexpected("a value")
	}
	start := s.pos
	s.pos += len(word)
	s.state = jsonAfterValue
	return jsonToken{kind: word[0], start: start, end: s.pos}, nil
}

func (s *jsonScanner) number() (jsonToken, error) {
	start := s.pos
	if s.data[s.pos] == '-' {
		s.pos++
	}
	leadingZero := s.pos < len(s.data) && s.data[s.pos] == '0'
	if n := s.digits(); n == 0 {
		return s.unexpected("a digit")
	} else if leadingZero && n > 1 {
		return s.fail(start, "the number begins with a zero")
	}
	if s.pos < len(s.data) && s.data[s.pos] == '.' {
		s.pos++
		if s.digits() == 0 {
			return s.unexpected("a digit after the point")
		}
	}
	if s.pos < len(s.data) && s.data[s.pos]|0x20 == 'e' {
		s.pos++
		if s.pos < len(s.data) && (s.data[s.pos] == '+' || s.data[s.pos] == '-') {
			s.pos++
		}
		if s.digits() == 0 {
			return s.unexpected("a digit in the exponent")
		}
		var scratch [64]byte
		if _, ok := parseDecimal(scratch[:0], s.data[start:s.pos]); !ok {
			return s.fail(start, "the exponent of the number is too large")
		}
	}
	s.state = jsonAfterValue
	return jsonToken{kind: '0', start: start, end: s.pos}, nil
}

func (s *jsonScanner) digits() (n int) {
	for s.pos < len(s.data) && isDigit(s.data[s.pos]) {
		s.pos++
		n++
	}
	return n
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// text reads a string in double quotes.
func (s *jsonScanner) text(kind byte) (jsonToken, error) {
	token := jsonToken{kind: kind, start: s.pos}
	for s.pos++; s.pos < len(s.data); {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			token.end = s.pos
			return token, nil
		case c == '\\':
			token.escaped = true
			n, reason := checkEscape(s.data[s.pos:])
			if reason != "" {
				return s.fail(s.pos, reason)
			}
			s.pos += n
		case c < 0x20:
			return s.fail(s.pos, "a string has a control character that is not escaped")
		case c < utf8.RuneSelf:
			s.pos++
		default:
			r, n := utf8.DecodeRune(s.data[s.pos:])
			if r == utf8.RuneError && n == 1 {
				return s.fail(s.pos, "a string is not valid UTF-8")
			}
			s.pos += n
		}
	}
	return s.unexpected("the end of the string")
}

func (s *jsonScanner) unexpected(want string) (jsonToken, error) {
	if s.pos >= len(s.data) {
		return s.fail(len(s.data), "the text ends where "+want+" should be")
	}
	return s.fail(s.pos, "expected "+want)
}

func (s *jsonScanner) fail(offset int, reason string) (jsonToken, error) {
	return jsonToken{}, &JSONError{Offset: offset, Pointer: s.pointer(), Reason: reason}
}

// maxPointerBytes is where the pointer of an error is cut.
const maxPointerBytes = 256

// pointer returns the JSON Pointer of the current value.
func (s *jsonScanner) pointer() string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	for i, f := range s.frames {
		keysEnd := len(s.keys)
		if i+1 < len(s.frames) {
			keysEnd = s.frames[i+1].keys
		}
		var step string
		switch {
		case f.close == ']':
			step = strconv.Itoa(f.index)
		case keysEnd > f.keys:
			step = string(s.keys[keysEnd-1][:min(len(s.keys[keysEnd-1]), maxPointerBytes)])
		default:
			continue // no key of the object has been read
		}
		b.WriteByte('/')
		b.WriteString(escape.Replace(step))
		if b.Len() > maxPointerBytes {
			return strings.ToValidUTF8(b.String()[:maxPointerBytes], "") + "…"
		}
	}
	return b.String()
}
