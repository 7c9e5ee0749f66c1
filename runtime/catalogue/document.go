package catalogue

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
)

// member is one member of a schema's object, in the order of the document.
type member struct {
	key   string
	value any // nil, bool, json.Number, string, []any or object
}

type object []member

func (o object) get(key string) (any, bool) {
	for _, m := range o {
		if m.key == key {
			return m.value, true
		}
	}
	return nil, false
}

func (o object) text(key string) string {
	v, _ := o.get(key)
	s, _ := v.(string)
	return s
}

func (o object) list(key string) []any {
	v, _ := o.get(key)
	list, _ := v.([]any)
	return list
}

func (o object) members(key string) object {
	v, _ := o.get(key)
	members, _ := v.(object)
	return members
}

// parse reads a schema that has passed the gate. Of other text it makes what it
// can.
func parse(doc []byte) any {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	return decode(d)
}

func decode(d *json.Decoder) any {
	token, err := d.Token()
	if err != nil {
		return nil
	}
	switch token {
	case json.Delim('{'):
		o := object{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return o
			}
			name, _ := key.(string)
			o = append(o, member{name, decode(d)})
		}
		_, _ = d.Token()
		return o
	case json.Delim('['):
		list := []any{}
		for d.More() {
			list = append(list, decode(d))
		}
		_, _ = d.Token()
		return list
	}
	return token
}

// unescape reads one step of a JSON Pointer.
var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// at follows a reference inside the document.
func at(root any, ref string) (any, bool) {
	pointer, err := url.PathUnescape(strings.TrimPrefix(ref, "#"))
	if err != nil {
		return nil, false
	}
	v := root
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if pointer == "" {
			break
		}
		switch in := v.(type) {
		case object:
			next, ok := in.get(unescape.Replace(token))
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i := index(token)
			if i < 0 || i >= len(in) {
				return nil, false
			}
			v = in[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// index reads the position in an array, or returns -1.
func index(token string) int {
	n := 0
	for _, r := range token {
		if r < '0' || r > '9' || n > 1<<20 {
			return -1
		}
		n = n*10 + int(r-'0')
	}
	if token == "" {
		return -1
	}
	return n
}
