package handlers

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// HeaderInquiry marks a request that asks what became of a callback: its value
// is status. Its other headers are those of the callback, its data is
// {"key": "…"}, and the answer is {"state": "done", "result": …},
// {"state": "not-done"} or {"state": "unknown"}. Whoever answers not-done
// refuses the callback should it still arrive; its epoch is lower than that of
// the inquiry.
const HeaderInquiry = "Agent-Inquiry"

// againPause is the pause before a service that nobody serves is asked again for
// a callback that was interrupted: it may come back later than the worker.
const againPause = 500 * time.Millisecond

// idempotencyKey names one callback, for ever.
func idempotencyKey(namespace, run, callID string, index int) string {
	return namespace + "/" + run + "/" + callID + "/" + strconv.Itoa(index)
}

var _ runtime.Inquirer = (*backend)(nil)

// Status implements runtime.Inquirer. It asks as long as a callback may take.
func (b *backend) Status(ctx context.Context, c *runtime.Callback) (*runtime.CallbackStatus, error) {
	asked := *c.Capability
	asked.Route, asked.Egress = *c.Capability.Status, false // it takes a key along that this service made, and nothing else
	data, err := events.Marshal(map[string]string{"key": idempotencyKey(b.namespace, b.run.ID, c.CallID, c.Index)})
	if err != nil {
		return nil, err
	}
	inquiry := *c
	inquiry.Capability, inquiry.Input, inquiry.Direct = &asked, data, false // no call of its own, to be accepted and settled
	header := b.header(&inquiry)
	header[HeaderInquiry] = "status"
	answer, err := b.send(ctx, &inquiry, header)
	if err != nil {
		return nil, fmt.Errorf("ask what became of a callback of %s: %w", asked.Name, err)
	}
	var status runtime.CallbackStatus
	if err := readStrict(answer, &status); err != nil {
		return nil, fmt.Errorf("ask what became of a callback of %s: the answer is no status: %w", asked.Name, err)
	}
	return &status, nil
}
