package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// CheckTranscript returns what is wrong with a transcript: a message without an
// id or with one that was used, a call without exactly one result, or a result
// that does not stand directly after its assistant message, in the order of the
// calls.
func CheckTranscript(messages []events.Message) error {
	var all []error
	seen := make(map[string]bool)
	called := make(map[string]bool)
	var open []events.ToolCall // calls that must get their results now
	for _, m := range messages {
		if m.ID == "" || seen[m.ID] {
			all = append(all, fmt.Errorf("message id %q is empty or stands there twice", m.ID))
		}
		seen[m.ID] = true
		if m.Role == events.RoleTool {
			for _, p := range m.Parts {
				if p.Result == nil || len(open) == 0 || p.Result.CallID != open[0].ID || p.Result.Name != open[0].Name {
					all = append(all, fmt.Errorf("message %s is not the result of the next call (open: %v)", m.ID, open))
					continue
				}
				open = open[1:]
			}
			continue
		}
		if len(open) > 0 {
			all = append(all, fmt.Errorf("message %s comes before the results of %v", m.ID, open))
		}
		open = m.Calls()
		for _, c := range open {
			if c.ID == "" || called[c.ID] {
				all = append(all, fmt.Errorf("call id %q is empty or stands there twice", c.ID))
			}
			called[c.ID] = true
		}
	}
	if len(open) > 0 {
		all = append(all, fmt.Errorf("calls %v have no result", open))
	}
	return errors.Join(all...)
}

// Check returns what must not be, at the end of a run: see CrashEverywhere.
func (h *Host) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := append([]error{}, h.violations...)
	for i, c := range h.committed {
		if c.Revision != uint64(i+1) {
			all = append(all, fmt.Errorf("commit %d has revision %d", i+1, c.Revision))
		}
	}
	for key, n := range h.dispatches {
		if n > 1 {
			all = append(all, fmt.Errorf("callback %d of call %s was dispatched %d times", key.index, key.call, n))
		}
	}
	for i, e := range h.executors {
		if e.closed != 1 {
			all = append(all, fmt.Errorf("executor %d was closed %d times", i+1, e.closed))
		}
	}
	all = append(all, h.Factory.Misused(), CheckTranscript(h.transcript), h.checkWindow())
	return errors.Join(all...)
}

// checkWindow compares the window of the store with what was committed.
func (h *Host) checkWindow() error {
	if h.store == nil {
		return nil
	}
	window, err := h.store.Load(context.Background())
	if err != nil {
		return fmt.Errorf("load the window: %w", err)
	}
	if h.compacted > 0 {
		return CheckTranscript(window)
	}
	if len(window) < len(h.transcript) {
		return fmt.Errorf("the window has %d messages, %d were committed", len(window), len(h.transcript))
	}
	// The window may begin with earlier runs of the conversation.
	if tail := window[len(window)-len(h.transcript):]; jsonOf(tail) != jsonOf(h.transcript) {
		return fmt.Errorf("the window is not what was committed (-committed +window):\n%s", cmp.Diff(h.transcript, tail))
	}
	return nil
}

// checkCompacted returns what is wrong with a window that is to replace that of
// the store: it must be a valid transcript with the task of the run, and hold
// the newest response and all that follows it as they were.
func (h *Host) checkCompacted(ctx context.Context, store runtime.Store, window []events.Message) error {
	c, err := store.LoadCheckpoint(ctx)
	if err != nil {
		return err
	}
	before, err := store.Load(ctx)
	if err != nil {
		return err
	}
	if c == nil || c.Phase != projector.PhaseModel {
		return errors.New("a window was compacted where no model is asked")
	}
	task := slices.IndexFunc(before, func(m events.Message) bool { return m.ID == c.Task })
	newest := len(before) - 1
	for newest > max(task, 0) && before[newest].Role != events.RoleAssistant {
		newest--
	}
	find := func(list []events.Message, id string) string {
		i := slices.IndexFunc(list, func(m events.Message) bool { return m.ID == id })
		if i < 0 {
			return ""
		}
		return jsonOf(list[i])
	}
	all := []error{CheckTranscript(window)}
	for _, m := range append([]events.Message{{ID: c.Task}}, before[newest:]...) {
		if kept := find(window, m.ID); kept == "" || kept != find(before, m.ID) {
			all = append(all, fmt.Errorf("compaction changes message %s", m.ID))
		}
	}
	return errors.Join(all...)
}

