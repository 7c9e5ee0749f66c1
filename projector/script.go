package projector

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/agentruntime/agentruntime/events"
)

// Script is the journal of the script that is under way, or of a capability that
// the model called itself. What it keeps of inputs
// and of results is bounded: the log has the rest.
type Script struct {
	CallID    string     `json:"call_id"`
	Callbacks []Callback `json:"callbacks,omitempty"` // in the order of their index
	Inputs    int        `json:"inputs,omitempty"`    // bytes of them that are kept
	Results   int        `json:"results,omitempty"`   // bytes of them, and of texts, that were kept
	Direct    bool       `json:"direct,omitempty"`    // the call is its own one callback, see events.CheckpointCommitted
}

// The bounds of the journal of one script, in bytes. An idempotent callback whose
// input is beyond them is not sent again: what became of it stays unknown. Results
// and texts beyond them are kept with no more than their begin.
const (
	MaxScriptInputs  = 4 << 20 // of callbacks whose outcome is not known
	MaxScriptResults = 256 << 10
)

// briefly is what is left of a result or a text beyond the bound, in bytes.
const briefly = 80

// Record adds what a fact says to the journal of its script. The first predispatch
// and the newest outcome of a callback count. An input is kept until the outcome
// is known.
func (s *Script) Record(p *events.CallbacksRecorded) {
	for _, made := range p.Made {
		at, found := s.find(made.Index)
		if found {
			continue
		}
		if n := len(made.Input); s.Inputs+n > MaxScriptInputs {
			made.InputHash, _ = events.HashJSON(made.Input)
			made.Input = nil
		} else {
			s.Inputs += n
		}
		s.Callbacks = slices.Insert(s.Callbacks, at, Callback{CallbackMade: made})
	}
	for _, done := range p.Done {
		at, found := s.find(done.Index)
		if !found {
			continue
		}
		c := &s.Callbacks[at]
		if n := len(done.Result) + len(done.Text); s.Results+n > MaxScriptResults {
			shorten(&done)
		} else {
			s.Results += n
		}
		if c.Done = &done; !c.Open() {
			s.Inputs -= len(c.Input)
			c.Input = nil
		}
	}
}

// find returns where the callback of an index stands, or is to stand. They come
// nearly in order.
func (s *Script) find(index int) (int, bool) {
	if n := len(s.Callbacks); n == 0 || s.Callbacks[n-1].Index < index {
		return n, false
	}
	return slices.BinarySearchFunc(s.Callbacks, index, func(c Callback, index int) int { return cmp.Compare(c.Index, index) })
}

// shorten leaves the begin of a result, or of a text.
func shorten(d *events.CallbackDone) {
	if len(d.Result) > briefly {
		d.Size, d.Text, d.Result = len(d.Result), string(d.Result), json.RawMessage(nil)
	}
	d.Text = cutTo(d.Text, briefly)
}
