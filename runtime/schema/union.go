package schema

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strings"
)

// union is an anyOf or a oneOf.
type union struct {
	keyword  string
	branches []*node
	byKind   [kinds][]*node // the branches that admit each kind

	// A discriminated union: the branches that admit objects each leave other
	// values to the property tag.
	tag      string
	tagged   map[string][]*node // the one branch of each value
	choices  []string           // those values, in the order of the branches
	required bool               // an object without the property passes no branch
}

// maxLooks is how many schemas, names and values are looked at for the
// discriminators of one document. Unions that are left have none: that changes no
// verdict.
const maxLooks = 1 << 18

// prepare computes what candidates looks up. The branches have been linked.
func (u *union) prepare(looks *int) {
	for i := range u.byKind {
		u.byKind[i] = u.admitting(1 << i)
	}
	objects := u.admitting(kindObject)
	if len(objects) < 2 {
		return
	}
	for _, name := range objects[0].propertyNames(looks) {
		if u.discriminateBy(name, objects, looks) {
			return
		}
	}
}

func (u *union) admitting(k kind) []*node {
	refuses := func(b *node) bool { return b.admits&k == 0 }
	if !slices.ContainsFunc(u.branches, refuses) {
		return u.branches
	}
	return slices.DeleteFunc(slices.Clone(u.branches), refuses)
}

func (u *union) discriminateBy(name string, objects []*node, looks *int) bool {
	tagged := make(map[string][]*node)
	var texts []string
	required := true
	for _, b := range objects {
		c := b.choicesOf(name, looks)
		if c == nil || *looks < 0 {
			return false
		}
		*looks -= len(c.texts)
		for _, text := range c.texts {
			if tagged[text] != nil {
				return false
			}
			tagged[text] = []*node{b}
		}
		texts = append(texts, c.texts...)
		required = required && b.requires(name, looks)
	}
	u.tag, u.tagged, u.choices, u.required = name, tagged, texts, required
	return true
}

// candidates returns which branches a value with this discriminator, or without
// one, could pass. All others fail by their type or by the discriminator, so
// leaving them out changes no verdict; it keeps a tree of discriminated unions
// from being walked once a branch.
func (u *union) candidates(v, tag *value) []*node {
	if tag != nil {
		return u.tagged[tag.text]
	}
	return u.byKind[bits.TrailingZeros8(uint8(v.kind))]
}

// tagOf returns the discriminator of a value, or nil when there is none.
func (u *union) tagOf(v *value) *value {
	if u.tagged == nil || v.kind != kindObject {
		return nil
	}
	return v.find(u.tag)
}

// place names a branch: oneOf/1.
func (u *union) place(branch *node) string {
	return fmt.Sprintf("%s/%d", u.keyword, slices.Index(u.branches, branch))
}

// conjuncts goes over the schemas that a value of this one passes in any case:
// itself, what it refers to and what its allOf lists. It ends early when there
// are no looks left.
func (n *node) conjuncts(looks *int) iter.Seq[*node] {
	return func(yield func(*node) bool) { n.eachConjunct(looks, yield) }
}

func (n *node) eachConjunct(looks *int, yield func(*node) bool) bool {
	if *looks--; *looks < 0 || !yield(n) {
		return false
	}
	if n.ref != nil && !n.ref.eachConjunct(looks, yield) {
		return false
	}
	for _, c := range n.allOf {
		if !c.eachConjunct(looks, yield) {
			return false
		}
	}
	return true
}

// propertyNames returns the sorted names of the properties a schema describes
// for every value it accepts.
func (n *node) propertyNames(looks *int) []string {
	var names []string
	for c := range n.conjuncts(looks) {
		*looks -= len(c.properties)
		for name := range c.properties {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// choicesOf returns the values a schema leaves to one property, or nil when it
// does not list them. Of several lists it is the shortest.
func (n *node) choicesOf(name string, looks *int) (least *choices) {
	for c := range n.conjuncts(looks) {
		p := c.properties[name]
		if p == nil {
			continue
		}
		for q := range p.conjuncts(looks) {
			if q.choices != nil && (least == nil || len(q.choices.texts) < len(least.texts)) {
				least = q.choices
			}
		}
	}
	return least
}

func (n *node) requires(name string, looks *int) bool {
	for c := range n.conjuncts(looks) {
		*looks -= len(c.required)
		if slices.Contains(c.required, name) {
			return true
		}
	}
	return false
}

func (e *evaluation) checkUnions(n *node, v *value) bool {
	ok := true
	for _, u := range n.unions {
		if ok = e.checkUnion(u, v) && ok; e.over(ok) {
			break
		}
	}
	return ok
}

func (e *evaluation) checkUnion(u *union, v *value) bool {
	if !e.spend(len(u.branches) + len(u.tag)/bytesPerStep) {
		return false
	}
	tag := u.tagOf(v)
	if tag != nil && !e.spend(len(tag.text)/bytesPerStep) {
		return false
	}
	candidates := u.candidates(v, tag)
	var first *node
	for _, b := range candidates {
		switch {
		case !e.judge(b, v):
		case first != nil:
			return e.fail(u.keyword, "must match exactly one alternative, but matches %s and %s", u.place(first), u.place(b))
		case u.keyword == "anyOf":
			return true
		default:
			first = b
		}
	}
	if first != nil {
		return true
	}
	if e.reporting && e.steps >= 0 {
		e.explainUnion(u, v, tag, candidates)
	}
	return false
}

// explainUnion reports that no alternative has matched. When only one could
// have, what is wrong with that one is what matters.
func (e *evaluation) explainUnion(u *union, v, tag *value, candidates []*node) {
	switch {
	case len(candidates) == 1:
		e.check(candidates[0], v)
	case tag != nil:
		e.path = append(e.path, step{key: u.tag})
		e.fail(u.keyword, "must be one of %s", list(u.choices))
		e.path = e.path[:len(e.path)-1]
	case u.required && v.kind == kindObject:
		e.fail(u.keyword, "the property %s is missing; it must be one of %s", quote(u.tag), list(u.choices))
	case len(candidates) == 0:
		var admits kind
		for _, b := range u.branches {
			admits |= b.admits
		}
		if admits == 0 {
			e.fail(u.keyword, "nothing is allowed here")
		} else {
			e.fail(u.keyword, "must be %s, but is %s", admits, v.kind)
		}
	default:
		e.explainAlternatives(u, v, candidates)
	}
}

// explainAlternatives reports the first violation of each alternative, as far
// as there is room.
func (e *evaluation) explainAlternatives(u *union, v *value, candidates []*node) {
	var whys []string
	for _, b := range candidates[:min(len(candidates), 3)] {
		sub := evaluation{steps: e.steps, reporting: true, limit: 1, path: e.path}
		sub.check(b, v)
		e.steps = sub.steps
		if len(sub.violations) == 0 {
			break
		}
		why := u.place(b) + ": "
		if at := sub.violations[0].InstancePath; at != e.path.pointer() {
			why += "at " + quote(at) + ": "
		}
		whys = append(whys, cut(why+sub.violations[0].Message, maxMessageBytes/4))
	}
	e.fail(u.keyword, "must match one of %d alternatives (%s)", len(candidates), strings.Join(whys, "; "))
}
