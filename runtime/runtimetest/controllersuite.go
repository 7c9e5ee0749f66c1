package runtimetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// ControllerHost is one run of a host whose Controller is tested.
type ControllerHost struct {
	// Attempt returns the run's controller to a new attempt. It is called at
	// the beginning and after every park, and may be called at any time.
	Attempt func() runtime.Controller

	// Agent is a child that the run may start with either input.
	Agent        string
	Input, Other json.RawMessage

	// Settle ends the run of a child with an output.
	Settle func(child runtime.AgentRunInfo)

	// Expire, when set, lets the deadline of the wait that is parked pass.
	// The suite waits for one hour.
	Expire func()

	// Charges, when set, returns how many model requests were reserved.
	Charges func() int
}

// TestController runs the promises of the runtime.Controller port against an
// implementation. Open returns a fresh run. What a host cannot bring about is
// not asked of it.
func TestController(t *testing.T, open func(t *testing.T) *ControllerHost) {
	for _, c := range []struct {
		promise string
		check   func(*controllerBench)
	}{
		{"every model request is reserved", (*controllerBench).charges},
		{"the same spawn again is the same child", (*controllerBench).spawnAgain},
		{"a spawn again with other arguments is an error", (*controllerBench).spawnOther},
		{"an unknown child cannot be started", (*controllerBench).spawnUnknown},
		{"a session that has ended is continued once", (*controllerBench).continued},
		{"a session whose run has not ended is not continued", (*controllerBench).continueActive},
		{"calls of others are neither told nor cancelled", (*controllerBench).foreign},
		{"get tells where a child stands", (*controllerBench).get},
		{"a wait parks until all have settled", (*controllerBench).waitAll},
		{"a wait for any ends with the first", (*controllerBench).waitAny},
		{"a wait for what has settled does not park", (*controllerBench).waitSettled},
		{"a wait that times out cancels nobody", (*controllerBench).timeout},
		{"a completion with active children is refused, and accepted later", (*controllerBench).completeActive},
		{"an identical completion again is accepted", (*controllerBench).completeAgain},
	} {
		t.Run(c.promise, func(t *testing.T) {
			host := open(t)
			c.check(&controllerBench{T: t, host: host, c: host.Attempt()})
		})
	}
}

type controllerBench struct {
	*testing.T
	host *ControllerHost
	c    runtime.Controller
}

// recover goes on as another attempt.
func (b *controllerBench) recover() { b.c = b.host.Attempt() }

func (b *controllerBench) spawn(callID string) runtime.AgentRunInfo {
	b.Helper()
	info, err := b.c.Spawn(b.Context(), callID, b.host.Agent, b.host.Input)
	if err != nil {
		b.Fatalf("spawn: %v", err)
	}
	if info.CallID != callID || info.Run == "" || info.Session == "" || info.Agent != b.host.Agent {
		b.Fatalf("the handle of call %s is %+v", callID, *info)
	}
	return *info
}

func (b *controllerBench) refused(what string, err error) {
	b.Helper()
	var fatal runtime.FatalToolError
	if err == nil || errors.As(err, &fatal) || errors.Is(err, runtime.ErrWaiting) {
		b.Errorf("%s: %v; it must be an ordinary error", what, err)
	}
}

