package events

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// State is a fold of one session. Fold fails only on damage and on facts it
// must not decide over; a failed Fold leaves the state unchanged.
type State interface {
	Tip() Tip
	Fold(r *Record) error
}

// Pause waits for d or until ctx ends, whichever is first.
type Pause func(ctx context.Context, d time.Duration) error

// Sleep is the Pause of a running process.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Appender appends facts to sessions and draws the conclusions that a Log
// leaves open. It is the one place that knows them; see the package comment
// for the rules. An Appender has no state of its own and may be shared.
type Appender struct {
	Log   Log
	NewID func() string // returns an id never used before
	Pause Pause

	// Prepare, when set, makes of each fact what is stored of it, before it is
	// sealed: it may encrypt the data, or move it elsewhere. An error means
	// that nothing was stored.
	Prepare func(ctx context.Context, key Key, fact *Event) error

	// Rebased, when set, is called each time a decision was given up because
	// an external fact came first.
	Rebased func(Key)
}

// Back-off between attempts to learn the outcome of an append.
const (
	firstPause = time.Millisecond
	maxPause   = 250 * time.Millisecond
)

// Commit makes one fenced fact of the session. It calls decide with the state
// at the position it is about to append to; decide returns the fact without
// commit id and hashes, or nil when, at that state, there is nothing to commit.
// When an external fact came first it is folded into state and decide is called
// again: an old decision is never sent with a new expectation.
//
// On success the fact is folded into state, together with external facts that
// were seen after it. ErrFenced, ErrClaimClosed and ErrUnresolved (see there)
// mean that the caller must stop; state must then be dropped. A decide error is
// returned as it is. Any other error means that nothing was stored. Commit
// holds back until the outcome is known or ctx ends: give it the lease's
// context.
func (a *Appender) Commit(ctx context.Context, key Key, state State, decide func() (*Event, error)) (*Record, error) {
	for {
		own, err := decide()
		if err != nil || own == nil {
			return nil, err
		}
		tip := state.Tip()
		if err := holdsClaim(tip, own); err != nil {
			return nil, err
		}
		own.CommitID = a.NewID()
		if own.ID == "" || TypeOf(own.Type).Kind != External {
			own.ID = own.CommitID
		}
		if err := a.prepare(ctx, key, own); err != nil {
			return nil, err
		}
		tip.Seal(own)
		outcome, above, err := a.settle(ctx, key, tip.Sequence, own)
		if err != nil {
			return nil, err
		}
		if outcome == fenced {
			return nil, fmt.Errorf("append %s to session %s: %w", own.Type, key, ErrFenced)
		}
		for i := range above {
			if err := state.Fold(&above[i]); err != nil {
				return nil, err
			}
		}
		if outcome == committed {
			return &above[0], nil
		}
		if a.Rebased != nil {
			a.Rebased(key)
		}
	}
}

func (a *Appender) prepare(ctx context.Context, key Key, fact *Event) error {
	if a.Prepare == nil {
		return nil
	}
	return a.Prepare(ctx, key, fact)
}

// holdsClaim refuses an owner fact that is not of the state's open claim: the
// state may have been read after another worker's claim, and the log would then
// accept what this worker has no right to append.
func holdsClaim(tip Tip, own *Event) error {
	if TypeOf(own.Type).Kind != Owner {
		return nil
	}
	if own.ClaimID != tip.Claim.ID {
		return fmt.Errorf("append %s under claim %s: %w", own.Type, own.ClaimID, ErrFenced)
	}
	if !tip.Claim.Open {
		return fmt.Errorf("append %s under claim %s: %w", own.Type, own.ClaimID, ErrClaimClosed)
	}
	return nil
}

// settle sends own until its fate is known. above holds every record seen
// after the expected sequence; when committed its first one is own.
func (a *Appender) settle(ctx context.Context, key Key, expected uint64, own *Event) (verdict, []Record, error) {
	pause := firstPause
	for {
		sequence, err := a.Log.Append(ctx, key, own, expected)
		if err == nil {
			return committed, []Record{{Event: *own, Sequence: sequence}}, nil
		}
		if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrUnanswered) {
			return undecided, nil, fmt.Errorf("append %s to session %s after sequence %d: %w", own.Type, key, expected, err)
		}
		above, readErr := a.above(ctx, key, expected)
		if readErr != nil {
			return undecided, nil, errors.Join(ErrUnresolved, fmt.Errorf("append %s to session %s after sequence %d: %w", own.Type, key, expected, err), readErr)
		}
		if v := judgeAbove(own, above); v != undecided {
			return v, above, nil
		}
		if err := a.Pause(ctx, pause); err != nil {
			return undecided, nil, fmt.Errorf("append %s to session %s: %w: %w", own.Type, key, ErrUnresolved, err)
		}
		pause = min(2*pause, maxPause)
	}
}

