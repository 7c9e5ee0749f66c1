package schema

import (
	"fmt"
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

// prepare computes what candidates looks up. The branches have been linked.
func (u *union) prepare() {
	for i := range u.byKind {
		u.byKind[i] = u.admitting(1 << i)
	}
	objects := u.admitting(kindObject)
	if len(objects) < 2 {
		return
	}
	for _, name := range objects[0].propertyNames() {
		if u.discriminateBy(name, objects) {
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

func (u *union) discriminateBy(name string, objects []*node) bool {
	tagged := make(map[string][]*node)
	var texts []string
	required := true
	for _, b := range objects {
		c := b.choicesOf(name)
		if c == nil {
			return false
		}
		for _, text := range c.texts {
			if tagged[text] != nil {
				return false
			}
			tagged[text] = []*node{b}
		}
		texts = append(texts, c.texts...)
		required = required && b.requires(name)
	}
	u.tag, u.tagged, u.choices, u.required = name, tagged, texts, required
	return true
}

// candidates returns which branches a value could pass. All others fail by
// their type or by the discriminator, so leaving them out changes no verdict;
// it keeps a tree of discriminated unions from being walked once a branch.
func (u *union) candidates(v *value) []*node {
	if tag := u.tagOf(v); tag != nil {
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

// propertyNames returns the sorted names of the properties a schema describes
// itself or by reference.
func (n *node) propertyNames() []string {
	var names []string
	for ; n != nil; n = n.ref {
		for name := range n.properties {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// choicesOf returns the values a schema leaves to one property, or nil when it
// does not list them.
func (n *node) choicesOf(name string) *choices {
	for ; n != nil; n = n.ref {
		for p := n.properties[name]; p != nil; p = p.ref {
			if p.choices != nil {
				return p.choices
			}
		}
	}
	return nil
}

func (n *node) requires(name string) bool {
	for ; n != nil; n = n.ref {
		if slices.Contains(n.required, name) {
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
	if !e.spend(len(u.branches)) {
		return false
	}
	candidates := u.candidates(v)
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
		e.explainUnion(u, v, candidates)
	}
	return false
}

// explainUnion reports that no alternative has matched. When only one could
// have, what is wrong with that one is what matters.
func (e *evaluation) explainUnion(u *union, v *value, candidates []*node) {
	tag := u.tagOf(v)
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
