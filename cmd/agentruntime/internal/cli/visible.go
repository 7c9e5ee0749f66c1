package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// visible is where text for people goes: what would steer a terminal, or turn
// the order of its letters, is shown as an escape sequence. Names, replies and
// errors are written by models and by others, and may hold anything.
type visible struct {
	w    io.Writer
	raw  func() bool // output is for programs, in a form with escapes of its own
	rest []byte      // of a rune whose end has not been written yet
}

// Write implements io.Writer.
func (v *visible) Write(p []byte) (int, error) {
	if v.raw() {
		return v.w.Write(p)
	}
	text := append(v.rest, p...)
	whole := len(text)
	for i := max(0, whole-utf8.UTFMax+1); i < whole; i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			whole = i
		}
	}
	v.rest = append([]byte{}, text[whole:]...)
	if _, err := io.WriteString(v.w, escape(string(text[:whole]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// escape makes a text harmless to a terminal. Lines and tabs stay.
func escape(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, steers) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case steers(r) && r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case steers(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	return b.String()
}

// steers reports whether a rune is a terminal's control character, or one that
// turns the order of those after it.
func steers(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
}
