package schema

import (
	"fmt"
	"net/url"
	"strings"
)

// MaxBytes bounds one document, in bytes.
const MaxBytes = 1 << 20

// Limits of one document. Those on weight and height keep an evaluation from
// multiplying, or from growing the stack, behind a few short references.
const (
	maxSchemas      = 10_000
	maxWeight       = 10_000
	maxHeight       = 64
	maxPatternBytes = 1_000
	maxProgram      = 10_000  // instructions of one pattern
	maxPrograms     = 100_000 // of all patterns
	maxBoundDigits  = 1_000
	maxSize         = 1<<53 - 1
)

const dialect = "https://json-schema.org/draft/2020-12/schema"

// gate reads one document.
type gate struct {
	name     string
	root     *value
	nodes    map[*value]*node
	order    []*node // all schemas, parents first
	refs     []reference
	programs int
}

// reference is a $ref whose schema may not have been read yet.
type reference struct {
	from *node
	to   string
}

func (g *gate) refuse(n *node, keyword, reason string) error {
	return &GateError{Schema: g.name, Pointer: n.pointer(keyword), Reason: reason}
}

func (g *gate) document(doc []byte) (*node, error) {
	if len(doc) > MaxBytes {
		return nil, &GateError{g.name, "", fmt.Sprintf("the document is larger than %d bytes", MaxBytes)}
	}
	v, refused := read(doc)
	if refused != nil {
		return nil, &GateError{g.name, refused.pointer, refused.reason}
	}
	g.root = v
	root, err := g.schema(v, nil, "")
	if err != nil {
		return nil, err
	}
	for _, r := range g.refs {
		if err := g.resolve(r); err != nil {
			return nil, err
		}
	}
	for _, n := range g.order {
		if err := g.link(n, nil); err != nil {
			return nil, err
		}
	}
	looks := maxLooks
	for _, n := range g.order {
		for _, u := range n.unions {
			u.prepare(&looks)
		}
	}
	return root, nil
}

// schema reads one schema and what is inside it.
func (g *gate) schema(v *value, parent *node, step string) (*node, error) {
	n := &node{parent: parent, step: step, types: kindAny}
	if g.order = append(g.order, n); len(g.order) > maxSchemas {
		return nil, g.refuse(n, "", fmt.Sprintf("the document holds more than %d schemas", maxSchemas))
	}
	g.nodes[v] = n
	switch v.kind {
	case kindBoolean:
		if n.never = v.text == "false"; n.never {
			n.types = 0
		}
		return n, nil
	case kindObject:
	default:
		return nil, g.refuse(n, "", fmt.Sprintf("a schema is an object or a boolean, not %s", v.kind))
	}
	for i := range v.children {
		if err := g.keyword(n, &v.children[i]); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// keyword reads one keyword. Its name is compared with case.
func (g *gate) keyword(n *node, v *value) (err error) {
	switch v.key {
	case "$schema":
		if n.parent != nil {
			return g.refuse(n, v.key, "$schema stands only at the root")
		}
		if v.kind != kindString || v.string() != dialect {
			return g.refuse(n, v.key, "the only dialect is "+dialect)
		}
	case "$ref":
		if v.kind != kindString {
			return g.refuse(n, v.key, "must be a string")
		}
		g.refs = append(g.refs, reference{n, v.string()})
	case "$defs", "definitions":
		_, err = g.named(n, v)
	case "properties":
		n.properties, err = g.named(n, v)
		for _, p := range v.children {
			n.known = append(n.known, quote(p.key))
		}
	case "additionalProperties":
		n.additional, err = g.schema(v, n, "/"+v.key)
	case "items":
		n.items, err = g.schema(v, n, "/"+v.key)
	case "not":
		n.not, err = g.schema(v, n, "/"+v.key)
	case "allOf":
		n.allOf, err = g.listed(n, v)
	case "anyOf", "oneOf":
		u := &union{keyword: v.key}
		u.branches, err = g.listed(n, v)
		n.unions = append(n.unions, u)
	default:
		if reason := g.assertion(n, v); reason != "" {
			return g.refuse(n, v.key, reason)
		}
	}
	return err
}

// named reads the schemas of an object.
func (g *gate) named(n *node, v *value) (map[string]*node, error) {
	if v.kind != kindObject {
		return nil, g.refuse(n, v.key, "must be an object of schemas")
	}
	nodes := make(map[string]*node, len(v.children))
	for i := range v.children {
		child := &v.children[i]
		c, err := g.schema(child, n, "/"+v.key+"/"+escapePointer.Replace(child.key))
		if err != nil {
			return nil, err
		}
		nodes[child.key] = c
	}
	return nodes, nil
}

// listed reads the schemas of an array.
func (g *gate) listed(n *node, v *value) ([]*node, error) {
	if v.kind != kindArray || len(v.children) == 0 {
		return nil, g.refuse(n, v.key, "must be an array of at least one schema")
	}
	nodes := make([]*node, 0, len(v.children))
	for i := range v.children {
		c, err := g.schema(&v.children[i], n, fmt.Sprintf("/%s/%d", v.key, i))
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, c)
	}
	return nodes, nil
}

// resolve finds the schema that a $ref points to.
func (g *gate) resolve(r reference) error {
	if r.to != "#" && !strings.HasPrefix(r.to, "#/") {
		return g.refuse(r.from, "$ref", `a reference stays in this document: "#", or "#/" and a JSON Pointer`)
	}
	pointer, err := url.PathUnescape(r.to[1:])
	if err != nil {
		return g.refuse(r.from, "$ref", "the reference has a bad percent escape")
	}
	if r.from.ref = g.nodes[g.root.at(pointer)]; r.from.ref == nil {
		return g.refuse(r.from, "$ref", "the reference does not lead to a schema")
	}
	return nil
}

type state uint8

const (
	linking state = iota + 1
	linked
)

// link computes what follows from a schema and all schemas applied to the same
// value. Via is the latest schema whose $ref was followed to get here; a cycle
// has at least one.
func (g *gate) link(n, via *node) error {
	switch n.state {
	case linked:
		return nil
	case linking:
		return g.refuse(via, "$ref", "the reference leads back to itself without going into a property or an item")
	}
	n.state, n.weight = linking, 1
	n.admits = n.types
	if n.choices != nil {
		n.admits &= n.choices.kinds()
	}
	if n.ref != nil {
		if err := g.apply(n, n.ref, n); err != nil {
			return err
		}
		n.admits &= n.ref.admits
	}
	if n.not != nil {
		if err := g.apply(n, n.not, via); err != nil {
			return err
		}
	}
	for _, c := range n.allOf {
		if err := g.apply(n, c, via); err != nil {
			return err
		}
		n.admits &= c.admits
	}
	for _, u := range n.unions {
		var any kind
		for _, c := range u.branches {
			if err := g.apply(n, c, via); err != nil {
				return err
			}
			any |= c.admits
		}
		n.admits &= any
	}
	n.state = linked
	return nil
}

// apply links a schema that n applies to its own value.
func (g *gate) apply(n, c, via *node) error {
	if err := g.link(c, via); err != nil {
		return err
	}
	n.weight += c.weight
	n.height = max(n.height, c.height+1)
	if n.weight > maxWeight {
		return g.refuse(n, "", fmt.Sprintf("with its references followed, it applies more than %d schemas to one value", maxWeight))
	}
	if n.height > maxHeight {
		return g.refuse(n, "", fmt.Sprintf("more than %d schemas are applied to one value, each inside the other", maxHeight))
	}
	return nil
}
