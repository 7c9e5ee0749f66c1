package catalogue

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

const (
	maxCatalogue = 24 << 10 // bytes of declarations that are told at once
	maxList      = 12 << 10 // bytes of the list that is told in their place
	maxFound     = 25       // capabilities in one answer of search
)

// The functions of a world whose catalogue is too large to be told.
const (
	Search   = own + ".search"
	Describe = own + ".describe"
)

// Catalogue is what the scripts of one run can call.
type Catalogue struct {
	entries []entry // by binding
	large   bool
	text    string
}

type entry struct {
	binding     string
	capability  *events.Capability
	declaration declaration
}

// declaration is one capability in TypeScript.
type declaration struct {
	types     []string
	comment   string
	signature string // (input: …) => Promise<…>
}

// New makes the catalogue of capabilities whose names differ and whose schemas
// have passed the gate. It keeps the capabilities, which must not be changed.
func New(capabilities []events.Capability) *Catalogue {
	names := make([]string, len(capabilities))
	for i := range capabilities {
		names[i] = capabilities[i].Name
	}
	bound := Names(names)
	c := new(Catalogue)
	for i := range capabilities {
		c.entries = append(c.entries, entry{binding: bound[capabilities[i].Name], capability: &capabilities[i]})
	}
	slices.SortFunc(c.entries, func(a, b entry) int { return strings.Compare(a.binding, b.binding) })
	taken := make(typeNames)
	for i := range c.entries {
		e := &c.entries[i]
		e.declaration = declare(e.binding, e.capability, taken)
	}
	c.tell()
	return c
}

// Bindings returns the sorted names in the scripts' world.
func (c *Catalogue) Bindings() []string {
	names := make([]string, 0, len(c.entries)+2)
	for i := range c.entries {
		names = append(names, c.entries[i].binding)
	}
	if c.large {
		names = append(names, Search, Describe)
	}
	return names
}

// Capability returns what a binding stands for, or nil.
func (c *Catalogue) Capability(binding string) *events.Capability {
	if e := c.find(binding); e != nil {
		return e.capability
	}
	return nil
}

func (c *Catalogue) find(binding string) *entry {
	i, ok := slices.BinarySearchFunc(c.entries, binding, func(e entry, name string) int { return strings.Compare(e.binding, name) })
	if !ok {
		return nil
	}
	return &c.entries[i]
}

// Text is what a model is told.
func (c *Catalogue) Text() string { return c.text }

func (c *Catalogue) tell() {
	if len(c.entries) == 0 {
		c.text = "A script can call nothing outside.\n"
		return
	}
	if text, ok := declared(c.entries); ok {
		c.text = "A script can call, as TypeScript declares it (the schemas behind the types decide):\n" + text
		return
	}
	c.large = true
	var b strings.Builder
	fmt.Fprintf(&b, "A script can call %d capabilities, each with one value and await. Before the first use of one, read its declaration: "+
		"return await %s(\"NAME\"). To find some: return await %s(\"some words\"). They are:\n", len(c.entries), Describe, Search)
	for i := range c.entries {
		line := "- " + c.entries[i].line() + "\n"
		if b.Len()+len(line) > maxList {
			fmt.Fprintf(&b, "and %d more, which %s finds.\n", len(c.entries)-i, Search)
			break
		}
		b.WriteString(line)
	}
	c.text = b.String()
}

// declared returns all declarations, if they can be told at once.
func declared(entries []entry) (text string, ok bool) {
	size := 0
	for i := range entries {
		size += len(entries[i].declaration.signature)
	}
	if size > maxCatalogue {
		return "", false
	}
	text = declarations(entries)
	return text, len(text) <= maxCatalogue
}

func (e *entry) line() string {
	return strings.TrimSuffix(e.binding+": "+firstLine(e.capability.Description), ": ")
}

// Serve answers a call of this package's own functions. It reports false for
// any other binding. The error is for the script.
func (c *Catalogue) Serve(binding string, input json.RawMessage) (answer json.RawMessage, served bool, err error) {
	if !c.large || binding != Search && binding != Describe {
		return nil, false, nil
	}
	var text string
	if err := json.Unmarshal(input, &text); err != nil {
		return nil, true, fmt.Errorf("%s takes one string", binding)
	}
	var result any = c.search(text)
	if binding == Describe {
		e := c.find(text)
		if e == nil {
			return nil, true, fmt.Errorf("there is no capability %q; find its name with %s", cut(text, MaxName), Search)
		}
		result = declarations([]entry{*e})
	}
	answer, err = events.Marshal(result)
	return answer, true, err
}

// Found is what capabilities.search answers.
type Found struct {
	Capabilities []FoundCapability `json:"capabilities"` // those that fit best first
	More         int               `json:"more"`         // how many others fit
}

// FoundCapability is one of them.
type FoundCapability struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// search finds the capabilities whose name or description holds words of the
// query. Without words it finds all.
func (c *Catalogue) search(query string) Found {
	type hit struct{ at, score int }
	var hits []hit
	words := strings.FieldsFunc(strings.ToLower(cut(query, 1000)), func(r rune) bool { return strings.ContainsRune(" \t\r\n,.;:/_-", r) })
	for i := range c.entries {
		score := 0
		name, description := strings.ToLower(c.entries[i].binding), strings.ToLower(c.entries[i].capability.Description)
		for _, w := range words {
			if strings.Contains(name, w) {
				score += 3
			}
			if strings.Contains(description, w) {
				score++
			}
		}
		if score > 0 || len(words) == 0 {
			hits = append(hits, hit{i, score})
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return b.score - a.score })
	found := Found{Capabilities: []FoundCapability{}, More: max(len(hits)-maxFound, 0)}
	for _, h := range hits[:min(len(hits), maxFound)] {
		e := &c.entries[h.at]
		found.Capabilities = append(found.Capabilities, FoundCapability{e.binding, firstLine(e.capability.Description)})
	}
	return found
}
