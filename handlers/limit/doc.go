// Package limit holds requests to limits that all workers share: how many are
// under way at a time, and how many requests and tokens a minute may have. A key
// names what is limited: a provider with the reference of its key, or a
// capability of a namespace.
//
// # What is shared, and what it is worth
//
// All workers keep one Entry for a key in a Store, by compare and set: two
// buckets, who holds how many requests and who waits. It is no truth, and no
// run's correctness depends on it. What a worker says of itself it says
// absolutely ("I hold three"), so that an answer that was lost, or an entry that
// was, mends itself with the next word. A worker that is silent for a TTL is
// counted no more: its slots are free. Clocks are compared here, so that workers
// whose clocks differ by d err by d, and never for long.
//
// A request costs one exchange with the store when it is let through and, where
// requests under way are counted, one when it ends; those that come or end at the
// same time share one. A conflict costs two more. A key without limits costs
// nothing.
//
// When the store does not answer, no request waits for it: each worker lets
// through its share of the limits, a part of as many as there were workers at the
// key when it was last seen, and of UnknownWorkers when it never was.
//
// Requests of one key may come with unlike limits, of two versions of a definition,
// for example. The strictest of all that wait or are under way count for each of
// them, in each respect, at every worker. One whose own limits, with those of what is
// under way, would make it wait for longer than its patience is told so first, and
// holds nobody to them. What was taken under looser limits is no debt under stricter
// ones: these begin with an empty bucket at worst, and what was taken counts again
// when limits as loose are back.
//
// # Fairness
//
// What there is, is divided over the namespaces that ask, not over requests: a
// namespace with many that wait gets what the others leave. The divisor is known
// to all workers, since each says for which namespaces it waits. Nothing is kept
// free for a namespace that asks for nothing. What does not divide goes to each
// in turn.
//
// Tokens are divided by how many each namespace has had: next is the one that has
// had the fewest, and a namespace that asked for nothing for a while has saved
// nothing by it. A request that does not fit yet keeps the tokens that are there
// from everything that comes after it, in its namespace and in those whose turn is
// later, at every worker: small ones overtake a large one only where there is
// enough for both. What is larger than a bucket waits until that is full.
//
// What was let through and never made, because whoever asked had left or was
// denied meanwhile, is given back.
//
// # Limits that prove too high
//
// A provider that refuses a request because of its limits (429) lowers them for
// all workers: to 70 % of what they were, once in 5 seconds however many are
// refused, and never below a tenth of what is configured (and one request). Each
// 10 seconds without another refusal give 5 % of the configured limits back. Until
// a Retry-After has passed, nobody asks.
//
// # Who waits
//
// A request that would wait for longer than its patience is told so at once, or
// when its patience is over: *Error says after how long to come again, and nobody
// holds a worker until then. When only the stricter limits of others are in its way,
// that is its patience.
package limit
