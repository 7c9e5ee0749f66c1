package handlers

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// maxReplies bounds the replies in one answer about children, in bytes.
const maxReplies = 128 << 10

// trimAnswer leaves out of an answer about several children what would make it
// too long, and returns the calls whose end it tells whole.
func trimAnswer(infos []runtime.AgentRunInfo) (told []string) {
	left := maxReplies
	for i := range infos {
		info := &infos[i]
		if info.State == stateOpen || !projector.State(info.State).Terminal() {
			continue
		}
		size := len(info.Error)
		if info.Reply != nil {
			size += len(info.Reply.Output) + len(info.Reply.Question)
		}
		if size > left && len(infos) > 1 {
			info.Reply, info.Error, info.Note = nil, bounded(info.Error, maxNamed), "the rest was left out of this long answer; ask with get_calls for this call alone"
			continue
		}
		left -= size
		told = append(told, info.CallID)
	}
	return told
}

// stateOpen is what a wait says of a child that has not settled, and maxPending
// how many of those it lists.
const (
	stateOpen  = "open"
	maxPending = 50
)

// maxSettled is how many children one answer tells the end of: about 180 bytes
// each without their replies.
const maxSettled = 1000

// Wait implements runtime.Controller. Its answer is a function of the fold: what
// settled, and otherwise whether the time-out's timer has fired.
func (c *controller) Wait(ctx context.Context, callID string, r runtime.WaitRequest) (*runtime.WaitResult, error) {
	if err := c.mayAct(); err != nil {
		return nil, err
	}
	var deadline *time.Time
	if w := c.run().Wait; w != nil && w.CallID == callID {
		deadline = w.Deadline
	} else if r.Timeout > 0 {
		at := c.host.Now().Add(r.Timeout).UTC()
		deadline = &at
	}
	whole, err := c.store.whole(ctx)
	if err == nil {
		err = c.meter.settle(whole)
	}
	if err != nil {
		return nil, fatal(err)
	}
	var waited []projector.Child
	err = c.store.park(ctx, func() (*events.RunParked, error) {
		run := c.run()
		var err error
		if waited, err = c.waited(run, r, callID); err != nil {
			return nil, err
		}
		park := &events.RunParked{CallID: callID, Any: r.Any, Messages: r.Messages, Deadline: deadline, Reason: events.ParkChildren}
		settled := 0
		for _, child := range waited {
			park.Dependencies = append(park.Dependencies, child.Run)
			if child.Settled != nil {
				settled++
			}
		}
		if len(waited) == 0 {
			park.Reason = events.ParkMessage
		}
		again := run.Wait != nil && run.Wait.CallID == callID
		switch {
		case len(waited) > 0 && (settled == len(waited) || r.Any && settled > 0),
			r.Messages && len(run.Messages) > 0,
			again && run.Timer != nil:
			return nil, nil
		}
		return park, nil
	})
	if err != nil {
		return nil, fatalWait(err)
	}
	return c.waitResult(ctx, waited, r, callID)
}

func fatalWait(err error) error {
	if errors.Is(err, runtime.ErrWaiting) {
		return err
	}
	return fatal(err)
}

// waited returns the children that a wait is for, as the fold has them now. A
// wait that is made again waits for what it waited for at first.
func (c *controller) waited(run *projector.Run, r runtime.WaitRequest, callID string) ([]projector.Child, error) {
	var list []projector.Child
	for _, id := range r.Calls {
		child := run.Child(id)
		if child == nil {
			return nil, &CallError{id, "is no call of this run that started a child, so there is nothing to wait for"}
		}
		if !slices.ContainsFunc(list, func(o projector.Child) bool { return o.CallID == id }) {
			list = append(list, *child)
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	if w := run.Wait; w != nil && w.CallID == callID {
		for _, child := range run.Children {
			if child.Awaited {
				list = append(list, child)
			}
		}
		return list, nil
	}
	// A child that has settled since it was started is one that the model does
	// not know of yet.
	for _, child := range run.Children {
		if !child.Told {
			list = append(list, child)
		}
	}
	if len(list) == 0 && !r.Messages {
		return nil, &CallError{"", "there is nothing to wait for: no call is open"}
	}
	return list, nil
}

// waitResult tells what came of a wait. Replies that were too long for the fact
// are read from the child's own log.
func (c *controller) waitResult(ctx context.Context, waited []projector.Child, r runtime.WaitRequest, callID string) (*runtime.WaitResult, error) {
	run := c.run()
	c.store.telling, c.store.tellingUntrusted = nil, false
	result := &runtime.WaitResult{Settled: []runtime.AgentRunInfo{}}
	pending := 0
	if len(waited) > maxSettled {
		// Those that the model was not told of come first.
		slices.SortStableFunc(waited, func(a, b projector.Child) int { return cmp.Compare(toldLast(&a), toldLast(&b)) })
	}
	for i := range waited {
		child := &waited[i]
		info := runtime.AgentRunInfo{CallID: child.CallID, Run: child.Run, Session: child.Session, Agent: child.Agent, State: stateOpen}
		s := child.Settled
		if s == nil {
			if pending++; pending <= maxPending {
				result.Pending = append(result.Pending, info)
			}
			continue
		}
		if len(result.Settled) == maxSettled {
			result.MoreSettled++
			continue
		}
		info.State, info.Reply, info.Error = s.Outcome, s.Reply, s.Error
		c.store.tellingUntrusted = c.store.tellingUntrusted || s.Untrusted
		if s.Reply == nil && s.Outcome == string(projector.StateCompleted) {
			ended, err := c.look(ctx, child)
			if err != nil {
				return nil, fatal(err)
			}
			if ended != nil && ended.Checkpoint != nil {
				info.Reply = ended.Checkpoint.Reply
			}
		}
		result.Settled = append(result.Settled, info)
	}
	c.store.telling = trimAnswer(result.Settled)
	result.MorePending = max(pending-maxPending, 0)
	if r.Messages {
		result.Messages = len(run.Messages)
	}
	met := len(waited) > 0 && (pending == 0 || r.Any && len(result.Settled) > 0) || result.Messages > 0
	result.TimedOut = !met && run.Wait != nil && run.Wait.CallID == callID && run.Timer != nil
	return result, nil
}

func toldLast(c *projector.Child) int {
	if c.Told {
		return 1
	}
	return 0
}
