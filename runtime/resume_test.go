package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

type rawJSON = json.RawMessage

func TestACompletedRunGivesItsReplyAndTouchesNothing(t *testing.T) {
	h := newHost(rt.RunJS(booking), rt.CompleteQuoting())
	first := finish(t, h)
	before := len(h.Ops())
	for range 2 {
		result, err := h.Run(t.Context())
		if err != nil || string(result.Reply.Output) != string(first.Reply.Output) {
			t.Errorf("again it ends with %+v, %v", result, err)
		}
	}
	for _, op := range h.Ops()[before:] {
		if op.Name != rt.OpLoadCheckpoint {
			t.Errorf("the completed run touched %s", op)
		}
	}
}

func TestAReplyThatIsCommittedIsReturnedWhateverBecomesOfTheContext(t *testing.T) {
	h := newHost(rt.Complete(`1`))
	ctx, cancel := context.WithCancel(t.Context())
	h.Ports = func(in *runtime.Input) { in.Store = cancelling{in.Store, cancel} }
	result, err := h.Run(ctx)
	if err != nil || result.Reply == nil {
		t.Errorf("got %+v, %v", result, err)
	}
}

// cancelling cancels the attempt once the run's completion is committed.
type cancelling struct {
	runtime.Store
	cancel func()
}

func (s cancelling) SaveCheckpoint(ctx context.Context, c *projector.Checkpoint) error {
	err := s.Store.SaveCheckpoint(ctx, c)
	if c.Reply != nil {
		s.cancel()
	}
	return err
}

func TestACheckpointOfAnotherContractIsRefused(t *testing.T) {
	for name, change := range map[string]func(*rt.Host){
		"instructions": func(h *rt.Host) { h.Input.Definition.Instructions = "Plan better." },
		"output":       func(h *rt.Host) { h.Input.Definition.Output = rawJSON(`{"type":"string"}`) },
		"child":        func(h *rt.Host) { h.Input.Subagents[0].Instructions = "Help less." },
		"capability":   func(h *rt.Host) { h.Input.Capabilities = h.Input.Capabilities[:1] },
	} {
		h := newHost(rt.Fails(errClosed))
		if err := stop(t, h); !errors.Is(err, errClosed) {
			t.Fatal(err)
		}
		begun := h.Store.Commits()[0].Checkpoint.ContractHash
		change(h)
		err := stop(t, h)
		var refused *runtime.ContractError
		if !errors.As(err, &refused) || refused.Contract != begun || refused.BinaryContract == begun {
			t.Errorf("%s: %v", name, err)
			continue
		}
		wantParts(t, err.Error(), begun, refused.BinaryContract, h.Input.RunID)
		if len(h.Store.Commits()) != 1 || len(h.Model.Requests()) != 1 {
			t.Errorf("%s: the refused attempt did something", name)
		}
	}
}

func TestTheOrderOfChildrenAndCapabilitiesIsNoPartOfTheContract(t *testing.T) {
	d := events.AgentDefinition{Slug: "a"}
	children := []events.AgentDefinition{{Slug: "x"}, {Slug: "y"}}
	capabilities := []events.Capability{{Name: "p"}, {Name: "q"}}
	first, err := runtime.ContractHash(&d, children, capabilities)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(children)
	slices.Reverse(capabilities)
	second, err := runtime.ContractHash(&d, children, capabilities)
	if err != nil || first != second {
		t.Errorf("%s became %s, %v", first, second, err)
	}
}

