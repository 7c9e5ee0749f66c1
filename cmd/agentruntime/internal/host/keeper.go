package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/readmodel"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/projector"
)

// keeper is the role that one process at a time plays for all: it sweeps the
// log, keeps the list of runs and answers who asks for it.
type keeper struct {
	host     *handlers.Host
	conn     *jetstream.Conn
	log      *jetstream.Log
	leases   *leases
	ttl      time.Duration
	interval time.Duration // between two sweeps
	worker   string
	path     string // of the list's file
	gone     func(worker string) bool
	meter    func(stuck int)
	idle     *idle
}

// roleTTL is how long the role outlives its holder, and roleMargin how much
// earlier a holder that could not renew it stops.
const (
	roleTTL    = 15 * time.Second
	roleMargin = roleTTL / 5
)

// listName is the durable name under which the list follows the log's shards,
// and listSubject where whoever needs the list asks for it.
const (
	listName    = "list"
	listSubject = "agent.list"
)

func (k *keeper) sweeper() *handlers.Sweeper {
	return &handlers.Sweeper{Host: k.host, Sessions: k.log, Leases: k.leases, TTL: k.ttl}
}

// sweepOnce sweeps until that succeeded once: each process does when it starts.
func (k *keeper) sweepOnce(ctx context.Context) error {
	w := k.sweeper()
	for pause := retryPause; ctx.Err() == nil; pause = min(2*pause, maxSweepPause) {
		if swept, err := k.sweepAll(ctx, w); err == nil {
			k.host.Logger.Info("swept the log", "sessions", swept.Seen, "hinted", swept.Hinted, "told", swept.Told, "stuck", len(swept.Stuck))
			k.idle.begin()() // it has read the whole log
			return nil
		} else if ctx.Err() == nil {
			k.host.Logger.Warn("the sweep failed and is made again", "error", err)
			w = k.sweeper()
		}
		_ = events.Sleep(ctx, pause)
	}
	return nil
}

// maxSweepPause is the longest pause between two sweeps that failed.
const maxSweepPause = 30 * time.Second

// sweepNowAndThen is for a process that keeps no list: it sweeps when no other
// such process does.
func (k *keeper) sweepNowAndThen(ctx context.Context) error {
	role := &jetstream.Role{Conn: k.conn, Name: "sweeper", Holder: k.worker, TTL: roleTTL, Gone: k.gone}
	defer func() { _ = role.Release(context.WithoutCancel(ctx)) }() // it ends by itself otherwise
	w := k.sweeper()
	for events.Sleep(ctx, k.interval) == nil {
		held, err := role.Hold(ctx)
		if err == nil && !held {
			continue
		}
		if err == nil {
			_, err = k.sweepAll(ctx, w)
		}
		if err != nil && ctx.Err() == nil {
			k.host.Logger.Warn("a sweep failed", "error", err)
		}
	}
	return nil
}

// run takes the role whenever it is free and plays it while it is held.
func (k *keeper) run(ctx context.Context) error {
	model, err := readmodel.Open(k.path)
	if err != nil {
		return fmt.Errorf("open the list of runs: %w", err)
	}
	defer model.Close() // it is a cache: what is lost with it is read again
	if model.Anew != nil {
		k.host.Logger.Warn("the list of runs is built anew", "reason", model.Anew)
	}
	role := &jetstream.Role{Conn: k.conn, Name: "keeper", Holder: k.worker, TTL: roleTTL, Gone: k.gone}
	defer func() { _ = role.Release(context.WithoutCancel(ctx)) }() // it ends by itself otherwise
	for ctx.Err() == nil {
		sent := time.Now()
		if held, err := role.Hold(ctx); err == nil && held {
			k.hold(ctx, role, model, sent)
		} else if err != nil && ctx.Err() == nil {
			k.host.Logger.Debug("the keeper's role cannot be asked for", "error", err)
		}
		_ = events.Sleep(ctx, roleTTL/3)
	}
	return nil
}

// hold plays the role until it is lost.
func (k *keeper) hold(ctx context.Context, role *jetstream.Role, model *readmodel.Model, since time.Time) {
	play, cancel := context.WithCancel(ctx)
	var playing sync.WaitGroup
	playing.Go(func() { k.play(play, model) })
	defer playing.Wait()
	defer cancel()
	for until := since.Add(roleTTL - roleMargin); time.Now().Before(until); {
		if events.Sleep(ctx, roleTTL/3) != nil {
			return
		}
		sent := time.Now()
		held, err := role.Hold(ctx)
		switch {
		case err == nil && held:
			until = sent.Add(roleTTL - roleMargin)
		case err == nil:
			return
		}
	}
}

// play does the keeper's work until ctx ends. Asked to rebuild, it forgets the
// list and begins anew.
func (k *keeper) play(ctx context.Context, model *readmodel.Model) {
	t := &term{keeper: k, model: model, rebuild: make(chan struct{}, 1)}
	var serving sync.WaitGroup
	serving.Go(func() { t.serve(ctx) })
	defer serving.Wait()
	for ctx.Err() == nil {
		t.work(ctx)
		select {
		case <-t.rebuild:
			if err := model.Reset(ctx); err != nil && ctx.Err() == nil {
				k.host.Logger.Warn("the list of runs cannot be emptied", "error", err)
			}
		default:
		}
	}
}

