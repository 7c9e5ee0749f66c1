package catalogue

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// Limits of the world of a script.
const (
	MaxName         = 200             // bytes of the name of a binding
	MaxBindings     = 1000            // names
	MaxCapabilities = MaxBindings - 2 // of them, when Search and Describe are bound too
)

// own is the object of this package's own functions.
const own = "capabilities"

// identifiers matches a dotted name of ASCII identifiers.
var identifiers = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*(\.[A-Za-z_$][A-Za-z0-9_$]*)*$`)

// controls are the tools a model calls directly. They are never in a script's
// world: a script could otherwise end or park the run it is part of.
var controls = []string{
	events.ToolComplete, events.ToolRunJS, events.ToolContinue, events.ToolGetCalls, events.ToolWaitCalls, events.ToolCancelCalls,
}

// keywords cannot be the first part of a name.
var keywords = strings.Fields(`
	arguments await break case catch class const continue debugger default delete do else enum eval export
	extends false finally for function if implements import in instanceof interface let new null package
	private protected public return static super switch this throw true try typeof var void while with yield`)

// globals are the names the language or the executor binds.
var globals = strings.Fields(`
	AggregateError Array ArrayBuffer BigInt BigInt64Array BigUint64Array Boolean DataView Date Error EvalError
	Float32Array Float64Array Function Infinity Int16Array Int32Array Int8Array Iterator JSON Map Math NaN
	Number Object Promise Proxy RangeError ReferenceError Reflect RegExp Set String Symbol SyntaxError
	TypeError URIError GoError Uint16Array Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakRef WeakSet
	FinalizationRegistry SharedArrayBuffer Atomics Intl Temporal
	attach console decodeURI decodeURIComponent encodeURI encodeURIComponent escape eval globalThis isFinite isNaN
	parseFloat parseInt undefined unescape`)

// members cannot be a later part of a name: they would change what the object
// before them is.
var members = strings.Fields(`__proto__ constructor prototype then toJSON toString valueOf`)

// CheckName returns why the world of a script cannot hold this name.
func CheckName(name string) error {
	if len(name) > MaxName {
		return fmt.Errorf("binding %q is longer than %d bytes", cut(name, MaxName), MaxName)
	}
	if !identifiers.MatchString(name) {
		return fmt.Errorf("binding %q is not made of JavaScript identifiers joined by dots", name)
	}
	parts := strings.Split(name, ".")
	first, rest := parts[0], parts[1:]
	if isControl(first) {
		return fmt.Errorf("binding %q has the name of a control tool", name)
	}
	if slices.Contains(keywords, first) || slices.Contains(globals, first) || slices.Contains(members, first) {
		return fmt.Errorf("binding %q begins with a name that JavaScript uses", name)
	}
	for _, part := range rest {
		if slices.Contains(members, part) {
			return fmt.Errorf("binding %q contains %q, which has a meaning in JavaScript", name, part)
		}
	}
	return nil
}

// CheckCapability returns why no capability can have this name, whatever it would
// be bound to: it is that of a control tool or of this package's own functions.
func CheckCapability(name string) error {
	switch first, _, _ := strings.Cut(name, "."); {
	case first == "":
		return fmt.Errorf("%q has no name", cut(name, MaxName))
	case isControl(first):
		return fmt.Errorf("%q has the name of a tool that scripts must not have", cut(name, MaxName))
	case first == own:
		return fmt.Errorf("%q is within %s, the object of the functions that tell a script what it can call", cut(name, MaxName), own)
	}
	return nil
}

func isControl(name string) bool {
	return slices.Contains(controls, name) || strings.HasPrefix(name, events.SpawnPrefix)
}

// Names returns what each capability of a catalogue is bound to, by its name. A
// name that can be bound as it is comes before those that must be changed.
func Names(capabilities []string) map[string]string {
	clean := make(map[string]string, len(capabilities))
	for _, name := range capabilities {
		clean[name] = sanitize(name)
	}
	order := slices.Sorted(maps.Keys(clean))
	slices.SortStableFunc(order, func(a, b string) int {
		// The longest first: they say which names are objects and no functions.
		if d := strings.Count(clean[b], ".") - strings.Count(clean[a], "."); d != 0 {
			return d
		}
		return rank(a == clean[a]) - rank(b == clean[b])
	})
	bound := make(map[string]string, len(order))
	taken := map[string]bool{own: true}
	for _, name := range order {
		binding := clean[name]
		for n := 2; taken[binding]; n++ {
			binding = fmt.Sprintf("%s_%d", clean[name], n)
		}
		taken[binding] = true
		for i := strings.LastIndexByte(binding, '.'); i > 0; i = strings.LastIndexByte(binding[:i], '.') {
			taken[binding[:i]] = true
		}
		bound[name] = binding
	}
	return bound
}

func rank(unchanged bool) int {
	if unchanged {
		return 0
	}
	return 1
}

// sanitize makes a name that JavaScript can say of any text.
func sanitize(name string) string {
	const room = MaxName - 8 // for numbers and a _ before the first part
	name = strings.Map(func(r rune) rune {
		if r == '.' || r == '$' || r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '_'
	}, name)
	name = name[:min(len(name), room)]
	parts := strings.Split(name, ".")
	for i, part := range parts {
		first := i == 0 && (isControl(part) || part == own || slices.Contains(keywords, part) || slices.Contains(globals, part))
		if part == "" || part[0] >= '0' && part[0] <= '9' || first || slices.Contains(members, part) {
			parts[i] = "_" + part
		}
	}
	name = strings.Join(parts, ".")
	if len(name) > room { // so many parts that had to be changed
		name = strings.ReplaceAll(name, ".", "_")[:room]
	}
	return name
}

// cut shortens a text to at most limit bytes, on a rune boundary.
func cut(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	const mark = "…"
	end := max(limit-len(mark), 0)
	for end > 0 && text[end]&0xC0 == 0x80 {
		end--
	}
	return text[:end] + mark
}
