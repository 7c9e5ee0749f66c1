package events

import "encoding/json"

// CallbacksRecorded is the journal of a script's callbacks, while the call that
// runs the script is under way: which are about to be sent, and what became of
// others. It does not advance the run's revision, and means nothing once the
// call has its result. Of a capability that the model called itself it is why
// nobody knows what the call did, right before the call's result says so.
type CallbacksRecorded struct {
	CallID string         `json:"call_id"` // of the run_js call, or of the capability's own
	Made   []CallbackMade `json:"made,omitempty"`
	Done   []CallbackDone `json:"done,omitempty"`
}

// CallbackMade is the predispatch of one callback. One that changes something is
// sent only after this is committed; a read does not wait for it.
type CallbackMade struct {
	Index      int             `json:"index"` // counts the script's callbacks from 0
	Capability string          `json:"capability"`
	Effect     Effect          `json:"effect,omitempty"`
	Key        string          `json:"key,omitempty"`        // the idempotency key that the service sees
	Input      json.RawMessage `json:"input,omitempty"`      // as it is sent
	InputHash  string          `json:"input_hash,omitempty"` // HashJSON of an input that is left out for its size
	Untrusted  bool            `json:"untrusted,omitempty"`  // what it answers is not to be trusted
}

// CallbackDone is what became of one callback.
type CallbackDone struct {
	Index int `json:"index"`

	// Outcome is ok; error or denied for one that failed; skipped for one
	// that was not carried out; or unknown.
	Outcome  Outcome         `json:"outcome"`
	Result   json.RawMessage `json:"result,omitempty"`   // what it returned
	Text     string          `json:"text,omitempty"`     // what is known of one that did not return, or the beginning of a long result
	Size     int             `json:"size,omitempty"`     // of a result that is left out for its size, in bytes
	Resolved string          `json:"resolved,omitempty"` // how it came to be known after an interruption
	Attached int             `json:"attached,omitempty"` // files that the answer came with
	Files    []File          `json:"files,omitempty"`    // those of them that were stored before this was recorded
}

// How the outcome of an interrupted callback came to be known.
const (
	ResolvedAgain  = "again"  // it was sent again with the same key
	ResolvedStatus = "status" // its service was asked for the key
)

// CallResolved settles a callback whose effect nobody could know.
type CallResolved struct {
	CallID string          `json:"call_id"`
	Index  int             `json:"index"`
	As     string          `json:"as"`               // done or not-done
	Result json.RawMessage `json:"result,omitempty"` // redacted
}

// AnsweredFile is a file that an answer of a capability comes with.
type AnsweredFile struct {
	Name      string `json:"name"`
	MediaType string `json:"media_type,omitempty"` // by the name and the bytes, when empty
	Data      []byte `json:"data,omitempty"`       // base64
	Ref       string `json:"ref,omitempty"`        // of a stored file; exactly one of Data and Ref is given
}

// What a callback is settled as.
const (
	ResolvedDone    = "done"     // it took effect
	ResolvedNotDone = "not-done" // it did not, and will not
)

// ResolveCall is the data of a call.resolve command: an operator found out
// whether a callback took effect. Only agent.api takes it.
type ResolveCall struct {
	Run    string          `json:"run"`
	Call   string          `json:"call"`
	Index  int             `json:"index"`
	As     string          `json:"as"`
	Result json.RawMessage `json:"result,omitempty"` // what it returned, if that is known
}
