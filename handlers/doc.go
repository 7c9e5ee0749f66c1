// Package handlers makes the log do something. It implements runtime.Store,
// runtime.Controller and runtime.Backend over events.Log and small ports, and
// holds the service's reactions: admit a command, dispatch a work item (claim,
// run, settle), publish what happened, sweep at start.
//
// # Do, then acknowledge
//
// A command, a work item or a fact is acknowledged only after everything it
// causes is stored. Coming again drives the same effects again, idempotently:
// ids of sessions, runs and public events derive from their causes.
//
// # Claims, leases and the inequality that makes them safe
//
// A run is claimed by an append, which is the fence; the lease beside it only
// tells that the holder is alive. With
//
//	TTL     the time a lease outlives its last renewal
//	margin  TTL/10
//	r       the time at which the holder sent its last acknowledged renewal
//	s       the time at which an observer last saw a renewal arrive
//
// the holder sends requests and callbacks only before r + TTL − margin, on its
// own clock, and an observer claims over it only after s + TTL, on its own. A
// renewal arrives after it was sent, so r ≤ s, and
//
//	r + TTL − margin  <  s + TTL
//
// holds for any offset of the clocks; the margin is for their difference in
// rate, and for the time between the check and the send. A process that is
// stopped between the two may still let out one request, which carries its old
// epoch. A renewal that fails for any reason counts as not renewed. An observer
// that starts, or whose watch was interrupted, begins to count anew; that a
// lease is absent proves nothing, since leases are hints and may be lost.
//
//	admitted ──claim──▶ running ──▶ completed, failed, cancelled
//	   ▲                 │   │
//	   │◀───released─────┘   └──park──▶ parked ──claim──▶ running
//	   │                                  (when what it waits for has come)
//	   └── a claim whose holder was silent for a TTL is claimed over
//
// # Failures
//
// What the infrastructure does (the log, a provider, the start of an executor)
// is tried again under the same claim with a capped back-off, until the run's
// deadline. A definition, a model or a guard that cannot go on ends the run as
// failed. A fence, a lost lease or an unresolved append ends the attempt without
// a word: somebody else may be at work. Five claims that end at one revision
// without a word set the run aside; workers that die while they load a session
// are counted beside the lease, and the session becomes a dead letter.
package handlers
