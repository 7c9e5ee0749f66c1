package readmodel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/readmodel"
	"github.com/agentruntime/agentruntime/projector"
)

// shard is a log in memory, written as its writers write it.
type shard struct {
	eventstest.Memory
	n     int
	loads atomic.Int64
}

// append makes the next fact of a session about its run.
func (s *shard) append(t rapid.TB, session, run string, payload any) uint64 {
	t.Helper()
	e, err := events.New(payload)
	if err != nil {
		t.Fatal(err)
	}
	return s.seal(t, session, run, e)
}

func (s *shard) seal(t rapid.TB, session, run string, e events.Event) uint64 {
	t.Helper()
	key := events.Key{Namespace: "ns", Session: session}
	records, err := eventstest.All(context.Background(), &s.Memory, key)
	if err != nil {
		t.Fatal(err)
	}
	tip, err := events.Verify(records)
	if err != nil {
		t.Fatal(err)
	}
	s.n++
	e.ID, e.Source, e.Namespace, e.Session, e.Run, e.RootRun = fmt.Sprint("fact-", s.n), "/test", "ns", session, run, run
	e.Time = epoch.Add(time.Duration(s.n) * time.Second)
	switch events.TypeOf(e.Type).Kind {
	case events.Opening:
		e.CommitID = e.ID
		if e.Type == events.TypeFor[events.RunClaimed]().Name {
			e.ClaimID, e.Epoch = e.ID, tip.Claim.Epoch+1
		}
	case events.Owner:
		e.CommitID, e.ClaimID, e.Epoch = e.ID, tip.Claim.ID, tip.Claim.Epoch
	}
	tip.Seal(&e)
	sequence, err := s.AppendUnfenced(context.Background(), key, &e)
	if err != nil {
		t.Fatal(err)
	}
	return sequence
}

// facts returns every fact of the shard above a sequence, without its data.
func (s *shard) facts(t rapid.TB, after uint64) []events.Record {
	t.Helper()
	var all []events.Record
	for _, key := range s.Keys() {
		records, err := eventstest.All(context.Background(), &s.Memory, key)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if r.Data = nil; r.Sequence > after {
				all = append(all, r)
			}
		}
	}
	slices.SortFunc(all, func(a, b events.Record) int { return int(a.Sequence) - int(b.Sequence) })
	return all
}

func (s *shard) load(ctx context.Context, key events.Key, atLeast uint64) (*projector.Session, error) {
	s.loads.Add(1)
	session := &projector.Session{}
	return session, (&events.Appender{Log: &s.Memory, Pause: events.Sleep}).Load(ctx, key, session, atLeast)
}

// errEnd ends a feed.
var errEnd = errors.New("the feed has ended")

// feed hands out facts in the order it is given, and then errEnd.
type feed struct {
	left  []events.Record
	acked []uint64
	onAck func(sequence uint64)
}

func (f *feed) Next(ctx context.Context) (events.Event, uint64, func() error, error) {
	if err := ctx.Err(); err != nil {
		return events.Event{}, 0, nil, err
	}
	if len(f.left) == 0 {
		return events.Event{}, 0, nil, errEnd
	}
	r := f.left[0]
	f.left = f.left[1:]
	return r.Event, r.Sequence, func() error {
		if f.acked = append(f.acked, r.Sequence); f.onAck != nil {
			f.onAck(r.Sequence)
		}
		return nil
	}, nil
}

// follow applies facts, in the order they are given.
func follow(t rapid.TB, s *shard, m *readmodel.Model, batch int, facts []events.Record) {
	t.Helper()
	f := &readmodel.Follower{Facts: &feed{left: facts}, Model: m, Load: using(s.load), Batch: batch}
	if err := f.Run(context.Background()); !errors.Is(err, errEnd) {
		t.Fatal(err)
	}
}

// told returns what a model says, but for what it leaves to the next change of
// state: the steps and usage of runs under way.
func told(t rapid.TB, m *readmodel.Model) []handlers.Row {
	t.Helper()
	rows, err := pages(context.Background(), m, handlers.Filter{}, 7, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if rows[i].State == projector.StateRunning {
			rows[i].Steps, rows[i].Usage, rows[i].Spent = 0, events.Usage{}, nil
		}
	}
	return rows
}

// actor writes random facts that a correct writer could write.
type actor struct {
	*shard
	runs map[string]*projector.Run // of each session: the newest, as far as the actor needs it
	lost map[string]bool           // sessions with a fact of a type that is not known
}

