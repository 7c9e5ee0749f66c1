package files

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	maxFileBytes = 1 << 20
	maxDepth     = 100 // below what package events takes, with what a definition is wrapped in
)

// document is one file.
type document struct {
	file   string
	name   string // of the file, without .yaml
	root   *node
	empty  bool // there is no value in it
	errors []*Error
}

// refuse reports a node.
func (d *document) refuse(n *node, format string, args ...any) {
	n.refused = true
	for p := n; p != nil; p = p.parent {
		p.faulty = true
	}
	d.errors = append(d.errors, d.errorAt(n, format, args...))
}

func (d *document) errorAt(n *node, format string, args ...any) *Error {
	return &Error{d.file, n.line, n.column, cut(n.field(), maxReasonBytes), oneLine(fmt.Sprintf(format, args...))}
}

// whole reports the file as such. There is then nothing to read in it.
func (d *document) whole(line int, format string, args ...any) *document {
	d.root = nil
	d.errors = []*Error{{File: d.file, Line: line, Reason: oneLine(fmt.Sprintf(format, args...))}}
	return d
}

// sorted returns the errors in the order of the file.
func (d *document) sorted() []error {
	slices.SortStableFunc(d.errors, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), strings.Compare(a.Field, b.Field))
	})
	errs := make([]error, len(d.errors))
	for i, err := range d.errors {
		errs[i] = err
	}
	return errs
}

// read reads the YAML of a file. Without a root there is at least one error.
func (d *document) read(data []byte) *document {
	if len(data) > maxFileBytes {
		return d.whole(0, "is larger than 1 MiB")
	}
	if at, reason := unreadable(data); reason != "" {
		return d.whole(1+bytes.Count(data[:at], []byte("\n")), "%s", reason)
	}
	root, more, err := decode(data)
	switch {
	case err != nil:
		problem := problemOf(err)
		return d.whole(breakLine(data, problem), "is not YAML: %s", problem)
	case root == nil, more == nil && root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" && root.Value == "":
		d.empty = true
		return d.whole(1, "is empty")
	case more != nil:
		return d.whole(more.Line, "begins a second document: write it to a file of its own")
	}
	d.root = &node{line: root.Line, column: root.Column}
	d.convert(root, d.root, 1)
	return d
}

// decode parses the document of a file, nil when there is none, and a second
// one if there is.
func decode(data []byte) (root, more *yaml.Node, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for _, into := range []**yaml.Node{&root, &more} {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return root, nil, nil
		} else if err != nil {
			return nil, nil, err
		}
		*into = document.Content[0]
		if into == &more {
			more = &document // it begins with its ---
		}
	}
	return root, more, nil
}

var parserPrefix = regexp.MustCompile(`^yaml: (line \d+: )?`)

var unknownAnchor = regexp.MustCompile(`unknown anchor '.*' referenced`)

// problemOf returns what the parser says, without the line: see breakLine. It
// repeats no value, which may be a secret.
func problemOf(err error) string {
	return unknownAnchor.ReplaceAllString(parserPrefix.ReplaceAllString(err.Error(), ""), "anchors and aliases are not supported: quote a value that begins with * to make it a string")
}

// breakLine returns the first line with which the parser already says the same,
// whether the file then ends or goes on.
func breakLine(data []byte, problem string) int {
	var ends []int
	for line := range bytes.Lines(data) {
		end := len(line)
		if len(ends) > 0 {
			end += ends[len(ends)-1]
		}
		ends = append(ends, end)
	}
	return 1 + sort.Search(len(ends)-1, func(i int) bool {
		for _, rest := range []string{"", "x: x\n"} {
			_, _, err := decode(append(data[:ends[i]:ends[i]], rest...))
			if err == nil || problemOf(err) != problem {
				return false
			}
		}
		return true
	})
}

