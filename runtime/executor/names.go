package executor

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	maxBindings    = 1000
	maxBindingName = 200
)

// identifiers matches a dotted name of ASCII identifiers.
var identifiers = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*(\.[A-Za-z_$][A-Za-z0-9_$]*)*$`)

// controls are the tools a model calls directly. They are never in a script's
// world: a script could otherwise end or park the run it is part of.
var controls = strings.Fields(`complete run_js continue_agent get_calls wait_calls cancel_calls`)

// keywords cannot be the first part of a name.
var keywords = strings.Fields(`
	arguments await break case catch class const continue debugger default delete do else enum eval export
	extends false finally for function if implements import in instanceof interface let new null package
	private protected public return static super switch this throw true try typeof var void while with yield`)

// globals are the names the language or this package binds.
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

// CheckBindings returns why the names cannot be bound together in a script.
// Execute refuses what it refuses.
func CheckBindings(names []string) error {
	if len(names) > maxBindings {
		return fmt.Errorf("%d bindings are more than %d", len(names), maxBindings)
	}
	for _, name := range names {
		if err := checkBinding(name); err != nil {
			return err
		}
	}
	bound := make(map[string]bool, len(names))
	for _, name := range names {
		if bound[name] {
			return fmt.Errorf("binding %q is given twice", name)
		}
		bound[name] = true
	}
	for _, name := range names {
		for i := strings.LastIndexByte(name, '.'); i > 0; i = strings.LastIndexByte(name[:i], '.') {
			if bound[name[:i]] {
				return fmt.Errorf("binding %q is both a capability and the parent of %q", name[:i], name)
			}
		}
	}
	return nil
}

func checkBinding(name string) error {
	if len(name) > maxBindingName {
		return fmt.Errorf("binding %q is longer than %d bytes", cut(name, maxBindingName), maxBindingName)
	}
	if !identifiers.MatchString(name) {
		return fmt.Errorf("binding %q is not made of JavaScript identifiers joined by dots", name)
	}
	parts := strings.Split(name, ".")
	first, rest := parts[0], parts[1:]
	if slices.Contains(controls, first) || strings.HasPrefix(first, "spawn_") {
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