func (a *actor) act(t *rapid.T) {
	session := rapid.SampledFrom([]string{"s1", "s2", "s3", "s4"}).Draw(t, "session")
	kind := rapid.SampledFrom([]string{"admit", "claim", "claim", "checkpoint", "compact", "park", "release", "complete", "fail", "cancel", "external", "external", "accept", "unknown"}).Draw(t, "kind")
	r := a.runs[session]
	if kind == "external" {
		a.external(t, session, r)
		return
	}
	if a.lost[session] {
		return
	}
	open := r != nil && r.State == projector.StateRunning
	set := func(payload any, state projector.State) {
		a.append(t, session, r.ID, payload)
		r.State = state
	}
	delta := events.CheckpointDelta{Steps: 1, Revision: uint64(a.n), Usage: events.Usage{Input: 10}}
	deadline := epoch.Add(time.Hour)
	switch {
	case kind == "admit" && (r == nil || r.State.Terminal()):
		r = &projector.Run{ID: fmt.Sprintf("%s-%08d", session, a.n)}
		a.runs[session] = r
		set(events.RunAdmitted{Agent: rapid.SampledFrom([]string{"planner", "helper"}).Draw(t, "agent"),
			Labels: map[string]string{"team": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "team")}}, projector.StatePending)
	case kind == "accept":
		a.append(t, session, "", events.CommandAccepted{Command: "x"})
	case r == nil || r.State.Terminal():
	case kind == "claim":
		set(events.RunClaimed{Worker: "w1"}, projector.StateRunning)
	case kind == "unknown" && rapid.IntRange(0, 4).Draw(t, "rarely") == 0:
		a.seal(t, session, r.ID, events.Event{Type: events.FactPrefix + "run.dreamt", DataContentType: "application/json", Data: []byte(`{}`)})
		a.lost[session] = true
	case !open:
	case kind == "checkpoint":
		set(events.CheckpointCommitted{Delta: delta}, r.State)
	case kind == "compact":
		set(events.WindowCompacted{}, r.State)
	case kind == "park":
		set(rapid.SampledFrom([]events.RunParked{
			{CallID: "c1", Reason: "children", Dependencies: []string{"s1-00000000", "s2-00000000"}},
			{CallID: "c2", Reason: "timer", Deadline: &deadline}, {CallID: "c3", Reason: "message", Messages: true}, {CallID: "c4", Reason: "nothing"},
		}).Draw(t, "park"), projector.StateParked)
	case kind == "release":
		set(events.RunReleased{Reason: "drain"}, projector.StatePending)
	case kind == "complete":
		set(events.RunCompleted{Delta: delta}, projector.StateCompleted)
	case kind == "fail":
		set(events.RunFailed{Reason: events.FailureAborted}, projector.StateFailed)
	case kind == "cancel":
		set(events.RunCancelled{Reason: "asked"}, projector.StateCancelled)
	}
}

func (a *actor) external(t *rapid.T, session string, r *projector.Run) {
	if r == nil || a.lost[session] {
		return // sealing needs a session that can be read
	}
	a.append(t, session, r.ID, rapid.SampledFrom([]any{
		events.MessageReceived{Message: events.Text("m", events.RoleUser, "Hello?")}, events.CancelRequested{Reason: "enough"},
		events.ChildSettled{CallID: "c1", Child: "s1-00000000"}, events.TimerFired{CallID: "c2", Deadline: epoch.Add(time.Hour)},
	}).Draw(t, "external"))
}

// TestFollowingEqualsRebuilding holds whatever the order in which facts come, as
// long as each comes: twice, later than those after it, across restarts.
func TestFollowingEqualsRebuilding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := &actor{shard: &shard{}, runs: map[string]*projector.Run{}, lost: map[string]bool{}}
		m, err := readmodel.Open("")
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		var seen uint64
		var late []events.Record
		batch := rapid.SampledFrom([]int{1, 2, 5, 0}).Draw(t, "batch")
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			for range rapid.IntRange(1, 8).Draw(t, "facts") {
				a.act(t)
			}
			come := append(slices.Clone(late), a.facts(t, seen)...)
			seen, late = uint64(a.n), nil
			if len(come) == 0 {
				continue
			}
			come = rapid.Permutation(come).Draw(t, "order")
			held := rapid.IntRange(0, len(come)).Draw(t, "held back")
			late = slices.Clone(come[:held])
			if held < len(come) && rapid.Bool().Draw(t, "one comes twice") {
				late = append(late, come[held])
			}
			follow(t, a.shard, m, batch, come[held:])
		}
		follow(t, a.shard, m, batch, late)
		again, err := readmodel.Open("")
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		follow(t, a.shard, again, 0, a.facts(t, 0))
		rebuilt := told(t, again)
		if diff := cmp.Diff(rebuilt, told(t, m)); diff != "" {
			t.Fatalf("followed differs (-rebuilt +followed):\n%s", diff)
		}
		if err := m.Reset(context.Background()); err != nil {
			t.Fatal(err)
		}
		follow(t, a.shard, m, batch, a.facts(t, 0))
		if diff := cmp.Diff(rebuilt, told(t, m)); diff != "" {
			t.Fatalf("reset and followed differs (-rebuilt +followed):\n%s", diff)
		}
	})
}

