package schema

import (
	"fmt"
	"strconv"
	"strings"
)

// GateError says why a document is not accepted as a schema.
type GateError struct {
	Schema  string // the name given to Compile
	Pointer string // JSON Pointer of the offending keyword, or of the value that is no schema
	Reason  string
}

func (e *GateError) Error() string {
	return fmt.Sprintf("schema %s: at %q: %s", e.Schema, e.Pointer, e.Reason)
}

// ValidationError says why an instance is refused. Its text is written for a
// model that is to repair the instance: it names places and what is wanted
// there, and holds no value of the instance.
type ValidationError struct {
	Violations []Violation // at least one, at most 8, the same ones in the same order every time
	More       bool        // there are others
}

// Violation is one reason.
type Violation struct {
	InstancePath string // JSON Pointer; "" is the whole instance
	Keyword      string // of the schema; "false" for the schema false; "" when the text could not be read or checked at all
	Message      string
}

func (e *ValidationError) Error() string {
	var b strings.Builder
	b.WriteString("the value is not acceptable:")
	for _, v := range e.Violations {
		if v.InstancePath == "" {
			b.WriteString("\n- at the root: ")
		} else {
			b.WriteString("\n- at " + strconv.Quote(v.InstancePath) + ": ")
		}
		b.WriteString(v.Message)
	}
	if e.More {
		b.WriteString("\n- and there is more")
	}
	return b.String()
}

// Limits of one error's text.
const (
	maxViolations   = 8
	maxMessageBytes = 400
	maxNameBytes    = 64
	maxListed       = 12
	maxListBytes    = 200
)

// quote shows the name of a property.
func quote(name string) string { return strconv.Quote(cut(name, maxNameBytes)) }

// list joins texts as far as there is room, and counts the others.
func list(texts []string) string {
	var b strings.Builder
	for i, text := range texts {
		if i > 0 && (i == maxListed || b.Len()+len(text) > maxListBytes) {
			fmt.Fprintf(&b, " and %d more", len(texts)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(cut(text, maxListBytes/2))
	}
	return b.String()
}
