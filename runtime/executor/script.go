package executor

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	loop "github.com/agentruntime/agentruntime/runtime"
)

const defaultTimeout = 30 * time.Second

var _ loop.ExecutorFactory = (*Factory)(nil)

// What the loop's port is made of.
type (
	Script = loop.Script
	Result = loop.ScriptResult
	Error  = loop.ScriptError
)

// NewExecutor implements the loop's ExecutorFactory.
func (f *Factory) NewExecutor(ctx context.Context) (loop.Executor, error) {
	p, err := f.New(ctx)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Describe implements the loop's ExecutorFactory.
func (f *Factory) Describe() string { return description }

const description = `Runs JavaScript as the body of an async function, in strict mode.
Call a capability with one object and await it: const r = await desk.book({seat: 4}). It throws an Error when it fails. Independent calls may run together with Promise.all.
To add a file to the result, await attach(name, data, mediaType): data is text, a Uint8Array or an ArrayBuffer, or {base64: "..."}, and mediaType may be left out. It stays even if the script fails later.
Return what you need: only the returned value, as JSON, and console output come back. Map and Set have no JSON form; return arrays and objects. Nothing is kept for the next script, neither variables nor globals.
The language is ES2022 without async generators, for await, import, WeakRef, Intl and locale data. In regular expressions \p{...} never matches and the flags d and v do not exist. Dates are in UTC.
There are no timers, no fetch, URL, TextEncoder, crypto or structuredClone, no require, no process, no files and no network.
Numbers are doubles: integers over 2^53 lose digits, so pass such ids as strings. Functions call one another at most 512 deep.
console.log, info, warn, error and debug write lines that come back, also when the script fails. A script ends when it has returned and every call it made is answered, awaited or not; when one that nobody awaited fails, the script fails and its value is lost. One that waits for what nothing can settle ends at once with an error.
Memory, time, output, console output and the number of calls are limited. When a script fails, the calls it made before stay made: do not repeat the whole script.`

// cut shortens a text to at most limit bytes, on a rune boundary.
func cut(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	const mark = "…"
	end := max(limit-len(mark), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	if limit < len(mark) {
		return text[:end]
	}
	return text[:end] + mark
}
