package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// ExecutorFactory starts executors. It is asked for one only when a script is
// to be run.
type ExecutorFactory interface {
	NewExecutor(ctx context.Context) (Executor, error)

	// Describe says what a model has to know about the scripts it writes:
	// the language, what it lacks, and how they are bounded. It is part of
	// every request, so it is short and always the same.
	Describe() string
}

// Executor is a fresh, isolated JavaScript realm. It runs one script.
type Executor interface {
	// Execute runs a script to its end. A *ScriptError is the script's own
	// fault; any other error is the host's and stops the attempt.
	Execute(ctx context.Context, s *Script) (*ScriptResult, error)

	// Close ends the realm and returns when nothing of it is left. It is
	// called exactly once, before the script's result is committed.
	Close() error
}

// Script is what an executor runs.
type Script struct {
	Code     string
	Bindings []string // capability names, dotted

	// Call serves one callback; it may be called concurrently. An error
	// becomes an exception in the script. Its context is one of WithScriptEnd,
	// where the executor bounds the script's time.
	Call func(ctx context.Context, name string, input json.RawMessage) (json.RawMessage, error)

	// Attach takes a file that the script adds to its result; it may be called
	// concurrently. An error becomes an exception in the script.
	Attach func(a Attachment) error

	Limits ScriptLimits
}

type scriptEnd struct{}

// WithScriptEnd tells callbacks when their script ends at the latest. It ends
// nothing: whoever ends the script does.
func WithScriptEnd(ctx context.Context, end time.Time) context.Context {
	return context.WithValue(ctx, scriptEnd{}, end)
}

// ScriptEnd returns when the script of a callback ends at the latest, as far as
// its executor has told.
func ScriptEnd(ctx context.Context) (time.Time, bool) {
	end, known := ctx.Value(scriptEnd{}).(time.Time)
	return end, known
}

// ScriptLimits bound one script. Zero is the executor's default.
type ScriptLimits struct {
	Timeout    time.Duration // wall clock
	Callbacks  int           // in all
	Concurrent int           // callbacks at once; the others wait
	Output     int           // bytes of the JSON of what it returns
	Logs       int           // bytes of console output
}

// ScriptResult is what a script came to.
type ScriptResult struct {
	Value json.RawMessage // what it returned, null when nothing
	Logs  []string        // console output, bounded
}

// ScriptErrorKind says what became of a script.
type ScriptErrorKind string

// The kinds of script errors.
const (
	ScriptSyntax    ScriptErrorKind = "syntax"
	ScriptException ScriptErrorKind = "exception"
	ScriptTimeout   ScriptErrorKind = "timeout"
	ScriptMemory    ScriptErrorKind = "memory"
	ScriptOutput    ScriptErrorKind = "output"    // its value or messages were too large
	ScriptDeadlock  ScriptErrorKind = "deadlock"  // it waits for what nothing will settle
	ScriptCallbacks ScriptErrorKind = "callbacks" // it made too many callbacks
	ScriptKilled    ScriptErrorKind = "killed"    // its process died or broke the protocol
)

// ScriptError is a script that failed. It becomes a tool error.
type ScriptError struct {
	Kind    ScriptErrorKind
	Message string
	Line    int // 0 when unknown
	Logs    []string
}

func (e *ScriptError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("script %s at line %d: %s", e.Kind, e.Line, e.Message)
	}
	return fmt.Sprintf("script %s: %s", e.Kind, e.Message)
}