// term is one time in which a process is the keeper.
type term struct {
	*keeper
	model   *readmodel.Model
	rebuild chan struct{} // has a request

	mu     sync.Mutex
	stop   context.CancelFunc // ends the work, to begin it anew
	shards []ListShard
	swept  bool
	round  int // counts what is begun anew: what an earlier one says is not noted
}

// ListStatus says how far the list of runs has come.
type ListStatus struct {
	Shards []ListShard `json:"shards"`
	Swept  bool        `json:"swept"` // the log was swept since the list was begun
}

// ListShard is how far the list has come in one shard of the log.
type ListShard struct {
	Position uint64 `json:"position"`
	Target   uint64 `json:"target"` // where the shard ended when the list began to follow it
	Known    bool   `json:"known"`  // Target is known
}

// Ready reports whether the list holds all that the log held when it was begun.
func (s *ListStatus) Ready() bool {
	for _, shard := range s.Shards {
		if !shard.Known || shard.Position < shard.Target {
			return false
		}
	}
	return len(s.Shards) > 0
}

// Read returns how many positions of the log were read, and how many there were
// when the list was begun.
func (s *ListStatus) Read() (read, all uint64) {
	for _, shard := range s.Shards {
		read += min(shard.Position, shard.Target)
		all += shard.Target
	}
	return read, all
}

// work follows the log and sweeps until ctx ends or a rebuild is asked for.
func (t *term) work(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	round := t.begin(stop)
	var work sync.WaitGroup
	for shard := range t.conn.Layout().Shards {
		work.Go(func() { t.followShard(ctx, round, shard) })
	}
	work.Go(func() { t.sweep(ctx, round) })
	work.Wait()
}

// begin forgets what was reached, and says which round this is.
func (t *term) begin(stop context.CancelFunc) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.round++
	t.stop, t.shards, t.swept = stop, make([]ListShard, t.conn.Layout().Shards), false
	return t.round
}

func (t *term) status() ListStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	return ListStatus{Shards: slices.Clone(t.shards), Swept: t.swept}
}

// reached notes how far a shard has come.
func (t *term) reached(round, shard int, position, target uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if round == t.round {
		t.shards[shard] = ListShard{position, target, true}
	}
}

// again asks for a rebuild.
func (t *term) again() {
	select {
	case t.rebuild <- struct{}{}:
	default: // one is asked for
	}
	t.mu.Lock()
	stop := t.stop
	t.mu.Unlock()
	if stop != nil {
		t.begin(nil)
		stop()
	}
}

// serve answers who asks for the list until ctx ends.
func (t *term) serve(ctx context.Context) {
	for ctx.Err() == nil {
		stop, err := t.conn.Answer(listSubject, func(data []byte) ([]byte, error) { return t.answer(ctx, data) })
		if err == nil {
			<-ctx.Done()
			stop()
			return
		}
		t.host.Logger.Warn("the list of runs is not served and is tried again", "error", err)
		_ = events.Sleep(ctx, retryPause)
	}
}

// sweep sweeps now and then. What it reads goes into the list as well: a fact
// that the list has missed is made good.
func (t *term) sweep(ctx context.Context, round int) {
	w := t.sweeper()
	w.Saw = func(ctx context.Context, s *projector.Session) error {
		shard := events.Shard(s.Key, t.conn.Layout().Shards)
		return t.model.ApplyAll(ctx, shard, 0, []readmodel.Update{{Namespace: s.Key.Namespace, Session: s.Key.Session, Sequence: s.At.Sequence, Rows: readmodel.Rows(s, t.host.Redactor.Redact)}})
	}
	for ctx.Err() == nil {
		swept, err := t.sweepAll(ctx, w)
		if err == nil {
			err = t.found(ctx, round, swept)
		}
		if err != nil && ctx.Err() == nil {
			t.host.Logger.Warn("a sweep failed", "error", err)
		}
		_ = events.Sleep(ctx, t.interval)
	}
}

// found notes what a sweep came to.
func (t *term) found(ctx context.Context, round int, swept handlers.Swept) error {
	runs := make(map[string][]string)
	for _, s := range swept.Stuck {
		t.host.Logger.Error("nothing will wake a run", "namespace", s.Namespace, "session", s.Session, "run", s.Run, "why", s.Why)
		runs[s.Namespace] = append(runs[s.Namespace], s.Run)
	}
	if swept.Told > 0 {
		t.host.Logger.Info("a sweep found what was lost", "hinted", swept.Hinted, "told", swept.Told)
	}
	if t.meter != nil {
		t.meter(len(swept.Stuck))
	}
	t.mu.Lock()
	t.swept = t.swept || round == t.round
	t.mu.Unlock()
	return t.model.SetStuck(ctx, runs)
}

