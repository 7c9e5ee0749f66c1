// Package events is the vocabulary of the service and the protocol of its log:
// the facts a run is made of, the commands and public events outside clients
// exchange, the message model, the CloudEvents codec, the port to the log, and
// the one appender that keeps the log's promises.
//
// It does no I/O of its own and reads no clock and no randomness; the appender
// is given all three.
//
// # The log
//
// The aggregate is the session: a conversation, an ordered list of runs of
// which at most one has not ended. All facts of a session form one sequence.
// There are three kinds of facts.
//
//   - Owner facts are appended by the holder of the session's current claim,
//     fenced by the sequence they were decided on.
//   - Opening facts (an admission, a claim, an accepted command) are appended by
//     anyone entitled, fenced too, and never decided again over another fenced
//     fact: who loses the race reads the session and starts over.
//   - External facts (a message, a cancellation, a settled child) are appended
//     by anyone entitled, unfenced; folds ignore a fact id they have seen.
//
// A claim is named by an id that is unique to it. The epoch only counts the
// session's claims; it decides nothing.
//
// # What a refused or unanswered append means
//
// An append that was not acknowledged may be stored, may be stored later, or may
// be lost, and a refused expectation may be a phantom or one's own earlier
// attempt. Only reading decides. With E the sequence the append expected:
//
//  1. Nothing stands above E, and the leader agrees: the identical bytes are
//     sent again with the same expectation.
//  2. The first fact above E decides for ever. It carries our commit id: our
//     fact is committed. It does not: our bytes are dead, even if a copy is
//     still on its way, since E can never be the last sequence again.
//  3. Any fenced fact above E that is not ours means that another owner is at
//     work. That outranks "committed": the owner stops. The log cannot refuse a
//     stale owner that has read the new owner's facts, so every owner fact is
//     also checked against the claim in the fold before it is sent.
//  4. Only external facts came first: they are folded and the decision is made
//     again, with a new commit id. An old decision is never sent with a new
//     expectation: a cancellation or a settled dependency may stand between.
//  5. A park, a release and the end of a run close the claim.
//  6. Whatever is unresolved when the lease ends has no effect and acknowledges
//     nothing.
//  7. A hint carries the sequence at which a session was seen to have work, and
//     a worker folds at least that far before it judges. Whoever appends an
//     external fact folds at least to its acknowledged sequence before it
//     decides whether to hint.
//  8. A hint is never acknowledged because another worker is alive, because the
//     worker was fenced, or on an unknown outcome. "Nothing to do" is
//     acknowledged after a read through the leader, and after what the fold
//     promises has been done again.
//
// Reading through the leader on every unacknowledged append costs one more
// round trip on a path that is rare; in exchange the scan of rule 3 always
// reaches what was acknowledged before it began.
//
// # The chain
//
// Every event carries a hash of its own canonical bytes, and every fenced fact a
// hash over everything before it in its session, external facts included. A
// changed byte is found when it is read; a missing fact, at the next fenced one.
// Facts hold no stream sequences, so a session can be restored elsewhere.
//
// # Versions
//
// Event types are data to the codec: an unknown one is decoded, kept and written
// back unchanged. A fold that decides refuses to go on over an unknown fact. A
// later major version of a type is a new type with a suffix (.v2).
package events