// unreadable returns the offset of the first character that readers would not
// agree on, and why.
func unreadable(data []byte) (at int, reason string) {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return i, "is not UTF-8 text: save it in that encoding"
		case r == '\u0085' || r == '\u2028' || r == '\u2029' || r == '\r' && !bytes.HasPrefix(data[i:], []byte("\r\n")):
			return i, fmt.Sprintf("holds the character %U, which YAML takes for the end of a line: remove it, or write it in double quotes as \\u%04X", r, r)
		}
		i += size
	}
	return 0, ""
}

// convert reads a YAML value. What has no equal in JSON is refused and stands
// as null.
func (d *document) convert(y *yaml.Node, n *node, depth int) {
	n.kind, n.text = scalar, "null"
	switch {
	case y.Kind == yaml.AliasNode || y.Anchor != "":
		d.refuse(n, "anchors and aliases are not supported: write the value again where it is needed")
	case y.Style&yaml.TaggedStyle != 0:
		d.refuse(n, "tags are not supported: quote a value that begins with ! to make it a string")
	case depth > maxDepth:
		d.refuse(n, "is nested more than %d deep", maxDepth)
	case y.Kind == yaml.MappingNode:
		n.kind = object
		d.convertMembers(y, n, depth)
	case y.Kind == yaml.SequenceNode:
		n.kind = array
		for i, item := range y.Content {
			c := &node{parent: n, index: i, line: item.Line, column: item.Column}
			n.children = append(n.children, c)
			d.convert(item, c, depth+1)
		}
	default:
		text, reason := scalarText(y)
		if reason != "" {
			d.refuse(n, "%s", reason)
			return
		}
		n.text = text
	}
}

func (d *document) convertMembers(y *yaml.Node, n *node, depth int) {
	first := make(map[string]*node, len(y.Content)/2)
	for i := 0; i < len(y.Content); i += 2 {
		key, value := y.Content[i], y.Content[i+1]
		if reason := keyRefusal(key); reason != "" {
			d.refuse(&node{parent: n, key: key.Value, line: key.Line, column: key.Column}, "%s", reason)
			continue
		}
		c := &node{parent: n, key: key.Value, line: key.Line, column: key.Column}
		if earlier := first[key.Value]; earlier != nil {
			d.refuse(c, "is given twice, first in line %d", earlier.line)
			continue
		}
		first[key.Value] = c
		n.children = append(n.children, c)
		d.convert(value, c, depth+1)
	}
}

// keyRefusal says why a key is none of JSON, or nothing.
func keyRefusal(key *yaml.Node) string {
	switch {
	case key.Kind == yaml.AliasNode || key.Anchor != "":
		return "anchors and aliases are not supported: write the key again"
	case key.Kind != yaml.ScalarNode:
		return "a key must be text, not a list or a mapping"
	case key.Style&yaml.TaggedStyle != 0:
		return "tags are not supported: quote a key to make it text"
	case key.ShortTag() == "!!merge":
		return "merge keys are not supported: write the fields again"
	case key.ShortTag() != "!!str" && key.ShortTag() != "!!timestamp":
		return "a key must be text: quote it"
	}
	return ""
}

// scalarText returns a scalar as JSON, or why it is none.
func scalarText(y *yaml.Node) (text, reason string) {
	switch y.ShortTag() {
	case "!!null":
		switch y.Value {
		case "null":
			return "null", ""
		case "":
			return "", "has no value"
		}
		return "", "write null, or quote the value"
	case "!!bool":
		if y.Value != "true" && y.Value != "false" {
			return "", "write true or false, or quote the value"
		}
		return y.Value, ""
	case "!!int", "!!float":
		if !json.Valid([]byte(y.Value)) {
			return "", "write the number as JSON does, in decimal digits, or quote it"
		}
		return y.Value, ""
	}
	if y.Style == 0 && json.Valid([]byte(y.Value)) {
		return y.Value, "" // a number too large for the parser's types
	}
	return quoteJSON(y.Value), ""
}
