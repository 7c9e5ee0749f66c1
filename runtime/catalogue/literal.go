package catalogue

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

const (
	maxLiteral = 400 // bytes of one value, before its type is told in its place
	maxKey     = 200 // bytes of a property's name, before it is one of the others
)

// key writes the name of a property, unless that is too long.
func key(name string) (text string, ok bool) {
	if len(name) > maxKey {
		return "", false
	}
	if identifiers.MatchString(name) && !strings.Contains(name, ".") {
		return name, true
	}
	text = quoted(name)
	return text, len(text) <= maxKey
}

func quoted(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // text always has a JSON form
	return strings.TrimSuffix(b.String(), "\n")
}

// literal writes the type of one value alone. A value that is too long has the
// type of its kind.
func literal(v any) string {
	e := exact{left: maxLiteral}
	if e.value(v); e.left >= 0 {
		return e.text.String()
	}
	switch v.(type) {
	case string:
		return "string"
	case []any:
		return "unknown[]"
	}
	return "object"
}

// exact writes a value, until it is too long.
type exact struct {
	text strings.Builder
	left int
}

func (e *exact) write(text string) {
	if e.left -= len(text); e.left >= 0 {
		e.text.WriteString(text)
	}
}

func (e *exact) value(v any) {
	switch v := v.(type) {
	case nil:
		e.write("null")
	case bool:
		e.write(strconv.FormatBool(v))
	case string:
		e.string(v)
	case json.Number:
		e.number(v)
	case []any:
		e.write("[")
		for i := 0; i < len(v) && e.left >= 0; i++ {
			if i > 0 {
				e.write(", ")
			}
			e.value(v[i])
		}
		e.write("]")
	case *object:
		e.object(v)
	}
}

// number writes a number that is a double, and the type of one that is not: its
// literal would be another number, or several.
func (e *exact) number(n json.Number) {
	if f, err := n.Float64(); err == nil && math.Abs(f) < 1<<53 {
		text := strconv.FormatFloat(f+0, 'f', -1, 64)
		if wanted, err := events.Canonical([]byte(n)); err == nil {
			if got, err := events.Canonical([]byte(text)); err == nil && bytes.Equal(got, wanted) {
				e.write(text)
				return
			}
		}
	}
	e.write("number")
}

func (e *exact) string(text string) {
	if len(text) > e.left {
		e.left = -1
		return
	}
	e.write(quoted(text))
}

func (e *exact) object(o *object) {
	if len(o.members) == 0 {
		e.write("Record<string, never>")
		return
	}
	e.write("{ ")
	for i := 0; i < len(o.members) && e.left >= 0; i++ {
		if i > 0 {
			e.write("; ")
		}
		name, ok := key(o.members[i].key)
		if !ok {
			e.left = -1
			return
		}
		e.write(name + ": ")
		e.value(o.members[i].value)
	}
	e.write(" }")
}
