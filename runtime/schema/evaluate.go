package schema

import "fmt"

// Work is counted in steps: one for each schema applied to a value, and one
// for whatever takes about as long, such as going over so many bytes. Looking
// for a property goes over its name.
const (
	maxSteps     = 10_000_000
	bytesPerStep = 64
)

// evaluation applies schemas to values. It has two ways to go. To judge, it
// stops at the first failure and says nothing. To report, it goes on and
// collects violations, up to limit.
type evaluation struct {
	steps      int // left; below zero every verdict is void
	reporting  bool
	limit      int
	path       path
	violations []Violation
	more       bool
}

// explain repeats an evaluation that has failed and says why it did. The work
// is bounded again; what has been found within the bound is told.
func explain(n *node, v *value) *ValidationError {
	e := evaluation{steps: maxSteps, reporting: true, limit: maxViolations}
	e.check(n, v)
	if len(e.violations) == 0 {
		e.violations = []Violation{{"", "", "it does not match the schema; it is too large to say where"}}
	}
	return &ValidationError{Violations: e.violations, More: e.more}
}

// spend reports whether there was enough left.
func (e *evaluation) spend(steps int) bool {
	e.steps -= steps
	return e.steps >= 0
}

// fail records a violation at the current path. It returns false, the verdict.
func (e *evaluation) fail(keyword, format string, args ...any) bool {
	switch {
	case !e.reporting || e.steps < 0:
	case len(e.violations) >= e.limit:
		e.more = true
	default:
		message := cut(fmt.Sprintf(format, args...), maxMessageBytes)
		e.violations = append(e.violations, Violation{e.path.pointer(), keyword, message})
	}
	return false
}

// over reports whether nothing that follows can change what is answered.
func (e *evaluation) over(ok bool) bool {
	return e.steps < 0 || !ok && !e.reporting || e.more
}

// check applies one schema to one value. A value of the wrong type or outside
// of const and enum is told nothing else: the other keywords are about a value
// that is not there.
func (e *evaluation) check(n *node, v *value) bool {
	if !e.spend(1) {
		return false
	}
	if n.never {
		return e.fail("false", "nothing is allowed here")
	}
	if n.types&v.kind == 0 {
		return e.fail("type", "must be %s, but is %s", n.types, v.kind)
	}
	if n.choices != nil && !(e.spend(1+len(v.text)/bytesPerStep) && n.choices.has(v.text)) {
		return e.fail(n.choices.keyword, "must be %s", n.choices.String())
	}
	ok := true
	for _, part := range [...]func(*evaluation, *node, *value) bool{
		(*evaluation).checkNumber, (*evaluation).checkSizes, (*evaluation).checkPattern, (*evaluation).checkUnique,
		(*evaluation).checkRequired, (*evaluation).checkReferences, (*evaluation).checkUnions, (*evaluation).checkNot,
		(*evaluation).checkMembers, (*evaluation).checkItems,
	} {
		if ok = part(e, n, v) && ok; e.over(ok) {
			break
		}
	}
	return ok && e.steps >= 0
}

// String lists the values.
func (c *choices) String() string {
	switch len(c.texts) {
	case 0:
		return "one of no values: nothing is allowed here"
	case 1:
		return list(c.texts)
	}
	return "one of " + list(c.texts)
}

func (e *evaluation) checkNumber(n *node, v *value) bool {
	if v.kind&kindNumber == 0 || len(n.bounds) == 0 && n.multiple == nil {
		return true
	}
	if !e.spend(len(v.text) / 4) { // dividing is more than linear in the digits
		return false
	}
	ok := true
	number := parseDecimal(v.text)
	for _, b := range n.bounds {
		if b.broken(number.compare(b.limit)) {
			ok = e.fail(b.keyword, "must be %s %s", b.words, cut(b.text, maxNameBytes))
		}
	}
	if m := n.multiple; m != nil && !number.isMultipleOf(m.of, m.digits) {
		ok = e.fail("multipleOf", "must be a multiple of %s", cut(m.text, maxNameBytes))
	}
	return ok
}

