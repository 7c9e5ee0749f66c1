package eventstest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

// TestAppender runs every promise of the append rules (1 to 6) over a log.
func TestAppender(t *testing.T, log events.Log) {
	Run(t, log, Protocol{}, AppenderCases())
}

// AppenderCases returns the promises of the append rules: the matrix of faults
// and of what others append meanwhile, and the named races.
func AppenderCases() []Case {
	return consistently(append(matrix(),
		Case{"of two claimers with the same next epoch one wins", twoClaimers},
		Case{"a thousand rounds of rival claimers leave one history", rivals},
		Case{"a zombie of an earlier run is refused", zombieOfEarlierRun},
		Case{"a zombie that has read the new owner's facts is refused", zombieThatReads},
		Case{"a parked claim cannot go on", closedClaim(events.RunParked{Reason: "wait"})},
		Case{"a released claim cannot go on", closedClaim(events.RunReleased{Reason: "drain"})},
		Case{"a finished claim cannot go on", closedClaim(events.RunFailed{Reason: "aborted"})},
		Case{"a new claim follows a park", claimAfterPark},
		Case{"phantom conflicts are retried", phantoms},
		Case{"reads cut short and failing reads change nothing", shortReads},
		Case{"an unanswering log leaves the outcome unresolved", unresolved},
		Case{"a repeated external fact counts once", repeatedExternal},
		Case{"an external fact with a lost answer is appended", externalLost},
		Case{"a herd of 1,000 external facts does not stop the owner", herd},
		Case{"200 external facts a second do not stop the owner", steady},
		Case{"a decision that finds nothing to do appends nothing", nothingToDo},
	))
}

// interposed is what others append around one append of the owner.
type interposed struct {
	name            string
	external, claim bool
}

// matrix enumerates {fault} x {what stands above the expectation} x {whether it
// came before or after our own bytes}.
func matrix() []Case {
	type fault struct {
		Fault
		delay int
	}
	faults := []fault{{None, 0}, {LostBefore, 0}, {AnswerLost, 0}, {Duplicated, 0}, {Phantom, 0}}
	for delay := range 4 {
		faults = append(faults, fault{Late, delay}, fault{PhantomLate, delay})
	}
	above := []interposed{{"nothing", false, false}, {"an external fact", true, false}, {"a foreign claim", false, true}, {"a claim and an external fact", true, true}}
	var cases []Case
	for _, f := range faults {
		for _, a := range above {
			for _, before := range []bool{true, false} {
				when := map[bool]string{true: "before", false: "after, the owner frozen before its read"}[before]
				name := fmt.Sprintf("append %s (delay %d), %s %s", f.Fault, f.delay, a.name, when)
				cases = append(cases, Case{name, func(ctx context.Context, b *Bench) error { return cell(ctx, b, f.Fault, f.delay, a, before) }})
			}
		}
	}
	return cases
}

// cell is one field of the matrix: the owner's second operation meets the
// fault, and others act right before it reaches the log or right after.
func cell(ctx context.Context, b *Bench, fault Fault, delay int, above interposed, before bool) error {
	faulty := &Faulty{Log: b.Log, Delay: delay}
	owner, err := b.loadAndTake(ctx, faulty)
	if err != nil {
		return err
	}
	if err := owner.do(ctx, 1); err != nil {
		return err
	}
	target := faulty.Appends() + 1
	var actErr error
	act := func(n int) {
		if n != target {
			return
		}
		if above.claim {
			_, actErr = b.loadAndTake(ctx, b.Log)
		}
		if above.external && actErr == nil {
			_, actErr = b.external(ctx, "x1")
		}
	}
	if before {
		faulty.Before = act
	} else {
		faulty.After = act
	}
	faulty.Plan = func(n int, _ *events.Event) Fault {
		if n == target {
			return fault
		}
		return None
	}
	got := owner.do(ctx, 2)
	if actErr != nil {
		return actErr
	}
	// An answered append that others follow is not read again.
	answered := fault == None && !before
	want := error(nil)
	if above.claim && !answered {
		want = events.ErrFenced
	}
	if err := expect("operation 2", got, want); err != nil {
		return err
	}
	if stands, err := b.stands(ctx, owner.claim, 2); err != nil || got == nil && !stands {
		return fmt.Errorf("operation 2 was answered and does not stand in the log (%v)", err)
	}
	if above.claim {
		want = events.ErrFenced
	}
	if got == nil {
		if err := expect("operation 3", owner.do(ctx, 3), want); err != nil {
			return err
		}
	}
	faulty.Flush()
	return nil
}

