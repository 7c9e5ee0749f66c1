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
// After a crash, a call that was dispatched and has no result is not made again
// when it is run_js, get_calls or cancel_calls: its outcome is committed as
// unknown, in words for the model. spawn, continue_agent, wait_calls and
// complete are made again; the Controller makes them idempotent by call id.
//
// # What a model may do wrong
//
// A response counts only whole. Calls of a response that was cut are never
// made. Call ids that are empty or were used before are replaced; arguments that
// do not parse or do not fit the tool's schema, and tools that do not exist,
// become errors of that call, in the commit of the response. A model that
// repeats the identical call, or answers without calls, is first told and then
// stopped by a GuardError.
package runtime
