package files

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Error is one thing that is wrong with a file.
type Error struct {
	File         string
	Line, Column int    // from 1; 0 when it concerns the file as a whole
	Field        string // such as limits.timeout or capabilities[1]; "" when it concerns no field
	Reason       string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Field != "" {
		b.WriteString(": " + e.Field)
	}
	return b.String() + ": " + e.Reason
}

const (
	maxReasonBytes = 400
	maxNameBytes   = 64
)

// oneLine keeps an error to one line of bounded length.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	return cut(s, maxReasonBytes)
}

// cut shortens a text at the boundary of a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}

// cause is what went wrong with a file, without its path: an Error names it
// already.
func cause(err error) string {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return oneLine(err.Error())
}
