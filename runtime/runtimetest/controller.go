package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// ErrBudget is what a Controller answers when its budget is used up.
var ErrBudget = errors.New("the budget is used up")

// The states of a Controller's children.
const (
	Running   = "running"
	Completed = "completed"
	Failed    = "failed"
	Cancelled = "cancelled"
)

// Controller is a runtime.Controller in memory. It outlives attempts: give each
// attempt the same one. Children do nothing by themselves: Settle and Fail end
// them. Time passes by Advance.
type Controller struct {
	// Limit is how many model requests may be reserved; 0: any number.
	Limit int

	// Agents, when set, are the only children that may be started.
	Agents []string

	// Policy, when set, may refuse a completion.
	Policy func(reply *events.Reply) error

	// Intercept, when set, is asked before every method but BeforeModel; its
	// error is the answer.
	Intercept func(method string) error

	mu       sync.Mutex
	now      time.Duration
	charges  int
	children []*child
	waits    map[string]*wait
	reply    []byte // that Complete accepted
}

type child struct {
	runtime.AgentRunInfo
	cause string // what the call asked for
}

// wait is a wait_calls call that was seen: its dependencies and deadline stay.
type wait struct {
	runtime.WaitRequest
	deadline time.Duration
}

var _ runtime.Controller = (*Controller)(nil)

