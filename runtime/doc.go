// Package runtime is the loop of a durable agent: decide, act, commit, repeat.
//
// Run drives one run against ports that the host implements: a Model, a Store
// that holds the checkpoint and the conversation, a Backend that carries out
// capabilities, an ExecutorFactory for JavaScript, a Controller for budgets and
// children, a Sink and a Redactor. The loop holds no state of its own between
// two calls, keeps nothing global, knows no database, scheduler, authorization
// or broker, and may be embedded in any Go program.
//
// # The protocol
//
// What happens next is decided by a pure function of the checkpoint and the
// window, whether the state is live or recovered. Every decision is committed
// before it takes effect:
//
//	first commit     the task                                  at a model boundary
//	BeforeModel, then the request
//	response commit  the response, its journal of calls, and the predispatch of
//	                 the first one
//	the call is made
//	result commit    its result, and the predispatch of the next call, or the
//	                 next model boundary, or the completion
//
// Every call thus has a predispatch and a postresult commit, and every two
// neighbours share one: a response of k calls costs k+1 commits. Sharing loses
// nothing. A call is unknown after a crash exactly when its predispatch is
// committed and its result is not, and with a commit of its own the predispatch
// would precede the call by just as much.
//
// A store that is a Journal keeps a journal of the callbacks of a script as well:
//
//	predispatch      before a callback that may change something is sent; a read
//	                 does not wait, and its record is part of the next append,
//	                 unless so many have gathered that they need one
//	outcome          part of the next append, or of one to spare
//
// A backend that is an Admitter is asked before the predispatch, so that whatever
// is recorded was allowed to leave, and nothing that was refused is sent by whoever
// goes on. What had finished is recorded although the attempt is to end.
//
// This costs at most one append for each callback, and nothing once the call has
// its result: what is not recorded then, the result tells. One more record is made
// before files are stored, which takes a while, and when the result is not
// committed after all. After a crash the model is told what
// finished, with results, and what is not known. Before that, whatever can be
// found out without the script is: a callback that is idempotent is sent again
// with the same key, the service of a write that has a status is asked, and both
// are recorded, with the files that came. Reads have no effect that could be
// unknown. The outcome of the call itself stays unknown: what the script returned
// is.
//
// A callback is sent again only if its script was never told what became of it:
// one that was told that nobody knows may have taken back what it did. What is
// under way at the same time may take effect in any order, before and after. Only
// an answer settles what was sent again; a refusal says nothing of the first
// sending. An attempt that was given up with callbacks in flight is not gone on
// with under the same claim, so that whoever asks about one has a higher epoch.
//
// Rejected was to append each outcome at once: it doubles the appends of a script
// that makes one callback after the other, to know of the newest one a moment
// earlier.
//
// After a crash, a call that was dispatched and has no result is not made again
// when it is run_js, get_calls or cancel_calls: its outcome is committed as
// unknown, in words for the model. spawn, continue_agent, wait_calls and
// complete are made again; the Controller makes them idempotent by call id. What
// became of a capability that the model called itself is asked of the Backend; if
// that does not know, a read or an idempotent one is made again, under the same
// key, and any other is unknown.
//
// # Files
//
// A file part holds a reference, never bytes. Which files go with a request is a
// function of the window and of ModelLimits.Files; they are read from Files right
// before the request, redacted where they are text, and handed to the Model as
// Request.Files. What is attached by scripts and capabilities is stored after the
// script has ended and before its result is committed:
//
//	Files.Put        a crash after it leaves bytes that nothing refers to
//	result commit    with the file parts
//
// A file that is gone (ErrFileGone) is told to the model; a damaged one ends the
// run with a *FileDamagedError. When a provider refuses a request that has files
// as invalid, one more is made in which all of them are words, as they are in every
// other request of the attempt.
//
// # A window that gets too large
//
// Before each request its size is estimated, with instructions and tools, and
// corrected by what the newest response reported of its own request. Above 85 %
// of what leaves the answer its place the window is compacted, to at most half
// of the room that messages have: first the texts of old results are replaced by
// their size and outcome; if that is not enough, one request without tools has
// what is old summarized, which becomes one message of a user behind the task.
//
// The task, the message that began the run, and the newest four steps stay as
// they are; of these fewer when they are too large together, and never less than
// the newest. A step is a response and all that follows it up to the next one,
// so a call is never parted from its result. Ids of calls after a summary are
// all minted, since what it stands for may have used any.
//
//	BeforeModel, then the request for a summary   reserved like any other
//	Store.Compact                                 no revision, no usage, no step
//	Store.Load                                    what a recovered attempt has too
//	BeforeModel, then the request
//
// Everything sent and everything that comes back is redacted. A summary that is
// empty, cut, holds calls or is not shorter than what it stands for is not
// taken, nor is one that the provider refuses to write. The run goes on with the
// window as it is, or with its old results replaced, while that fits, and this
// attempt asks for a summary again when the window has grown by 5 %. Only when
// it does not fit does the attempt end, with a ModelError like that of any
// response that is none. A request that the provider refuses as too large
// (ClassOverflow) is compacted to half once and made again. When the task and
// the newest step alone do not fit, the run ends with an OverflowError, before
// anything is paid for.
//
// Rejected was to summarize in steps of its own, as a state of the checkpoint:
// a crash between the summary and the swap costs one request, as it does
// everywhere, and nothing else depends on it.
//
// # What a model may do wrong
//
// A response counts only whole. Calls of a response that was cut are never
// made. Call ids that are empty or were used before are replaced; arguments that
// do not parse or do not fit the tool's schema, and tools that do not exist,
// become errors of that call, in the commit of the response. A model that
// repeats the identical call, answers without calls, or completes in a way that
// is not accepted, is first told and then stopped by a GuardError. A call that
// succeeds between two completions that are not accepted begins the count anew.
package runtime
