package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// tap puts every port behind the attempt's faults and the host's notes.
func (a *attempt) tap(in *runtime.Input) {
	in.Model = tappedModel{a, in.Model}
	in.Store = tappedStore{a, in.Store}
	in.Backend = tappedBackend{a, in.Backend}
	in.ExecutorFactory = tappedFactory{a, in.ExecutorFactory}
	in.Controller = tappedController{a, in.Controller}
	in.Sink = tappedSink{a, in.Sink}
}

// value carries out an operation that has a value.
func value[T any](a *attempt, op Op, fail func(error) error, effect func() (T, error)) (v T, err error) {
	err = a.do(op, fail, func() (err error) { v, err = effect(); return err })
	if err != nil {
		var none T
		return none, err
	}
	return v, nil
}

type tappedModel struct {
	a     *attempt
	inner runtime.Model
}

func (m tappedModel) Generate(ctx context.Context, r *runtime.Request) (*runtime.Response, error) {
	return value(m.a, Op{Name: OpGenerate}, plainly, func() (*runtime.Response, error) {
		h := m.a.host
		h.mu.Lock()
		h.requests = append(h.requests, r)
		h.mu.Unlock()
		response, err := m.inner.Generate(ctx, r)
		var refused *runtime.ModelError
		if errors.As(err, &refused) && refused.Class == runtime.ClassOverflow {
			h.mu.Lock()
			h.charges-- // the reservation stands for the request that comes in its place
			h.mu.Unlock()
		}
		return response, err
	})
}

type tappedStore struct {
	a     *attempt
	inner runtime.Store
}

func (s tappedStore) LoadCheckpoint(ctx context.Context) (*projector.Checkpoint, error) {
	return value(s.a, Op{Name: OpLoadCheckpoint}, plainly, func() (*projector.Checkpoint, error) {
		c, err := s.inner.LoadCheckpoint(ctx)
		if err == nil {
			s.a.host.loaded(c)
		}
		return c, err
	})
}

func (s tappedStore) Load(ctx context.Context) ([]events.Message, error) {
	return value(s.a, Op{Name: OpLoad}, plainly, func() ([]events.Message, error) { return s.inner.Load(ctx) })
}

func (s tappedStore) Compact(ctx context.Context, window []events.Message) error {
	return s.a.do(Op{Name: OpCompact}, plainly, func() error {
		h := s.a.host
		h.mu.Lock()
		h.compacted++
		h.mu.Unlock()
		if err := h.checkCompacted(ctx, s.inner, window); err != nil {
			h.violate(err)
		}
		return s.inner.Compact(ctx, window)
	})
}

func (s tappedStore) SaveCheckpoint(ctx context.Context, c *projector.Checkpoint) error {
	op := Op{Name: OpSave, Call: fmt.Sprint(c.Revision)}
	for _, call := range c.Calls {
		if call.State == events.CallDispatched {
			op.Under = call.Name
		}
	}
	if n := s.a.open.Load(); n > 0 {
		s.a.host.violate(fmt.Errorf("revision %d was saved while %d executors were open", c.Revision, n))
	}
	return s.a.do(op, plainly, func() error {
		var kept projector.Checkpoint
		data, err := events.Marshal(c)
		if err == nil {
			err = json.Unmarshal(data, &kept)
		}
		if err != nil {
			return err
		}
		err = s.inner.SaveCheckpoint(ctx, c)
		s.a.host.saved(&kept, err)
		return err
	})
}

type tappedBackend struct {
	a     *attempt
	inner runtime.Backend
}

func (b tappedBackend) Call(ctx context.Context, c *runtime.Callback) (json.RawMessage, error) {
	op := Op{Name: OpCall, Call: fmt.Sprintf("%s/%d", c.CallID, c.Index)}
	return value(b.a, op, fatally, func() (json.RawMessage, error) {
		h := b.a.host
		h.mu.Lock()
		if !c.Direct || !c.Capability.Effect.Repeatable() {
			h.dispatches[dispatchKey{c.CallID, c.Index}]++
		}
		h.mu.Unlock()
		return b.inner.Call(ctx, c)
	})
}