func (b *controllerBench) charges() {
	for range 2 {
		if err := b.c.BeforeModel(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.recover()
	}
	if b.host.Charges != nil && b.host.Charges() != 2 {
		b.Errorf("2 requests were reserved, %d are charged", b.host.Charges())
	}
}

func (b *controllerBench) spawnAgain() {
	first, other := b.spawn("c1"), b.spawn("c2")
	if first.Run == other.Run || first.Session == other.Session {
		b.Errorf("two calls have one child: %+v, %+v", first, other)
	}
	for range 2 {
		if again := b.spawn("c1"); again.Run != first.Run || again.Session != first.Session {
			b.Errorf("the same call started %+v and then %+v", first, again)
		}
		b.recover()
	}
	b.host.Settle(first)
	if again := b.spawn("c1"); again.Run != first.Run {
		b.Errorf("the same call, after the child has ended, started %+v", again)
	}
}

func (b *controllerBench) spawnOther() {
	b.spawn("c1")
	_, err := b.c.Spawn(b.Context(), "c1", b.host.Agent, b.host.Other)
	b.refused("a spawn with other arguments", err)
	b.recover()
	_, err = b.c.Spawn(b.Context(), "c1", b.host.Agent, b.host.Other)
	b.refused("a spawn with other arguments, after a crash", err)
	_, err = b.c.Continue(b.Context(), "c1", "somewhere", "else")
	b.refused("another kind of call with the same id", err)
}

func (b *controllerBench) spawnUnknown() {
	_, err := b.c.Spawn(b.Context(), "c1", b.host.Agent+"-that-is-not-there", b.host.Input)
	b.refused("an unknown child", err)
}

func (b *controllerBench) continued() {
	child := b.spawn("c1")
	b.host.Settle(child)
	next, err := b.c.Continue(b.Context(), "c2", child.Session, "Go on.")
	if err != nil {
		b.Fatalf("continue: %v", err)
	}
	if next.Session != child.Session || next.Run == child.Run {
		b.Errorf("%+v was continued by %+v", child, *next)
	}
	b.recover()
	again, err := b.c.Continue(b.Context(), "c2", child.Session, "Go on.")
	if err != nil || again.Run != next.Run {
		b.Errorf("the same continuation again is %+v, %v", again, err)
	}
	_, err = b.c.Continue(b.Context(), "c2", child.Session, "Do something else.")
	b.refused("a continuation with another prompt", err)
}

func (b *controllerBench) continueActive() {
	child := b.spawn("c1")
	_, err := b.c.Continue(b.Context(), "c2", child.Session, "Go on.")
	b.refused("a continuation of a session whose run has not ended", err)
	_, err = b.c.Continue(b.Context(), "c3", "a-session-of-others", "Go on.")
	b.refused("a continuation of a foreign session", err)
}

func (b *controllerBench) foreign() {
	_, err := b.c.Get(b.Context(), []string{"nobody"})
	b.refused("get of a foreign call", err)
	_, err = b.c.Cancel(b.Context(), []string{"nobody"})
	b.refused("cancel of a foreign call", err)
	_, err = b.c.Wait(b.Context(), "w", runtime.WaitRequest{Calls: []string{"nobody"}})
	b.refused("a wait for a foreign call", err)
}

func (b *controllerBench) get() {
	child, other := b.spawn("c1"), b.spawn("c2")
	b.host.Settle(child)
	infos, err := b.c.Get(b.Context(), []string{"c2", "c1"})
	if err != nil || len(infos) != 2 {
		b.Fatalf("get: %+v, %v", infos, err)
	}
	if infos[0].Run != other.Run || infos[0].Reply != nil || infos[1].Run != child.Run || infos[1].Reply == nil || infos[0].State == infos[1].State {
		b.Errorf("one child has ended, the other has not: %+v", infos)
	}
}

// park makes a wait that must park.
func (b *controllerBench) park(r runtime.WaitRequest) {
	b.Helper()
	result, err := b.c.Wait(b.Context(), "w", r)
	if !errors.Is(err, runtime.ErrWaiting) {
		b.Fatalf("the wait gave %+v, %v; it must park", result, err)
	}
	b.recover()
}

// settled makes a wait that must not park, and compares which calls it tells of.
func (b *controllerBench) settled(r runtime.WaitRequest, timedOut bool, settled, pending []string) {
	b.Helper()
	var first *runtime.WaitResult
	for range 2 { // again, as after a crash before its result was committed
		result, err := b.c.Wait(b.Context(), "w", r)
		if err != nil {
			b.Fatalf("the wait: %v", err)
		}
		if result.TimedOut != timedOut || !sameCalls(result.Settled, settled) || !sameCalls(result.Pending, pending) {
			b.Errorf("the wait says %+v; want settled %v, pending %v, timed out %t", *result, settled, pending, timedOut)
		}
		if first != nil {
			if diff := cmp.Diff(first, result); diff != "" {
				b.Errorf("the same wait again differs:\n%s", diff)
			}
		}
		first = result
		b.recover()
	}
}

func sameCalls(infos []runtime.AgentRunInfo, calls []string) bool {
	got := []string{}
	for _, info := range infos {
		got = append(got, info.CallID)
	}
	return fmt.Sprint(got) == fmt.Sprint(calls)
}

func (b *controllerBench) waitAll() {
	first, second := b.spawn("c1"), b.spawn("c2")
	b.park(runtime.WaitRequest{})
	b.host.Settle(first)
	b.recover()
	b.park(runtime.WaitRequest{})
	b.host.Settle(second)
	b.recover()
	b.settled(runtime.WaitRequest{}, false, []string{"c1", "c2"}, nil)
}

func (b *controllerBench) waitAny() {
	b.spawn("c1")
	second := b.spawn("c2")
	r := runtime.WaitRequest{Calls: []string{"c1", "c2"}, Any: true}
	b.park(r)
	b.host.Settle(second)
	b.recover()
	b.settled(r, false, []string{"c2"}, []string{"c1"})
}

func (b *controllerBench) waitSettled() {
	b.host.Settle(b.spawn("c1"))
	b.recover()
	b.settled(runtime.WaitRequest{Calls: []string{"c1"}}, false, []string{"c1"}, nil)
}

func (b *controllerBench) timeout() {
	if b.host.Expire == nil {
		return
	}
	first := b.spawn("c1")
	b.spawn("c2")
	r := runtime.WaitRequest{Calls: []string{"c1", "c2"}, Timeout: time.Hour}
	b.park(r)
	b.host.Settle(first)
	b.recover()
	b.park(r)
	b.host.Expire()
	b.recover()
	b.settled(r, true, []string{"c1"}, []string{"c2"})
	infos, err := b.c.Get(b.Context(), []string{"c2"})
	if err != nil || len(infos) != 1 || infos[0].Reply != nil {
		b.Fatalf("get: %+v, %v", infos, err)
	}
	_, err = b.c.Continue(b.Context(), "c3", infos[0].Session, "Go on.")
	b.refused("a continuation of the child that the wait gave up on", err)
}

func (b *controllerBench) completeActive() {
	child := b.spawn("c1")
	reply := &events.Reply{Kind: events.ReplyOutput, Output: json.RawMessage(`1`)}
	b.refused("a completion with an active child", b.c.Complete(b.Context(), reply))
	b.host.Settle(child)
	b.recover()
	if err := b.c.Complete(b.Context(), reply); err != nil {
		b.Errorf("a completion after the child has ended: %v", err)
	}
}

func (b *controllerBench) completeAgain() {
	reply := &events.Reply{Kind: events.ReplyNeedsInput, Question: "Which?"}
	for range 3 {
		if err := b.c.Complete(b.Context(), reply); err != nil {
			b.Errorf("complete: %v", err)
		}
		b.recover()
	}
}