// check judges a course by the undisturbed one; nil is the undisturbed one
// itself.
func (c *course) check(calm *course) error {
	all := append([]error{c.host.Check()}, c.problems...)
	if calm == nil {
		return errors.Join(all...)
	}
	if limit := calm.host.charges + c.crashes; c.host.charges > limit {
		all = append(all, fmt.Errorf("%d model requests were charged, the undisturbed run charged %d and there were %d crashes", c.host.charges, calm.host.charges, c.crashes))
	}
	if n := countUnknown(c.host.transcript) - countUnknown(calm.host.transcript); n != c.unknown {
		all = append(all, fmt.Errorf("%d outcomes are unknown, %d must be", n, c.unknown))
	}
	if !same(calm.reply, c.reply) || calm.failure != c.failure {
		all = append(all, fmt.Errorf("it ends with %s %s, the undisturbed run with %s %s", c.reply, c.failure, calm.reply, calm.failure))
	}
	if !same(jsonOf(calm.host.transcript), jsonOf(c.host.transcript)) {
		all = append(all, fmt.Errorf("the transcript differs (-undisturbed +disturbed):\n%s",
			cmp.Diff(RenderMessages(calm.host.transcript), RenderMessages(c.host.transcript))))
	}
	if c.unknown == 0 && c.host.Input.RecoveryNotice == "" {
		all = append(all, sameRequests(calm.host.requests, c.host.requests))
	}
	return errors.Join(all...)
}

// sameRequests compares each request with the undisturbed one of its position.
func sameRequests(calm, disturbed []*runtime.Request) error {
	place := func(r *runtime.Request) int {
		if runtime.IsSummaryRequest(r) {
			return -1
		}
		return Position(r)
	}
	expected := make(map[int][]*runtime.Request) // several where the window was compacted
	for _, r := range calm {
		expected[place(r)] = append(expected[place(r)], r)
	}
	for _, r := range disturbed {
		wanted := expected[place(r)]
		if len(wanted) == 0 {
			return fmt.Errorf("there is a request at step %d, which the undisturbed run does not have", place(r))
		}
		if !slices.ContainsFunc(wanted, func(want *runtime.Request) bool { return reflect.DeepEqual(want, r) }) {
			return fmt.Errorf("the request of step %d differs (-undisturbed +disturbed):\n%s", place(r), cmp.Diff(wanted[0], r))
		}
	}
	return nil
}

func countUnknown(messages []events.Message) (n int) {
	for _, m := range messages {
		for _, p := range m.Parts {
			if p.Result != nil && p.Result.Outcome == events.OutcomeUnknown {
				n++
			}
		}
	}
	return n
}

// same compares two JSON texts. A result whose outcome is unknown in the second
// is equal to the same call's result in the first.
func same(calm, disturbed string) bool {
	var a, b any
	if json.Unmarshal([]byte(calm), &a) != nil || json.Unmarshal([]byte(disturbed), &b) != nil {
		return calm == disturbed
	}
	return sameValue(a, b)
}

func sameValue(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			return false
		}
		if id, isResult := y["call_id"]; isResult && y["outcome"] == string(events.OutcomeUnknown) {
			return x["call_id"] == id && x["name"] == y["name"]
		}
		for key, value := range x {
			other, has := y[key]
			if !has || !sameValue(value, other) {
				return false
			}
		}
		return len(x) == len(y)
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !sameValue(x[i], y[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}
