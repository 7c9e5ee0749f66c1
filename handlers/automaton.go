package handlers

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// automaton finds any of many texts in one pass, after Aho and Corasick. Its
// states are the beginnings of the texts, numbered by their length and then in
// order, so that the continuations of a state are neighbours: a table of every
// state and byte would take hundreds of megabytes for ten thousand texts.
type automaton struct {
	first []int32      // the continuations of s are the states from first[s] to before first[s+1]
	label []byte       // the last byte of a state
	fail  []int32      // the longest other state that a state ends with
	match []int32      // how long the longest text is that a state ends with; 0: none
	edges []byte       // of that text
	table []int32      // of a state with many continuations, which one is in wide; -1: none
	wide  [][256]int32 // for every byte, what follows
	level []int32      // the first state of each length
}

const (
	edgeLeft = 1 << iota
	edgeRight
)

// mark is what those who cut a text put in the place of the rest, and maxEscape
// is the length of the longest escape of one character.
const (
	mark      = "…"
	maxEscape = 6
)

// many is from how many continuations on a state has a table.
const many = 6

// trieNode is a state while the automaton is built: the texts from lo to before
// hi begin with it.
type trieNode struct{ lo, hi, depth int32 }

// folded takes a plus for a blank.
func folded(b byte) byte {
	if b == '+' {
		return ' '
	}
	return b
}

func newAutomaton(forms []form) *automaton {
	for i := range forms {
		forms[i].text = strings.ReplaceAll(forms[i].text, "+", " ")
	}
	slices.SortFunc(forms, func(a, b form) int { return cmp.Compare(a.text, b.text) })
	a := &automaton{label: []byte{0}}
	nodes := []trieNode{{0, int32(len(forms)), 0}}
	for s := 0; s < len(nodes); s++ {
		n := nodes[s]
		if int(n.depth) == len(a.level) {
			a.level = append(a.level, int32(s))
		}
		a.first = append(a.first, int32(len(nodes)))
		a.match, a.edges = append(a.match, 0), append(a.edges, 0)
		for n.lo < n.hi && len(forms[n.lo].text) == int(n.depth) {
			a.match[s] = n.depth
			a.edges[s] |= edgesOf(forms[n.lo])
			n.lo++
		}
		for lo := n.lo; lo < n.hi; {
			b, hi := forms[lo].text[n.depth], lo+1
			for hi < n.hi && forms[hi].text[n.depth] == b {
				hi++
			}
			nodes = append(nodes, trieNode{lo, hi, n.depth + 1})
			a.label = append(a.label, b)
			lo = hi
		}
	}
	a.first = append(a.first, int32(len(nodes)))
	a.link()
	return a
}

func edgesOf(f form) (edges byte) {
	if f.left {
		edges |= edgeLeft
	}
	if f.right {
		edges |= edgeRight
	}
	return edges
}

// link finds where to go on when a state has no continuation, shorter states
// first.
func (a *automaton) link() {
	states := len(a.label)
	a.fail = make([]int32, states)
	a.table = make([]int32, states)
	for s := range states {
		a.table[s] = -1
		if a.match[s] == 0 {
			a.match[s], a.edges[s] = a.match[a.fail[s]], a.edges[a.fail[s]]
		} else {
			a.edges[s] |= a.edges[a.fail[s]] & edgeRight
		}
		lo, hi := a.first[s], a.first[s+1]
		for c := lo; c < hi; c++ {
			if s > 0 {
				a.fail[c] = a.next(a.fail[s], a.label[c])
			}
		}
		if s > 0 && hi-lo < many {
			continue
		}
		var row [256]int32
		if s > 0 {
			for b := range row {
				row[b] = a.next(a.fail[s], byte(b))
			}
		}
		for c := lo; c < hi; c++ {
			row[a.label[c]] = c
		}
		a.table[s] = int32(len(a.wide))
		a.wide = append(a.wide, row)
	}
}

// next returns the state after a byte. The first state has a table, so that it
// ends.
func (a *automaton) next(s int32, b byte) int32 {
	for {
		if t := a.table[s]; t >= 0 {
			return a.wide[t][b]
		}
		for c, end := a.first[s], a.first[s+1]; c < end; c++ {
			if a.label[c] == b {
				return c
			}
		}
		s = a.fail[s]
	}
}

// depth returns how long a state is.
func (a *automaton) depth(s int32) int {
	n, here := slices.BinarySearch(a.level, s)
	if here {
		return n
	}
	return n - 1
}

// scan calls found for the longest text that ends at each byte; shorter ones
// lie within it. Where something was cut, it is called for the beginning of a
// text as well.
func (a *automaton) scan(text string, found func(start, end int)) {
	s := int32(0)
	var past [8]int32 // states before the last bytes
	for i := 0; i < len(text); i++ {
		past[i%len(past)] = s
		if text[i] == mark[0] && strings.HasPrefix(text[i:], mark) {
			for n := 0; n <= min(i, maxEscape-1); n++ { // an escape may be cut as well
				depth := a.depth(past[(i-n)%len(past)])
				if depth >= MinSecret && (n == 0 || text[i-n] == '\\' || text[i-n] == '%') {
					found(i-n-depth, i)
				}
			}
		}
		s = a.next(s, folded(text[i]))
		if n := int(a.match[s]); n > 0 {
			start, end := i+1-n, i+1
			if edges := a.edges[s]; edges != 0 {
				start, end = widened(text, start, end, edges)
			}
			found(start, end)
		}
	}
}

// walk calls found for every text that a reader finds at the beginning of a
// text, with how much of that spells it.
func (a *automaton) walk(text string, c code, found func(end int)) {
	s, length := int32(0), int32(0)
	var said [utf8.UTFMax]byte
	for i := 0; i < len(text); {
		bytes, n := c.next(text, i, said[:0])
		i += n
		for _, b := range bytes {
			next := a.next(s, folded(b))
			if next < a.first[s] || next >= a.first[s+1] {
				return
			}
			s, length = next, length+1
		}
		if a.match[s] == length {
			found(i)
		}
	}
}

// widened adds the characters at the edges of a text in base64 that hold some
// of its bits, and the padding.
func widened(text string, start, end int, edges byte) (int, int) {
	if edges&edgeLeft != 0 && start > 0 && isBase64(text[start-1]) {
		start--
	}
	if edges&edgeRight != 0 && end < len(text) && isBase64(text[end]) {
		for end++; end < len(text) && text[end] == '='; end++ {
		}
	}
	return start, end
}

func isBase64(c byte) bool {
	return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '+' || c == '/' || c == '-' || c == '_'
}