// begun is a shard with a run that was claimed and parked, and one that waits
// for a worker.
func begun(t testing.TB) *shard {
	t.Helper()
	s := &shard{}
	s.append(t, "s1", "s1-00000001", events.RunAdmitted{Agent: "planner", Labels: map[string]string{"key": "secret"}})
	s.append(t, "s1", "s1-00000001", events.RunClaimed{Worker: "w1"})
	s.append(t, "s2", "s2-00000001", events.RunAdmitted{Agent: "planner"})
	s.append(t, "s1", "s1-00000001", events.CheckpointCommitted{Delta: events.CheckpointDelta{Revision: 1, Steps: 2}})
	s.append(t, "s1", "s1-00000001", events.RunParked{CallID: "c", Reason: "the secret wait", Messages: true})
	return s
}

func TestASessionIsFoldedOnceAndNotForACheckpoint(t *testing.T) {
	s, m := begun(t), open(t, "")
	follow(t, s, m, 2, s.facts(t, 0)) // s1, then s1 known and s2, then nothing
	if n := s.loads.Load(); n != 2 {
		t.Errorf("%d folds of two sessions", n)
	}
	s.append(t, "s2", "s2-00000001", events.RunClaimed{Worker: "w1"})
	last := s.append(t, "s2", "s2-00000001", events.CheckpointCommitted{Delta: events.CheckpointDelta{Revision: 1, Steps: 1}})
	follow(t, s, m, 0, s.facts(t, 5))
	if n := s.loads.Load(); n != 3 || position(t, m, 0) != last {
		t.Errorf("%d folds, at position %d", n, position(t, m, 0))
	}
	s.append(t, "s2", "s2-00000001", events.CheckpointCommitted{Delta: events.CheckpointDelta{Revision: 2, Steps: 1}})
	follow(t, s, m, 0, s.facts(t, last))
	if n := s.loads.Load(); n != 3 || position(t, m, 0) != last+1 {
		t.Errorf("%d folds, at position %d", n, position(t, m, 0))
	}
}

func TestAFactIsAcknowledgedAfterItIsApplied(t *testing.T) {
	s, m := begun(t), open(t, "")
	f := &feed{left: s.facts(t, 0), onAck: func(sequence uint64) {
		if at := position(t, m, 0); at < sequence {
			t.Errorf("fact %d is acknowledged at position %d", sequence, at)
		}
	}}
	var told []readmodel.Progress
	follower := &readmodel.Follower{Facts: f, Model: m, Load: using(s.load), Batch: 2, Target: 5, Progress: func(p readmodel.Progress) { told = append(told, p) }}
	if err := follower.Run(t.Context()); !errors.Is(err, errEnd) {
		t.Fatal(err)
	}
	if !slices.Equal(f.acked, []uint64{1, 2, 3, 4, 5}) {
		t.Errorf("acknowledged are %v", f.acked)
	}
	if last := told[len(told)-1]; last != (readmodel.Progress{Position: 5, Target: 5, Rows: 2}) {
		t.Errorf("the progress ends with %+v", last)
	}
}

// using hands on what load returns.
func using(load func(context.Context, events.Key, uint64) (*projector.Session, error)) func(context.Context, events.Key, uint64, func(*projector.Session) error) error {
	return func(ctx context.Context, key events.Key, atLeast uint64, use func(*projector.Session) error) error {
		s, err := load(ctx, key, atLeast)
		if err != nil {
			return err
		}
		return use(s)
	}
}

