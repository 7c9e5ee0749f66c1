// Package jetstream keeps agentruntime's state on NATS JetStream: the log of
// facts, the queues of hints and commands, timers, leases, public events, dead
// letters, definitions, large payloads and snapshots; and it runs a NATS server
// inside the process for who has none. It is the only package that knows
// subjects, streams and error codes of the server. It decides nothing about a
// run.
//
// # What it guarantees
//
//   - An append that is acknowledged is on disk, on as many servers as the
//     layout says, provided that the servers sync every message
//     (sync_interval: always). The embedded server does. Of an external one no
//     client can see it; Check reports the setting as unverifiable.
//   - Log is an events.Log: a fenced append is refused unless the session's last
//     fact is the expected one, reads have no holes, and an unknown outcome is
//     called unknown.
//   - Provision and Check refuse a stream that would break a promise, naming the
//     setting, and change nothing that exists.
//
// # What it refuses
//
//   - To update a stream. A difference that matters is an error for a person; one
//     that does not is the operator's choice.
//   - To make a shard of the log again while others hold facts: an empty shard
//     would deny what was acknowledged.
//   - To keep anything for later while the connection is down. A request fails at
//     once, and one under way fails when the connection is lost.
//   - To copy a header of an incoming message to one it publishes, but for those
//     that a CloudEvent has.
//
// # The log
//
// AGENT_LOG_<k> holds agent.log.<k>.<namespace>.<session> and the ledgers
// agent.budget.<k>.<namespace>.<root run>, k being events.Shard of the session
// (of a ledger: the root run's session). Each flag has its reason:
//
//   - File storage, default persist mode: with asynchronous persistence the
//     server acknowledges before it writes, whatever its sync setting.
//   - Limits retention without age, count or per-subject limit: a fact stays until
//     it is pruned on purpose.
//   - Discard new: a full stream refuses what is new. Discarding the old would
//     make a hole in somebody's history.
//   - Deny delete: no single fact can be taken out. It can never be switched off
//     again, which is wanted.
//   - Purge allowed, by the permissions of the provisioning role alone: pruning
//     needs it, and deny-purge could never be taken back.
//   - No roll-up: a message with that header would remove those before it.
//   - No message TTL: a message with that header would remove itself.
//   - Direct get: batch reads come from the nearest replica; reads need to be
//     prefixes, not fresh.
//   - Atomic publish off: a batch costs an R1 stream about six flushes and stalls
//     it. One commit is one message.
//   - The metadata holds the shard count and the name of the hash, which can never
//     change once a fact is stored.
//
// The fence is Nats-Expected-Last-Subject-Sequence on the literal subject. A
// guard with a wildcard is unsound on replicated streams. The header is stored
// with the message and is no part of the fact, so that a fact holds no sequence
// and can be restored elsewhere. Nats-Msg-Id is not sent: its window is that of
// the stream, and one server answers a repetition otherwise than three.
//
// A batch read carries in each message the sequence of the one before it. The
// reader drops what follows a gap; the end of a batch that names a message which
// never came is an error. So a lost message makes a shorter prefix, never a
// hole, and a failure is never an empty session. A message that the store itself
// has lost leaves no trace here: the chain hash of events finds it.
//
// # The other streams
//
// Truth pays for a sync: AGENT_COMMANDS (work queue), AGENT_DEAD (limits, age),
// KV AGENT_DEFINITIONS, KV AGENT_KEYS and the object store AGENT_OBJECTS, beside
// the log. Of AGENT_KEYS messages may be deleted, which overwrites them, so that
// the key of an erased session is nowhere; what stands there is wrapped.
//
// Hints do not: AGENT_WORK (work queue), AGENT_EVENTS (limits, age),
// AGENT_TIMERS (limits without limits), KV AGENT_LEASES and KV AGENT_SNAPSHOTS.
// On one server they are files written behind, since the memory of one server
// does not survive its restart; on several they live in memory, since the server
// refuses to write a replicated stream behind. Public events and snapshots stay
// on file there as well, for their size. All of them can be lost: whoever makes
// a missing one again has to sweep.
//
//   - AGENT_WORK has no limit per subject: with one of 1 an older hint that is
//     late would replace a newer one.
//   - AGENT_TIMERS has no limits at all: any of them kills a pending schedule
//     without a word. Schedules need roll-up and go with discard old only. A
//     schedule is a message that the server turns into another on agent.fired
//     of the same stream; one per subject, so that arming again replaces.
//   - AGENT_LEASES allows a TTL per message. Each renewal is a plain publish with
//     Nats-TTL and the expected sequence: the bucket's own update drops the TTL.
//     Limits that workers share stand beside the leases: they cost no sync either,
//     and are forgotten when nobody uses them.
//   - Consumers are durable, pulled, with explicit acknowledgements and unlimited
//     deliveries: after a last one a message would stay for ever. What is poison
//     is for handlers to say. A silent pull is replaced after two heartbeats, a
//     silent consumer looked up again after a minute.
//
// # The lease
//
// An entry is a sign of life and owns nothing. The holder stops to dispatch at
//
//	(time it sent its last acknowledged renewal) + TTL - margin
//
// and another worker claims without a release no sooner than
//
//	(time it first saw a revision) + TTL, having seen no other since
//
// each on its own clock. A renewal is sent before it is seen, so the first is
// earlier than the second as long as the clocks run equally fast within margin.
// The server's own removal of the entry is not part of this: the absence of an
// entry ends nothing.
//
// # Beside the client library
//
// Requests of the log go through one subscription per connection instead of the
// client library's publish and request: the library has no request with several
// answers, which batch reads are, and keeps state of its own for each publish
// that waits for an acknowledgement. Objects says why it does not use the object
// store of the library.
package jetstream
