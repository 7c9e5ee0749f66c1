// Package projector holds the pure folds: what a session's facts amount to.
//
// Session is the fold of one session: the context window, the list of runs, the
// newest run with its checkpoint and call journal, the claim, what external
// facts told the run, and how it ended. Live and recovered state come from the
// same Fold; nothing else changes it. Diff and Apply turn a checkpoint into the
// delta that is stored, and back.
//
// A fold never fails on a fact of a type it knows whose data fits the type. It
// fails on damage (events.DamageError), on data that does not fit
// (events.DataError), and on a fact of an unknown type (UnknownFactError): a
// binary must not decide over a history that it does not understand.
//
// Nothing here does I/O, reads a clock, starts a goroutine or takes a context.
package projector