// above reads every fact above a sequence, up to what the leader knows. Failing
// reads are repeated until ctx ends, from where the last one got.
func (a *Appender) above(ctx context.Context, key Key, after uint64) ([]Record, error) {
	var all []Record
	var last uint64
	asked := false
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := func() (err error) {
			if !asked {
				if last, err = a.Log.Last(ctx, key); err != nil {
					return err
				}
				asked = true
			}
			for after < last {
				records, err := a.Log.Read(ctx, key, after, MaxRead)
				if err != nil || len(records) == 0 {
					return err
				}
				all = append(all, records...)
				after = records[len(records)-1].Sequence
				pause = firstPause
			}
			return nil
		}()
		if asked && after >= last {
			return all, nil
		}
		if pauseErr := a.Pause(ctx, pause); pauseErr != nil {
			return nil, errors.Join(err, pauseErr)
		}
	}
}

// verdict is what the facts above the expected sequence say about an append.
type verdict int

const (
	undecided verdict = iota // nothing is there: send the same bytes again
	committed                // ours came first, and no foreign fenced fact followed
	rebased                  // ours is dead; only external facts came first
	fenced                   // somebody else's owner or opening fact is there
)

// judgeAbove decides the fate of an append from the facts above the sequence it
// expected. The first of them decides for ever whether ours is stored. A
// foreign fenced fact anywhere outranks that: the server cannot refuse a stale
// owner that has read the new owner's facts. A fact of a type this binary does
// not know counts as fenced.
func judgeAbove(own *Event, above []Record) verdict {
	if len(above) == 0 {
		return undecided
	}
	for i := range above {
		r := &above[i]
		if TypeOf(r.Type).Kind != External && r.CommitID != own.CommitID {
			return fenced
		}
	}
	if above[0].CommitID == own.CommitID {
		return committed
	}
	return rebased
}

// Notify appends an external fact and returns a sequence at which it stands.
// It sends the fact until it is acknowledged or ctx ends (ErrUnresolved); a
// fact may then stand in the log more than once, which folds ignore by its id.
// Whoever must decide on it (to send a hint, to answer) has to fold the session
// at least to the returned sequence first.
func (a *Appender) Notify(ctx context.Context, key Key, fact *Event) (uint64, error) {
	if fact.ID == "" || TypeOf(fact.Type).Kind != External {
		return 0, fmt.Errorf("append %s to session %s: only an external fact with an id is appended unfenced", fact.Type, key)
	}
	if err := a.prepare(ctx, key, fact); err != nil {
		return 0, err
	}
	(&Tip{}).Seal(fact)
	pause := firstPause
	for {
		sequence, err := a.Log.AppendUnfenced(ctx, key, fact)
		if err == nil {
			return sequence, nil
		}
		if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrUnanswered) {
			return 0, fmt.Errorf("append %s to session %s: %w", fact.Type, key, err)
		}
		if pauseErr := a.Pause(ctx, pause); pauseErr != nil {
			return 0, fmt.Errorf("append %s to session %s: %w: %w", fact.Type, key, ErrUnresolved, err)
		}
		pause = min(2*pause, maxPause)
	}
}

// Load folds the session's facts into state: at least up to the sequence
// atLeast, and as far as one more read finds any. A read error is an error,
// never the end of the session. Load waits for atLeast until ctx ends, or until
// the leader says that the session ends before it.
func (a *Appender) Load(ctx context.Context, key Key, state State, atLeast uint64) error {
	pause := firstPause
	for {
		after := state.Tip().Sequence
		records, err := a.Log.Read(ctx, key, after, MaxRead)
		if err != nil {
			return fmt.Errorf("load session %s after sequence %d: %w", key, after, err)
		}
		for i := range records {
			if err := state.Fold(&records[i]); err != nil {
				return fmt.Errorf("load session %s: %w", key, err)
			}
		}
		switch {
		case len(records) < MaxRead && state.Tip().Sequence >= atLeast:
			return nil
		case len(records) > 0:
			pause = firstPause
		default:
			if err := a.Pause(ctx, pause); err != nil {
				return fmt.Errorf("load session %s up to sequence %d: %w", key, atLeast, err)
			}
			if pause = min(2*pause, maxPause); pause == maxPause {
				last, err := a.Log.Last(ctx, key)
				if err != nil {
					return fmt.Errorf("load session %s up to sequence %d: %w", key, atLeast, err)
				}
				atLeast = min(atLeast, last)
			}
		}
	}
}

// LoadLatest folds everything the leader knows of the session into state.
func (a *Appender) LoadLatest(ctx context.Context, key Key, state State) error {
	last, err := a.Log.Last(ctx, key)
	if err != nil {
		return fmt.Errorf("load session %s: %w", key, err)
	}
	if state.Tip().Sequence >= last {
		return nil
	}
	return a.Load(ctx, key, state, last)
}
