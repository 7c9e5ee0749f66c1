// Package handlers makes the log do something. It implements runtime.Store,
// runtime.Controller and runtime.Backend over events.Log and small ports, and
// holds the service's reactions: admit a command, dispatch a work item (claim,
// run, settle), tell parents, stop children, arm timers, publish what happened,
// sweep.
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
// # Trees
//
// A child run lives in a session of its own, whose id derives from the parent
// run and the call. The commit that dispatches a spawn or a continue_agent names
// the child it may start, so that the parent's log alone tells whom a
// cancellation must reach, admitted or not:
//
//	parent's log   …predispatch (names the child)……………………………park…child.settled…claim…
//	child's log                    admitted……claimed……completed
//
// Whoever asks a parent to stop asks every child so named, in the child's own
// session. The admission of a child is fenced on what it folded: one that was
// asked to stop before it was there is admitted as cancelled, in one commit.
//
// A wait parks the run and closes its claim. Between "look" and "park" nothing
// can slip: the park is decided again when anything came first, and whoever
// appends child.settled, timer.fired, message.received or budget.raised folds at
// least to its own fact and hints the session when the park is satisfied then.
// The answer of a wait is a function of the fold at the commit that holds it;
// when something came in between, the wait is answered again. A time-out is
// never read from a clock there: it is a fact, appended by whoever handles the
// timer or by the sweeper.
//
// # Deferred calls
//
// A call of the model's own may be answered with an acceptance. The run then
// parks as in a wait, and call.answered takes the place of child.settled: the
// first one counts, from the dispatch of the call on, since a service may be
// faster than the park. What a deferred call comes to is a function of the fold
// too: whatever result is about to be committed gives way to an answer that came
// before it, and a run that ends gives its open call the answer that counted. An
// answer is judged when it comes, as the run will judge it, and its files are
// stored under the session before its fact: one that counted is not lost later.
// Who may answer is told by a token, derived from a secret of the run's admission
// and the call; the log holds the secret and shows it to nobody.
// Rejected was to wait for the answer of a call whose acceptance was lost in a
// crash: it may never have been made, and an unknown outcome says so at once.
//
// # Callbacks
//
// What a script calls is recorded under the claim (callbacks.recorded), fenced
// like a commit: a stale worker cannot announce a callback, and so does not send
// it. What policy and limits do not let through is not recorded. A callback that is
// sent again is judged as if its script had read all that it could. The fold keeps
// the journal of the script that is under way, with inputs only while they may be
// sent again and with bounded results, and drops it with the result of its call.
// A capability that the model calls itself has such a journal too, opened by the
// predispatch: it is its own one callback. Callbacks whose effect stays unknown are kept, the
// newest projector.MaxUnknown of a session, until an operator settles them
// over the API (call.resolved). Why nobody knows is kept with each: what was recorded of it (of
// the model's own call right before its result), or else what the fold saw, the end
// of the run or a worker that stopped. The first answer counts; the model is told at its next
// boundary, or with the next run of the session.
//
// # Budgets
//
// A budget is counted on one ledger for each tree, beside the log of the root.
// A reservation charges a step to the run and to every metered run above it, and
// is keyed by run, revision, request and epoch: the same attempt that asks again
// is charged once, a new claim again. Tokens are totals, so that a record that
// comes twice or late counts once: those of committed responses are read from
// the checkpoint with every reservation, those of requests that led to none are
// counted per claim. Reserving thus costs one append a step, and an account is
// brought up to date by one more before its claim ends. A tree in which no agent
// has a budget writes no ledger.
//
// # Authority
//
// What a run may do is bounded by what was fixed at its admission, and by the
// policy of the moment (package policy), which is asked before every model
// request, callback and call about children. What a model says grants nothing.
//
// Whether a conversation has read what is not to be trusted is part of its fold,
// so that it outlives workers, compaction and continuation. It is set by the
// commit that appends the result of a script that called an untrusted capability,
// by the one that tells of a child that had read such output, and by an admission
// whose task comes from a run that had. The result of a script that was
// interrupted sets it when the script could have read some. While a script runs,
// what it has read so far is known to the worker that serves its callbacks. An
// unfolded fact of that worker can only be the result of that script, so that
// nobody else decides meanwhile.
//
// Limits (package limit) are shared by all workers, and are no authority: losing
// them costs fairness, never a result.
//
// # What nobody may lose
//
// Hints, timers, leases, snapshots, public events and the list of runs can all
// be lost. The sweeper reads the logs and makes each good: it evaluates what a
// parked run waits for against the children's own logs, the deadlines and the
// ledger, appends the facts that are missing, and hints what is runnable. What
// it cannot make good it names, with the reason.
//
// # Encryption and erasure
//
// With wrapping keys in the configuration the data of every fact of a session are
// encrypted (see Vault) as the last step before the fact is sealed: folds and
// decisions see plain data, the hashes cover what is stored. Ledgers, hints and
// timers hold ids and numbers and stay plain; so do session.erased, which says
// nothing, and public events, which are redacted and for others. A payload over
// the inline limit is encrypted as the fact that it belongs to; what else belongs
// to a session beside its log goes through SealedSnapshots and SealedObjects.
//
// A session is erased by the fact session.erased, fenced on a fold whose runs have
// ended, and then by dropping its key. The reaction to the fact drops the key
// again, so that an erasure that was begun is finished. A fold ends at that fact
// with events.ErrErased, whoever has the key; without a key it fails earlier.
// Neither is ever an empty session.
//
// # Failures
//
// What the infrastructure does (the log, a provider, the start of an executor)
// is tried again under the same claim with a capped back-off, until the run's
// deadline. A provider that asks for more patience than a worker has parks the run
// until then; what it counted of requests that failed is on the ledger, and what it
// answered counts towards the requests a run may make. A model that does not take
// the key, is not there or has been away for too long is replaced by the next one
// that the definition names, by a fact: whoever carries the run on asks the same. A definition, a model or a guard that cannot go on ends the run as
// failed. A fence, a lost lease or an unresolved append ends the attempt without
// a word: somebody else may be at work. Five claims that end at one revision
// without a word set the run aside; workers that die while they load a session
// are counted beside the lease, and the session becomes a dead letter.
package handlers