func (e *evaluation) checkSizes(n *node, v *value) bool {
	ok := true
	for _, s := range n.sizes {
		if s.kind != v.kind {
			continue
		}
		if v.kind == kindString && !e.spend(len(v.text)/bytesPerStep) {
			return false
		}
		length := v.length()
		if s.least && length >= s.limit || !s.least && length <= s.limit {
			continue
		}
		words, unit := "at most", s.plural
		if s.least {
			words = "at least"
		}
		if s.limit == 1 {
			unit = s.singular
		}
		ok = e.fail(s.keyword, "must have %s %d %s, but has %d", words, s.limit, unit, length)
	}
	return ok
}

func (e *evaluation) checkPattern(n *node, v *value) bool {
	if n.pattern == nil || v.kind != kindString {
		return true
	}
	if !e.spend(1 + len(v.text)*n.pattern.cost/16) {
		return false
	}
	return n.pattern.MatchString(v.string()) || e.fail("pattern", "must match the pattern %s", cut(n.pattern.String(), maxListBytes))
}

func (e *evaluation) checkUnique(n *node, v *value) bool {
	if !n.unique || v.kind != kindArray || len(v.children) < 2 {
		return true
	}
	if !e.spend(len(v.children) + len(v.text)/bytesPerStep) {
		return false
	}
	first := make(map[string]int, len(v.children))
	for i, c := range v.children {
		if j, ok := first[c.text]; ok {
			return e.fail("uniqueItems", "items must differ, but %d and %d are equal", j, i)
		}
		first[c.text] = i
	}
	return true
}

func (e *evaluation) checkRequired(n *node, v *value) bool {
	if v.kind != kindObject {
		return true
	}
	ok := true
	for _, name := range n.required {
		if v.find(name) == nil {
			ok = e.fail("required", "the property %s is missing", quote(name))
		}
		if !e.spend(1+len(name)/bytesPerStep) || e.over(ok) {
			break
		}
	}
	return ok
}

func (e *evaluation) checkMembers(n *node, v *value) bool {
	if v.kind != kindObject || n.properties == nil && n.additional == nil {
		return true
	}
	ok := true
	for i := range v.children {
		c := &v.children[i]
		child := n.properties[c.key]
		if child == nil {
			child = n.additional
		}
		switch {
		case !e.spend(1 + len(c.key)/bytesPerStep):
			return false
		case child == nil:
			continue
		case child == n.additional && child.never:
			ok = e.unknownProperty(n, c.key)
		default:
			e.path = append(e.path, step{key: c.key})
			ok = e.check(child, c) && ok
			e.path = e.path[:len(e.path)-1]
		}
		if e.over(ok) {
			break
		}
	}
	return ok
}

func (e *evaluation) unknownProperty(n *node, name string) bool {
	if !e.reporting {
		return false
	}
	if len(n.known) == 0 {
		return e.fail("additionalProperties", "the property %s is not allowed; none is", quote(name))
	}
	return e.fail("additionalProperties", "the property %s is not allowed; known are %s", quote(name), list(n.known))
}

func (e *evaluation) checkItems(n *node, v *value) bool {
	if v.kind != kindArray || n.items == nil {
		return true
	}
	ok := true
	for i := range v.children {
		e.path = append(e.path, step{index: i, item: true})
		ok = e.check(n.items, &v.children[i]) && ok
		e.path = e.path[:len(e.path)-1]
		if e.over(ok) {
			break
		}
	}
	return ok
}

// checkReferences applies what must hold in any case: $ref and allOf.
func (e *evaluation) checkReferences(n *node, v *value) bool {
	ok := n.ref == nil || e.check(n.ref, v)
	for _, c := range n.allOf {
		if e.over(ok) {
			break
		}
		ok = e.check(c, v) && ok
	}
	return ok
}

// judge applies a schema without reporting.
func (e *evaluation) judge(n *node, v *value) bool {
	reporting := e.reporting
	e.reporting = false
	ok := e.check(n, v)
	e.reporting = reporting
	return ok
}

func (e *evaluation) checkNot(n *node, v *value) bool {
	if n.not == nil || !e.judge(n.not, v) {
		return true
	}
	return e.fail("not", "must not match the schema of not")
}
