// Package executor runs the JavaScript of a model in child processes.
//
// # What it is
//
// A [Factory] starts children: this same program, executed again, which becomes a
// script child while this package is initialized, before the program's main runs.
// A child has one JavaScript realm, runs one [Script] and is killed. Children are
// started ahead of need, so that a run does not wait for one. A Factory is the
// loop's ExecutorFactory.
//
// # What it guarantees
//
//   - A script costs the worker at most its time-out, the memory of its bounded
//     output, 16 MiB of inputs in flight, and as many answers as calls may be in
//     flight, and one. Loops, regular expressions, strings, numbers and source
//     text that exhaust memory or never return end the child and nothing else.
//   - A script ends within its time-out plus half a second, whatever it does and
//     whatever its callbacks do, with a result or with an [*Error] that says
//     what went wrong in words a model can act on. Any other error is a fault
//     of the host.
//   - Nothing of a script reaches the next one.
//   - After Execute no callback is running, unless one ignored its cancelled
//     context for a quarter of a second; the answer of such a one is dropped.
//   - Every child is waited for. A child also dies with the worker.
//   - Values cross the border as JSON text only. A script never holds a value
//     of Go.
//
// # What it refuses
//
//   - A binding with the name of a control tool, of a JavaScript global, or that
//     is no dotted identifier.
//   - Source text that closes the function it is wrapped in.
//   - A value, callback input or callback answer over its limit; it is never cut,
//     since half a value is another value. Console output and messages are cut.
//   - Source maps: the parser would open the file that a comment names.
//   - To believe a child. A frame that is malformed, too large or out of order
//     ends the run.
//
// # How a child is contained
//
// Before it reads anything the child limits its own memory (RLIMIT_DATA), CPU
// time, stack, and the files it may open and write, which is none. It starts
// with an empty environment, in the root directory, in its own process group
// and, where the host allows it, in its own user, process, network, IPC and
// host-name namespaces. What it inherited from the worker it closes. Where the
// kernel has them, a Landlock domain without a rule takes the file system and
// TCP from it, and a seccomp filter every system call but those of memory,
// threads, time and the open pipes. All of it works for an ordinary user and in
// a container. [Factory.Containment] tells what is in force and what the host
// did not allow.
//
// RLIMIT_AS would be the better known limit, but a Go program reserves some
// hundred megabytes of address space before it runs, so the limit would have to
// be too large to be one. The filter lists what is allowed, and the rest fails
// with EPERM and does not kill, so that a release of the Go runtime that tries a
// newer call falls back as it does on an older kernel. A list of what is refused
// would be shorter and miss what kernels still add. A program with cgo in it has
// no Landlock, since its threads cannot be reached; there the filter does both.
//
// The engine could run inside the worker and be interrupted. It was tried: one
// third of the hostile scripts never saw the interrupt, because they were inside
// a built-in, and some ended the whole process in a way that no recover sees.
//
// # The protocol
//
// Frames of JSON with their length before them, on the child's standard input
// and output:
//
//	child   ready                      the realm is built
//	worker  run    code, names, limits
//	child   log*                       as they are written, so that a killed script keeps them
//	child   call   id, name, input     at most so many and so large at once, the rest waits in the child
//	worker  reply  id, output | error
//	child   done   value | fail  kind, message, line
//
// Exactly one done or fail ends a run, and only when no call is open: a script
// that returned waits for the callbacks it did not await, and one that made too
// many or broke the engine for those that were sent. No function of a script that
// made too many is entered again; after an overflow of the stack, the iterators
// around it are still closed, which the script may do itself. A promise that can no
// longer be settled, because no callback is open, is reported at once.
package executor
