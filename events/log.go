package events

import (
	"context"
	"errors"
	"fmt"
)

// Record is an event as it stands in the log.
type Record struct {
	Event
	Sequence uint64 // position in the shard; grows along a session, with gaps
}

// Entry is a session as a listing of the log shows it.
type Entry struct {
	Key   Key
	Facts uint64 // how many it has
}

// Position is where a fact stands in the whole log.
type Position struct {
	Shard    int
	Sequence uint64
}

// MaxRead is the largest number of records one Read returns.
const MaxRead = 256

// Log stores the facts of sessions. Every implementation passes
// eventstest.TestLog.
//
// A Log decides nothing: a refused or unanswered append says nothing about
// whether the bytes are stored, now or later. Appender draws the conclusions.
type Log interface {
	// Append stores event as the next fact of the session if the sequence
	// of the session's last fact is expected (0: the session has none), and
	// returns its sequence. An error that wraps ErrConflict or
	// ErrUnanswered leaves the outcome open; any other error means the
	// event was not stored and will not be. The event is not retained.
	Append(ctx context.Context, key Key, event *Event, expected uint64) (uint64, error)

	// AppendUnfenced stores event whatever the session's last fact is, with
	// the same errors. A retry may store the event twice: folds ignore a
	// fact id they have seen.
	AppendUnfenced(ctx context.Context, key Key, event *Event) (uint64, error)

	// Read returns the facts of the session above a sequence, in order, at
	// most limit of them (and at most MaxRead). The answer has no holes and
	// begins with the first fact above after, but it may end early: a read
	// can miss what was acknowledged a moment ago. The caller owns the
	// result. A session without facts is an empty answer; a failure is an
	// error, never an empty answer.
	Read(ctx context.Context, key Key, after uint64, limit int) ([]Record, error)

	// Last returns the sequence of the session's last fact as the log's
	// leader knows it, or 0. It is slower than Read and is not missing
	// anything acknowledged before the call.
	Last(ctx context.Context, key Key) (uint64, error)
}

// ErrNotFound is what look-ups wrap when there is no such thing.
var ErrNotFound = errors.New("not found")

// ErrDamaged is what look-ups wrap when what is stored is not what its name says.
var ErrDamaged = errors.New("damaged")

// ErrErased is what every read of a session wraps whose key was dropped for
// ever. Its facts are still there and verify; nobody can read them.
var ErrErased = errors.New("the session was erased")

// ErasedError is an ErrErased that says which session it was. It is all that
// there is to say of it: whoever answers people says it without the steps on
// which it was found out.
type ErasedError struct {
	Key Key
}

func (e *ErasedError) Error() string {
	return fmt.Sprintf("session %s was erased: nobody can read it or go on with it", e.Key)
}

// Unwrap makes it an ErrErased.
func (e *ErasedError) Unwrap() error { return ErrErased }

// ErrSealed is what reading the data of an event wraps that is encrypted and
// that nobody has opened.
var ErrSealed = errors.New("the data is encrypted and was not opened")

var (
	// ErrConflict is what Log.Append wraps when the log refused the
	// expectation. It may be a phantom: only reading decides.
	ErrConflict = errors.New("the log refused the expected sequence")

	// ErrUnanswered is what Log.Append wraps when no answer came, or one
	// that tells nothing: a time-out, no responders, a busy or leaderless
	// server. The bytes may be stored, may yet be, or may be lost.
	ErrUnanswered = errors.New("the log did not answer")

	// ErrFenced means that another claim, or another opening fact, took the
	// session over. What the caller decided has no effect and must not be
	// retried by it.
	ErrFenced = errors.New("fenced: another claim took the session over")

	// ErrUnresolved means that the lease or the context ended before the
	// outcome of an append was known. Nothing may follow from it: no
	// effect, no acknowledgement.
	ErrUnresolved = errors.New("the outcome of the append is not known")

	// ErrClaimClosed means that the claim has parked, released or finished;
	// only a new claim may go on.
	ErrClaimClosed = errors.New("the claim is closed")
)