// Recall implements runtime.Recaller, as the inner one does or knowing nothing.
func (b tappedBackend) Recall(ctx context.Context, c *runtime.Callback) (json.RawMessage, bool, error) {
	if r, ok := b.inner.(runtime.Recaller); ok {
		return r.Recall(ctx, c)
	}
	return nil, false, nil
}

type tappedFactory struct {
	a     *attempt
	inner runtime.ExecutorFactory
}

// NewExecutor counts an executor once it is handed over: one that a fault keeps
// from the loop dies with its factory.
func (f tappedFactory) Describe() string { return f.inner.Describe() }

func (f tappedFactory) NewExecutor(ctx context.Context) (runtime.Executor, error) {
	inner, err := value(f.a, Op{Name: OpNewExecutor}, plainly, func() (runtime.Executor, error) { return f.inner.NewExecutor(ctx) })
	if err != nil {
		return nil, err
	}
	e := &tappedExecutor{a: f.a, inner: inner}
	h := f.a.host
	h.mu.Lock()
	h.executors = append(h.executors, e)
	h.mu.Unlock()
	f.a.open.Add(1)
	return e, nil
}

type tappedExecutor struct {
	a      *attempt
	inner  runtime.Executor
	closed int
}

func (e *tappedExecutor) Execute(ctx context.Context, s *runtime.Script) (*runtime.ScriptResult, error) {
	return value(e.a, Op{Name: OpExecute}, plainly, func() (*runtime.ScriptResult, error) { return e.inner.Execute(ctx, s) })
}

// Close counts as one whatever fault is planned: it is the loop that is judged.
func (e *tappedExecutor) Close() error {
	e.a.open.Add(-1)
	e.a.host.mu.Lock()
	e.closed++
	e.a.host.mu.Unlock()
	if e.a.dead.Load() {
		return e.inner.Close() // the realm dies with its worker
	}
	return e.a.do(Op{Name: OpClose}, plainly, e.inner.Close)
}

type tappedSink struct {
	a     *attempt
	inner runtime.Sink
}

func (s tappedSink) Text(ctx context.Context, revision uint64, text string) {
	// A sink has no way to fail.
	_ = s.a.do(Op{Name: OpText}, plainly, func() error {
		s.inner.Text(ctx, revision, text)
		return nil
	})
}

type tappedController struct {
	a     *attempt
	inner runtime.Controller
}

func (c tappedController) BeforeModel(ctx context.Context) error {
	return c.a.do(Op{Name: OpBeforeModel}, plainly, func() error {
		err := c.inner.BeforeModel(ctx)
		if err == nil {
			h := c.a.host
			h.mu.Lock()
			h.charges++
			h.mu.Unlock()
		}
		return err
	})
}

func (c tappedController) Spawn(ctx context.Context, callID, slug string, input json.RawMessage) (*runtime.AgentRunInfo, error) {
	return value(c.a, Op{Name: OpSpawn}, fatally, func() (*runtime.AgentRunInfo, error) { return c.inner.Spawn(ctx, callID, slug, input) })
}

func (c tappedController) Continue(ctx context.Context, callID, session, prompt string) (*runtime.AgentRunInfo, error) {
	return value(c.a, Op{Name: OpContinue}, fatally, func() (*runtime.AgentRunInfo, error) { return c.inner.Continue(ctx, callID, session, prompt) })
}

func (c tappedController) Get(ctx context.Context, calls []string) ([]runtime.AgentRunInfo, error) {
	return value(c.a, Op{Name: OpGet}, fatally, func() ([]runtime.AgentRunInfo, error) { return c.inner.Get(ctx, calls) })
}

func (c tappedController) Cancel(ctx context.Context, calls []string) ([]runtime.AgentRunInfo, error) {
	return value(c.a, Op{Name: OpCancel}, fatally, func() ([]runtime.AgentRunInfo, error) { return c.inner.Cancel(ctx, calls) })
}

func (c tappedController) Wait(ctx context.Context, callID string, r runtime.WaitRequest) (*runtime.WaitResult, error) {
	return value(c.a, Op{Name: OpWait}, fatally, func() (*runtime.WaitResult, error) { return c.inner.Wait(ctx, callID, r) })
}

func (c tappedController) Complete(ctx context.Context, reply *events.Reply) error {
	return c.a.do(Op{Name: OpComplete}, fatally, func() error { return c.inner.Complete(ctx, reply) })
}
