package runtimetest

import (
	"fmt"
	goruntime "runtime"
	"sync/atomic"
)

// Fault is what happens to one operation of a port.
type Fault int

// The faults an operation can meet.
const (
	Works       Fault = iota
	KilledFirst       // the attempt is killed before the operation has an effect
	KilledAfter       // the attempt is killed after the effect, before the answer
	FailsFirst        // an error that stops the attempt; no effect
	FailsAfter        // the effect, and an error that stops the attempt: the answer is lost
)

// Faults are all faults.
var Faults = []Fault{KilledFirst, KilledAfter, FailsFirst, FailsAfter}

func (f Fault) String() string {
	return [...]string{"works", "killed before it", "killed after it", "fails without effect", "fails after its effect"}[f]
}

// first reports whether the fault comes before the operation's effect.
func (f Fault) first() bool { return f == KilledFirst || f == FailsFirst }

// kills reports whether the fault kills the attempt.
func (f Fault) kills() bool { return f == KilledFirst || f == KilledAfter }

// The operations of the ports.
const (
	OpLoadCheckpoint = "Store.LoadCheckpoint"
	OpLoad           = "Store.Load"
	OpSave           = "Store.SaveCheckpoint"
	OpCompact        = "Store.Compact"
	OpBeforeModel    = "Controller.BeforeModel"
	OpSpawn          = "Controller.Spawn"
	OpContinue       = "Controller.Continue"
	OpGet            = "Controller.Get"
	OpCancel         = "Controller.Cancel"
	OpWait           = "Controller.Wait"
	OpComplete       = "Controller.Complete"
	OpGenerate       = "Model.Generate"
	OpNewExecutor    = "ExecutorFactory.NewExecutor"
	OpExecute        = "Executor.Execute"
	OpClose          = "Executor.Close"
	OpCall           = "Backend.Call"
	OpText           = "Sink.Text"
)

// Op is one operation of a port.
type Op struct {
	N       int // counts from 1, over all attempts
	Attempt int // counts from 1
	Name    string
	Call    string // of Backend.Call: call id and index; of SaveCheckpoint: the revision

	// Under is, for SaveCheckpoint, the call that the checkpoint leaves
	// dispatched: the name of its tool, or nothing.
	Under string
}

func (o Op) String() string {
	s := fmt.Sprintf("operation %d (%s", o.N, o.Name)
	if o.Call != "" {
		s += " " + o.Call
	}
	return fmt.Sprintf("%s, attempt %d)", s, o.Attempt)
}

// attempt is one attempt whose ports are tapped.
type attempt struct {
	host   *Host
	number int
	dead   atomic.Bool
	open   atomic.Int32 // executors
}

// do carries out one operation and whatever fault is planned for it. Fail makes
// the error of a failing operation.
func (a *attempt) do(op Op, fail func(error) error, effect func() error) error {
	if a.dead.Load() {
		goruntime.Goexit() // a killed attempt does nothing more
	}
	fault := a.host.plan(a, &op)
	if fault.first() {
		if fault.kills() {
			a.kill()
		}
		return fail(fmt.Errorf("%s: %w", op, ErrInjected))
	}
	err := effect()
	switch fault {
	case KilledAfter:
		a.kill()
	case FailsAfter:
		return fail(fmt.Errorf("%s: %w", op, ErrInjected))
	}
	if a.dead.Load() {
		goruntime.Goexit() // killed from another goroutine meanwhile
	}
	return err
}

// kill ends the attempt: this goroutine now, every other one at its next
// operation.
func (a *attempt) kill() {
	a.dead.Store(true)
	goruntime.Goexit()
}

// plan notes an operation and returns its fault.
func (h *Host) plan(a *attempt, op *Op) Fault {
	h.mu.Lock()
	op.N, op.Attempt = len(h.ops)+1, a.number
	h.ops = append(h.ops, *op)
	h.mu.Unlock()
	if h.Plan == nil {
		return Works
	}
	return h.Plan(*op)
}

func plainly(err error) error { return err }

func fatally(err error) error { return &FatalError{err} }