func twoClaimers(ctx context.Context, b *Bench) error {
	a, z := b.worker(b.Log), b.worker(b.Log)
	if err := errors.Join(a.load(ctx), z.load(ctx)); err != nil {
		return err
	}
	errs := parallel(2, func(i int) error {
		return []*worker{a, z}[i].take(ctx)
	})
	winner, loser := a, z
	if errs[0] != nil {
		winner, loser = z, a
		errs[0], errs[1] = errs[1], errs[0]
	}
	if err := errors.Join(expect("the winner's claim", errs[0], nil), expect("the loser's claim", errs[1], events.ErrFenced)); err != nil {
		return err
	}
	return errors.Join(
		expect("the winner's commit", winner.do(ctx, 1), nil),
		expect("the loser's commit", loser.do(ctx, 1), events.ErrFenced))
}

func rivals(ctx context.Context, b *Bench) error {
	const rounds, workers = 125, 8
	won := 0
	for range rounds {
		ready := make([]*worker, workers)
		for i := range ready {
			ready[i] = b.worker(b.Log)
		}
		if err := ready[0].load(ctx); err != nil {
			return err
		}
		for i := range ready[1:] {
			*ready[i+1].toy = *ready[0].toy
		}
		for i, err := range parallel(workers, func(i int) error { return ready[i].take(ctx) }) {
			if err == nil {
				won++
				if err := ready[i].do(ctx, 1); err != nil {
					return err
				}
			} else if !errors.Is(err, events.ErrFenced) {
				return err
			}
		}
	}
	if won != rounds {
		return fmt.Errorf("%d claims won in %d rounds", won, rounds)
	}
	return nil
}

func zombieOfEarlierRun(ctx context.Context, b *Bench) error {
	zombie, err := b.loadAndTake(ctx, b.Log)
	if err != nil {
		return err
	}
	if err := zombie.do(ctx, 1); err != nil {
		return err
	}
	second, err := b.loadAndTake(ctx, b.Log)
	if err != nil {
		return err
	}
	if err := second.commit(ctx, 2, func() any { return events.RunFailed{Reason: "aborted"} }); err != nil {
		return err
	}
	third, err := b.loadAndTake(ctx, b.Log)
	if err != nil {
		return err
	}
	return errors.Join(
		expect("the new run's commit", third.do(ctx, 1), nil),
		expect("the zombie's commit", zombie.do(ctx, 2), events.ErrFenced),
		expect("the new run's next commit", third.do(ctx, 2), nil))
}

func zombieThatReads(ctx context.Context, b *Bench) error {
	zombie, err := b.loadAndTake(ctx, b.Log)
	if err != nil {
		return err
	}
	owner, err := b.loadAndTake(ctx, b.Log)
	if err != nil {
		return err
	}
	if err := errors.Join(owner.do(ctx, 1), zombie.load(ctx)); err != nil {
		return err
	}
	return errors.Join(
		expect("the zombie's commit", zombie.do(ctx, 2), events.ErrFenced),
		expect("the owner's commit", owner.do(ctx, 2), nil))
}

func closedClaim(closing any) func(context.Context, *Bench) error {
	return func(ctx context.Context, b *Bench) error {
		w, err := b.loadAndTake(ctx, b.Log)
		if err != nil {
			return err
		}
		if err := w.commit(ctx, 1, func() any { return closing }); err != nil {
			return err
		}
		return expect("a commit after it", w.do(ctx, 2), events.ErrClaimClosed)
	}
}

func claimAfterPark(ctx context.Context, b *Bench) error {
	w, err := b.loadAndTake(ctx, b.Log)
	if err != nil {
		return err
	}
	if err := w.commit(ctx, 1, func() any { return events.RunParked{Reason: "wait"} }); err != nil {
		return err
	}
	if _, err := b.external(ctx, "wake"); err != nil {
		return err
	}
	next, err := b.loadAndTake(ctx, b.Log)
	if err != nil {
		return err
	}
	return expect("the next claim's commit", next.do(ctx, 2), nil)
}

func phantoms(ctx context.Context, b *Bench) error {
	faulty := &Faulty{Log: b.Log, Plan: func(n int, _ *events.Event) Fault {
		if n%3 != 0 {
			return Phantom
		}
		return None
	}}
	w, err := b.loadAndTake(ctx, faulty)
	if err != nil {
		return err
	}
	for op := uint64(1); op <= 5; op++ {
		if err := w.do(ctx, op); err != nil {
			return err
		}
	}
	return nil
}

