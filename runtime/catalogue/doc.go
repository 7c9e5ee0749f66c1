// Package catalogue tells a model what its scripts can call: under which names,
// and with which types.
//
// # Names
//
// A capability's name need not be one that JavaScript can say. [Names] gives
// each the name it is bound to: dots stay, since each leads into an object;
// every other character that no identifier holds becomes _, and a part that
// JavaScript or this package uses gets a _ before it. So no capability is bound
// to the name of a control tool, of a global, or of a member that changes what
// an object is. Names that meet are told apart by a number, _2 and on. All of
// it follows from the set of names alone, so that two workers bind alike. A world
// has at most [MaxBindings] names, and so [MaxCapabilities] capabilities.
//
// # Declarations
//
// The schemas are written as TypeScript, which models read better than JSON
// Schema and which is a third as long. What has no type (bounds, patterns,
// formats, defaults) stands in comments, wherever the schema stands. The types say
// less than the schemas, never something else: the schemas decide. So properties,
// required and items make a type only where a type is said too, by the schema or by
// the one it is a branch of, and a number that is no double is told as number.
//
// A schema that others refer to is a named type, so recursion is written as it
// is; no two types of a catalogue have one name. Text is bounded: one capability
// has at most 16 KiB, where what is too deep or does not fit is unknown, and a
// value or a name that is too long to be told is its type, or one of the others.
// Writing it takes a time that grows as the schemas do, whatever is in them. A
// catalogue over 24 KiB is told as a list of names, each with the first line of
// its description, and the script can call capabilities.search and
// capabilities.describe for the rest. Both are answered from the catalogue and
// reach no service.
package catalogue
