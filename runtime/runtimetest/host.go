package runtimetest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/tokens"
)

// ErrKilled is what Host.Run returns for an attempt that was killed.
var ErrKilled = errors.New("the attempt was killed")

// Host is a world to run one run in. Its ports outlive attempts.
type Host struct {
	Model      *Model
	Store      *Store
	Backend    *Backend
	Controller *Controller
	Factory    *Factory
	Sink       *Sink
	Redactor   *Redactor
	Estimator  runtime.Estimator

	// Input is everything of an attempt's input but the ports.
	Input runtime.Input

	// Ports, when set, may replace ports of an attempt's input before it
	// begins: a host tests its own with it.
	Ports func(in *runtime.Input)

	// Plan, when set, chooses the fault of each operation of a port.
	Plan func(op Op) Fault

	mu         sync.Mutex
	store      runtime.Store // of the newest attempt
	attempts   int
	ops        []Op
	requests   []*runtime.Request
	committed  []*projector.Checkpoint
	unsettled  *projector.Checkpoint // a save that failed and may yet be found stored
	transcript []events.Message
	compacted  int // windows that were swapped
	charges    int
	dispatches map[dispatchKey]int
	executors  []*tappedExecutor
	violations []error
}

type dispatchKey struct {
	call  string
	index int
}

// NewHost returns a world for one run of an agent, with a task, a run id and
// model limits. All of it may be changed before the first attempt.
func NewHost(definition events.AgentDefinition) *Host {
	if definition.Slug == "" {
		definition.Slug = "agent"
	}
	return &Host{
		Model: &Model{}, Store: &Store{}, Backend: &Backend{}, Controller: &Controller{}, Factory: &Factory{}, Sink: &Sink{}, Redactor: &Redactor{}, Estimator: tokens.New(definition.Model),
		Input: runtime.Input{
			Definition:  definition,
			ModelLimits: runtime.ModelLimits{ContextTokens: 100_000},
			RunID:       "run-1",
			Message:     events.Text("task", events.RoleUser, "Do the task."),
		},
		dispatches: make(map[dispatchKey]int),
	}
}

// Run is one attempt: a fresh loop over the world as it stands, under a new
// lease of the store.
func (h *Host) Run(ctx context.Context) (*runtime.Result, error) {
	h.mu.Lock()
	h.attempts++
	a := &attempt{host: h, number: h.attempts}
	h.mu.Unlock()
	in := h.Input
	in.Model, in.Store, in.Backend, in.ExecutorFactory = h.Model, h.Store.Take(), h.Backend, h.Factory
	in.Controller, in.Sink, in.Redactor, in.Estimator = h.Controller, h.Sink, h.Redactor, h.Estimator
	if h.Ports != nil {
		h.Ports(&in)
	}
	h.store = in.Store
	a.tap(&in)
	type end struct {
		result *runtime.Result
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		// A killed attempt leaves its goroutine without sending.
		defer close(ended)
		result, err := runtime.Run(ctx, in)
		ended <- end{result, err}
	}()
	e, alive := <-ended
	if !alive {
		return nil, ErrKilled
	}
	return e.result, e.err
}

// Ops returns every operation of every attempt, in order.
func (h *Host) Ops() []Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ops)
}

// Transcript returns every message that was committed, in order.
func (h *Host) Transcript() []events.Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.transcript)
}

// Result returns how a call ended and what the model was told of it.
func (h *Host) Result(callID string) (events.Outcome, string) {
	for _, m := range h.Transcript() {
		for _, p := range m.Parts {
			if p.Result != nil && p.Result.CallID == callID {
				return p.Result.Outcome, textOf(p.Result.Parts)
			}
		}
	}
	return "", ""
}

// violate notes something that must never happen.
func (h *Host) violate(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violations = append(h.violations, err)
}

// saved notes what became of a save.
func (h *Host) saved(c *projector.Checkpoint, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.unsettled = c
		return
	}
	h.commit(c)
}

// loaded notes what the store holds: it tells whether a failed save stands.
func (h *Host) loaded(c *projector.Checkpoint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c != nil && h.unsettled != nil && c.Revision == h.unsettled.Revision {
		h.commit(h.unsettled)
	}
	h.unsettled = nil
}

func (h *Host) commit(c *projector.Checkpoint) {
	if n := len(h.committed); n > 0 && h.committed[n-1].Revision == c.Revision {
		return // the identical one again
	}
	h.committed = append(h.committed, c)
	h.transcript = append(h.transcript, c.Append...)
}