func shortReads(ctx context.Context, b *Bench) error {
	faulty := &Faulty{Log: b.Log, ReadFault: func(n int) (int, error) {
		if n%3 == 0 {
			return 0, fmt.Errorf("read %d fails", n)
		}
		return 1, nil
	}}
	w, err := b.loadAndTake(ctx, b.Log)
	if err != nil {
		return err
	}
	w.log = faulty
	for i := range 10 {
		if _, err := b.external(ctx, fmt.Sprintf("x%d", i)); err != nil {
			return err
		}
	}
	if err := w.do(ctx, 1); err != nil {
		return err
	}
	if len(w.seen) != 10 {
		return fmt.Errorf("the decision saw %d of 10 external facts", len(w.seen))
	}
	// A foreign claim at the far end of what must be read still fences.
	for i := range 5 {
		if _, err := b.external(ctx, fmt.Sprintf("y%d", i)); err != nil {
			return err
		}
	}
	if _, err := b.loadAndTake(ctx, b.Log); err != nil {
		return err
	}
	return expect("a commit below a foreign claim", w.do(ctx, 2), events.ErrFenced)
}

func unresolved(ctx context.Context, b *Bench) error {
	faulty := &Faulty{Log: b.Log}
	w, err := b.loadAndTake(ctx, faulty)
	if err != nil {
		return err
	}
	lease, end := context.WithCancel(ctx)
	defer end()
	faulty.Plan = func(n int, _ *events.Event) Fault {
		if n >= 5 {
			end()
		}
		return LostBefore
	}
	return expect("a commit whose lease ended", w.do(lease, 1), events.ErrUnresolved)
}

func repeatedExternal(ctx context.Context, b *Bench) error {
	w, err := b.loadAndTake(ctx, b.Log)
	if err != nil {
		return err
	}
	for range 3 {
		if _, err := b.external(ctx, "same"); err != nil {
			return err
		}
	}
	if err := w.do(ctx, 1); err != nil {
		return err
	}
	if len(w.seen) != 1 {
		return fmt.Errorf("one fact appended three times counts as %d", len(w.seen))
	}
	return nil
}

func externalLost(ctx context.Context, b *Bench) error {
	inner := b.Log
	defer func() { b.Log = inner }()
	for _, fault := range []Fault{LostBefore, AnswerLost} {
		b.Log = &Faulty{Log: inner, Plan: func(n int, _ *events.Event) Fault {
			if n == 1 {
				return fault
			}
			return None
		}}
		at, err := b.external(ctx, "x-"+fault.String())
		if err != nil {
			return err
		}
		w := b.worker(inner)
		if err := b.appender(inner).Load(ctx, b.key, w, at); err != nil {
			return err
		}
		if !w.seen["x-"+fault.String()] {
			return fmt.Errorf("a fold up to the acknowledged sequence %d misses the fact", at)
		}
	}
	return nil
}

func herd(ctx context.Context, b *Bench) error {
	const facts, operations = 1000, 20
	w, err := b.loadAndTake(ctx, b.Log)
	if err != nil {
		return err
	}
	errs := parallel(17, func(i int) error {
		if i == 16 {
			for op := uint64(1); op <= operations; op++ {
				if err := w.do(ctx, op); err != nil {
					return err
				}
			}
			return nil
		}
		for n := i; n < facts; n += 16 {
			if _, err := b.external(ctx, fmt.Sprintf("x%d", n)); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := w.do(ctx, operations+1); err != nil {
		return err
	}
	if err := w.load(ctx); err != nil {
		return err
	}
	if len(w.seen) != facts {
		return fmt.Errorf("the owner saw %d of %d external facts", len(w.seen), facts)
	}
	return nil
}

func steady(ctx context.Context, b *Bench) error {
	const operations = 20
	w, err := b.loadAndTake(ctx, b.Log)
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	errs := parallel(2, func(i int) error {
		if i == 0 {
			defer close(stop)
			for op := uint64(1); op <= operations; op++ {
				if err := w.do(ctx, op); err != nil {
					return err
				}
			}
			return nil
		}
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			if _, err := b.external(ctx, fmt.Sprintf("x%d", n)); err != nil {
				return err
			}
			select {
			case <-stop:
				return nil
			case <-tick.C:
			}
		}
	})
	return errors.Join(errs...)
}

func nothingToDo(ctx context.Context, b *Bench) error {
	w, err := b.loadAndTake(ctx, b.Log)
	if err != nil {
		return err
	}
	before := w.tip.Sequence
	r, err := b.Commit(ctx, b.Log, b.key, w, func() (*events.Event, error) { return nil, nil })
	if r != nil || err != nil {
		return fmt.Errorf("got %v, %v", r, err)
	}
	last, err := b.Log.Last(ctx, b.key)
	if err != nil || last != before {
		return fmt.Errorf("the session's last sequence went from %d to %d (%v)", before, last, err)
	}
	return nil
}
