// Package schema compiles JSON Schemas and validates JSON against them. What a
// model sends to a tool, a child or complete, and what a capability answers,
// passes through here.
//
// # The vocabulary
//
// It is a part of draft 2020-12, and nothing else is accepted:
//
//   - objects: properties, required, additionalProperties, minProperties,
//     maxProperties
//   - arrays: items, minItems, maxItems, uniqueItems
//   - strings: minLength, maxLength (code points), pattern (RE2, not anchored)
//   - numbers: minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf
//   - any value: type, enum, const, allOf, anyOf, oneOf, not, the schemas true
//     and false
//   - $ref to "#" or to a schema of the same document by JSON Pointer, $defs
//     and definitions, $schema at the root
//   - annotations, which are checked for their shape and never assert: $comment,
//     title, description, default, examples, deprecated, readOnly, writeOnly,
//     format
//
// # The gate
//
// Compile is strict, because a keyword that is silently ignored is a check that
// silently does not happen: a misspelt or unsupported keyword, a wrong shape, an
// unknown type, a reference to another document or to anything that is not a
// schema is an error with the JSON Pointer of the keyword, before any model is
// asked. Nothing is ever fetched. A reference that returns to itself without
// going into a property or an item is refused, since it would never end.
//
// # Exactness
//
// Numbers are decimals of any size and nothing is rounded: 9007199254740993 is
// not 9007199254740992, 1.0 is 1, and 19.99 is a multiple of 0.01. Equality for
// const, enum and uniqueItems is equality of canonical texts, which package
// events defines.
//
// # Bounds
//
// Neither a schema nor an instance can exhaust a worker. Texts have the limits
// of events.CheckJSON, at most 524288 values, and numbers of at most 10000
// digits whose exponent is at most 10000, so that no reader further on expands
// 1e5000000. A document has 1 MiB, 10000 schemas, and bounds on its patterns; with
// references followed, at most 10000 schemas, 64 deep, are applied to one value.
// The depth of the evaluation's recursion is then bounded by the depths of
// document and instance, and its time by a budget of steps: an instance that
// needs more than 10 million is refused, not accepted.
//
// # Errors
//
// A ValidationError is written for a model that repairs its call. It names the
// place, the keyword and what is wanted, and quotes the schema and the names of
// properties, never a value of the instance. Of a union only the alternative
// that was meant is reported, if that can be told by the type of the value or by
// a discriminator: a property to which each alternative for objects leaves other
// constants.
//
// # An evaluator of our own
//
// The alternative was to put the gate in front of an existing validator. The one
// with exact numbers and instance paths, santhosh-tekuri/jsonschema, cannot be
// given a budget: it compares the items of an array pairwise, walks every branch
// of a union at every level, and can only be stopped by abandoning a goroutine.
// Its report of a union is that of all branches, from which the discriminated one
// would have to be picked afterwards. google/jsonschema-go keeps bounds and
// constants as float64. The vocabulary is small, and on canonical texts its
// evaluation is shorter than the guard would be. Both libraries are oracles in
// the tests; the second also derives the schemas of Go types.
package schema
