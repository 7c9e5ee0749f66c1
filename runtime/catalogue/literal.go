package catalogue

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
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
		f, err := v.Float64()
		if err != nil || math.Abs(f) >= 1<<53 {
			e.write("number") // no double is this number alone
			return
		}
		e.write(strconv.FormatFloat(f+0, 'f', -1, 64))
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
