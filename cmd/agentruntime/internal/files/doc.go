// Package files reads the files in which people describe agents and
// capabilities.
//
// An agent is a file <slug>.yaml of the folder of agents, a capability a file
// <name>.yaml of the folder of capabilities. AgentSchema and CapabilitySchema
// say what may stand in them. ReadSettings reads other files of the same YAML,
// whose fields are those of a Go type: the configuration and the policy.
//
// # What it guarantees
//
// What is loaded has passed the schema of its file, the gate of package schema
// for the schemas inside it, and every check that package handlers makes before
// it accepts a definition. If anything is wrong, everything that is wrong is
// reported, in all files, each with file, line and field, in an *Error of one
// line. An error names fields and what is wanted in them; it never repeats a
// value at length.
//
// # What it refuses of YAML
//
// A file means what the same text would mean as JSON. Numbers are copied digit
// by digit and must be written as JSON writes them: 0x1f, 1_000, 010 and .5
// mean different things to different readers. Anchors, aliases, merge keys and
// tags are refused, and so are keys given twice, keys that are no text, the
// spellings of null and true that JSON has not, and a field without a value. A
// date is a string. Characters that YAML takes for the end of a line and editors
// do not, such as U+2028, must be written as escapes.
//
// # Decisions
//
// The walk over a file's fields is ours, and package schema judges the values
// of the fields. Validating the whole file at once would report eight
// violations at most, and could not tell which field was meant by a misspelt
// one. A test holds the two to the same verdict.
//
// The YAML parser names the line where the broken structure began, sometimes
// off by one, or no line. The line reported here is the first one that breaks
// the file whatever follows it, found by parsing the file up to that line.
//
// Where a check of package handlers concerns a field that has been reported
// already, the first report stands alone.
package files