// BeforeModel implements runtime.Controller.
func (c *Controller) BeforeModel(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Limit > 0 && c.charges >= c.Limit {
		return ErrBudget
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	c.charges++
	return nil
}

// enter begins a method. The lock is held when it returns no error.
func (c *Controller) enter(ctx context.Context, method string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if c.Intercept != nil {
		if err := c.Intercept(method); err != nil {
			return err
		}
	}
	c.mu.Lock()
	return nil
}

// Spawn implements runtime.Controller.
func (c *Controller) Spawn(ctx context.Context, callID, slug string, input json.RawMessage) (*runtime.AgentRunInfo, error) {
	if err := c.enter(ctx, "Spawn"); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	if len(c.Agents) > 0 && !slices.Contains(c.Agents, slug) {
		return nil, fmt.Errorf("there is no agent %q", slug)
	}
	hash, err := events.HashJSON(input)
	if err != nil {
		return nil, err
	}
	return c.start(callID, "spawn "+slug+" "+hash, "child-"+callID, slug)
}

// Continue implements runtime.Controller.
func (c *Controller) Continue(ctx context.Context, callID, session, prompt string) (*runtime.AgentRunInfo, error) {
	if err := c.enter(ctx, "Continue"); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	cause := "continue " + session + " " + prompt
	agent := ""
	for _, ch := range c.children {
		switch {
		case ch.CallID == callID:
			return c.start(callID, cause, session, ch.Agent)
		case ch.Session == session && ch.State == Running:
			return nil, fmt.Errorf("session %s has a run that has not ended", session)
		case ch.Session == session:
			agent = ch.Agent
		}
	}
	if agent == "" {
		return nil, fmt.Errorf("there is no session %s", session)
	}
	return c.start(callID, cause, session, agent)
}

// start returns the child that a call has started, or starts it.
func (c *Controller) start(callID, cause, session, agent string) (*runtime.AgentRunInfo, error) {
	ch := c.find(callID)
	switch {
	case ch == nil:
		ch = &child{runtime.AgentRunInfo{CallID: callID, Run: session + "/" + callID, Session: session, Agent: agent, State: Running}, cause}
		c.children = append(c.children, ch)
	case ch.cause != cause:
		return nil, fmt.Errorf("call %s has started %s with other arguments", callID, ch.Run)
	}
	// A handle tells what started, not how it goes: it is the same for ever.
	return &runtime.AgentRunInfo{CallID: callID, Run: ch.Run, Session: ch.Session, Agent: ch.Agent, State: Running}, nil
}

func (c *Controller) find(callID string) *child {
	i := slices.IndexFunc(c.children, func(ch *child) bool { return ch.CallID == callID })
	if i < 0 {
		return nil
	}
	return c.children[i]
}

// Get implements runtime.Controller.
func (c *Controller) Get(ctx context.Context, calls []string) ([]runtime.AgentRunInfo, error) {
	if err := c.enter(ctx, "Get"); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	return c.infos(calls)
}

// Cancel implements runtime.Controller.
func (c *Controller) Cancel(ctx context.Context, calls []string) ([]runtime.AgentRunInfo, error) {
	if err := c.enter(ctx, "Cancel"); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	if _, err := c.infos(calls); err != nil {
		return nil, err
	}
	for _, id := range calls {
		if ch := c.find(id); ch.State == Running {
			ch.State = Cancelled
		}
	}
	return c.infos(calls)
}

func (c *Controller) infos(calls []string) ([]runtime.AgentRunInfo, error) {
	infos := []runtime.AgentRunInfo{}
	for _, id := range calls {
		ch := c.find(id)
		if ch == nil {
			return nil, fmt.Errorf("call %q has started no run", id)
		}
		infos = append(infos, ch.AgentRunInfo)
	}
	return infos, nil
}

// Wait implements runtime.Controller.
func (c *Controller) Wait(ctx context.Context, callID string, r runtime.WaitRequest) (*runtime.WaitResult, error) {
	if err := c.enter(ctx, "Wait"); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	w := c.waits[callID]
	if w == nil {
		if len(r.Calls) == 0 {
			r.Calls = c.open()
		}
		w = &wait{r, c.now + r.Timeout}
	}
	infos, err := c.infos(w.Calls)
	if err != nil {
		return nil, err
	}
	result := &runtime.WaitResult{Settled: []runtime.AgentRunInfo{}}
	for _, info := range infos {
		if info.State == Running {
			result.Pending = append(result.Pending, info)
		} else {
			result.Settled = append(result.Settled, info)
		}
	}
	enough := len(result.Pending) == 0 || w.Any && len(result.Settled) > 0
	switch {
	case enough && !(w.Messages && len(infos) == 0):
		return result, nil
	case w.Timeout > 0 && c.now >= w.deadline:
		result.TimedOut = true
		return result, nil
	}
	if c.waits == nil {
		c.waits = make(map[string]*wait)
	}
	c.waits[callID] = w
	return nil, fmt.Errorf("wait %s is parked: %w", callID, runtime.ErrWaiting)
}

// open returns the calls whose child has not ended.
func (c *Controller) open() []string {
	var calls []string
	for _, ch := range c.children {
		if ch.State == Running {
			calls = append(calls, ch.CallID)
		}
	}
	return calls
}

// Complete implements runtime.Controller.
func (c *Controller) Complete(ctx context.Context, reply *events.Reply) error {
	if err := c.enter(ctx, "Complete"); err != nil {
		return err
	}
	defer c.mu.Unlock()
	data, err := events.Marshal(reply)
	if err != nil {
		return err
	}
	if c.reply != nil {
		if same, err := events.EqualJSON(c.reply, data); err != nil || !same {
			return errors.Join(err, errors.New("the run has completed with another reply"))
		}
		return nil
	}
	if open := c.open(); len(open) > 0 {
		return fmt.Errorf("calls %v have not ended: wait for them or cancel them", open)
	}
	if c.Policy != nil {
		if err := c.Policy(reply); err != nil {
			return err
		}
	}
	c.reply = data
	return nil
}

// Settle ends the child that a call started, with an output, which is JSON.
func (c *Controller) Settle(callID, output string) {
	c.end(callID, Completed, func(ch *child) {
		ch.Reply = &events.Reply{Kind: events.ReplyOutput, Output: json.RawMessage(output)}
	})
}

// Fail ends the child that a call started, without a reply.
func (c *Controller) Fail(callID, reason string) {
	c.end(callID, Failed, func(ch *child) { ch.Error = reason })
}

func (c *Controller) end(callID, state string, change func(*child)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch := c.find(callID); ch != nil && ch.State == Running {
		ch.State = state
		change(ch)
	}
}

// SettleAll ends every child that runs. Each says which call it answers.
func (c *Controller) SettleAll() {
	for _, info := range c.Children() {
		c.Settle(info.CallID, object("from", info.CallID))
	}
}

// Advance lets time pass.
func (c *Controller) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += d
}

// Children returns every child, in the order they were started.
func (c *Controller) Children() []runtime.AgentRunInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	infos := make([]runtime.AgentRunInfo, len(c.children))
	for i, ch := range c.children {
		infos[i] = ch.AgentRunInfo
	}
	return infos
}

// Charges returns how many model requests were reserved.
func (c *Controller) Charges() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.charges
}
