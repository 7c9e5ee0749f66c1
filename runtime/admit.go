package runtime

import (
	"context"
	"errors"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// Admitter is what a Backend may implement besides: it says whether a callback may
// leave before anything of it is recorded, so that whoever goes on after a crash
// sends nothing again that was never to be sent.
type Admitter interface {
	// Admit lets the callback of a script through, or says why it is not made: its
	// Call does not follow then. It may wait for its turn. Otherwise the callback
	// is Admitted when it is called, if it is, and release is called once, after
	// all. It is not asked about a callback that is sent again.
	Admit(ctx context.Context, c *Callback) (release func(), err error)
}

// stage is how far a callback has come.
type stage int

const (
	counted   stage = iota // it has its index
	announced              // the journal may have it
	sent                   // it may have taken effect
)

// count gives a callback its index.
func (h *callbacks) count(made *projector.Callback) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.over(); err != nil {
		return err
	}
	made.Index = len(h.stage)
	kept := made.CallbackMade
	kept.Input = nil // the journal's; it may be large, and is held no longer than the callback
	h.kept.Record(&events.CallbacksRecorded{Made: []events.CallbackMade{kept}})
	h.stage = append(h.stage, counted)
	return nil
}

// step takes a callback further, unless nothing more is sent.
func (h *callbacks) step(index int, to stage) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.over(); err != nil {
		return err
	}
	h.stage[index] = to
	return nil
}

// admit asks the backend whether a callback may leave. One that may not has no
// place in the journal.
func (h *callbacks) admit(ctx context.Context, c *Callback) (release func(), err error) {
	admitter, ok := h.loop.in.Backend.(Admitter)
	if !ok {
		return func() {}, nil
	}
	if release, err = admitter.Admit(ctx, c); err == nil {
		c.Admitted = true
		return release, nil
	}
	var fatal FatalToolError
	if errors.As(err, &fatal) {
		h.abort(err)
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var denied *DeniedError
	if errors.As(err, &denied) {
		h.denials = append(h.denials, denied.Error())
	}
	if !h.ended {
		h.note(events.CallbackDone{Index: c.Index, Outcome: events.OutcomeSkipped, Text: projector.Cut(strings.ToValidUTF8(err.Error(), "\uFFFD"))})
	}
	return nil, err
}
