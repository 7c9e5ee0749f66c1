package schema

import (
	"fmt"
	"math/big"
	"regexp"
	"regexp/syntax"
	"strconv"
)

var typeNames = map[string]kind{
	"null":    kindNull,
	"boolean": kindBoolean,
	"integer": kindInteger,
	"number":  kindNumber,
	"string":  kindString,
	"array":   kindArray,
	"object":  kindObject,
}

// assertion reads a keyword that holds no schema: an annotation, or something
// a value is checked for. It returns why the keyword is refused.
func (g *gate) assertion(n *node, v *value) (reason string) {
	if rule := boundRules[v.key]; rule != nil {
		return n.addBound(v, rule)
	}
	if rule := sizeRules[v.key]; rule != nil {
		return n.addSize(v, rule)
	}
	switch v.key {
	case "$comment", "title", "description", "format":
		return v.want(kindString)
	case "deprecated", "readOnly", "writeOnly":
		return v.want(kindBoolean)
	case "examples":
		return v.want(kindArray)
	case "default":
		return ""
	case "type":
		return n.setTypes(v)
	case "const":
		n.choose(v.key, []value{*v})
		return ""
	case "enum":
		if v.kind != kindArray {
			return "must be an array of values"
		}
		n.choose(v.key, v.children)
		return ""
	case "required":
		return n.setRequired(v)
	case "uniqueItems":
		n.unique = v.text == "true"
		return v.want(kindBoolean)
	case "multipleOf":
		return n.setMultiple(v)
	case "pattern":
		return g.setPattern(n, v)
	}
	return "the keyword is not supported"
}

func (v *value) want(k kind) (reason string) {
	if v.kind&k == 0 {
		return "must be " + k.String()
	}
	return ""
}

func (n *node) setTypes(v *value) (reason string) {
	names := v.children
	if v.kind == kindString {
		names = []value{*v}
	}
	if len(names) == 0 || v.kind == kindObject {
		return "must be a type or an array of at least one type"
	}
	n.types = 0
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if name.kind != kindString {
			return "must be a type or an array of at least one type"
		}
		k, ok := typeNames[name.string()]
		if !ok {
			return quote(name.string()) + " is not a type"
		}
		if seen[name.text] {
			return quote(name.string()) + " stands in the array twice"
		}
		seen[name.text] = true
		n.types |= k
	}
	return ""
}

// choose leaves the values that are listed. Const and enum together leave
// those in both.
func (n *node) choose(keyword string, values []value) {
	c := &choices{keyword: keyword, set: make(map[string]struct{}, len(values))}
	for _, v := range values {
		if n.choices != nil && !n.choices.has(v.text) || c.has(v.text) {
			continue
		}
		c.set[v.text] = struct{}{}
		c.texts = append(c.texts, v.text)
	}
	n.choices = c
}

func (c *choices) has(text string) bool {
	_, ok := c.set[text]
	return ok
}

// kinds returns the kinds of the values.
func (c *choices) kinds() kind {
	var kinds kind
	for _, text := range c.texts {
		switch text[0] {
		case '{':
			kinds |= kindObject
		case '[':
			kinds |= kindArray
		case '"':
			kinds |= kindString
		case 't', 'f':
			kinds |= kindBoolean
		case 'n':
			kinds |= kindNull
		default:
			kinds |= kindNumber
		}
	}
	return kinds
}

func (n *node) setRequired(v *value) (reason string) {
	if v.kind != kindArray {
		return "must be an array of property names"
	}
	seen := make(map[string]bool, len(v.children))
	for _, name := range v.children {
		if name.kind != kindString {
			return "must be an array of property names"
		}
		if seen[name.text] {
			return quote(name.string()) + " stands in the array twice"
		}
		seen[name.text] = true
		n.required = append(n.required, name.string())
	}
	return ""
}

func (n *node) addBound(v *value, rule *boundRule) (reason string) {
	limit, reason := v.bound()
	if reason == "" {
		n.bounds = append(n.bounds, bound{rule, v.key, limit, v.text})
	}
	return reason
}

func (v *value) bound() (limit decimal, reason string) {
	if reason := v.want(kindNumber); reason != "" {
		return decimal{}, reason
	}
	if limit = parseDecimal(v.text); len(limit.digits) > maxBoundDigits {
		return decimal{}, fmt.Sprintf("the number has more than %d digits", maxBoundDigits)
	}
	return limit, ""
}

func (n *node) setMultiple(v *value) (reason string) {
	of, reason := v.bound()
	if reason != "" {
		return reason
	}
	if of.sign() <= 0 {
		return "must be more than 0"
	}
	digits, _ := new(big.Int).SetString(of.digits, 10)
	n.multiple = &multiple{of, digits, v.text}
	return ""
}

func (n *node) addSize(v *value, rule *sizeRule) (reason string) {
	limit, err := strconv.Atoi(v.text)
	if err != nil || limit < 0 || limit > maxSize {
		return fmt.Sprintf("must be an integer from 0 to %d", maxSize)
	}
	n.sizes = append(n.sizes, size{rule, v.key, limit})
	return ""
}

// setPattern compiles a pattern. A few characters of one can stand for a large
// program, so programs are counted, not characters alone.
func (g *gate) setPattern(n *node, v *value) (reason string) {
	if reason := v.want(kindString); reason != "" {
		return reason
	}
	text := v.string()
	if len(text) > maxPatternBytes {
		return fmt.Sprintf("the pattern is longer than %d bytes", maxPatternBytes)
	}
	const refused = "the pattern is not one of RE2, which has no look-around and no back-references"
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return refused
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return refused
	}
	cost := len(program.Inst)
	if g.programs += cost; cost > maxProgram || g.programs > maxPrograms {
		return "the pattern is too complex, alone or with the others"
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return refused
	}
	n.pattern = &pattern{compiled, cost}
	return ""
}