// followShard feeds the list with one shard until ctx ends, from where the list
// stands.
func (t *term) followShard(ctx context.Context, round, shard int) {
	r := &jetstream.Reaction{Conn: t.conn, Name: listName, Shard: shard}
	for ctx.Err() == nil {
		if err := t.followFrom(ctx, round, r); err != nil && ctx.Err() == nil {
			t.host.Logger.Warn("the list of runs does not follow the log and goes on", "shard", shard, "error", err)
			_ = events.Sleep(ctx, retryPause)
		}
	}
}

func (t *term) followFrom(ctx context.Context, round int, r *jetstream.Reaction) error {
	positions, err := t.model.Positions(ctx)
	if err != nil {
		return err
	}
	end, err := r.End(ctx)
	if err != nil {
		return err
	}
	at := positions[r.Shard]
	if at > end { // another log: a restored one, or a new one
		if err := t.model.Reset(ctx); err != nil {
			return err
		}
		at = 0
	}
	if err := r.Rewind(ctx, at+1); err != nil {
		return err
	}
	t.reached(round, r.Shard, at, end)
	f := &readmodel.Follower{Shard: r.Shard, Facts: facts{r, t.host}, Model: t.model, Load: t.host.Fold, Redact: t.host.Redactor.Redact,
		Floor: r.Acknowledged, Target: end, Progress: func(p readmodel.Progress) { t.reached(round, p.Shard, p.Position, p.Target) }}
	return f.Run(ctx)
}

// facts are a shard's facts as the list follows them.
type facts struct {
	*jetstream.Reaction
	host *handlers.Host
}

// Next implements readmodel.Facts.
func (f facts) Next(ctx context.Context) (events.Event, uint64, func() error, error) {
	for {
		fact, err := f.Reaction.Next(ctx)
		var broken *jetstream.UndecodableError
		if !errors.As(err, &broken) {
			return fact.Event, fact.Sequence, fact.Ack, err
		}
		f.host.Logger.Error("a message of the log is no event; verify the log", "error", broken)
		if err := broken.Ack(); err != nil {
			return events.Event{}, 0, nil, err
		}
	}
}

// listRequest is what the keeper is asked: for runs, for its status, or to build
// the list anew.
type listRequest struct {
	Namespace string          `json:"namespace,omitempty"`
	Filter    handlers.Filter `json:"filter,omitzero"`
	Status    bool            `json:"status,omitempty"`
	Rebuild   bool            `json:"rebuild,omitempty"`
}

// listAnswer is what it answers.
type listAnswer struct {
	handlers.ListAnswer
	Status  *ListStatus        `json:"status,omitempty"`
	Refused *handlers.APIError `json:"refused,omitempty"`
}

func (t *term) answer(ctx context.Context, data []byte) ([]byte, error) {
	var r listRequest
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	if r.Rebuild {
		t.again()
	}
	status := t.status()
	if r.Status || r.Rebuild {
		return json.Marshal(listAnswer{Status: &status})
	}
	if !status.Ready() {
		return json.Marshal(listAnswer{Refused: errBuilding})
	}
	rows, next, err := t.model.List(ctx, r.Namespace, r.Filter)
	answer := listAnswer{ListAnswer: handlers.ListAnswer{Runs: rows, Next: next}}
	if err != nil && !errors.As(err, &answer.Refused) {
		return nil, err
	}
	return json.Marshal(answer)
}

// errBuilding is the answer while the list is not complete.
var errBuilding = &handlers.APIError{Code: handlers.CodeUnavailable, Message: "the list of runs is being built at the moment, or no worker keeps it; ask again in a few seconds"}

// List asks the keeper, whichever process it is.
type List struct{ Conn *jetstream.Conn }

// List implements handlers.Lister.
func (l List) List(ctx context.Context, namespace string, f handlers.Filter) ([]handlers.Row, string, error) {
	answer, err := l.ask(ctx, listRequest{Namespace: namespace, Filter: f})
	return answer.Runs, answer.Next, err
}

// Status returns how far the list has come.
func (l List) Status(ctx context.Context) (*ListStatus, error) {
	answer, err := l.ask(ctx, listRequest{Status: true})
	return answer.Status, err
}

// Rebuild makes the keeper forget the list and build it anew from the log; it
// also sweeps the log and arms every timer again.
func (l List) Rebuild(ctx context.Context) error {
	_, err := l.ask(ctx, listRequest{Rebuild: true})
	return err
}

func (l List) ask(ctx context.Context, r listRequest) (answer listAnswer, err error) {
	data, err := json.Marshal(r)
	if err != nil {
		return answer, err
	}
	reply, err := l.Conn.Request(ctx, listSubject, nil, data)
	if errors.Is(err, jetstream.ErrNoService) {
		return answer, errBuilding
	}
	if err != nil {
		return answer, fmt.Errorf("ask for the list of runs: %w", err)
	}
	if err := json.Unmarshal(reply, &answer); err != nil {
		return answer, fmt.Errorf("read the list of runs: %w", err)
	}
	if answer.Refused != nil {
		return answer, answer.Refused
	}
	return answer, nil
}
