package schema

import (
	"bytes"
	"encoding/json"
	"math/big"
	"regexp"
)

// Schema is a document that has passed the gate. It does not change and can be
// used by several goroutines at once.
type Schema struct {
	raw  json.RawMessage
	root *node
}

// Compile passes a document through the gate and makes it ready to use. The
// name is for the error, which is a *GateError. There must be a document; the
// schema that accepts everything is true.
func Compile(name string, doc []byte) (*Schema, error) {
	g := gate{name: name, nodes: make(map[*value]*node)}
	root, err := g.document(doc)
	if err != nil {
		return nil, err
	}
	return &Schema{raw: bytes.Clone(doc), root: root}, nil
}

// Raw returns the document, byte for byte. It must not be modified.
func (s *Schema) Raw() json.RawMessage { return s.raw }

// Validate checks one JSON text. The error is a *ValidationError, also when
// the text is not JSON or would take too much work.
func (s *Schema) Validate(instance []byte) error {
	v, refused := read(instance)
	if refused != nil {
		return &ValidationError{Violations: []Violation{{refused.pointer, "", refused.reason}}}
	}
	e := evaluation{steps: maxSteps}
	if e.check(s.root, v) {
		return nil
	}
	if e.steps < 0 {
		return &ValidationError{Violations: []Violation{{"", "", "checking it takes too much work; make it smaller or simpler"}}}
	}
	return explain(s.root, v)
}

// node is one schema of the document.
type node struct {
	parent *node
	step   string // what leads here from the parent, as a piece of a JSON Pointer

	// What the keywords say.
	never      bool // the schema false
	types      kind
	choices    *choices
	bounds     []bound
	multiple   *multiple
	sizes      []size
	pattern    *pattern
	unique     bool
	required   []string
	properties map[string]*node
	known      []string // the names of properties, quoted
	additional *node
	items      *node
	ref        *node
	not        *node
	allOf      []*node
	unions     []*union

	// What follows from them, for one value.
	state  state
	weight int  // how many schemas at most are applied to it
	height int  // how many of them inside one another
	admits kind // no other kind can pass
}

// pointer returns the JSON Pointer of one of the node's keywords, or of the
// node itself.
func (n *node) pointer(keyword string) string {
	if keyword != "" {
		keyword = "/" + escapePointer.Replace(keyword)
	}
	for ; n != nil && len(keyword) <= maxPointerBytes*4; n = n.parent {
		keyword = n.step + keyword
	}
	return cut(keyword, maxPointerBytes*4)
}

// choices are the values that const and enum leave.
type choices struct {
	keyword string
	texts   []string // in the order of the schema
	set     map[string]struct{}
}

// bound is a limit of a number's size.
type bound struct {
	*boundRule
	keyword string
	limit   decimal
	text    string
}

type boundRule struct {
	words  string
	broken func(compared int) bool
}

var boundRules = map[string]*boundRule{
	"minimum":          {"at least", func(c int) bool { return c < 0 }},
	"maximum":          {"at most", func(c int) bool { return c > 0 }},
	"exclusiveMinimum": {"more than", func(c int) bool { return c <= 0 }},
	"exclusiveMaximum": {"less than", func(c int) bool { return c >= 0 }},
}

// multiple is the divisor of multipleOf.
type multiple struct {
	of     decimal
	digits *big.Int
	text   string
}

// size is a limit of how many characters, items or properties there are.
type size struct {
	*sizeRule
	keyword string
	limit   int
}

type sizeRule struct {
	kind     kind
	least    bool
	singular string
	plural   string
}

var sizeRules = map[string]*sizeRule{
	"minLength":     {kindString, true, "character", "characters"},
	"maxLength":     {kindString, false, "character", "characters"},
	"minItems":      {kindArray, true, "item", "items"},
	"maxItems":      {kindArray, false, "item", "items"},
	"minProperties": {kindObject, true, "property", "properties"},
	"maxProperties": {kindObject, false, "property", "properties"},
}

type pattern struct {
	*regexp.Regexp
	cost int // instructions of its program
}
