package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agentruntime/agentruntime/events"
)

// kind is a set of kinds of values. A value has exactly one, and a number is
// an integer or a fraction: 1.0 is an integer.
type kind uint8

const (
	kindNull kind = 1 << iota
	kindBoolean
	kindInteger
	kindFraction
	kindString
	kindArray
	kindObject

	kinds = iota // how many there are

	kindNumber = kindInteger | kindFraction
	kindAny    = kindNull | kindBoolean | kindNumber | kindString | kindArray | kindObject
)

// kindNames are the kinds in the order in which a set of them is told. A
// number comes before the kinds it is made of.
var kindNames = []struct {
	kind kind
	name string
}{
	{kindObject, "an object"},
	{kindArray, "an array"},
	{kindString, "a string"},
	{kindNumber, "a number"},
	{kindInteger, "an integer"},
	{kindFraction, "a number with a fraction"},
	{kindBoolean, "a boolean"},
	{kindNull, "null"},
}

// String lists the kinds of the set: "a string or null".
func (k kind) String() string {
	var names []string
	for _, n := range kindNames {
		if k&n.kind == n.kind {
			names = append(names, n.name)
			k &^= n.kind
		}
	}
	return strings.Join(names, " or ")
}

// value is one JSON value in its canonical form: two values are equal exactly
// when their texts are.
type value struct {
	kind     kind
	key      string // decoded, of a member of an object
	text     string
	children []value // members sorted by key, or items
}

// find returns the member of an object with this key, or nil.
func (v *value) find(key string) *value {
	i, ok := slices.BinarySearchFunc(v.children, key, func(c value, key string) int { return strings.Compare(c.key, key) })
	if !ok {
		return nil
	}
	return &v.children[i]
}

// at follows a JSON Pointer and returns nil when it leads nowhere.
func (v *value) at(pointer string) *value {
	if pointer == "" {
		return v
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		switch v.kind {
		case kindObject:
			key := unescapePointer.Replace(token)
			if escapePointer.Replace(key) != token {
				return nil // a ~ that escapes nothing
			}
			v = v.find(key)
		case kindArray:
			v = v.item(token)
		default:
			return nil
		}
		if v == nil {
			return nil
		}
	}
	return v
}

// item returns the item of an array that a token of a JSON Pointer names.
func (v *value) item(token string) *value {
	i, err := strconv.Atoi(token)
	if err != nil || i < 0 || i >= len(v.children) || strconv.Itoa(i) != token {
		return nil
	}
	return &v.children[i]
}

// string returns the text that a string means.
func (v *value) string() string { return decodeString(v.text) }

func decodeString(text string) string {
	if !strings.Contains(text, `\`) {
		return text[1 : len(text)-1]
	}
	var s string
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		panic(err) // the text is canonical JSON
	}
	return s
}

// length returns the size that a length keyword counts: code points, items or
// members.
func (v *value) length() int {
	if v.kind == kindString {
		return utf8.RuneCountInString(v.string())
	}
	return len(v.children)
}

// Limits of every JSON text this package reads, schemas included, beside those
// of events.CheckJSON. A number within them can be given to any library for
// big numbers without harm.
const (
	maxValues      = 1 << 19
	maxNumberBytes = 10_000
	maxExponent    = 10_000
)

// fault is why a text is not read.
type fault struct {
	pointer string
	reason  string
}

// read reads a JSON text whole.
func read(text []byte) (*value, *fault) {
	canonical, err := events.Canonical(text)
	if err != nil {
		var refused *events.JSONError
		if errors.As(err, &refused) {
			return nil, &fault{refused.Pointer, fmt.Sprintf("not valid JSON at byte %d: %s", refused.Offset, refused.Reason)}
		}
		return nil, &fault{"", err.Error()}
	}
	r := reader{text: string(canonical)}
	v := new(value)
	if reason := r.value(v); reason != "" {
		return nil, &fault{r.path.pointer(), reason}
	}
	return v, nil
}

// reader reads canonical JSON, which it need not check. A reason it returns
// stands at its path.
type reader struct {
	text   string
	pos    int
	values int
	path   path
}

func (r *reader) value(v *value) (reason string) {
	if r.values++; r.values > maxValues {
		return fmt.Sprintf("there are more than %d values", maxValues)
	}
	start := r.pos
	switch c := r.text[r.pos]; c {
	case '{':
		v.kind = kindObject
		reason = r.children(v, '}')
	case '[':
		v.kind = kindArray
		reason = r.children(v, ']')
	case '"':
		v.kind = kindString
		r.passString()
	case 't', 'n':
		v.kind = kindBoolean
		if c == 'n' {
			v.kind = kindNull
		}
		r.pos += len("true")
	case 'f':
		v.kind = kindBoolean
		r.pos += len("false")
	default:
		v.kind, reason = r.number()
	}
	v.text = r.text[start:r.pos]
	return reason
}

func (r *reader) children(v *value, end byte) (reason string) {
	r.pos++
	for i := 0; r.text[r.pos] != end; i++ {
		if r.text[r.pos] == ',' {
			r.pos++
		}
		child := value{}
		if end == '}' {
			start := r.pos
			r.passString()
			child.key = decodeString(r.text[start:r.pos])
			r.pos++
			r.path = append(r.path, step{key: child.key})
		} else {
			r.path = append(r.path, step{index: i, item: true})
		}
		if reason := r.value(&child); reason != "" {
			return reason
		}
		r.path = r.path[:len(r.path)-1]
		v.children = append(v.children, child)
	}
	r.pos++
	return ""
}

func (r *reader) passString() {
	for r.pos++; r.text[r.pos] != '"'; r.pos++ {
		if r.text[r.pos] == '\\' {
			r.pos++
		}
	}
	r.pos++
}

func (r *reader) number() (kind, string) {
	start := r.pos
	whole := true
	for ; r.pos < len(r.text) && strings.IndexByte(",]}", r.text[r.pos]) < 0; r.pos++ {
		whole = whole && r.text[r.pos] != '.' && r.text[r.pos] != 'e'
	}
	text := r.text[start:r.pos]
	if len(text) > maxNumberBytes {
		return 0, fmt.Sprintf("the number has more than %d digits", maxNumberBytes)
	}
	if _, exp, ok := strings.Cut(text, "e"); ok {
		if n, err := strconv.Atoi(exp); err != nil || n < -maxExponent || n > maxExponent {
			return 0, fmt.Sprintf("the exponent of the number is beyond %d", maxExponent)
		}
	}
	if whole || parseDecimal(text).isInteger() {
		return kindInteger, ""
	}
	return kindFraction, ""
}

// path leads to a value from the root.
type path []step

type step struct {
	key   string
	index int
	item  bool
}

// maxPointerBytes is where a pointer is cut.
const maxPointerBytes = 256

var (
	escapePointer   = strings.NewReplacer("~", "~0", "/", "~1")
	unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")
)

// pointer returns the path as a JSON Pointer.
func (p path) pointer() string {
	var b strings.Builder
	for _, s := range p {
		b.WriteByte('/')
		if s.item {
			b.WriteString(strconv.Itoa(s.index))
		} else {
			b.WriteString(escapePointer.Replace(cut(s.key, maxPointerBytes)))
		}
		if b.Len() > maxPointerBytes {
			break
		}
	}
	return cut(b.String(), maxPointerBytes)
}

// cut shortens a text to n bytes and an ellipsis, between characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
