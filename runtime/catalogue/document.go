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
	value any // nil, bool, json.Number, string, []any or *object
}

// object is an object of a document.
type object struct {
	members []member
	index   map[string]int // of the members, when there are many
}

// few is how many members are looked through one by one.
const few = 8

// none is what stands for an object that is not there.
var none object

func (o *object) get(key string) (any, bool) {
	if o.index != nil {
		i, ok := o.index[key]
		if !ok {
			return nil, false
		}
		return o.members[i].value, true
	}
	for _, m := range o.members {
		if m.key == key {
			return m.value, true
		}
	}
	return nil, false
}

func (o *object) add(m member) {
	if o.members = append(o.members, m); len(o.members) <= few {
		return
	}
	if o.index == nil {
		o.index = make(map[string]int)
		for i := range o.members {
			o.index[o.members[i].key] = i
		}
	}
	o.index[m.key] = len(o.members) - 1
}

func (o *object) text(key string) string {
	v, _ := o.get(key)
	s, _ := v.(string)
	return s
}

func (o *object) list(key string) []any {
	v, _ := o.get(key)
	list, _ := v.([]any)
	return list
}

func (o *object) object(key string) *object {
	v, _ := o.get(key)
	if in, ok := v.(*object); ok {
		return in
	}
	return &none
}

// parse reads a schema that has passed the gate. Of other text it makes what it
// can, and nil of none.
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
		o := new(object)
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return o
			}
			name, _ := key.(string)
			o.add(member{name, decode(d)})
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

// pointerOf returns the JSON Pointer of a reference inside the document: the same
// one for every way to write it.
func pointerOf(ref string) string {
	pointer, err := url.PathUnescape(strings.TrimPrefix(ref, "#"))
	if err != nil {
		return ref // it leads nowhere
	}
	return pointer
}

// at follows a JSON Pointer.
func at(root any, pointer string) (any, bool) {
	v := root
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if pointer == "" {
			break
		}
		switch in := v.(type) {
		case *object:
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
