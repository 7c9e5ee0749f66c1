// Package mcp carries capability requests to the tools of MCP servers, and
// imports what the servers offer.
//
// # Servers
//
// The worker's configuration names each server and how it is reached: a program
// that is started here and spoken to over its standard input and output, or an
// address that is spoken to over streamable HTTP. A server is begun when it is
// first needed. One that ends is begun again with the next call; one that cannot be
// begun is left alone for a while that doubles up to MaxPause, and calls meanwhile
// are not made. A program has its own process group, an environment of a few
// harmless variables and those of its configuration, and a standard error that goes
// to the log, up to a bound.
//
// When a session ends, the whole group is killed. When the worker is killed, the kernel
// kills the program that was started, and not what that one has started in turn: such
// children have lost their input and output, and end when they see it. A command that
// wraps a server should therefore replace itself with it, as exec does in a shell.
//
// # What an answer means
//
//   - A result is the answer: its structured content, or {"content": [...]}.
//   - A result that is an error, and an error of the protocol, mean that the tool
//     failed. The internal error of the protocol leaves open whether it took
//     effect, unless it is a read, as 5xx does in HTTP.
//   - A server that ends, breaks the protocol or does not answer leaves it open too.
//   - A server that cannot be begun, or whose session was gone before the request
//     was written: it was not made. In the second case the request goes to the next
//     session.
//
// Over HTTP, an error of the protocol that names the request is the answer, whatever the
// status; 5xx leaves open whether it took effect. Without one, 4xx means that the tool
// failed, and 404 that the session is gone. An answer that does not keep to the protocol,
// with another status or type, without the answer to its request, or larger than a message
// may be, leaves open whether the tool took effect.
// It is of that one call: all runs share the session, which goes on. But a server that was
// begun again knows no session, and not every one says so with 404. After a broken
// connection, an answer that is none, and any status that is no success but 429, the next
// call asks in the session with a ping, within Patience, and goes to a new one when that has
// no answer under a status of success. A session that is given up is closed when the calls
// in it have ended.
//
// A stream of events is not resumed: a server that closes it before the answer, to be asked
// for the rest with GET, leaves its call open. Each event may be as large as a message; what
// is not the answer counts for what a server may say unasked.
//
// A call ends with its context, whatever the server does. A program that takes no
// message from its input for Patience is killed. One that left a call without an answer
// is asked with a ping, and killed when it says nothing at all for Patience: a call that
// is slow and a server that is stuck look the same before. A program that serves one
// request at a time and may be busy for longer is therefore one whose capability needs
// the time-out of its longest call. A server that sends more than a thousand
// messages a second that nobody asked for, or leaves no room for the answers to its
// requests, is ended at once; over HTTP only the answer ends in which it says so much. Of
// what it says unasked only requests are answered; notifications are read and dropped.
//
// No answer of a server means that the worker is stale: an error of the protocol with
// the number 412, and an HTTP 412, are errors like others.
//
// A request is written at most once: no broken connection makes it leave again.
// Namespace, run, call, index, epoch and idempotency key stand in the request's
// _meta, under the names that they have as headers.
//
// # Import
//
// Import lists the tools of a server as capabilities, with schemas that have
// passed the gate of package schema; a tool that cannot be one, or cannot be read, is
// reported with the reason. What is imported becomes part of the definition that is
// applied, so that a run keeps the schemas it was admitted with, whatever the server
// offers later. The rejected alternative was to ask the server when a run begins: its
// contract would then depend on who answers at that moment.
//
// Only annotations are taken out of a schema: x- members, the media type and the
// encoding of a string's content, and the name of an older dialect, whose keywords
// must then have a meaning that the gate knows.
//
// # Exactness
//
// The SDK decodes a result into Go values and would round numbers. The transport is
// tapped instead: arguments leave, and results arrive, as the text they are. Members of
// results and of tools are met by their exact names.
package mcp
