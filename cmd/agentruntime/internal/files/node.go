package files

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// node is a JSON value and where it stands in a file: a member at its key, an
// item at its beginning.
type node struct {
	parent       *node
	key          string // of a member
	index        int    // of an item
	line, column int
	kind         kind
	text         string // JSON, of a scalar
	children     []*node
	absent       []*node // members that are missing and were asked for

	refused bool // something was reported here
	faulty  bool // here or below
}

type kind byte

const (
	scalar kind = iota
	object
	array
)

// appendJSON writes the value.
func (n *node) appendJSON(b []byte) []byte {
	switch n.kind {
	case object:
		b = append(b, '{')
		for i, c := range n.children {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(b, quoteJSON(c.key)...), ':')
			b = c.appendJSON(b)
		}
		return append(b, '}')
	case array:
		b = append(b, '[')
		for i, c := range n.children {
			if i > 0 {
				b = append(b, ',')
			}
			b = c.appendJSON(b)
		}
		return append(b, ']')
	}
	return append(b, n.text...)
}

func (n *node) json() json.RawMessage { return n.appendJSON(nil) }

func quoteJSON(s string) string {
	text, err := events.Marshal(s)
	if err != nil {
		panic(err) // a string can be marshaled
	}
	return string(text)
}

// member returns a member of an object. One that is missing stands where the
// object does.
func (n *node) member(key string) *node {
	for _, list := range [][]*node{n.children, n.absent} {
		for _, c := range list {
			if c.key == key {
				return c
			}
		}
	}
	c := &node{parent: n, key: key, line: n.line, column: n.column, kind: scalar, text: "null"}
	n.absent = append(n.absent, c)
	return c
}

// has reports whether an object has a member.
func (n *node) has(key string) bool {
	for _, c := range n.children {
		if c.key == key {
			return true
		}
	}
	return false
}

var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")

// find follows a JSON Pointer as far as it leads.
func (n *node) find(pointer string) *node {
	if pointer == "" {
		return n
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		switch n.kind {
		case object:
			n = n.member(unescapePointer.Replace(token))
		case array:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(n.children) {
				return n
			}
			n = n.children[i]
		default:
			return n
		}
	}
	return n
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_$-]+$`)

// field names the node as an error does.
func (n *node) field() string {
	switch {
	case n.parent == nil:
		return ""
	case n.parent.kind == array:
		return n.parent.field() + "[" + strconv.Itoa(n.index) + "]"
	case !plainName.MatchString(n.key) || len(n.key) > maxNameBytes:
		return n.parent.field() + "[" + strconv.Quote(cut(n.key, maxNameBytes)) + "]"
	case n.parent.parent == nil:
		return n.key
	}
	return n.parent.field() + "." + n.key
}

// settled reports whether enough is said about the node: something was reported
// at it, below it or above it.
func (n *node) settled() bool {
	if n.faulty {
		return true
	}
	for ; n != nil; n = n.parent {
		if n.refused {
			return true
		}
	}
	return false
}

// repeated returns the first item of a list that stands in it twice, or the
// list.
func (n *node) repeated() *node {
	seen := make(map[string]bool, len(n.children))
	for _, c := range n.children {
		if seen[string(c.json())] {
			return c
		}
		seen[string(c.json())] = true
	}
	return n
}
