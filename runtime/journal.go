package runtime

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// Journal is what a Store may implement besides: a journal of the callbacks that
// a script makes, so that after a crash the model is told exactly what finished.
// Without it an interrupted script is unknown as a whole. Every implementation
// passes runtimetest.TestJournal.
type Journal interface {
	// RecordCallbacks durably adds to the journal of the call that is under
	// way. It enforces the same lease as SaveCheckpoint, does not advance the
	// revision, and is not called again before it has returned. After an
	// error the record may or may not stand, and the attempt ends. A context
	// that cannot end is that of an attempt that is over: what it did is told
	// as long as its claim is open. The journal of a call may be forgotten with
	// the commit of its result.
	RecordCallbacks(ctx context.Context, r *events.CallbacksRecorded) error

	// Callbacks returns what the journal has of a call that is dispatched and
	// has no result, in the order of the index. The caller owns the list. An
	// input whose outcome is known may be left out.
	Callbacks(ctx context.Context, callID string) ([]projector.Callback, error)
}

// recording makes the journal of one script. It costs at most one append for each
// callback: what comes while one is under way is part of the next, and outcomes
// wait for an append that has to be made anyway, unless one is to spare.
type recording struct {
	port Journal
	ctx  context.Context // of the attempt: the end of the script does not end it
	call string
	fail func(error) // called once, when an append failed

	mu      sync.Mutex
	next    *batch // not sent yet; never nil
	flying  *batch // being appended, or nil
	made    int    // callbacks
	appends int
	failed  error
	lost    *batch // the one of which the append failed
	closed  bool   // nothing more is noted
}

// batch is one append.
type batch struct {
	events.CallbacksRecorded
	wanted bool          // somebody waits for it, or it is worth an append
	told   bool          // it holds the outcome of a callback that changes something
	open   bool          // one of these is unknown
	size   int           // bytes of inputs, results and texts
	done   chan struct{} // closed when it is appended, or has failed
}

// maxBatch is how many bytes a batch may gather. What would exceed it has it
// appended first, and waits, so that a script that only reads costs no memory
// that grows with its callbacks.
const (
	maxBatch  = 256 << 10
	batchCost = 128 // of one that has no text
)

func newRecording(ctx context.Context, port Journal, call string, fail func(error)) *recording {
	r := &recording{port: port, ctx: ctx, call: call, fail: fail}
	r.next = r.batch()
	return r
}

func (r *recording) batch() *batch {
	return &batch{CallbacksRecorded: events.CallbacksRecorded{CallID: r.call}, done: make(chan struct{})}
}

// predispatch notes a callback that is about to be sent. When it changes
// something, or is the one that fills a batch, it returns after that is committed.
func (r *recording) predispatch(ctx context.Context, made events.CallbackMade, changes bool) error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return errEnded
	}
	r.made++
	r.next.Made = append(r.next.Made, made)
	r.next.size += batchCost + len(made.Input)
	full := r.next.size >= maxBatch
	r.next.wanted = r.next.wanted || changes || full || r.worthwhile()
	mine := r.next
	r.start()
	r.mu.Unlock()
	if !changes && !full {
		return nil
	}
	return r.await(ctx, mine)
}

// outcome notes what became of a callback.
func (r *recording) outcome(done events.CallbackDone, changes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.next.Done = append(r.next.Done, done)
	r.next.size += batchCost + len(done.Result) + len(done.Text)
	r.next.told = r.next.told || changes
	r.next.open = r.next.open || changes && done.Outcome == events.OutcomeUnknown
	r.next.wanted = r.next.wanted || r.worthwhile()
	r.start()
}

// worthwhile reports whether there is an outcome to tell and an append to spare.
func (r *recording) worthwhile() bool { return r.next.told && r.appends < r.made }

// start appends the next batch, unless another one is under way.
func (r *recording) start() {
	if r.flying != nil || !r.next.wanted || r.failed != nil || r.closed {
		return
	}
	b := r.next
	r.flying, r.next = b, r.batch()
	r.appends++
	go func() {
		err := r.port.RecordCallbacks(r.ctx, &b.CallbacksRecorded)
		r.mu.Lock()
		if r.flying, r.failed = nil, err; err != nil {
			r.lost = b
		} else {
			close(b.done)
			r.start()
		}
		r.mu.Unlock()
		if err != nil {
			r.fail(err)
			close(b.done) // whoever waits finds out that the run is being stopped
		}
	}()
}

// await waits until a batch is appended.
func (r *recording) await(ctx context.Context, b *batch) error {
	select {
	case <-b.done:
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.failed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// end ends the journal when the script has ended: it waits for the append that is
// under way, and makes one more for outcomes that only the journal can tell of.
// These are the unknown ones, and all of them when the result of the script may
// not tell of any. It is called again, for all, when that is known only later.
// What an append that failed had of outcomes is told again: it may have failed
// only because the attempt was to end, and to say it twice changes nothing.
func (r *recording) end(ctx context.Context, all bool) error {
	r.mu.Lock()
	r.closed = true
	flying := r.flying
	r.mu.Unlock()
	if flying != nil {
		<-flying.done
	}
	r.mu.Lock()
	failed, lost, last := r.failed, r.lost, r.next
	r.mu.Unlock()
	// What changes something and was not announced was not sent.
	record := Reads(&last.CallbacksRecorded)
	told := last.told
	if lost != nil {
		all, ctx = true, context.WithoutCancel(ctx)
		record.Made, record.Done = slices.Concat(lost.Made, record.Made), slices.Concat(lost.Done, record.Done)
		told = told || lost.told
	}
	if !last.open && !(all && told) || len(record.Made)+len(record.Done) == 0 {
		return failed
	}
	if err := r.port.RecordCallbacks(ctx, record); err != nil {
		return errors.Join(failed, err)
	}
	r.mu.Lock()
	r.lost, r.next = nil, r.batch()
	r.mu.Unlock()
	return failed
}

// Reads returns a record without its announcements of callbacks that may change
// something, and without what became of these.
func Reads(r *events.CallbacksRecorded) *events.CallbacksRecorded {
	changes := func(m events.CallbackMade) bool { return m.Effect != events.EffectRead }
	return &events.CallbacksRecorded{
		CallID: r.CallID,
		Made:   slices.DeleteFunc(slices.Clone(r.Made), changes),
		Done: slices.DeleteFunc(slices.Clone(r.Done), func(d events.CallbackDone) bool {
			return slices.ContainsFunc(r.Made, func(m events.CallbackMade) bool { return m.Index == d.Index && changes(m) })
		}),
	}
}

// errEnded keeps a callback from being sent.
var errEnded = errors.New("the script has ended")
