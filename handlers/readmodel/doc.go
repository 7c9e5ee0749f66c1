// Package readmodel answers which runs there are: filters and pages over a
// million of them, from a SQLite database that follows the log. It implements
// handlers.Lister.
//
// # A cache
//
// The model is never a source of truth. Nothing is decided on it, and all of it
// can be made again from the log at any time. So it is written without waiting
// for the disk, a file that is damaged or of another version is deleted rather
// than repaired or migrated, and each process has its own: a shared one would be
// one more system to keep alive.
//
// The rows of a session are replaced together, in one transaction with the
// position that says how far the shard was followed. A crash can therefore lose
// the newest transactions, and no more: what is left is a state that the model
// had, and following goes on from its position.
//
// # What a row says
//
// A row changes when its run's state does. Steps and usage of a run under way
// are those of that moment, since folding a session again with each checkpoint
// would cost as much as the run itself.
//
// What a session that was erased had in its rows is overwritten in the file, and
// SQLite's log of writes is emptied after it.
//
// # What was rejected
//
//   - Reading every session for a list: it takes minutes among a million.
//   - A key-value bucket of summaries: it has no filters and no order, and every
//     checkpoint of every run would be written twice to replicated storage.
//   - SQLite through cgo: the binary would need a C compiler and a libc.
//   - Statistics for SQLite's planner: they age, and what a query costs would
//     change with them. List names the index instead.
package readmodel