func TestNothingThatWasHandedOutIsLostWhenAStepFails(t *testing.T) {
	s, m := begun(t), open(t, "")
	down := true
	f := &feed{left: s.facts(t, 0)}
	follower := &readmodel.Follower{Facts: f, Model: m, Load: using(func(ctx context.Context, key events.Key, atLeast uint64) (*projector.Session, error) {
		if down && key.Session == "s2" {
			return nil, fmt.Errorf("read: %w", events.ErrUnanswered)
		}
		return s.load(ctx, key, atLeast)
	})}
	if err := follower.Run(t.Context()); !errors.Is(err, events.ErrUnanswered) {
		t.Fatal(err)
	}
	if rows := list(t, m, handlers.Filter{}); len(rows) != 0 || position(t, m, 0) != 0 || len(f.acked) != 0 {
		t.Fatalf("%d rows, position %d, %d acknowledged", len(rows), position(t, m, 0), len(f.acked))
	}
	down = false
	if err := follower.Run(t.Context()); !errors.Is(err, errEnd) {
		t.Fatal(err)
	}
	if rows := list(t, m, handlers.Filter{}); len(rows) != 2 || position(t, m, 0) != 5 || len(f.acked) != 5 {
		t.Fatalf("%d rows, position %d, %d acknowledged", len(rows), position(t, m, 0), len(f.acked))
	}
}

// TestTheFloorIsThePosition: fact 1 was lost on its way and comes last; until it
// has come, a restart has to begin before it.
func TestTheFloorIsThePosition(t *testing.T) {
	s, m := begun(t), open(t, "")
	facts := s.facts(t, 0)
	floor := uint64(0)
	run := func(list ...events.Record) {
		t.Helper()
		f := &readmodel.Follower{Facts: &feed{left: list}, Model: m, Load: using(s.load), Floor: func(context.Context) (uint64, error) { return floor, nil }}
		if err := f.Run(t.Context()); !errors.Is(err, errEnd) {
			t.Fatal(err)
		}
	}
	run(facts[1:]...)
	if at := position(t, m, 0); at != 0 {
		t.Errorf("the position is %d before fact 1", at)
	}
	floor = 5
	run(facts[0])
	if at := position(t, m, 0); at != 5 {
		t.Errorf("the position is %d after the last fact", at)
	}
}

func TestASessionThatCannotBeFoldedIsOneRow(t *testing.T) {
	s, m := begun(t), open(t, "")
	follow(t, s, m, 0, s.facts(t, 0))
	s.append(t, "s2", "s2-00000001", events.RunClaimed{Worker: "w1"})
	key := events.Key{Namespace: "ns", Session: "s1"}
	s.append(t, "s1", "s1-00000001", events.CancelRequested{})
	s.Flip(key, 1)
	follow(t, s, m, 0, s.facts(t, 5))
	rows := list(t, m, handlers.Filter{State: []projector.State{handlers.StateUnreadable}})
	if len(rows) != 1 || rows[0].Session != "s1" || rows[0].Run != "" || !strings.Contains(rows[0].Reason, "damaged") {
		t.Errorf("unreadable are %+v", rows)
	}
	rows = list(t, m, handlers.Filter{})
	if len(rows) != 2 || rows[0].State != projector.StateRunning || position(t, m, 0) != 7 {
		t.Errorf("listed are %+v, at position %d", rows, position(t, m, 0))
	}
	// Repaired, it is read again by the next start, without another fact.
	s.Flip(key, 1)
	follow(t, s, m, 0, nil)
	rows = list(t, m, handlers.Filter{})
	if len(rows) != 2 || rows[1].State != projector.StateParked || position(t, m, 0) != 7 {
		t.Errorf("listed are %+v, at position %d", rows, position(t, m, 0))
	}
}

func TestASecretReachesNoRow(t *testing.T) {
	s, m := begun(t), open(t, "")
	f := &readmodel.Follower{Facts: &feed{left: s.facts(t, 0)}, Model: m, Load: using(func(ctx context.Context, key events.Key, atLeast uint64) (*projector.Session, error) {
		if key.Session == "s2" {
			return nil, errors.New("it holds the secret")
		}
		return s.load(ctx, key, atLeast)
	}), Redact: handlers.NewSecrets([]string{"secret"}).Redact}
	if err := f.Run(t.Context()); !errors.Is(err, errEnd) {
		t.Fatal(err)
	}
	shown := fmt.Sprintf("%+v", list(t, m, handlers.Filter{}))
	if strings.Contains(shown, "secret") || strings.Count(shown, handlers.Redacted) != 3 {
		t.Error(shown)
	}
}

func TestAFollowerEndsWithItsContext(t *testing.T) {
	s, m := begun(t), open(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	blocked := &readmodel.Follower{Facts: waiting{}, Model: m, Load: using(s.load)}
	ended := make(chan error)
	go func() { ended <- blocked.Run(ctx) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// waiting is a shard in which nothing happens.
type waiting struct{}

func (waiting) Next(ctx context.Context) (events.Event, uint64, func() error, error) {
	<-ctx.Done()
	return events.Event{}, 0, nil, ctx.Err()
}
