package runtime_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/scripted"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
	"github.com/agentruntime/agentruntime/runtime/tokens"
)

// Memory is what one run has committed. It is durable for as long as this
// process lives and no longer: a host that must survive its own end writes the
// same bytes to a database, in one transaction for each method.
type Memory struct {
	mu         sync.Mutex
	lease      int // of whoever took the run over last
	checkpoint []byte
	revision   uint64
	window     []json.RawMessage
	history    []json.RawMessage // of windows that were compacted
}

// Take hands the run to a new attempt. Whoever had it can no longer write.
func (m *Memory) Take() runtime.Store {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lease++
	return &held{m, m.lease}
}

// held is a Store: the memory under the lease of one attempt.
type held struct {
	*Memory
	number int
}

// enter begins an operation. A context that has ended is an error, never a run
// without a checkpoint.
func (h *held) enter(ctx context.Context, write bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h.mu.Lock()
	if write && h.number != h.lease {
		h.mu.Unlock()
		return errors.New("another attempt has taken the run over")
	}
	return nil
}

// LoadCheckpoint implements runtime.Store.
func (h *held) LoadCheckpoint(ctx context.Context) (c *projector.Checkpoint, err error) {
	if err := h.enter(ctx, false); err != nil {
		return nil, err
	}
	defer h.mu.Unlock()
	if h.revision == 0 {
		return nil, nil
	}
	return c, json.Unmarshal(h.checkpoint, &c)
}

// SaveCheckpoint implements runtime.Store. The checkpoint and the messages that
// it appends are stored together or not at all.
func (h *held) SaveCheckpoint(ctx context.Context, c *projector.Checkpoint) error {
	data, err := events.Marshal(c)
	if err != nil {
		return err
	}
	appended, err := encode(c.Append)
	if err != nil {
		return err
	}
	if err := h.enter(ctx, true); err != nil {
		return err
	}
	defer h.mu.Unlock()
	switch {
	case c.Revision == h.revision && bytes.Equal(data, h.checkpoint):
		return nil // the same commit again, after its answer was lost
	case c.Revision != h.revision+1:
		return fmt.Errorf("revision %d cannot follow %d", c.Revision, h.revision)
	}
	h.revision, h.checkpoint, h.window = c.Revision, data, append(h.window, appended...)
	return nil
}

// Load implements runtime.SessionStore.
func (h *held) Load(ctx context.Context) ([]events.Message, error) {
	if err := h.enter(ctx, false); err != nil {
		return nil, err
	}
	defer h.mu.Unlock()
	window := make([]events.Message, len(h.window))
	for i, data := range h.window {
		if err := json.Unmarshal(data, &window[i]); err != nil {
			return nil, err
		}
	}
	return window, nil
}

// Compact implements runtime.SessionStore.
func (h *held) Compact(ctx context.Context, window []events.Message) error {
	shorter, err := encode(window)
	if err != nil {
		return err
	}
	if err := h.enter(ctx, true); err != nil {
		return err
	}
	defer h.mu.Unlock()
	h.history = slices.Concat(h.history, h.window)
	h.window = shorter
	return nil
}

func encode(messages []events.Message) (out []json.RawMessage, err error) {
	for _, m := range messages {
		data, err := events.Marshal(m)
		if err != nil {
			return nil, err
		}
		out = append(out, data)
	}
	return out, nil
}

// Budget is a Controller that counts requests. Its agents have no children.
type Budget struct {
	Requests int
}

var errSpent = errors.New("the budget is spent")

// BeforeModel implements runtime.Controller. What it counts must be as durable
// as the store, or a restart would give the budget back.
func (b *Budget) BeforeModel(context.Context) error {
	if b.Requests == 0 {
		return errSpent
	}
	b.Requests--
	return nil
}

// Complete implements runtime.Controller: any reply will do.
func (b *Budget) Complete(context.Context, *events.Reply) error { return nil }

var errNoChildren = &runtime.DeniedError{Reason: "this host starts no children"}

// Spawn implements runtime.Controller, like the rest.
func (b *Budget) Spawn(context.Context, string, string, json.RawMessage) (*runtime.AgentRunInfo, error) {
	return nil, errNoChildren
}

func (b *Budget) Continue(context.Context, string, string, string) (*runtime.AgentRunInfo, error) {
	return nil, errNoChildren
}

func (b *Budget) Get(context.Context, []string) ([]runtime.AgentRunInfo, error) {
	return nil, errNoChildren
}

func (b *Budget) Cancel(context.Context, []string) ([]runtime.AgentRunInfo, error) {
	return nil, errNoChildren
}

func (b *Budget) Wait(context.Context, string, runtime.WaitRequest) (*runtime.WaitResult, error) {
	return nil, errNoChildren
}

// Desks is a Backend: what scripts may call.
type Desks struct{ booked int }

// Call implements runtime.Backend.
func (d *Desks) Call(_ context.Context, c *runtime.Callback) (json.RawMessage, error) {
	d.booked++
	fmt.Printf("%s %s\n", c.Capability.Name, c.Input)
	return json.RawMessage(`{"desk":"3-17"}`), nil
}

// Console is a Sink, and a Redactor that knows no secret.
type Console struct{}

func (Console) Text(_ context.Context, _ uint64, text string) { fmt.Println("the model says:", text) }
func (Console) Redact(text string) string                     { return text }

// An agent in a Go program of its own, without a broker: Memory is the store and
// Budget the controller. The budget ends in the middle of the run, somebody pays,
// and another attempt goes on where the first one ended: the desk is booked once.
//
// The model is a script, and so are its scripts: in earnest a host gives one of
// the packages in runtime/model, wrapped in a retry.Model, and the factory of
// runtime/executor.
func Example() {
	model, err := scripted.Parse("desk", []byte(`
responses:
  - text: Let me book one.
    calls: [{name: run_js, arguments: {code: "desk.book {\"floor\":3}\nreturn"}}]
  - calls: [{name: complete, arguments: {kind: output, output: $result/value/0}}]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	memory, budget, desks := new(Memory), &Budget{Requests: 1}, new(Desks)
	attempt := func() (*runtime.Result, error) {
		return runtime.Run(context.Background(), runtime.Input{
			Definition:      events.AgentDefinition{Slug: "desk", Instructions: "Book the desk the user asks for.", Model: "scripted/desk"},
			Capabilities:    []events.Capability{{Name: "desk.book"}},
			RunID:           "run-1",
			Message:         events.Text("task", events.RoleUser, "A desk on floor 3."),
			Model:           model,
			ModelLimits:     runtime.ModelLimits{ContextTokens: 32_000},
			Estimator:       tokens.New("scripted/desk"),
			Store:           memory.Take(),
			Controller:      budget,
			Backend:         desks,
			ExecutorFactory: new(runtimetest.Factory),
			Sink:            Console{},
			Redactor:        Console{},
		})
	}
	if _, err := attempt(); errors.Is(err, errSpent) {
		fmt.Println("the attempt ended:", err)
		budget.Requests = 10
	}
	result, err := attempt()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s, after %d booking\n", result.Reply.Output, desks.booked)
	// Output:
	// the model says: Let me book one.
	// desk.book {"floor":3}
	// the attempt ended: reserve a model request: the budget is spent
	// {"desk":"3-17"}, after 1 booking
}