func TestACheckpointOfAnotherVersionIsRefused(t *testing.T) {
	h := newHost(rt.Complete(`1`))
	c := &projector.Checkpoint{Version: projector.CheckpointVersion + 1, Revision: 1, Phase: projector.PhaseModel}
	if err := h.Store.SaveCheckpoint(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	var refused *runtime.ContractError
	if err := stop(t, h); !errors.As(err, &refused) || refused.Version != c.Version || refused.BinaryVersion != projector.CheckpointVersion {
		t.Errorf("got %v", err)
	}
}

func TestAReadErrorIsNeverAFreshStart(t *testing.T) {
	h := newHost(rt.RunJS(booking), rt.Fails(errors.New("the provider is down")))
	stop(t, h)
	h.Model.Respond = rt.Script(rt.RunJS(booking), rt.CompleteQuoting())
	commits := len(h.Store.Commits())
	h.Store.ReadFault = func(int) error { return errClosed }
	for range 3 {
		if err := stop(t, h); !errors.Is(err, errClosed) {
			t.Errorf("got %v", err)
		}
	}
	second := false
	h.Store.ReadFault = func(int) error { // the checkpoint is read, the window is not
		second = !second
		if second {
			return nil
		}
		return errClosed
	}
	if err := stop(t, h); !errors.Is(err, errClosed) {
		t.Errorf("got %v", err)
	}
	if got := len(h.Store.Commits()); got != commits {
		t.Errorf("failed reads led to %d commits", got-commits)
	}
	h.Store.ReadFault = nil
	finish(t, h)
}

func TestTheAppendOfALoadedCheckpointIsNotAppendedAgain(t *testing.T) {
	h := newHost(rt.Text("one"), rt.Text("two"), rt.Complete(`1`))
	for finished := false; !finished; {
		saves := 0
		h.Plan = func(op rt.Op) rt.Fault {
			if op.Name == rt.OpSave {
				if saves++; saves == 1 {
					return rt.KilledAfter
				}
			}
			return rt.Works
		}
		result, err := h.Run(t.Context())
		if err != nil && !errors.Is(err, rt.ErrKilled) {
			t.Fatal(err)
		}
		finished = result != nil
	}
	if err := h.Check(); err != nil {
		t.Error(err)
	}
}

func TestTheRecoveryNoticeIsToldOnceAndNotKept(t *testing.T) {
	h := newHost(rt.RunJS("return 1"), rt.Complete(`1`))
	h.Input.RecoveryNotice = "A worker was lost; the password is hunter2."
	h.Redactor.Secrets = []string{"hunter2"}
	finish(t, h)
	requests := h.Model.Requests()
	if first := rt.Render(requests[0]); strings.Count(first, "A worker was lost; the password is "+rt.Redacted) != 1 {
		t.Errorf("the first request is\n%s", first)
	}
	if second := rt.Render(requests[1]); strings.Contains(second, "A worker was lost") {
		t.Errorf("the second request is\n%s", second)
	}
	for _, c := range h.Store.Commits() {
		if strings.Contains(string(c.Data), "A worker was lost") {
			t.Errorf("revision %d keeps the notice", c.Checkpoint.Revision)
		}
	}
}

func TestAStoppedAttemptLeavesNothingUnderWay(t *testing.T) {
	h := newHost(rt.Calls(rt.RunJSCall("desk.book {}\nreturn"), rt.RunJSCall("return 2")), rt.CompleteQuoting())
	done := make(chan struct{})
	h.Input.Stop = done
	h.Backend.Answer = func(context.Context, *runtime.Callback) (json.RawMessage, error) {
		close(done)
		return rawJSON(`1`), nil
	}
	if err := stop(t, h); !errors.Is(err, runtime.ErrStopped) {
		t.Fatal(err)
	}
	for _, call := range h.Store.Commits()[len(h.Store.Commits())-1].Checkpoint.Calls {
		if call.State == events.CallDispatched {
			t.Errorf("call %s was left dispatched", call.ID)
		}
	}
	h.Input.Stop = nil
	finish(t, h)
	wantResult(t, h, "call_0_0", events.OutcomeOK, `[1]`)
	wantResult(t, h, "call_0_1", events.OutcomeOK, `2`)
}

// A worker that was taken for dead goes on after another has finished the run.
func TestAStaleAttemptCommitsNothing(t *testing.T) {
	h := newHost(rt.RunJS(booking), rt.CompleteQuoting())
	var second *runtime.Result
	h.Backend.Answer = func(ctx context.Context, _ *runtime.Callback) (rawJSON, error) {
		h.Backend.Answer = nil
		var err error
		second, err = h.Run(ctx)
		return rawJSON(`"late"`), err
	}
	if err := stop(t, h); !errors.Is(err, rt.ErrStale) {
		t.Errorf("the stale attempt ended with %v", err)
	}
	if second == nil || second.Reply == nil {
		t.Fatalf("the second attempt ended with %+v", second)
	}
	if err := h.Check(); err != nil {
		t.Error(err)
	}
	wantResult(t, h, "call_0_0", events.OutcomeUnknown)
	if again := finish(t, h); string(again.Reply.Output) != string(second.Reply.Output) {
		t.Errorf("the reply became %s", again.Reply.Output)
	}
}

// A store may keep what it was given.
func TestACommittedCheckpointIsNotChangedAfterwards(t *testing.T) {
	h := newHost(rt.Calls(rt.RunJSCall(booking), rt.RunJSCall("return 2")), rt.Text("hm"), rt.CompleteQuoting())
	var kept []*projector.Checkpoint
	h.Ports = func(in *runtime.Input) { in.Store = keeping{in.Store, &kept} }
	finish(t, h)
	for i, c := range kept {
		got, err := events.Marshal(c)
		if want := string(h.Store.Commits()[i].Data); err != nil || string(got) != want {
			t.Errorf("revision %d was\n%s and became\n%s", c.Revision, want, got)
		}
	}
}

type keeping struct {
	runtime.Store
	kept *[]*projector.Checkpoint
}

func (s keeping) SaveCheckpoint(ctx context.Context, c *projector.Checkpoint) error {
	*s.kept = append(*s.kept, c)
	return s.Store.SaveCheckpoint(ctx, c)
}
